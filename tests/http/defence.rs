//! What the server does with nonsense.

use std::time::Duration;

use lockstep::http::ApiKeys;
use serde_json::{Value, json};

use super::client::{Connection, ask, get, post, post_with};
use super::engine::Script;
use super::fixture::Setup;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Wrong bodies: where they go, the code that they are refused with, and the field at fault.
fn wrong_bodies() -> Vec<(&'static str, Value, &'static str, Option<&'static str>)> {
    let long: Vec<u32> = vec![97; 600];
    vec![
        (CHAT, json!([]), "invalid_request_error", None),
        (CHAT, json!("text"), "invalid_request_error", None),
        (CHAT, json!({}), "missing_field", Some("messages")),
        (
            CHAT,
            json!({"messages": []}),
            "empty_messages",
            Some("messages"),
        ),
        (
            CHAT,
            json!({"messages": [{"role": "user", "content": "raise"}]}),
            "invalid_value",
            Some("messages"),
        ),
        (
            TEXT,
            json!({"prompt": long}),
            "context_length_exceeded",
            None,
        ),
        (
            TEXT,
            json!({"prompt": "a", "max_tokens": 511}),
            "context_length_exceeded",
            None,
        ),
        (
            TEXT,
            json!({"prompt": "a", "max_tokens": 0}),
            "invalid_value",
            Some("max_tokens"),
        ),
        (
            TEXT,
            json!({"prompt": "a", "max_tokens": 4, "min_tokens": 5}),
            "invalid_value",
            Some("min_tokens"),
        ),
        (
            TEXT,
            json!({"prompt": [1, 258]}),
            "unknown_token",
            Some("prompt[1]"),
        ),
        (
            TEXT,
            json!({"prompt": "a", "logit_bias": {"99999": 1}}),
            "unknown_token",
            Some("logit_bias"),
        ),
        (
            TEXT,
            json!({"prompt": "a", "guided_regex": "a+"}),
            "unsupported",
            Some("guided_regex"),
        ),
        (
            TEXT,
            json!({"prompt": "a", "n": 1_000_000_000}),
            "invalid_value",
            Some("n"),
        ),
    ]
}

/// Prompts and lengths of nothing, and batches in which one prompt is at fault.
fn wrong_prompts() -> Vec<(&'static str, Value, &'static str, Option<&'static str>)> {
    vec![
        (
            TEXT,
            json!({"prompt": "a", "max_tokens": 2, "max_completion_tokens": 0}),
            "invalid_value",
            Some("max_completion_tokens"),
        ),
        (TEXT, json!({"prompt": []}), "empty_prompt", Some("prompt")),
        (
            TEXT,
            json!({"prompt": ["a", []]}),
            "empty_prompt",
            Some("prompt[1]"),
        ),
        (
            TEXT,
            json!({"prompt": [[97], vec![97; 600]]}),
            "context_length_exceeded",
            Some("prompt[1]"),
        ),
    ]
}

#[tokio::test]
async fn wrong_requests_are_refused_before_any_stream() {
    let server = Setup::saying("x").start().await;
    for stream in [false, true] {
        for (path, body, code, param) in wrong_bodies().iter().chain(&wrong_prompts()) {
            let mut body = body.clone();
            if let Value::Object(map) = &mut body {
                map.insert("stream".into(), stream.into());
            }
            let answer = post(server.address, path, &body).await;
            assert_eq!(answer.status(), 400, "{body}");
            assert_eq!(answer.head.header("content-type"), Some("application/json"));
            let error = &answer.json()["error"];
            assert_eq!(error["type"], "invalid_request_error");
            assert_eq!(error["param"].as_str(), *param, "{body} {error}");
            if error["code"].is_string() {
                assert_eq!(error["code"], *code, "{body}");
            }
        }
    }
    assert!(
        server.stage.log.lock().unwrap().requests.is_empty(),
        "nothing reached the engine"
    );
}

#[tokio::test]
async fn a_prompt_over_the_context_is_told_both_counts() {
    let server = Setup::saying("x").start().await;
    let body = json!({"prompt": vec![97; 600], "stream": true});
    let answer = post(server.address, TEXT, &body).await;
    let message = answer.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("600") && message.contains("512"),
        "{message}"
    );
}

