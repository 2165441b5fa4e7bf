//! The body of `/v1/responses`, brought into the shape of a chat request.

use serde_json::{Map, Value, json};

use super::chat::ChatRequest;
use super::fields::{self, Fields};
use super::{Bounds, parse_object};
use crate::http::error::ApiError;

/// What `include` asks for to have logprobs.
const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

/// A request for a response.
#[derive(Clone, Debug)]
pub(in crate::http) struct ResponsesRequest {
    /// The conversation that it comes to.
    pub(in crate::http) chat: ChatRequest,
    /// Fields that the response repeats as they are.
    pub(in crate::http) echoed: Map<String, Value>,
}

impl ResponsesRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 with the path of the field at fault.
    pub(in crate::http) fn read(body: &[u8], bounds: Bounds<'_>) -> Result<Self, ApiError> {
        let mut fields = parse_object(body, bounds.limits)?;
        refuse_state(&mut fields)?;
        let echoed = take_echoed(&mut fields)?;
        let mut messages = Vec::new();
        if let Some(Value::String(instructions)) = echoed.get("instructions") {
            messages.push(json!({"role": "system", "content": instructions}));
        }
        let input = fields.required("input")?;
        messages.extend(read_input(input, bounds.limits.max_messages)?);
        let format = take_format(&mut fields)?;
        let tools = read_tools(
            fields
                .list("tools", bounds.limits.max_tools)?
                .unwrap_or_default(),
        );
        take_logprobs(&mut fields)?;
        let max = fields.count("max_output_tokens", 1..=u32::MAX)?;
        fields.ignore(&[
            "reasoning",
            "truncation",
            "max_tool_calls",
            "prompt_cache_key",
            "n",
        ]);
        fields.set("messages", messages.into());
        fields.set("max_completion_tokens", max.into());
        fields.set("response_format", format.unwrap_or_default());
        fields.set(
            "tools",
            if tools.is_empty() {
                Value::Null
            } else {
                tools.into()
            },
        );
        let mut chat = ChatRequest::take(&mut fields, bounds).map_err(rename)?;
        fields.finish();
        chat.common.choices = 1;
        Ok(Self { chat, echoed })
    }
}

/// This server remembers nothing between requests.
fn refuse_state(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["previous_response_id", "conversation", "prompt"] {
        if fields.any(name).is_some() {
            let message = format!("{name} is not supported: this server keeps no conversations");
            return Err(ApiError::unsupported(name, message));
        }
    }
    if fields.bool("background")? == Some(true) {
        let message = "background is not supported: this server keeps no responses";
        return Err(ApiError::unsupported("background", message));
    }
    Ok(())
}

fn take_echoed(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut echoed = Map::new();
    echoed.insert("instructions".into(), fields.string("instructions")?.into());
    for name in [
        "temperature",
        "top_p",
        "max_output_tokens",
        "tool_choice",
        "parallel_tool_calls",
    ] {
        echoed.insert(name.into(), fields.peek(name));
    }
    let tools = fields.peek("tools");
    echoed.insert(
        "tools".into(),
        if tools.is_null() { json!([]) } else { tools },
    );
    let metadata = fields.object("metadata")?.unwrap_or_default();
    echoed.insert("metadata".into(), metadata.into());
    for (name, default) in [
        ("temperature", json!(1.0)),
        ("top_p", json!(1.0)),
        ("tool_choice", json!("auto")),
        ("parallel_tool_calls", json!(true)),
    ] {
        if let Some(value) = echoed.get_mut(name).filter(|value| value.is_null()) {
            *value = default;
        }
    }
    Ok(echoed)
}

/// A text, or a list of messages, calls and outputs of calls.
fn read_input(input: Value, max: usize) -> Result<Vec<Value>, ApiError> {
    let items = match input {
        Value::String(text) => return Ok(vec![json!({"role": "user", "content": text})]),
        Value::Array(items) => fields::list(Value::Array(items), "input", max)?,
        other => {
            return Err(fields::wrong_type(
                "input",
                "a string or a list of items",
                &other,
            ));
        }
    };
    if items.is_empty() {
        return Err(ApiError::field(
            "input",
            "input must have at least one item",
        ));
    }
    let mut messages = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        read_item(item, &format!("input[{position}]"), &mut messages)?;
    }
    Ok(messages)
}

fn read_item(item: Value, path: &str, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    let kind = item
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("message")
        .to_owned();
    let mut fields = Fields::new(item, path)?;
    match kind.as_str() {
        "message" => {
            fields.ignore(&["type", "id", "status"]);
            messages.push(Value::Object(fields.into_map()));
        }
        "function_call" => {
            let function = json!({
                "name": fields.required("name")?,
                "arguments": fields.any("arguments"),
            });
            let call =
                json!({"id": fields.any("call_id"), "type": "function", "function": function});
            push_call(messages, call);
        }
        "function_call_output" => {
            let id = fields.required("call_id")?;
            let output = fields.required("output")?;
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": output}));
        }
        // What a model thought before is not read again.
        "reasoning" => {}
        _ => {
            let message = format!("{path} is of a type that is not supported");
            return Err(ApiError::unsupported(path, message));
        }
    }
    Ok(())
}

