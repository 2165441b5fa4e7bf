//! What answers look like, whole and streamed.

use lockstep::http::choice_seed;
use lockstep::request::RequestId;
use policy_core::RequestPriority;
use serde_json::{Value, json};

use super::client::{get, post, post_with};
use super::engine::Script;
use super::fixture::{CONTEXT, Setup};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn hello() -> Value {
    json!([{"role": "user", "content": "hello"}])
}

/// The text of a choice of a stream.
fn joined(chunks: &[Value], index: u64) -> String {
    let choices = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap());
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| {
        choice["delta"]["content"]
            .as_str()
            .or(choice["text"].as_str())
    })
    .collect()
}

#[tokio::test]
async fn a_chat_answer_is_whole() {
    let server = Setup::saying("Grüße 👩‍👩‍👧!").start().await;
    let body = json!({"model": "tiny", "messages": hello(), "seed": 5});
    let answer = post(server.address, CHAT, &body).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let json = answer.json();
    assert!(json["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(json["object"], "chat.completion");
    assert_eq!(
        (json["model"].as_str(), json["seed"].as_u64()),
        (Some("tiny"), Some(5))
    );
    assert_eq!(json["system_fingerprint"], "ls-test");
    assert_eq!(
        json["choices"],
        json!([{
            "index": 0,
            "message": {"role": "assistant", "content": "Grüße 👩‍👩‍👧!", "refusal": null},
            "logprobs": null,
            "finish_reason": "stop"
        }])
    );
    let prompt = "user:hello\n".len() + 1;
    let completion = "Grüße 👩‍👩‍👧!".len();
    assert_eq!(
        json["usage"],
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
            "preemptions": 0
        })
    );
    // Without a length of its own an answer may fill the context.
    let request = server.only_request();
    assert_eq!(request.stop.max_tokens, CONTEXT - prompt as u32);
    assert_eq!(RequestId::new(0).number(), 0);
}

#[tokio::test]
async fn a_stream_adds_up_to_the_whole_answer() {
    let server = Setup::saying("a👩‍👩‍👧b\u{301} ok").start().await;
    for path in [CHAT, TEXT] {
        let mut body = json!({"messages": hello(), "prompt": "hello", "max_tokens": 100});
        let whole = post(server.address, path, &body).await.json();
        let whole = whole["choices"][0]["message"]["content"]
            .as_str()
            .or(whole["choices"][0]["text"].as_str())
            .unwrap()
            .to_owned();
        body["stream"] = true.into();
        let answer = post(server.address, path, &body).await;
        assert_eq!(
            answer.head.header("content-type"),
            Some("text/event-stream; charset=utf-8")
        );
        let chunks = answer.chunks();
        assert_eq!(joined(&chunks, 0), whole);
        assert_eq!(whole, "a👩‍👩‍👧b\u{301} ok");
        for chunk in &chunks {
            assert_eq!(chunk["id"], chunks[0]["id"]);
            assert_eq!(chunk["created"], chunks[0]["created"]);
            assert_eq!(chunk["model"], "tiny");
            assert!(chunk.get("usage").is_none(), "usage was not asked for");
        }
        let finishes = chunks
            .iter()
            .filter(|c| !c["choices"][0]["finish_reason"].is_null());
        assert_eq!(finishes.count(), 1);
        assert_eq!(
            chunks.last().unwrap()["choices"][0]["finish_reason"],
            "stop"
        );
    }
}

#[tokio::test]
async fn usage_comes_last_and_is_null_before() {
    let server = Setup::saying("abc").start().await;
    for path in [CHAT, TEXT] {
        let body = json!({
            "messages": hello(), "prompt": "hello", "stream": true, "n": 2,
            "stream_options": {"include_usage": true}
        });
        let mut chunks = post(server.address, path, &body).await.chunks();
        let last = chunks.pop().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 6);
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some())
        );
        for index in 0..2 {
            assert_eq!(joined(&chunks, index), "abc");
            let finish = |chunk: &&Value| {
                let choice = &chunk["choices"][0];
                choice["index"] == index && !choice["finish_reason"].is_null()
            };
            assert_eq!(chunks.iter().filter(finish).count(), 1);
        }
    }
}

#[tokio::test]
async fn choices_have_derived_seeds_and_a_missing_seed_is_told() {
    let server = Setup::saying("x").start().await;
    let body = json!({"messages": hello(), "n": 3, "seed": 9});
    post(server.address, CHAT, &body).await;
    let seeds: Vec<u64> = server
        .stage
        .log
        .lock()
        .unwrap()
        .requests
        .iter()
        .map(|r| r.sampling.seed)
        .collect();
    assert_eq!(seeds, [9, choice_seed(9, 1), choice_seed(9, 2)]);
    let told = post(server.address, CHAT, &json!({"messages": hello()}))
        .await
        .json()["seed"]
        .clone();
    let given = server.stage.log.lock().unwrap().requests[3].sampling.seed;
    assert_eq!(told.as_u64(), Some(given));
    let again = post(server.address, CHAT, &json!({"messages": hello()}))
        .await
        .json();
    assert_ne!(again["seed"], told);
}

#[tokio::test]
async fn chat_logprobs_have_one_entry_per_token_with_raw_bytes() {
    let server = Setup::saying("é!").start().await;
    let mut body = json!({"messages": hello(), "logprobs": true, "top_logprobs": 2});
    let whole = post(server.address, CHAT, &body).await.json();
    let content = whole["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(content.len(), 3);
    assert_eq!(content[0]["bytes"], json!([0xc3]));
    assert_eq!(content[0]["token"], "bytes:\\xc3");
    assert_eq!(content[2]["token"], "!");
    for entry in &content {
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 2);
    }
    body["stream"] = true.into();
    let chunks = post(server.address, CHAT, &body).await.chunks();
    let streamed: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(streamed, content);
}

