//! How requests end: whole, cut, aborted, abandoned, or with the server.

use std::time::Duration;

use lockstep::intake::EngineState;
use lockstep::request::{Failure, Request};
use serde_json::{Value, json};

use super::client::{Connection, get, post};
use super::engine::Script;
use super::fixture::{Fixture, Setup};

const CHAT: &str = "/v1/chat/completions";

/// An engine that says four letters and waits before the third.
fn hesitant() -> impl Fn(&Request) -> Script {
    |_| Script {
        free: 2,
        ..Script::text("abcd")
    }
}

fn body(stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": "hello"}], "stream": stream})
}

fn requests(server: &Fixture) -> usize {
    server.stage.log.lock().unwrap().requests.len()
}

fn cancelled(server: &Fixture) -> usize {
    server.stage.log.lock().unwrap().cancelled
}

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_its_request() {
    let server = Setup::playing(hesitant()).start().await;
    let mut connection = Connection::open(server.address).await;
    connection.post(CHAT, "", &body(true).to_string()).await;
    assert_eq!(connection.head().await.unwrap().status, 200);
    while !String::from_utf8(connection.chunk().await.unwrap())
        .unwrap()
        .contains("\"b\"")
    {}
    assert_eq!(cancelled(&server), 0);
    drop(connection);
    server
        .until("the engine hears of it", |server| cancelled(server) == 1)
        .await;
}

#[tokio::test]
async fn a_client_that_does_not_wait_for_a_whole_answer_frees_its_request() {
    let server = Setup::playing(hesitant()).start().await;
    let mut connection = Connection::open(server.address).await;
    let mut body = body(false);
    body["n"] = 2.into();
    connection.post(CHAT, "", &body.to_string()).await;
    server
        .until("both choices run", |server| requests(server) == 2)
        .await;
    assert_eq!(cancelled(&server), 0);
    drop(connection);
    server
        .until("the engine hears of both", |server| cancelled(server) == 2)
        .await;
}

