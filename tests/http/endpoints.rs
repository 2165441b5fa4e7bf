//! Every endpoint beside the two that generate.

use serde_json::json;

use super::client::{ask, get, post};
use super::fixture::{CONTEXT, Setup};

#[tokio::test]
async fn models_are_listed_under_each_name() {
    let server = Setup::saying("x").start().await;
    let list = get(server.address, "/v1/models").await.json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][1]["id"], "org/tiny");
    for path in [
        "/v1/models/tiny",
        "/v1/models/org/tiny",
        "/v1/models/org%2Ftiny",
    ] {
        let model = get(server.address, path).await;
        assert_eq!(model.status(), 200, "{path}");
        assert_eq!(model.json()["max_model_len"], CONTEXT);
    }
    let missing = get(server.address, "/v1/models/other").await;
    assert_eq!(missing.status(), 404);
    assert_eq!(missing.json()["error"]["code"], "model_not_found");
    assert!(
        !missing.text().contains("other"),
        "the name is not repeated"
    );
    let body = json!({"model": "other", "prompt": "a"});
    assert_eq!(
        post(server.address, "/v1/completions", &body)
            .await
            .status(),
        404
    );
    let body = json!({"model": "org/tiny", "prompt": "a"});
    assert_eq!(
        post(server.address, "/v1/completions", &body)
            .await
            .status(),
        200
    );
}

