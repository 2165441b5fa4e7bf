//! The HTTP side in front of the real engine, with a tiny model of random weights.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lockstep::config::EngineArgs;
use lockstep::gguf::tiny::tiny_llama;
use lockstep::http::{ApiKeys, App, HttpLimits, Listener, ModelCard, SeedSource, serve};
use lockstep::start::{Running, start};
use lockstep::structured::Grammars;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::client::{Connection, get, post};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// A server with an engine of its own.
pub(super) struct Whole {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
    running: Running,
    _file: tempfile::TempDir,
}

impl Whole {
    pub(super) async fn start(change: impl FnOnce(&mut EngineArgs, &mut HttpLimits)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.gguf");
        std::fs::write(&path, tiny_llama(1)).unwrap();
        let mut args = EngineArgs::for_model(path.to_str().unwrap());
        let mut limits = HttpLimits::default();
        args.threads = Some(1);
        change(&mut args, &mut limits);
        let running = start(&args, "tiny").unwrap();
        let app = App {
            intake: running.intake.clone(),
            model: ModelCard {
                id: "tiny".into(),
                max_model_len: running.config.max_model_len,
                fingerprint: running.fingerprint.clone(),
                ..ModelCard::default()
            },
            text: Arc::clone(&running.text) as _,
            grammars: Some(Arc::new(Grammars::new(&running.text.tokenizer).unwrap())),
            limits,
            keys: ApiKeys::open(),
            tls: None,
            metrics: Arc::clone(&running.metrics),
            seeds: SeedSource::new(0),
            cors: None,
            debug: None,
            config: Value::Null,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let server = tokio::spawn(serve(Listener::Tcp(listener), app, shutdown));
        let whole = Self {
            address,
            stop,
            server,
            running,
            _file: folder,
        };
        whole.until("vllm:num_requests_running", "0").await;
        whole
    }

    /// Waits until a metric has a value.
    async fn until(&self, name: &str, value: &str) {
        for _ in 0..2000 {
            let page = get(self.address, "/metrics").await;
            let wanted = format!(" {value}");
            if page
                .text()
                .lines()
                .any(|line| line.starts_with(name) && line.ends_with(&wanted))
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{name} never became {value}");
    }

    /// Stops server and engine, which must both end well.
    pub(super) async fn stop(self) {
        drop(self.stop);
        self.server.await.unwrap().unwrap();
        tokio::task::spawn_blocking(|| self.running.join())
            .await
            .unwrap()
            .unwrap();
    }
}

fn chat(extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "in the"}], "max_tokens": 24, "seed": 11
    });
    body.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    body
}

