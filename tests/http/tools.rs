//! Tool calls over the wire.

use serde_json::{Value, json};

use super::client::post;
use super::fixture::Setup;

const CHAT: &str = "/v1/chat/completions";
const CALL: &str =
    "Well.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Köln\"}}\n</tool_call>";

fn body() -> Value {
    json!({
        "messages": [{"role": "user", "content": "hello"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    })
}

#[tokio::test]
async fn calls_are_read_out_of_the_answer() {
    let server = Setup::saying(CALL).start().await;
    let json = post(server.address, CHAT, &body()).await.json();
    let choice = &json["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], "Well.");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["type"], "function");
    assert_eq!(
        call["function"],
        json!({"name": "f", "arguments": "{\"city\": \"Köln\"}"})
    );
    assert!(call.get("index").is_none());
    // The parser has to see the tokens that mark a call.
    assert!(!server.only_request().stop.skip_special_tokens);
}

#[tokio::test]
async fn calls_are_streamed_as_deltas() {
    let server = Setup::saying(CALL).start().await;
    let mut body = body();
    body["stream"] = true.into();
    let chunks = post(server.address, CHAT, &body).await.chunks();
    let (mut text, mut arguments, mut names) = (String::new(), String::new(), Vec::new());
    for chunk in &chunks {
        let delta = &chunk["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or(""));
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            assert_eq!(call["index"], 0);
            names.extend(call["function"]["name"].as_str().map(str::to_owned));
            arguments.push_str(call["function"]["arguments"].as_str().unwrap());
        }
    }
    assert_eq!(text, "Well.");
    assert_eq!(
        (names, arguments.as_str()),
        (vec!["f".to_owned()], "{\"city\": \"Köln\"}")
    );
    assert_eq!(
        chunks.last().unwrap()["choices"][0]["finish_reason"],
        "tool_calls"
    );
}

#[tokio::test]
async fn a_text_is_a_text_where_tools_are_off() {
    let server = Setup::saying(CALL).start().await;
    let mut body = body();
    body["tool_choice"] = "none".into();
    let json = post(server.address, CHAT, &body).await.json();
    assert_eq!(json["choices"][0]["message"]["content"], CALL);
    assert_eq!(json["choices"][0]["finish_reason"], "stop");
}