#[tokio::test]
async fn head_answers_like_get_without_a_body() {
    let server = Setup::saying("x").start().await;
    let paths = [
        "/health",
        "/live",
        "/ready",
        "/version",
        "/metrics",
        "/server_info",
        "/load",
        "/v1/loads",
        "/v1/models",
        "/v1/models/tiny",
        "/tokenizer_info",
        "/openapi.json",
    ];
    for path in paths {
        let get = get(server.address, path).await;
        assert_eq!(get.status(), 200, "{path}");
        assert!(!get.body.is_empty());
        let head = ask(server.address, "HEAD", path, "").await;
        assert_eq!(head.status(), 200, "{path}");
        assert_eq!(
            head.head.header("content-type"),
            get.head.header("content-type")
        );
        assert!(head.body.is_empty());
    }
    // What GET answers with an error, HEAD does too.
    for (path, status) in [
        ("/nowhere", 404),
        ("/v1/models/other", 404),
        ("/v1/streams", 404),
        ("/debug/preemptions", 404),
        ("/debug/requests/1", 404),
    ] {
        assert_eq!(get(server.address, path).await.status(), status, "{path}");
        let head = ask(server.address, "HEAD", path, "").await;
        assert_eq!(head.status(), status, "{path}");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_told_in_json() {
    let server = Setup::saying("x").start().await;
    for path in [
        "/",
        "/v1",
        "/v1/chat",
        "/v1/embeddings",
        "/%00",
        "/v1/chat/completions/",
    ] {
        let answer = get(server.address, path).await;
        assert_eq!(answer.status(), 404, "{path}");
        assert_eq!(answer.json()["error"]["code"], "not_found");
    }
    let cases = [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("OPTIONS", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("DELETE", "/metrics", "GET, HEAD"),
        ("BREW", "/health", "GET, HEAD"),
    ];
    for (method, path, allow) in cases {
        let answer = ask(server.address, method, path, "").await;
        assert_eq!(answer.status(), 405, "{method} {path}");
        assert_eq!(answer.head.header("allow"), Some(allow));
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn text_becomes_tokens_and_back() {
    let server = Setup::saying("x").start().await;
    let body = json!({"prompt": "a</s>é", "return_token_strs": true});
    let json = post(server.address, "/tokenize", &body).await.json();
    assert_eq!(json["tokens"], json!([256, 97, 257, 0xc3, 0xa9]));
    assert_eq!(
        (json["count"].as_u64(), json["max_model_len"].as_u64()),
        (Some(5), Some(512))
    );
    assert_eq!(
        json["token_strs"],
        json!(["<s>", "a", "</s>", "bytes:\\xc3", "bytes:\\xa9"])
    );
    let body = json!({"prompt": "a", "add_special_tokens": false});
    assert_eq!(
        post(server.address, "/tokenize", &body).await.json()["tokens"],
        json!([97])
    );
    let messages = json!([{"role": "user", "content": "a"}]);
    let rendered = json!([256, 117, 115, 101, 114, 58, 97, 10]);
    let body = json!({"messages": messages});
    assert_eq!(
        post(server.address, "/tokenize", &body).await.json()["tokens"],
        rendered
    );
    let json = post(server.address, "/v1/chat/completions/render", &body)
        .await
        .json();
    assert_eq!(json["token_ids"], rendered);
    assert_eq!(json["prompt"], "<s>user:a\n");
    let body = json!({"prompt": ["a", "b"]});
    let json = post(server.address, "/v1/completions/render", &body)
        .await
        .json();
    assert_eq!(json[1]["token_ids"], json!([256, 98]));
    let body = json!({"tokens": [256, 97, 0xc3]});
    let json = post(server.address, "/detokenize", &body).await.json();
    assert_eq!(json["prompt"], "<s>a\u{fffd}");
    let answer = post(server.address, "/detokenize", &json!({"tokens": [258]})).await;
    assert_eq!(answer.status(), 400);
    assert!(answer.text().contains("258"));
    let info = get(server.address, "/tokenizer_info").await.json();
    assert_eq!(
        (info["eos_token"].as_str(), info["bos_token"].as_str()),
        (Some("</s>"), Some("<s>"))
    );
    assert!(
        server.stage.log.lock().unwrap().requests.is_empty(),
        "nothing was generated"
    );
}

#[tokio::test]
async fn metrics_have_the_names_and_labels_that_dashboards_read() {
    let server = Setup::saying("x").start().await;
    server.metrics.step(&lockstep::metrics::StepSample {
        running: 2,
        waiting: 1,
        used_blocks: 25,
        generated_tokens: 3,
        preempted_for_seat: 1,
        preempted_for_blocks: 2,
        scheduled_tokens: 9,
        ..Default::default()
    });
    let page = get(server.address, "/metrics").await;
    assert_eq!(
        page.head.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let labels = "model_name=\"tiny\",engine=\"0\"";
    let expected = [
        format!("vllm:num_requests_running{{{labels}}} 2"),
        format!("vllm:num_requests_waiting{{{labels}}} 1"),
        format!("vllm:kv_cache_usage_perc{{{labels}}} 0.25"),
        format!("vllm:num_preemptions_total{{{labels}}} 3"),
        format!("vllm:generation_tokens_total{{{labels}}} 3"),
        format!("vllm:request_success_total{{{labels},finished_reason=\"stop\"}} 0"),
        format!("vllm:iteration_tokens_total_bucket{{{labels},le=\"8.0\"}} 0"),
        format!("vllm:iteration_tokens_total_bucket{{{labels},le=\"16.0\"}} 1"),
        format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"2560.0\"}} 0"),
        format!("lockstep_preemptions_total{{{labels},cause=\"blocks\"}} 2"),
    ];
    for line in expected {
        assert!(
            page.text().lines().any(|own| own == line),
            "{line}\n{}",
            page.text()
        );
    }
    let info = "vllm:cache_config_info{model_name=\"tiny\",engine=\"0\",block_size=\"16\",num_gpu_blocks=\"100\"";
    assert!(page.text().contains(info));
    let loads = get(server.address, "/v1/loads").await.json();
    let load = &loads["loads"][0];
    assert_eq!(
        (
            load["num_running_reqs"].as_u64(),
            load["num_used_tokens"].as_u64()
        ),
        (Some(2), Some(400))
    );
    assert_eq!(load["token_usage"], 0.25);
}

#[tokio::test]
async fn origins_are_allowed_only_when_named() {
    let origin = "origin: https://page.example\r\n";
    let closed = Setup::saying("x").start().await;
    let answer = ask(closed.address, "GET", "/v1/models", origin).await;
    assert_eq!(answer.head.header("access-control-allow-origin"), None);
    let mut setup = Setup::saying("x");
    setup.change = Box::new(|app| {
        app.cors = Some(lockstep::http::Cors {
            origins: vec!["https://page.example".into()],
        });
    });
    let open = setup.start().await;
    let answer = ask(open.address, "OPTIONS", "/v1/chat/completions", origin).await;
    assert_eq!(answer.status(), 204);
    let allowed = |answer: &super::client::Answer| {
        answer
            .head
            .header("access-control-allow-origin")
            .map(str::to_owned)
    };
    assert_eq!(allowed(&answer).as_deref(), Some("https://page.example"));
    assert_eq!(answer.head.header("access-control-allow-credentials"), None);
    let other = ask(
        open.address,
        "GET",
        "/v1/models",
        "origin: https://other.example\r\n",
    )
    .await;
    assert_eq!(allowed(&other), None);
}

#[tokio::test]
async fn debug_is_answered_by_whoever_keeps_the_journal() {
    struct View;
    impl lockstep::http::DebugView for View {
        fn request(&self, number: u64) -> Option<serde_json::Value> {
            (number < 4).then(|| json!({"request": number}))
        }
        fn preemptions(&self, limit: usize) -> serde_json::Value {
            json!({"limit": limit})
        }
    }
    let mut setup = Setup::saying("x");
    setup.keys = lockstep::http::ApiKeys::new(["key"]);
    setup.change = Box::new(|app| app.debug = Some(std::sync::Arc::new(View)));
    let server = setup.start().await;
    let key = "authorization: Bearer key\r\n";
    assert_eq!(get(server.address, "/debug/requests/3").await.status(), 401);
    let known = ask(server.address, "GET", "/debug/requests/3", key).await;
    assert_eq!(known.json(), json!({"request": 3}));
    let body = "{\"prompt\": \"a\"}";
    let named = format!("x-request-id: mine\r\n{key}");
    let answer = super::client::post_with(server.address, "/v1/completions", &named, body).await;
    let answer_id = answer.json()["id"].as_str().unwrap().to_owned();
    for name in ["mine", &answer_id] {
        let known = ask(
            server.address,
            "GET",
            &format!("/debug/requests/{name}"),
            key,
        )
        .await;
        assert_eq!(known.json(), json!({"request": 0}));
    }
    for id in ["4", "x", "-1", "99999999999999999999"] {
        let answer = ask(server.address, "GET", &format!("/debug/requests/{id}"), key).await;
        assert_eq!(answer.status(), 404, "{id}");
    }
    let preemptions = ask(server.address, "GET", "/debug/preemptions", key).await;
    assert_eq!(preemptions.json(), json!({"limit": 1000}));
}

#[tokio::test]
async fn a_unix_socket_serves_the_same() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lockstep.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = Setup::saying("x")
        .start_on(lockstep::http::Listener::Unix(listener))
        .await;
    let mut socket = tokio::net::UnixStream::connect(&path).await.unwrap();
    socket
        .write_all(b"GET /ready HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    server.stopped_now().await;
}