/// Calls that follow one another, or the assistant's words, are one turn.
fn push_call(messages: &mut Vec<Value>, call: Value) {
    if let Some(Value::Object(last)) = messages.last_mut()
        && last.get("role").and_then(Value::as_str) == Some("assistant")
    {
        match last.get_mut("tool_calls") {
            Some(Value::Array(calls)) => calls.push(call),
            _ => drop(last.insert("tool_calls".into(), json!([call]))),
        }
        return;
    }
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
}

/// `text.format` is what chat calls `response_format`.
fn take_format(fields: &mut Fields) -> Result<Option<Value>, ApiError> {
    let Some(mut text) = fields.fields("text")? else {
        return Ok(None);
    };
    let format = text.any("format");
    text.ignore(&["verbosity"]);
    text.finish();
    Ok(format)
}

/// Functions lie flat here and under `function` in chat.
fn read_tools(items: Vec<Value>) -> Vec<Value> {
    let nest = |item: Value| match item {
        Value::Object(mut map) if !map.contains_key("function") => {
            let kind = map.shift_remove("type");
            map.shift_remove("strict");
            json!({"type": kind, "function": map})
        }
        other => other,
    };
    items.into_iter().map(nest).collect()
}

fn take_logprobs(fields: &mut Fields) -> Result<(), ApiError> {
    let include = fields.list("include", 64)?.unwrap_or_default();
    let wanted = include
        .iter()
        .any(|item| item.as_str() == Some(INCLUDE_LOGPROBS));
    let top = fields.peek("top_logprobs");
    fields.set(
        "logprobs",
        (wanted || top.as_u64().is_some_and(|top| top > 0)).into(),
    );
    Ok(())
}

/// An error in a field that chat calls otherwise is told under the caller's name.
fn rename(mut error: ApiError) -> ApiError {
    if let Some(param) = &mut error.param {
        for (chat, own) in [
            ("messages", "input"),
            ("response_format", "text.format"),
            ("max_completion_tokens", "max_output_tokens"),
        ] {
            if let Some(rest) = param.strip_prefix(chat) {
                let renamed = format!("{own}{rest}");
                error.message = error.message.replace(param.as_str(), &renamed);
                *param = renamed;
                break;
            }
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::limits::HttpLimits;

    fn read(body: Value) -> Result<ResponsesRequest, ApiError> {
        let limits = HttpLimits::default();
        let bounds = Bounds {
            limits: &limits,
            vocab_size: 100,
            max_model_len: 1000,
        };
        ResponsesRequest::read(body.to_string().as_bytes(), bounds)
    }

    #[test]
    fn input_becomes_a_conversation() {
        let request = read(json!({
            "instructions": "be brief",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\": 1}"},
                {"type": "function_call", "call_id": "2", "name": "g", "arguments": ""},
                {"type": "function_call_output", "call_id": "1", "output": "rain"},
                {"type": "message", "role": "assistant", "id": "m", "status": "completed",
                 "content": [{"type": "output_text", "text": "It rains.", "annotations": []}]}
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
            "max_output_tokens": 7
        }))
        .unwrap();
        let expected = json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
            {"role": "tool", "content": "rain", "tool_call_id": "1"},
            {"role": "assistant", "content": "It rains."}
        ]);
        assert_eq!(Value::Array(request.chat.prompt.messages), expected);
        assert_eq!(request.chat.common.max_tokens, Some(7));
        assert_eq!(request.chat.prompt.tools[0]["function"]["name"], "f");
    }

    #[test]
    fn errors_name_the_fields_of_this_endpoint() {
        let cases = [
            (json!({}), "input"),
            (json!({"input": []}), "input"),
            (json!({"input": 3}), "input"),
            (json!({"input": [3]}), "input[0]"),
            (json!({"input": [{"role": "user"}]}), "input[0].content"),
            (json!({"input": [{"type": "web_search_call"}]}), "input[0]"),
            (
                json!({"input": "a", "previous_response_id": "x"}),
                "previous_response_id",
            ),
            (json!({"input": "a", "background": true}), "background"),
            (
                json!({"input": "a", "max_output_tokens": 0}),
                "max_output_tokens",
            ),
            (
                json!({"input": "a", "text": {"format": {"type": "xml"}}}),
                "text.format.type",
            ),
            (json!({"input": "a", "temperature": -1}), "temperature"),
            (
                json!({"input": "a", "tools": [{"type": "web_search"}]}),
                "tools[0].type",
            ),
        ];
        for (body, param) in cases {
            let error = read(body.clone()).expect_err(&body.to_string());
            assert_eq!(
                error.param.as_deref(),
                Some(param),
                "{body}: {}",
                error.message
            );
        }
    }
}