#[tokio::test]
async fn a_slow_reader_does_not_hold_the_engine() {
    let long: &'static str = Box::leak("long answer ".repeat(30).into_boxed_str());
    let server = Setup::saying(long).start().await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut connection = Connection::open(server.address).await;
        connection.post(CHAT, "", &body(true).to_string()).await;
        slow.push(connection);
    }
    let ended = |server: &Fixture| server.stage.log.lock().unwrap().ended;
    server
        .until("all have been answered", |server| ended(server) == 20)
        .await;
    // Nobody has read a byte so far; all of it is there.
    for mut connection in slow {
        let chunks = connection.answer().await.chunks();
        let text: String = chunks
            .iter()
            .filter_map(|c| c["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!(text, long);
    }
}

#[tokio::test]
async fn a_fault_in_mid_stream_is_told_and_the_stream_ends() {
    let failures = [
        (Failure::NonFinite, "non_finite"),
        (Failure::Engine("out of luck".into()), "engine_failure"),
        (Failure::Expired, "expired"),
    ];
    for (failure, code) in failures {
        let status = if code == "expired" { 503 } else { 500 };
        let director = move |_: &Request| Script {
            failure: Some(failure.clone()),
            ..Script::text("ab")
        };
        let server = Setup::playing(director).start().await;
        let chunks = post(server.address, CHAT, &body(true)).await.chunks();
        let error = &chunks.last().unwrap()["error"];
        assert_eq!(error["code"], code);
        assert!(error["message"].is_string());
        // Without a stream nothing has been sent: the status tells it.
        let whole = post(server.address, CHAT, &body(false)).await;
        assert_eq!(
            (whole.status(), whole.json()["error"]["code"].as_str()),
            (status, Some(code))
        );
    }
}

#[tokio::test]
async fn an_engine_that_vanishes_does_not_leave_streams_open() {
    let director = |_: &Request| Script {
        vanish: true,
        ..Script::text("ab")
    };
    let server = Setup::playing(director).start().await;
    let chunks = post(server.address, CHAT, &body(true)).await.chunks();
    assert_eq!(chunks.last().unwrap()["error"]["code"], "engine_failure");
    assert_eq!(post(server.address, CHAT, &body(false)).await.status(), 500);
    server.engine.abort();
    // A thread that dies without a word leaves the door closed behind it.
    server
        .until("the door is closed", |server| server.engine.is_finished())
        .await;
    let answer = post(server.address, CHAT, &body(true)).await;
    assert_eq!(
        (answer.status(), answer.json()["error"]["code"].as_str()),
        (503, Some("engine_dead"))
    );
    assert!(answer.head.header("retry-after").is_some());
}

#[tokio::test]
async fn more_choices_than_may_wait_are_refused_for_good() {
    let mut setup = Setup::playing(hesitant());
    setup.max_waiting = 2;
    let server = setup.start().await;
    let mut body = body(true);
    body["n"] = 3.into();
    let answer = post(server.address, CHAT, &body).await;
    // Coming back would not help: so it is no 429.
    assert_eq!(answer.status(), 400);
    assert_eq!(answer.json()["error"]["code"], "too_many_choices");
    assert_eq!(requests(&server), 0, "nothing reached the engine");
}

#[tokio::test]
async fn keep_alive_comments_fill_a_silence() {
    let mut setup = Setup::playing(hesitant());
    setup.limits.keep_alive_interval = Duration::from_millis(20);
    let server = setup.start().await;
    let mut connection = Connection::open(server.address).await;
    connection.post(CHAT, "", &body(true).to_string()).await;
    connection.head().await.unwrap();
    let mut comments = 0;
    while comments < 3 {
        comments += usize::from(connection.chunk().await.unwrap() == b": keep-alive\n\n");
    }
    server.stage.gate.add_permits(2);
    let mut rest = Vec::new();
    loop {
        let chunk = connection.chunk().await.unwrap();
        if chunk.is_empty() {
            break;
        }
        rest.extend(chunk);
    }
    assert!(
        String::from_utf8(rest)
            .unwrap()
            .ends_with("data: [DONE]\n\n")
    );
}

#[tokio::test]
async fn a_call_can_be_aborted_by_its_id_or_its_label() {
    let server = Setup::playing(hesitant()).start().await;
    let mut streamed = Connection::open(server.address).await;
    streamed.post(CHAT, "", &body(true).to_string()).await;
    streamed.head().await.unwrap();
    let first = String::from_utf8(streamed.chunk().await.unwrap()).unwrap();
    let first: Value = serde_json::from_str(
        first
            .split("\n\n")
            .next()
            .unwrap()
            .strip_prefix("data: ")
            .unwrap(),
    )
    .unwrap();
    let mut whole = Connection::open(server.address).await;
    whole
        .post(CHAT, "x-request-id: mine\r\n", &body(false).to_string())
        .await;
    server
        .until("both run", |server| requests(server) == 2)
        .await;
    for name in [&first["id"], &json!("mine")] {
        let answer = post(server.address, "/abort", &json!({"request_id": name})).await;
        assert_eq!(answer.json(), json!({"aborted": 1}));
    }
    let answer = whole.answer().await;
    assert_eq!(
        (answer.status(), answer.json()["error"]["code"].as_str()),
        (400, Some("aborted"))
    );
    let mut rest = Vec::new();
    while let Ok(chunk) = streamed.chunk().await {
        if chunk.is_empty() {
            break;
        }
        rest.extend(chunk);
    }
    let rest = String::from_utf8(rest).unwrap();
    assert!(
        rest.contains("\"code\":\"aborted\"") && rest.ends_with("data: [DONE]\n\n"),
        "{rest}"
    );
    server
        .until("the engine hears of both", |server| cancelled(server) == 2)
        .await;
    let answer = post(server.address, "/abort", &json!({"request_id": "mine"})).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(
        post(server.address, "/abort", &json!({})).await.status(),
        400
    );
}

#[tokio::test]
async fn draining_finishes_what_runs_and_refuses_what_comes() {
    let mut setup = Setup::playing(hesitant());
    // Longer than the test waits for anything: what is seen is the drain, not its end.
    setup.limits.drain_timeout = Duration::from_secs(600);
    let mut server = setup.start().await;
    assert_eq!(get(server.address, "/ready").await.status(), 200);
    let mut running = Connection::open(server.address).await;
    running.post(CHAT, "", &body(true).to_string()).await;
    server
        .until("it runs", |server| requests(server) == 1)
        .await;
    server.stop();
    server
        .until("the door is shut", |server| {
            server.intake.state() == EngineState::Draining
        })
        .await;
    let ready = get(server.address, "/ready").await;
    assert_eq!(
        (ready.status(), ready.json()["error"]["code"].as_str()),
        (503, Some("draining"))
    );
    assert_eq!(get(server.address, "/health").await.status(), 200);
    let refused = post(server.address, CHAT, &body(true)).await;
    assert_eq!(
        (refused.status(), refused.head.header("retry-after")),
        (503, Some("5"))
    );
    server.stage.gate.add_permits(2);
    let chunks = running.answer().await.chunks();
    assert_eq!(
        chunks.last().unwrap()["choices"][0]["finish_reason"],
        "stop"
    );
    let address = server.address;
    server.stopped().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn what_runs_for_too_long_is_ended_with_the_server() {
    let mut setup = Setup::playing(hesitant());
    setup.limits.drain_timeout = Duration::from_millis(50);
    let mut server = setup.start().await;
    let mut running = Connection::open(server.address).await;
    running.post(CHAT, "", &body(true).to_string()).await;
    server
        .until("it runs", |server| requests(server) == 1)
        .await;
    server.stop();
    // This engine does not heed the abort: its stream is cut when the connections close.
    assert!(running.closed().await);
    server.stopped().await;
}

/// The events of a stream that can be resumed, each with its id, until `enough` are there.
async fn read_events(connection: &mut Connection, enough: usize) -> Vec<(String, String)> {
    let mut text = String::new();
    loop {
        let frames: Vec<&str> = text
            .split_inclusive("\n\n")
            .filter(|f| f.ends_with("\n\n"))
            .collect();
        let events: Vec<_> = frames
            .iter()
            .filter_map(|frame| frame.trim_end().strip_prefix("id: ")?.split_once('\n'))
            .map(|(id, data)| (id.to_owned(), data.to_owned()))
            .collect();
        if events.len() >= enough
            || events
                .last()
                .is_some_and(|(_, data)| data == "data: [DONE]")
        {
            return events;
        }
        let chunk = connection.chunk().await.unwrap();
        assert!(!chunk.is_empty(), "the stream ended early: {text}");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

/// A client that resumes after this event.
async fn resume(server: &Fixture, id: &str, key: &str) -> Connection {
    let mut connection = Connection::open(server.address).await;
    let headers = format!("last-event-id: {id}\r\nauthorization: Bearer {key}\r\n");
    connection.ask("GET", "/v1/streams", &headers).await;
    connection
}

#[tokio::test]
async fn a_resumable_stream_goes_on_where_it_was_cut() {
    let mut setup = Setup::playing(hesitant());
    setup.keys = lockstep::http::ApiKeys::new(["mine", "other"]);
    let server = setup.start().await;
    let mut body = body(true);
    body["stream_options"] = json!({"resumable": true, "include_usage": true});
    let key = "authorization: Bearer mine\r\n";
    let mut first = Connection::open(server.address).await;
    first.post(CHAT, key, &body.to_string()).await;
    assert_eq!(first.head().await.unwrap().status, 200);
    // The role and the two letters that the engine says at once.
    let seen = read_events(&mut first, 3).await;
    assert_eq!(seen.len(), 3);
    drop(first);
    let last = &seen[1].0;
    assert_eq!(
        resume(&server, last, "other").await.answer().await.status(),
        404
    );
    for wrong in ["", "x/1", &last[..last.len() - 2], &format!("{last}x")] {
        assert_eq!(
            resume(&server, wrong, "mine").await.answer().await.status(),
            404,
            "{wrong}"
        );
    }
    let mut second = resume(&server, last, "mine").await;
    assert_eq!(second.head().await.unwrap().status, 200);
    server.stage.gate.add_permits(2);
    let rest = read_events(&mut second, usize::MAX).await;
    assert_eq!(rest[0], seen[2], "exactly what was missed");
    let all: Vec<_> = seen[..2].iter().chain(&rest).collect();
    let text: String = all
        .iter()
        .filter_map(|(_, data)| serde_json::from_str::<Value>(data.strip_prefix("data: ")?).ok())
        .filter_map(|chunk| {
            chunk["choices"][0]["delta"]["content"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(text, "abcd");
    for (position, (id, _)) in all.iter().enumerate() {
        assert_eq!(id.rsplit_once('/').unwrap().1, position.to_string());
    }
    assert_eq!(cancelled(&server), 0);
    // A finished stream can be read again while it is kept.
    let mut third = resume(&server, last, "mine").await;
    third.head().await.unwrap();
    assert_eq!(read_events(&mut third, usize::MAX).await, rest);
}

#[tokio::test]
async fn a_resumable_stream_that_nobody_resumes_is_cancelled() {
    let mut setup = Setup::playing(hesitant());
    setup.limits.resume_grace = Duration::from_millis(50);
    setup.limits.max_resumable_streams = 1;
    let server = setup.start().await;
    let mut body = body(true);
    body["stream_options"] = json!({"resumable": true});
    let mut connection = Connection::open(server.address).await;
    connection.post(CHAT, "", &body.to_string()).await;
    connection.head().await.unwrap();
    let seen = read_events(&mut connection, 1).await;
    let second = post(server.address, CHAT, &body).await;
    assert_eq!(
        (second.status(), second.json()["error"]["code"].as_str()),
        (429, Some("too_many_resumable_streams"))
    );
    drop(connection);
    server
        .until("both are cancelled", |server| cancelled(server) == 2)
        .await;
    server
        .until("it is forgotten", |server| {
            server.intake.state() == EngineState::Ready
        })
        .await;
    let gone = resume(&server, &seen[0].0, "").await.answer().await;
    assert_eq!(gone.status(), 404);
}