#[tokio::test]
async fn completion_logprobs_serve_an_evaluation_harness() {
    let server = Setup::saying("zy").start().await;
    let prompt: Vec<u32> = "abcd".bytes().map(u32::from).collect();
    let body = json!({
        "prompt": [prompt], "echo": true, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1
    });
    let json = post(server.address, TEXT, &body).await.json();
    let choice = &json["choices"][0];
    assert_eq!(choice["text"], "abcdz");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["a", "b", "c", "d", "z"]));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2, 3, 4]));
    assert!(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null());
    for position in 1..5 {
        let own = logprobs["token_logprobs"][position].as_f64().unwrap();
        let top = logprobs["top_logprobs"][position].as_object().unwrap();
        let token = logprobs["tokens"][position].as_str().unwrap();
        assert_eq!(top[token].as_f64().unwrap().to_bits(), own.to_bits());
        let best = top
            .values()
            .map(|v| v.as_f64().unwrap())
            .fold(f64::MIN, f64::max);
        // Even tokens are the engine's most likely ones.
        let greedy = token.as_bytes()[0] % 2 == 0;
        assert_eq!(own.to_bits() == best.to_bits(), greedy, "{token}");
    }
}

#[tokio::test]
async fn an_empty_answer_scores_the_prompt() {
    let server = Setup::saying("never").start().await;
    let mut body = json!({"prompt": "ab", "echo": true, "logprobs": 0, "max_tokens": 0});
    let json = post(server.address, TEXT, &body).await.json();
    assert_eq!(json["choices"][0]["text"], "ab");
    assert_eq!(json["choices"][0]["finish_reason"], "length");
    assert_eq!(
        json["choices"][0]["logprobs"]["tokens"],
        json!(["<s>", "a", "b"])
    );
    assert_eq!(json["usage"]["completion_tokens"], 0);
    body["stream"] = true.into();
    let chunks = post(server.address, TEXT, &body).await.chunks();
    assert_eq!(joined(&chunks, 0), "ab");
    body["echo"] = false.into();
    assert_eq!(post(server.address, TEXT, &body).await.status(), 400);
}

#[tokio::test]
async fn batches_keep_the_order_of_their_prompts() {
    let echo = |request: &lockstep::request::Request| {
        let mut script = Script::text("");
        script.tokens = request
            .prompt
            .iter()
            .copied()
            .filter(|&id| id < 256)
            .collect();
        script
    };
    let server = Setup::playing(echo).start().await;
    let body = json!({"prompt": ["one", "two", "three"], "n": 2, "return_token_ids": true});
    let json = post(server.address, TEXT, &body).await.json();
    let choices = json["choices"].as_array().unwrap();
    let texts: Vec<_> = choices
        .iter()
        .map(|choice| choice["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["one", "one", "two", "two", "three", "three"]);
    assert_eq!(choices[2]["token_ids"], json!(b"two"));
    assert_eq!(choices[2]["prompt_token_ids"], json!([256, 116, 119, 111]));
    // A prompt is counted once, whatever its choices.
    assert_eq!(json["usage"]["prompt_tokens"], 4 + 4 + 6);
    assert_eq!(json["usage"]["completion_tokens"], 2 * (3 + 3 + 5));
}

#[tokio::test]
async fn prompt_logprobs_come_in_both_kinds_of_answer() {
    let server = Setup::saying("x").start().await;
    let mut body = json!({"prompt": [97, 98], "prompt_logprobs": 1});
    let json = post(server.address, TEXT, &body).await.json();
    let whole = json["choices"][0]["prompt_logprobs"].clone();
    assert!(whole[0].is_null());
    assert_eq!(whole[1]["98"]["decoded_token"], "b");
    assert_eq!(whole[1]["98"]["rank"], 1);
    body["stream"] = true.into();
    let chunks = post(server.address, TEXT, &body).await.chunks();
    assert_eq!(chunks[0]["choices"][0]["prompt_logprobs"], whole);
}

#[tokio::test]
async fn priority_comes_from_the_body_or_else_from_the_header() {
    let server = Setup::saying("x").start().await;
    let cases = [
        (json!("low"), "", RequestPriority::Low),
        (json!("High"), "x-priority: low\r\n", RequestPriority::High),
        (json!(null), "x-priority: high\r\n", RequestPriority::High),
        (json!(null), "X-Priority: -1\r\n", RequestPriority::High),
        (json!(null), "", RequestPriority::Normal),
        (json!(3), "", RequestPriority::Low),
        (json!(0), "x-priority: high\r\n", RequestPriority::Normal),
    ];
    for (number, (priority, headers, expected)) in cases.iter().enumerate() {
        let body = json!({"prompt": "a", "priority": priority}).to_string();
        let answer = post_with(server.address, TEXT, headers, &body).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let seen = server.stage.log.lock().unwrap().requests[number].priority;
        assert_eq!(seen, *expected, "{priority} {headers}");
    }
    let answer = post_with(
        server.address,
        TEXT,
        "x-priority: now\r\n",
        "{\"prompt\":\"a\"}",
    )
    .await;
    assert_eq!(answer.status(), 400);
}

#[tokio::test]
async fn control_tokens_in_messages_are_plain_text() {
    let server = Setup::saying("x").start().await;
    let body = json!({"messages": [{"role": "user", "content": "a</s>"}]});
    post(server.address, CHAT, &body).await;
    let request = server.only_request();
    assert!(!request.prompt.contains(&super::engine::EOS));
    let json = get(server.address, "/v1/models").await.json();
    assert_eq!(json["data"][0]["id"], "tiny");
}
