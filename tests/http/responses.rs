//! `/v1/responses`, whole and as events.

use serde_json::{Value, json};

use super::client::{Answer, post};
use super::engine::Script;
use super::fixture::Setup;

const PATH: &str = "/v1/responses";

/// The events of a stream: each has the name that its data repeats.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let frames = answer
        .text()
        .split("\n\n")
        .filter(|frame| !frame.is_empty());
    let parse = |frame: &str| {
        let (name, data) = frame.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        data
    };
    let events: Vec<Value> = frames.map(parse).collect();
    for (position, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], position);
    }
    events
}

#[tokio::test]
async fn a_text_is_a_message_item() {
    let server = Setup::saying("Grüße!").start().await;
    let body = json!({"model": "tiny", "input": "hello", "instructions": "be brief", "metadata": {"a": "b"}});
    let whole = post(server.address, PATH, &body).await.json();
    assert_eq!(
        (whole["object"].as_str(), whole["status"].as_str()),
        (Some("response"), Some("completed"))
    );
    assert_eq!(whole["output"][0]["type"], "message");
    assert_eq!(whole["output"][0]["content"][0]["text"], "Grüße!");
    assert_eq!(
        (
            whole["metadata"]["a"].as_str(),
            whole["instructions"].as_str()
        ),
        (Some("b"), Some("be brief"))
    );
    assert_eq!(whole["usage"]["output_tokens"], 8);
    let mut streamed = body;
    streamed["stream"] = true.into();
    let events = events(&post(server.address, PATH, &streamed).await);
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        names[..4],
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added"
        ]
    );
    assert_eq!(
        names[names.len() - 4..],
        [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed"
        ]
    );
    let text: String = events
        .iter()
        .filter(|e| e["type"] == "response.output_text.delta")
        .map(|e| e["delta"].as_str().unwrap())
        .collect();
    assert_eq!(text, "Grüße!");
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"], whole["output"][0]["content"]);
    assert_eq!(last["usage"], whole["usage"]);
}

#[tokio::test]
async fn calls_are_items_of_their_own() {
    let server =
        Setup::saying("See:<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>")
            .start()
            .await;
    let body = json!({
        "input": "hello", "stream": true, "tools": [{"type": "function", "name": "f", "parameters": {}}]
    });
    let events = events(&post(server.address, PATH, &body).await);
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(
        (output[0]["type"].as_str(), output[1]["type"].as_str()),
        (Some("message"), Some("function_call"))
    );
    assert_eq!(
        (output[1]["name"].as_str(), output[1]["arguments"].as_str()),
        (Some("f"), Some("{\"x\": 1}"))
    );
    let deltas: String = events
        .iter()
        .filter(|e| e["type"] == "response.function_call_arguments.delta")
        .map(|e| {
            assert_eq!(
                (e["output_index"].as_u64(), &e["item_id"]),
                (Some(1), &output[1]["id"])
            );
            e["delta"].as_str().unwrap()
        })
        .collect();
    assert_eq!(deltas, "{\"x\": 1}");
}

#[tokio::test]
async fn ends_that_are_not_whole_are_told() {
    let server = Setup::saying("abcdef").start().await;
    let body = json!({"input": "hello", "max_output_tokens": 3});
    let whole = post(server.address, PATH, &body).await.json();
    assert_eq!(whole["status"], "incomplete");
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(whole["output"][0]["content"][0]["text"], "abc");
    let broken = |_: &_| Script {
        failure: Some(lockstep::request::Failure::NonFinite),
        ..Script::text("ab")
    };
    let server = Setup::playing(broken).start().await;
    let events = events(&post(server.address, PATH, &json!({"input": "a", "stream": true})).await);
    let last = events.last().unwrap();
    assert_eq!(
        (last["type"].as_str(), last["response"]["status"].as_str()),
        (Some("response.failed"), Some("failed"))
    );
    assert_eq!(events[events.len() - 2]["type"], "error");
    assert_eq!(
        post(
            server.address,
            PATH,
            &json!({"input": "a", "background": true})
        )
        .await
        .status(),
        400
    );
}
