//! The messages of a conversation, checked and brought into the shape that templates expect.

use serde_json::{Map, Value, json};

use super::fields::{self, Fields};
use crate::http::error::ApiError;

const ROLES: [&str; 6] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    "function",
];

/// The messages of a request, normalised: contents are texts, `arguments` are objects.
///
/// # Errors
/// 400 with the path of the message and field.
pub(in crate::http) fn read_messages(
    items: Vec<Value>,
    path: &str,
) -> Result<Vec<Value>, ApiError> {
    if items.is_empty() {
        let message = format!("{path} must have at least one message");
        return Err(ApiError::field(path, message).code("empty_messages"));
    }
    let read = |(position, item)| read_message(item, &format!("{path}[{position}]"));
    items.into_iter().enumerate().map(read).collect()
}

fn read_message(item: Value, path: &str) -> Result<Value, ApiError> {
    let mut fields = Fields::new(item, path)?;
    let role = fields.required("role")?;
    let role = role
        .as_str()
        .and_then(|role| ROLES.into_iter().find(|known| *known == role));
    let role = role.ok_or_else(|| {
        let at = fields.path("role");
        let message = format!("{at} must be one of {}", ROLES.join(", "));
        ApiError::field(at, message)
    })?;
    let calls = match fields.list("tool_calls", 1024)? {
        Some(items) => read_tool_calls(items, &fields.path("tool_calls"))?,
        None => Vec::new(),
    };
    let mut message = Map::new();
    // A developer message is what system messages are called by now.
    let shown = if role == "developer" { "system" } else { role };
    message.insert("role".into(), shown.into());
    let optional = role == "assistant";
    message.insert(
        "content".into(),
        read_content(&mut fields, optional)?.into(),
    );
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(text) = fields.string(name)? {
            message.insert(name.into(), text.into());
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.into());
    }
    fields.ignore(&["refusal", "audio", "annotations", "function_call"]);
    fields.finish();
    Ok(Value::Object(message))
}

/// A text, or the texts of parts joined by line breaks. Absent is empty where `optional`.
fn read_content(fields: &mut Fields, optional: bool) -> Result<String, ApiError> {
    let path = fields.path("content");
    match fields.any("content") {
        Some(Value::String(text)) => Ok(text),
        Some(Value::Array(parts)) => read_parts(parts, &path),
        None if optional => Ok(String::new()),
        None => {
            Err(ApiError::field(path.clone(), format!("{path} is missing")).code("missing_field"))
        }
        Some(other) => Err(fields::wrong_type(
            &path,
            "a string or a list of parts",
            &other,
        )),
    }
}

fn read_parts(parts: Vec<Value>, path: &str) -> Result<String, ApiError> {
    let mut texts = Vec::with_capacity(parts.len());
    for (position, part) in parts.into_iter().enumerate() {
        let path = format!("{path}[{position}]");
        if let Value::String(text) = part {
            texts.push(text);
            continue;
        }
        let mut part = Fields::new(part, &path)?;
        let kind = part.string("type")?;
        let text = match kind.as_deref() {
            Some("text" | "input_text" | "output_text") | None => part.required("text")?,
            Some("refusal") => part.required("refusal")?,
            Some(_) => {
                let message = format!("{path} is not of type text, and this model reads text only");
                return Err(ApiError::unsupported(path, message));
            }
        };
        match text {
            Value::String(text) => texts.push(text),
            other => return Err(fields::wrong_type(&part.path("text"), "a string", &other)),
        }
    }
    Ok(texts.join("\n"))
}

fn read_tool_calls(items: Vec<Value>, path: &str) -> Result<Vec<Value>, ApiError> {
    let read = |(position, item)| read_tool_call(item, &format!("{path}[{position}]"));
    items.into_iter().enumerate().map(read).collect()
}

fn read_tool_call(item: Value, path: &str) -> Result<Value, ApiError> {
    let mut call = Fields::new(item, path)?;
    let id = call.string("id")?;
    let mut function = match call.fields("function")? {
        Some(function) => function,
        None => {
            let at = call.path("function");
            return Err(ApiError::field(at.clone(), format!("{at} is missing")));
        }
    };
    let name = match function.required("name")? {
        Value::String(name) => name,
        other => {
            return Err(fields::wrong_type(
                &function.path("name"),
                "a string",
                &other,
            ));
        }
    };
    let arguments = read_arguments(&mut function)?;
    let function = json!({"name": name, "arguments": arguments});
    Ok(match id {
        Some(id) => json!({"id": id, "type": "function", "function": function}),
        None => json!({"type": "function", "function": function}),
    })
}

/// Arguments come as a text of JSON or as an object; nothing and an empty text are no arguments.
fn read_arguments(function: &mut Fields) -> Result<Value, ApiError> {
    let path = function.path("arguments");
    let wrong = || {
        let message = format!("{path} must be a JSON object, or a string that holds one");
        ApiError::field(path.clone(), message)
    };
    match function.any("arguments") {
        None => Ok(Value::Object(Map::new())),
        Some(Value::Object(map)) => Ok(Value::Object(map)),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Value::Object(Map::new())),
        // The parser's own recursion limit bounds the nesting inside the text.
        Some(Value::String(text)) => match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(map)) => Ok(Value::Object(map)),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(messages: Value) -> Result<Vec<Value>, ApiError> {
        match messages {
            Value::Array(items) => read_messages(items, "messages"),
            _ => panic!("the test needs a list"),
        }
    }

    #[test]
    fn contents_become_texts() {
        let read = read(json!([
            {"role": "developer", "content": "a"},
            {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1]}"}},
                {"function": {"name": "g", "arguments": ""}}]},
            {"role": "tool", "tool_call_id": "1", "content": "d"}
        ]));
        let expected = json!([
            {"role": "system", "content": "a"},
            {"role": "user", "content": "b\nc"},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": [1]}}},
                {"type": "function", "function": {"name": "g", "arguments": {}}}]},
            {"role": "tool", "content": "d", "tool_call_id": "1"}
        ]);
        assert_eq!(Value::Array(read.unwrap()), expected);
    }

    #[test]
    fn an_assistant_may_speak_alone() {
        let alone = json!([{"role": "assistant", "content": "a"}]);
        assert_eq!(Value::Array(read(alone.clone()).unwrap()), alone);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path_and_not_repeated() {
        let cases = [
            (json!([]), "messages"),
            (json!(["secret"]), "messages[0]"),
            (json!([{"content": "secret"}]), "messages[0].role"),
            (
                json!([{"role": "secret", "content": ""}]),
                "messages[0].role",
            ),
            (json!([{"role": "user"}]), "messages[0].content"),
            (
                json!([{"role": "user", "content": 7}]),
                "messages[0].content",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
                "messages[0].content[0]",
            ),
            (
                json!([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "secret"}}]}]),
                "messages[0].tool_calls[0].function.arguments",
            ),
            (
                json!([{"role": "assistant", "tool_calls": [{}]}]),
                "messages[0].tool_calls[0].function",
            ),
        ];
        for (messages, path) in cases {
            let error = read(messages).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(path));
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }
}