#[tokio::test]
async fn constraints_are_never_ignored() {
    let server = Setup::saying("x").start().await;
    let messages = json!([{"role": "user", "content": "a"}]);
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for extra in [
        json!({"response_format": {"type": "json_object"}}),
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}}),
        json!({"structured_outputs": {"choice": ["a", "b"]}}),
        json!({"guided_grammar": "start: \"a\""}),
        json!({"tools": tools, "tool_choice": "required"}),
        json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ] {
        let mut body = json!({"messages": messages});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        let answer = post(server.address, CHAT, &body).await;
        assert_eq!(
            (answer.status(), answer.json()["error"]["code"].as_str()),
            (400, Some("unsupported")),
            "{body}"
        );
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_typed() {
    let mut setup = Setup::saying("x");
    setup.limits.max_body_bytes = 1000;
    let server = setup.start().await;
    let large = json!({"prompt": "a".repeat(1000)}).to_string();
    assert_eq!(
        post_with(server.address, TEXT, "", &large).await.status(),
        413
    );
    // The same without a length to go by.
    let mut connection = Connection::open(server.address).await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n\
        transfer-encoding: chunked\r\n\r\n";
    connection
        .write(format!("{head}{:x}\r\n{large}\r\n0\r\n\r\n", large.len()).as_bytes())
        .await
        .unwrap();
    assert_eq!(connection.answer().await.status(), 413);
    for kind in [
        "",
        "content-type: text/plain\r\n",
        "content-type: application/x-www-form-urlencoded\r\n",
    ] {
        let body = "{\"prompt\": \"a\"}";
        let mut connection = Connection::open(server.address).await;
        let request = format!(
            "POST {TEXT} HTTP/1.1\r\nhost: t\r\n{kind}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write(request.as_bytes()).await.unwrap();
        assert_eq!(connection.answer().await.status(), 415, "{kind}");
    }
    let charset = "POST /v1/completions HTTP/1.1\r\nhost: t\r\n\
        content-type: Application/JSON; charset=utf-8\r\ncontent-length: 15\r\n\r\n{\"prompt\": \"a\"}";
    let mut connection = Connection::open(server.address).await;
    connection.write(charset.as_bytes()).await.unwrap();
    assert_eq!(connection.answer().await.status(), 200);
}

#[tokio::test]
async fn compressed_bodies_and_other_expectations_are_refused() {
    let server = Setup::saying("x").start().await;
    let body = "{\"prompt\": \"a\"}";
    for (header, status) in [
        ("content-encoding: gzip\r\n", 415),
        (
            "content-encoding: identity\r\ncontent-encoding: br\r\n",
            415,
        ),
        ("content-encoding: identity\r\n", 200),
        ("expect: foo\r\n", 417),
        ("expect: 100-Continue\r\n", 200),
    ] {
        let mut connection = Connection::open(server.address).await;
        connection.post(TEXT, header, body).await;
        let mut answer = connection.answer().await;
        if answer.status() == 100 {
            answer = connection.answer().await;
        }
        assert_eq!(answer.status(), status, "{header}");
        if status != 200 {
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        }
    }
    // Before the body, and where none is read.
    let answer = ask(server.address, "GET", "/health", "expect: foo\r\n").await;
    assert_eq!(answer.status(), 417);
}

#[tokio::test]
async fn the_bodies_of_all_requests_are_bounded_together() {
    let mut setup = Setup::saying("x");
    setup.limits.max_body_bytes = 4000;
    setup.limits.max_bodies_bytes = 5000;
    let server = setup.start().await;
    let head = |length: usize| {
        format!(
            "POST {TEXT} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // A client that only names a length keeps nobody out.
    let mut idle = Connection::open(server.address).await;
    idle.write(head(4000).as_bytes()).await.unwrap();
    let mut slow = Connection::open(server.address).await;
    let large = json!({"prompt": "a".repeat(3900), "max_tokens": 1}).to_string();
    let (most, rest) = large.split_at(large.len() - 1);
    slow.write(head(large.len()).as_bytes()).await.unwrap();
    slow.write(most.as_bytes()).await.unwrap();
    let other = json!({"prompt": "a".repeat(400), "padding": "b".repeat(1500)}).to_string();
    let mut refused = None;
    for _ in 0..400 {
        let answer = post_with(server.address, TEXT, "", &other).await;
        if answer.status() == 503 {
            refused = Some(answer);
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = refused.expect("no room beside the slow one");
    assert_eq!(refused.head.header("retry-after"), Some("1"));
    assert_eq!(refused.json()["error"]["code"], "overloaded");
    let small = json!({"prompt": "a"}).to_string();
    assert_eq!(
        post_with(server.address, TEXT, "", &small).await.status(),
        200
    );
    // The slow one is too long for the context, and its room comes back.
    slow.write(rest.as_bytes()).await.unwrap();
    assert_eq!(slow.answer().await.status(), 400);
    for _ in 0..3 {
        assert_eq!(
            post_with(server.address, TEXT, "", &other).await.status(),
            200
        );
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused_without_its_text() {
    let server = Setup::saying("x").start().await;
    for body in [
        "",
        "hidden",
        "{\"prompt\": \"hidden",
        "{\"prompt\": \"\\ud83dhidden\"}",
        "nullhidden",
    ] {
        let answer = post_with(server.address, TEXT, "", body).await;
        assert_eq!(
            (answer.status(), answer.json()["error"]["code"].as_str()),
            (400, Some("invalid_json"))
        );
        assert!(!answer.text().contains("hidden"));
    }
    let mut connection = Connection::open(server.address).await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n\
        content-length: 16\r\n\r\n";
    connection
        .write(&[head.as_bytes(), b"{\"prompt\": \"\xff\xfe\"}"].concat())
        .await
        .unwrap();
    assert_eq!(connection.answer().await.status(), 400);
    let deep = format!("{{\"prompt\": {}{}}}", "[".repeat(100), "]".repeat(100));
    let answer = post_with(server.address, TEXT, "", &deep).await;
    assert_eq!(answer.json()["error"]["code"], "nested_too_deeply");
}

#[tokio::test]
async fn urls_and_heads_are_bounded() {
    let server = Setup::saying("x").start().await;
    let long = format!("/health?{}", "x".repeat(9000));
    let answer = get(server.address, &long).await;
    assert_eq!(
        (answer.status(), answer.json()["error"]["code"].as_str()),
        (414, Some("url_too_long"))
    );
    let mut connection = Connection::open(server.address).await;
    let large = format!("x-large: {}\r\n", "x".repeat(40_000));
    connection.ask("GET", "/health", &large).await;
    assert_eq!(connection.answer().await.status(), 431);
    let mut connection = Connection::open(server.address).await;
    connection
        .ask("GET", "/health", &"x-many: x\r\n".repeat(200))
        .await;
    assert_eq!(connection.answer().await.status(), 431);
    let mut connection = Connection::open(server.address).await;
    connection
        .write(b"\x16\x03\x01\x02\x00\x01\x00 not http\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(connection.answer().await.status(), 400);
}

#[tokio::test]
async fn a_head_that_dribbles_in_is_cut_off() {
    let mut setup = Setup::saying("x");
    setup.limits.header_timeout = Duration::from_millis(50);
    let server = setup.start().await;
    let mut head = Connection::open(server.address).await;
    head.ask("GET", "/health", "").await;
    assert_eq!(head.answer().await.status(), 200);
    // Idle for longer than a head may take, which is no fault.
    tokio::time::sleep(Duration::from_millis(100)).await;
    head.write(b"GET /health HTT").await.unwrap();
    assert!(head.closed().await);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let mut setup = Setup::saying("x");
    setup.limits.idle_timeout = Duration::from_millis(50);
    let server = setup.start().await;
    let mut idle = Connection::open(server.address).await;
    idle.ask("GET", "/health", "").await;
    assert_eq!(idle.answer().await.status(), 200);
    assert!(idle.closed().await);
}

#[tokio::test]
async fn a_body_that_dribbles_in_is_cut_off() {
    let mut setup = Setup::saying("x");
    setup.limits.body_timeout = Duration::from_millis(50);
    let server = setup.start().await;
    let mut body = Connection::open(server.address).await;
    let slow = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n\
        content-length: 100\r\n\r\n{\"pro";
    body.write(slow.as_bytes()).await.unwrap();
    assert_eq!(body.answer().await.status(), 408);
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_dropped() {
    let mut setup = Setup::playing(|_| Script::text(&"long answer ".repeat(40)));
    setup.limits.write_timeout = Duration::from_millis(100);
    let server = setup.start().await;
    let mut connection = Connection::open(server.address).await;
    // Answers of some megabytes, of which nothing is read: more than any socket buffers.
    let body = json!({"prompt": "a", "stream": true, "n": 16, "max_tokens": 480, "logprobs": 20});
    connection.post(TEXT, "", &body.to_string()).await;
    assert_eq!(connection.head().await.unwrap().status, 200);
    server
        .until("the connection is dropped", |server| {
            server
                .metrics
                .render()
                .contains("lockstep_http_connections{model_name=\"tiny\",engine=\"0\"} 0")
        })
        .await;
}

#[tokio::test]
async fn connections_over_the_limit_are_told_so() {
    let mut setup = Setup::saying("x");
    setup.limits.max_connections = 2;
    let server = setup.start().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::open(server.address).await;
        connection.ask("GET", "/health", "").await;
        assert_eq!(connection.answer().await.status(), 200);
        held.push(connection);
    }
    let mut third = Connection::open(server.address).await;
    let answer = third.answer().await;
    assert_eq!(
        (answer.status(), answer.head.header("retry-after")),
        (503, Some("1"))
    );
    assert_eq!(answer.json()["error"]["code"], "overloaded");
    assert!(third.closed().await);
    drop(held);
    // Places come back.
    for _ in 0..200 {
        let mut next = Connection::open(server.address).await;
        if next
            .write(b"GET /live HTTP/1.1\r\nhost: t\r\n\r\n")
            .await
            .is_ok()
            && next
                .try_answer("GET")
                .await
                .is_ok_and(|answer| answer.status() == 200)
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the places never came back");
}

#[tokio::test]
async fn keys_open_the_api_and_probes_need_none() {
    let mut setup = Setup::saying("x");
    setup.keys = ApiKeys::new(["first", "second"]);
    let server = setup.start().await;
    for path in ["/health", "/live", "/ready", "/version", "/metrics"] {
        assert_eq!(get(server.address, path).await.status(), 200, "{path}");
    }
    let closed = [
        ("GET", "/v1/models"),
        ("GET", "/server_info"),
        ("POST", CHAT),
        ("POST", "/abort"),
        ("GET", "/debug/preemptions"),
    ];
    for (method, path) in closed {
        for header in [
            "",
            "authorization: Bearer wrong\r\n",
            "authorization: first\r\n",
        ] {
            let answer = ask(server.address, method, path, header).await;
            assert_eq!(answer.status(), 401, "{method} {path} {header}");
            assert_eq!(answer.json()["error"]["type"], "authentication_error");
            assert!(!answer.text().contains("wrong"));
        }
    }
    for key in ["first", "second"] {
        let header = format!("authorization: Bearer {key}\r\n");
        assert_eq!(
            ask(server.address, "GET", "/v1/models", &header)
                .await
                .status(),
            200
        );
    }
}

#[tokio::test]
async fn request_ids_are_echoed_in_a_safe_form() {
    let server = Setup::saying("x").start().await;
    let id = |value: &str| format!("x-request-id: {value}\r\n");
    let answer = ask(server.address, "GET", "/health", &id("abc-1")).await;
    assert_eq!(answer.head.header("x-request-id"), Some("abc-1"));
    let answer = ask(
        server.address,
        "GET",
        "/nowhere",
        &id("a b\tstatus=200 \"x\""),
    )
    .await;
    assert_eq!(answer.head.header("x-request-id"), Some("abstatus200x"));
    let answer = get(server.address, "/health").await;
    assert!(
        answer
            .head
            .header("x-request-id")
            .unwrap()
            .starts_with("req-")
    );
}

#[tokio::test]
async fn http_in_all_its_forms_is_understood() {
    let server = Setup::saying("x").start().await;
    let body = "{\"prompt\": \"a\", \"prompt\": \"b\"}";
    let mut connection = Connection::open(server.address).await;
    // Pipelined: three requests in one write.
    let post = format!(
        "POST {TEXT} HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let get = "GET /health HTTP/1.1\r\nhost: t\r\n\r\n";
    connection
        .write(format!("{get}{post}{get}").as_bytes())
        .await
        .unwrap();
    for _ in 0..3 {
        assert_eq!(connection.answer().await.status(), 200);
    }
    // Chunked, in odd pieces.
    let head = "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\n\
        transfer-encoding: chunked\r\n\r\n";
    connection
        .write(format!("{head}1\r\n{{\r\n1d\r\n{}\r\n0\r\n\r\n", &body[1..]).as_bytes())
        .await
        .unwrap();
    assert_eq!(connection.answer().await.status(), 200);
    // A client that asks before it sends.
    let head = post.replace("content-length", "expect: 100-continue\r\ncontent-length");
    let (head, body) = head.split_once("\r\n\r\n").unwrap();
    connection
        .write(format!("{head}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    assert_eq!(connection.head().await.unwrap().status, 100);
    connection.write(body.as_bytes()).await.unwrap();
    assert_eq!(connection.answer().await.status(), 200);
    let prompts = super::engine::prompts(&server.stage.log.lock().unwrap());
    assert_eq!(
        prompts.into_iter().collect::<Vec<_>>(),
        [("b".to_owned(), 3)]
    );
    // The old protocol: one request a connection.
    let mut old = Connection::open(server.address).await;
    old.write(b"GET /health HTTP/1.0\r\n\r\n").await.unwrap();
    assert_eq!(old.answer().await.status(), 200);
    assert!(old.closed().await);
}
