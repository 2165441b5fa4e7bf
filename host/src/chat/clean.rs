//! Messages as callers send them to messages as templates expect them.
//!
//! Content becomes one text (parts are joined by a newline, null is empty) and the arguments of
//! tool calls, which travel as JSON in a string, become objects.

use serde_json::{Map, Value as Json};

use super::ChatError;

/// The messages, each with a text as `content`.
pub(super) fn messages(messages: &[Json]) -> Result<Vec<Json>, ChatError> {
    if messages.is_empty() {
        return Err(ChatError::bad("messages", "at least one message is needed"));
    }
    let numbered = messages.iter().enumerate();
    numbered
        .map(|(i, message)| clean(message, &format!("messages[{i}]")))
        .collect()
}

fn clean(message: &Json, param: &str) -> Result<Json, ChatError> {
    let Json::Object(message) = message else {
        return Err(ChatError::bad(param, "a message must be an object"));
    };
    let mut message = message.clone();
    if !message.get("role").is_some_and(Json::is_string) {
        return Err(ChatError::bad(
            format!("{param}.role"),
            "a role must be a string",
        ));
    }
    let text = text(message.get("content"), &format!("{param}.content"))?;
    message.insert("content".into(), text.into());
    drop_nulls(&mut message);
    if let Some(calls) = message.get_mut("tool_calls") {
        tool_calls(calls, &format!("{param}.tool_calls"))?;
    }
    Ok(Json::Object(message))
}

/// JSON null means absent: a template that asks `is defined` would take it for something.
fn drop_nulls(message: &mut Map<String, Json>) {
    message.retain(|_, value| !value.is_null());
}

fn text(content: Option<&Json>, param: &str) -> Result<String, ChatError> {
    match content {
        None | Some(Json::Null) => Ok(String::new()),
        Some(Json::String(text)) => Ok(text.clone()),
        Some(Json::Array(parts)) => {
            let numbered = parts.iter().enumerate();
            let texts = numbered.map(|(i, part)| part_text(part, &format!("{param}[{i}]")));
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        Some(_) => Err(ChatError::bad(
            param,
            "content must be a string, an array of parts or null",
        )),
    }
}

fn part_text<'a>(part: &'a Json, param: &str) -> Result<&'a str, ChatError> {
    if let Json::String(text) = part {
        return Ok(text);
    }
    let kind = part.get("type").and_then(Json::as_str).unwrap_or_default();
    let key = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        _ => {
            let message = format!("parts of type {kind:?} are not supported, only text is");
            return Err(ChatError::bad(param, message));
        }
    };
    let text = part.get(key).and_then(Json::as_str);
    text.ok_or_else(|| ChatError::bad(format!("{param}.{key}"), "must be a string"))
}

fn tool_calls(calls: &mut Json, param: &str) -> Result<(), ChatError> {
    let Json::Array(calls) = calls else {
        return Err(ChatError::bad(param, "tool_calls must be an array"));
    };
    for (i, call) in calls.iter_mut().enumerate() {
        let Some(function) = call.get_mut("function").and_then(Json::as_object_mut) else {
            return Err(ChatError::bad(
                format!("{param}[{i}].function"),
                "must be an object",
            ));
        };
        let given = function.remove("arguments").unwrap_or_default();
        let param = format!("{param}[{i}].function.arguments");
        function.insert("arguments".into(), arguments(given, &param)?);
    }
    Ok(())
}

/// An object, from an object or the JSON text of one; no arguments are an empty object.
fn arguments(given: Json, param: &str) -> Result<Json, ChatError> {
    let parsed = match given {
        Json::Null => Json::Object(Map::new()),
        Json::String(text) if text.trim().is_empty() => Json::Object(Map::new()),
        Json::String(text) => serde_json::from_str(&text)
            .map_err(|error| ChatError::bad(param, format!("not valid JSON: {error}")))?,
        other => other,
    };
    match parsed {
        Json::Object(_) => Ok(parsed),
        _ => Err(ChatError::bad(param, "must be a JSON object")),
    }
}
