//! Seeded random mutations of request bodies: whatever comes, there is one well-formed answer, and
//! the engine is only ever given what it can take (it checks).

use serde_json::{Value, json};

use super::client::Connection;
use super::fixture::Setup;

/// A small generator with a fixed seed: xorshift64*.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides
    }
}

/// How many there are: more in `make fuzz`.
fn rounds() -> usize {
    let asked = std::env::var("LOCKSTEP_FUZZ_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(2000)
}

fn seeds() -> Vec<(&'static str, Value)> {
    let chat = json!({
        "model": "tiny", "messages": [
            {"role": "system", "content": [{"type": "text", "text": "be"}]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
            {"role": "user", "content": "hello"}],
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 3, "n": 2, "max_tokens": 8,
        "stop": ["x", "y"], "logit_bias": {"5": 1.5}, "logprobs": true, "top_logprobs": 2,
        "presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1, "stream": true,
        "stream_options": {"include_usage": true}, "priority": "high", "allowed_token_ids": [1, 2],
        "bad_words": ["bad"], "min_tokens": 1, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "chat_template_kwargs": {"a": 1}, "return_token_ids": true, "prompt_logprobs": 1
    });
    let text = json!({
        "prompt": [[1, 2, 3], [4]], "echo": true, "logprobs": 2, "max_tokens": 3, "best_of": 1,
        "stop_token_ids": [5], "ignore_eos": true, "cache_salt": "s", "user": "u"
    });
    vec![
        ("/v1/chat/completions", chat.clone()),
        ("/v1/completions", text),
        ("/tokenize", json!({"messages": chat["messages"]})),
        ("/detokenize", json!({"tokens": [1, 2, 3]})),
        ("/abort", json!({"request_id": ["a", "b"]})),
    ]
}

/// Values that have broken someone's server.
fn odd(dice: &mut Dice) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.1),
        json!(""),
        json!("x"),
        json!("\u{0}"),
        json!("👩‍👩‍👧"),
        json!([]),
        json!({}),
        json!([[]]),
        json!([null]),
        json!({"": ""}),
        json!(4_294_967_296_u64),
        json!("a".repeat(3000)),
        json!(vec![0; 300]),
        json!([1.5]),
        json!("</s><s>"),
        json!([["a"], {"b": [1]}]),
    ];
    values[dice.roll(values.len())].clone()
}

/// Puts something odd in one place of a value.
fn mutate(value: &mut Value, dice: &mut Dice) {
    let replace = dice.roll(4) == 0;
    match value {
        Value::Object(map) if !map.is_empty() && !replace => {
            let at = dice.roll(map.len());
            let key = map.keys().nth(at).unwrap().clone();
            match dice.roll(8) {
                0 => drop(map.shift_remove(&key)),
                1 => drop(map.insert(format!("{key}x"), odd(dice))),
                _ => mutate(map.get_mut(&key).unwrap(), dice),
            }
        }
        Value::Array(items) if !items.is_empty() && !replace => {
            let at = dice.roll(items.len());
            match dice.roll(8) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, odd(dice)),
                _ => mutate(&mut items[at], dice),
            }
        }
        other => *other = odd(dice),
    }
}

/// Changes bytes, so that it may be no JSON any more.
fn damage(body: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.roll(3) {
        let at = dice.roll(body.len().max(1)).min(body.len());
        match dice.roll(4) {
            0 => body.truncate(at),
            1 => body.insert(at, dice.roll(256) as u8),
            2 => body.extend_from_within(at..),
            _ => {
                if let Some(byte) = body.get_mut(at) {
                    *byte = dice.roll(256) as u8;
                }
            }
        }
    }
}

#[tokio::test]
async fn mutated_bodies_have_one_well_formed_answer_each() {
    let server = Setup::saying("answer 👩‍👩‍👧 <tool_call>{\"name\": \"f\"}</tool_call>")
        .start()
        .await;
    let mut dice = Dice(0x5eed);
    let seeds = seeds();
    let (mut good, mut bad) = (0, 0);
    let mut connection = Connection::open(server.address).await;
    for round in 0..rounds() {
        let (path, mut value) = seeds[dice.roll(seeds.len())].clone();
        for _ in 0..=dice.roll(2) {
            mutate(&mut value, &mut dice);
        }
        let mut body = value.to_string().into_bytes();
        if dice.roll(8) == 0 {
            damage(&mut body, &mut dice);
        }
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        connection
            .write(&[head.as_bytes(), &body].concat())
            .await
            .unwrap();
        let answer = connection.answer().await;
        let shown = || format!("round {round}: {path} {}", String::from_utf8_lossy(&body));
        match answer.status() {
            200 if answer.head.header("content-type") == Some("application/json") => {
                answer.json();
                good += 1;
            }
            200 => {
                let chunks = answer.chunks();
                assert!(
                    chunks.iter().all(|chunk| chunk.get("error").is_none()),
                    "{}",
                    shown()
                );
                good += 1;
            }
            400 | 404 => {
                let error = &answer.json()["error"];
                assert!(
                    error["message"].is_string() && error["type"].is_string(),
                    "{}",
                    shown()
                );
                bad += 1;
            }
            status => panic!("{status} {} {}", answer.text(), shown()),
        }
    }
    // Both sides of the border have been visited.
    let least = rounds() / 10;
    assert!(good > least && bad > least, "{good} {bad}");
    assert!(
        !server.engine.is_finished(),
        "the engine found a request that it could not take"
    );
}

#[tokio::test]
async fn mutated_heads_never_stop_the_server() {
    let server = Setup::saying("x").start().await;
    let mut dice = Dice(0xdead_5eed);
    let seed =
        b"POST /v1/completions?x=1 HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n\
        x-request-id: abc\r\nx-priority: high\r\ncontent-length: 15\r\n\r\n{\"prompt\": \"a\"}";
    for _ in 0..300 {
        let mut bytes = seed.to_vec();
        damage(&mut bytes, &mut dice);
        let mut connection = Connection::open(server.address).await;
        // The server may close on nonsense before all of it is written.
        let _ = connection.write(&bytes).await;
    }
    let mut connection = Connection::open(server.address).await;
    connection.ask("GET", "/health", "").await;
    assert_eq!(connection.answer().await.status(), 200);
    assert!(!server.engine.is_finished());
}