/// The text of a stream of one choice, and its logprobs.
fn joined(chunks: &[Value]) -> (String, Vec<Value>) {
    let (mut text, mut logprobs) = (String::new(), Vec::new());
    for chunk in chunks {
        let choice = &chunk["choices"][0];
        text.push_str(choice["delta"]["content"].as_str().unwrap_or(""));
        logprobs.extend(
            choice["logprobs"]["content"]
                .as_array()
                .into_iter()
                .flatten()
                .cloned(),
        );
    }
    (text, logprobs)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_with_equal_fingerprints_answer_equally() {
    let first = Whole::start(|_, _| {}).await;
    let second = Whole::start(|args, _| {
        args.max_num_batched_tokens = 40;
        args.max_chunk_tokens = 7;
        args.block_size = 32;
    })
    .await;
    for extra in [
        json!({"temperature": 0}),
        json!({"temperature": 1.5, "top_p": 0.9, "n": 3}),
        json!({"ignore_eos": true, "frequency_penalty": 1.0}),
    ] {
        let mut body = chat(extra);
        body["logprobs"] = true.into();
        body["top_logprobs"] = 3.into();
        body["return_token_ids"] = true.into();
        let one = post(first.address, CHAT, &body).await.json();
        let other = post(second.address, CHAT, &body).await.json();
        assert_eq!(one["system_fingerprint"], other["system_fingerprint"]);
        assert_eq!(one["choices"], other["choices"]);
        assert!(
            one["choices"][0]["token_ids"]
                .as_array()
                .is_some_and(|ids| !ids.is_empty())
        );
        // As a stream it is the same again.
        body["stream"] = true.into();
        body["n"] = 1.into();
        let (text, logprobs) = joined(&post(second.address, CHAT, &body).await.chunks());
        assert_eq!(text, one["choices"][0]["message"]["content"]);
        assert_eq!(
            Value::Array(logprobs),
            one["choices"][0]["logprobs"]["content"]
        );
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scoring_an_answer_gives_the_logprobs_it_was_drawn_with() {
    let server = Whole::start(|_, _| {}).await;
    let prompt: Vec<u32> = (40..60).collect();
    let body = json!({
        "prompt": prompt, "max_tokens": 12, "temperature": 0, "logprobs": 2, "ignore_eos": true,
        "return_token_ids": true
    });
    let drawn = post(server.address, TEXT, &body).await.json()["choices"][0].clone();
    let answer: Vec<u32> = serde_json::from_value(drawn["token_ids"].clone()).unwrap();
    assert_eq!(answer.len(), 12);
    let whole: Vec<u32> = prompt.iter().chain(&answer).copied().collect();
    let body = json!({"prompt": [whole], "max_tokens": 0, "echo": true, "logprobs": 2});
    let scored = post(server.address, TEXT, &body).await.json()["choices"][0].clone();
    let scored = scored["logprobs"]["token_logprobs"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(scored.len(), whole.len());
    assert_eq!(
        scored[prompt.len()..],
        drawn["logprobs"]["token_logprobs"].as_array().unwrap()[..]
    );
    // A greedy answer's tokens are the most likely ones, in the very same digits.
    for (own, top) in drawn["logprobs"]["token_logprobs"]
        .as_array()
        .unwrap()
        .iter()
        .zip(drawn["logprobs"]["top_logprobs"].as_array().unwrap())
    {
        let best = top
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_f64)
            .fold(f64::MIN, f64::max);
        assert_eq!(own.as_f64().unwrap().to_bits(), best.to_bits());
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn constrained_answers_keep_to_their_constraint() {
    let server = Whole::start(|_, _| {}).await;
    let content = async |extra: Value| {
        let mut body = chat(extra);
        body["max_tokens"] = 200.into();
        let answer = post(server.address, CHAT, &body).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        let choice = answer.json()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], "stop", "{choice}");
        choice["message"]["content"].as_str().unwrap().to_owned()
    };
    for seed in 0..5 {
        let text =
            content(json!({"structured_outputs": {"choice": ["in (the)", "a"]}, "seed": seed}))
                .await;
        assert!(["in (the)", "a"].contains(&text.as_str()), "{text}");
        let text = content(json!({"guided_regex": "[0-9]{3}-[a-f]{2}", "seed": seed})).await;
        assert!(text.len() == 6 && text.as_bytes()[3] == b'-', "{text}");
        let schema = json!({
            "type": "object", "additionalProperties": false, "required": ["kind", "count"],
            "properties": {"kind": {"enum": ["x", "y"]}, "count": {"type": "integer", "minimum": 0, "maximum": 99}}
        });
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}});
        let value: Value =
            serde_json::from_str(&content(json!({"response_format": format, "seed": seed})).await)
                .unwrap();
        assert!(
            value["count"].as_u64().unwrap() < 100 && value["kind"].is_string(),
            "{value}"
        );
        assert_eq!(value.as_object().unwrap().len(), 2);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_choice_keeps_to_the_constraint() {
    let server = Whole::start(|_, _| {}).await;
    let mut body = chat(json!({"guided_regex": "[a-z]{5}-[0-9]{3}", "temperature": 1.5}));
    body["n"] = 4.into();
    let whole = post(server.address, CHAT, &body).await.json();
    let choices = whole["choices"].as_array().unwrap();
    let texts: Vec<&str> = choices
        .iter()
        .map(|choice| choice["message"]["content"].as_str().unwrap())
        .collect();
    let fits = |text: &&str| text.len() == 9 && text.as_bytes()[5] == b'-';
    assert!(texts.len() == 4 && texts.iter().all(fits), "{texts:?}");
    assert!(texts.iter().any(|text| *text != texts[0]), "{texts:?}");
    for choice in choices {
        assert_eq!(choice["finish_reason"], "stop");
    }
    // As a stream they are the same.
    body["stream"] = true.into();
    let chunks = post(server.address, CHAT, &body).await.chunks();
    for (index, text) in texts.iter().enumerate() {
        let own = chunks
            .iter()
            .flat_map(|chunk| chunk["choices"].as_array().unwrap())
            .filter(|choice| choice["index"] == index);
        let streamed: String = own
            .filter_map(|choice| choice["delta"]["content"].as_str())
            .collect();
        assert_eq!(streamed, *text);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_that_cannot_be_kept_are_refused() {
    let server = Whole::start(|_, _| {}).await;
    for extra in [
        json!({"guided_json": {"$ref": "#"}}),
        json!({"guided_regex": "(hidden"}),
        json!({"guided_grammar": "begin: hidden"}),
        json!({"guided_json": {"type": "hidden"}}),
        json!({"guided_choice": ["x".repeat(200_000)]}),
    ] {
        for stream in [false, true] {
            let mut body = chat(extra.clone());
            body["stream"] = stream.into();
            let answer = post(server.address, CHAT, &body).await;
            assert_eq!(answer.status(), 400, "{}", answer.text());
            assert!(
                answer.json()["error"]["param"]
                    .as_str()
                    .unwrap()
                    .starts_with("guided_")
            );
        }
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_calls_fit_their_schema() {
    let server = Whole::start(|_, _| {}).await;
    let parameters = json!({
        "type": "object", "additionalProperties": false, "required": ["unit"],
        "properties": {"unit": {"enum": ["C", "F"]}}
    });
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let tools = json!([tool("f"), tool("g")]);
    let named = json!({"type": "function", "function": {"name": "g"}});
    for (choice, names) in [(json!("required"), vec!["f", "g"]), (named, vec!["g"])] {
        let mut body =
            chat(json!({"tools": tools, "tool_choice": choice, "parallel_tool_calls": false}));
        body["max_tokens"] = 450.into();
        let whole = post(server.address, CHAT, &body).await.json();
        let message = &whole["choices"][0]["message"];
        assert_eq!(
            whole["choices"][0]["finish_reason"], "tool_calls",
            "{whole}"
        );
        let calls = message["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1);
        assert!(names.contains(&calls[0]["function"]["name"].as_str().unwrap()));
        let arguments = calls[0]["function"]["arguments"].as_str().unwrap();
        let value: Value = serde_json::from_str(arguments).unwrap();
        assert!(value["unit"] == "C" || value["unit"] == "F");
        body["stream"] = true.into();
        let chunks = post(server.address, CHAT, &body).await.chunks();
        let streamed: String = chunks
            .iter()
            .filter_map(|chunk| {
                chunk["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].as_str()
            })
            .collect();
        assert_eq!(streamed, arguments);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_minimum_and_biases_are_heeded() {
    let server = Whole::start(|_, _| {}).await;
    let body = chat(json!({"ignore_eos": true, "return_token_ids": true}));
    let plain = post(server.address, CHAT, &body).await.json()["choices"][0].clone();
    let ids: Vec<u32> = serde_json::from_value(plain["token_ids"].clone()).unwrap();
    assert_eq!(
        (ids.len(), plain["finish_reason"].as_str()),
        (24, Some("length"))
    );
    let mut body = body;
    body["stop_token_ids"] = json!([ids[5]]);
    let cut = post(server.address, CHAT, &body).await.json()["choices"][0].clone();
    let first = ids.iter().position(|&id| id == ids[5]).unwrap();
    assert_eq!(cut["token_ids"], json!(ids[..=first]));
    assert_eq!(
        (cut["finish_reason"].as_str(), cut["stop_reason"].as_u64()),
        (Some("stop"), Some(ids[5].into()))
    );
    let only =
        chat(json!({"allowed_token_ids": [70, 71], "ignore_eos": true, "return_token_ids": true}));
    let only = post(server.address, CHAT, &only).await.json();
    let ids: Vec<u32> = serde_json::from_value(only["choices"][0]["token_ids"].clone()).unwrap();
    assert!(ids.len() == 24 && ids.iter().all(|id| [70, 71].contains(id)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_free_their_seats() {
    let server = Whole::start(|_, _| {}).await;
    let mut leaving = Vec::new();
    for stream in [true, false, true, false] {
        let mut body = chat(json!({"ignore_eos": true, "stream": stream}));
        body["max_tokens"] = 400.into();
        let mut connection = Connection::open(server.address).await;
        connection.post(CHAT, "", &body.to_string()).await;
        if stream {
            connection.head().await.unwrap();
        }
        leaving.push(connection);
    }
    drop(leaving);
    server.until("vllm:num_requests_running", "0").await;
    server.until("vllm:num_requests_waiting", "0").await;
    server.until("vllm:kv_cache_usage_perc", "0").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_outlives_the_drain_is_told_so() {
    let server = Whole::start(|args, limits| {
        limits.drain_timeout = Duration::from_millis(1);
        args.max_num_seqs = 1;
    })
    .await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut body = chat(json!({"ignore_eos": true, "stream": true}));
        body["max_tokens"] = 450.into();
        let mut connection = Connection::open(server.address).await;
        connection.post(CHAT, "", &body.to_string()).await;
        assert_eq!(connection.head().await.unwrap().status, 200);
        streams.push(connection);
    }
    let stopping = tokio::spawn(server.stop());
    for mut stream in streams {
        let mut text = Vec::new();
        loop {
            match stream.chunk().await.expect("a terminal event, not a cut") {
                chunk if chunk.is_empty() => break,
                chunk => text.extend(chunk),
            }
        }
        let text = String::from_utf8(text).unwrap();
        let told =
            text.contains("\"code\":\"draining\"") || text.contains("\"finish_reason\":\"length\"");
        assert!(told && text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    stopping.await.unwrap();
}

/// The address of a server that this test program runs as a process of its own, and the process.
///
/// Its output stays open: a process that cannot say how it went fails.
fn in_a_process() -> (SocketAddr, Child, impl Send) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "http::real::serves_as_a_process",
            "--ignored",
            "--nocapture",
        ])
        .env("LOCKSTEP_TEST_SERVER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines();
    let address =
        lines.find_map(|line| Some(line.unwrap().split_once("listening on ")?.1.to_owned()));
    (
        address.expect("the process listens").parse().unwrap(),
        child,
        lines,
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "another test runs it as a process of its own"]
async fn serves_as_a_process() {
    if std::env::var_os("LOCKSTEP_TEST_SERVER").is_none() {
        println!("skipped: this is the other process of two_processes_answer_equally");
        return;
    }
    let server = Whole::start(|_, _| {}).await;
    println!("listening on {}", server.address);
    // The parent's end of the pipe closes when it is done, or dead.
    let closed =
        tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    closed.await.unwrap().unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_answer_equally() {
    let server = Whole::start(|_, _| {}).await;
    let (other, mut child, output) = tokio::task::spawn_blocking(in_a_process).await.unwrap();
    let body = chat(
        json!({"logprobs": true, "top_logprobs": 2, "temperature": 1.2, "return_token_ids": true}),
    );
    let one = post(server.address, CHAT, &body).await.json();
    let two = post(other, CHAT, &body).await.json();
    assert_eq!(one["system_fingerprint"], two["system_fingerprint"]);
    assert_eq!(one["choices"], two["choices"]);
    drop(child.stdin.take());
    let ended = tokio::task::spawn_blocking(move || child.wait()).await;
    assert!(ended.unwrap().unwrap().success());
    drop(output);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_streams_is_served_or_told_to_come_back() {
    let server = Whole::start(|args, _| {
        args.max_num_seqs = 16;
        args.max_waiting = 200;
    })
    .await;
    let address = server.address;
    let one = move |seed: u64| async move {
        let mut body = chat(json!({"stream": true, "ignore_eos": true, "seed": seed}));
        body["max_tokens"] = 8.into();
        let answer = post(address, CHAT, &body).await;
        match answer.status() {
            200 => {
                let chunks = answer.chunks();
                assert_eq!(
                    chunks.last().unwrap()["choices"][0]["finish_reason"],
                    "length"
                );
                true
            }
            429 => {
                assert!(answer.head.header("retry-after").is_some());
                false
            }
            status => panic!("{status} {}", answer.text()),
        }
    };
    let crowd: Vec<_> = (0..400).map(|seed| tokio::spawn(one(seed))).collect();
    let mut served = 0;
    for member in crowd {
        served += usize::from(member.await.unwrap());
    }
    assert!(served >= 200, "{served} of 400 were served");
    server.until("lockstep_http_requests_in_flight", "1").await;
    server.stop().await;
}
