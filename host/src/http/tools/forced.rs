//! Calls that must be made: the constraint on the answer that a choice of tools comes to.

use serde_json::{Map, Value, json};

use super::super::error::ApiError;
use super::super::wire::chat::ToolChoice;
use crate::structured::Constraint;

/// The constraint of a choice of tools: the arguments alone where one tool is named, a list of
/// calls where any will do; none where the model is free.
///
/// # Errors
/// 400 where two tools define different things under one name.
pub(in crate::http) fn constraint(
    choice: &ToolChoice,
    tools: &[Value],
    parallel: bool,
) -> Result<Option<Constraint>, ApiError> {
    match choice {
        ToolChoice::None | ToolChoice::Auto => Ok(None),
        ToolChoice::Named(name) => {
            let named = |tool: &&Value| tool.pointer("/function/name") == Some(&json!(name));
            let schema = tools.iter().find(named).map(parameters);
            let schema = schema.unwrap_or_else(|| json!({"type": "object"}));
            Ok(Some(Constraint::JsonSchema(schema)))
        }
        ToolChoice::Required => any_call(tools, parallel).map(Some),
    }
}

fn any_call(tools: &[Value], parallel: bool) -> Result<Constraint, ApiError> {
    let mut definitions = Map::new();
    let mut calls = Vec::with_capacity(tools.len());
    for (position, tool) in tools.iter().enumerate() {
        let mut schema = parameters(tool);
        hoist(&mut schema, &mut definitions, position)?;
        let name = tool.pointer("/function/name").cloned().unwrap_or_default();
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": schema},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        }));
    }
    let mut schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": calls}});
    if !parallel {
        schema["maxItems"] = 1.into();
    }
    if !definitions.is_empty() {
        schema["$defs"] = definitions.into();
    }
    Ok(Constraint::JsonSchema(schema))
}

/// What a tool takes; without a word about it, any object.
fn parameters(tool: &Value) -> Value {
    match tool.pointer("/function/parameters") {
        Some(Value::Object(schema)) if !schema.is_empty() => Value::Object(schema.clone()),
        _ => json!({"type": "object"}),
    }
}

/// References count from the root, so definitions have to lie there.
fn hoist(
    schema: &mut Value,
    definitions: &mut Map<String, Value>,
    position: usize,
) -> Result<(), ApiError> {
    let Some(Value::Object(own)) = schema
        .as_object_mut()
        .and_then(|map| map.shift_remove("$defs"))
    else {
        return Ok(());
    };
    for (name, definition) in own {
        match definitions.get(&name) {
            Some(other) if *other != definition => {
                let path = format!("tools[{position}].function.parameters.$defs");
                let message = format!("{path} defines a name otherwise than a tool before it");
                return Err(ApiError::field(path, message));
            }
            _ => drop(definitions.insert(name, definition)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, parameters: Value) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    }

    #[test]
    fn a_named_tool_is_its_parameters() {
        let tools = [
            tool("f", json!({})),
            tool("g", json!({"type": "object", "required": ["x"]})),
        ];
        let of = |name: &str| constraint(&ToolChoice::Named(name.into()), &tools, true).unwrap();
        assert_eq!(
            of("f"),
            Some(Constraint::JsonSchema(json!({"type": "object"})))
        );
        let schema = json!({"type": "object", "required": ["x"]});
        assert_eq!(of("g"), Some(Constraint::JsonSchema(schema)));
        assert_eq!(constraint(&ToolChoice::Auto, &tools, true).unwrap(), None);
    }

    #[test]
    fn definitions_move_to_the_root_and_must_agree() {
        let with = |kind: &str| json!({"type": "object", "$defs": {"T": {"type": kind}}});
        let tools = [tool("f", with("string")), tool("g", with("string"))];
        let Some(Constraint::JsonSchema(schema)) =
            constraint(&ToolChoice::Required, &tools, false).unwrap()
        else {
            panic!("a schema")
        };
        assert_eq!(schema["$defs"], json!({"T": {"type": "string"}}));
        assert_eq!(schema["maxItems"], 1);
        assert_eq!(
            schema["items"]["anyOf"][1]["properties"]["name"],
            json!({"const": "g"})
        );
        let tools = [tool("f", with("string")), tool("g", with("number"))];
        let error = constraint(&ToolChoice::Required, &tools, true).unwrap_err();
        assert_eq!(
            error.param.as_deref(),
            Some("tools[1].function.parameters.$defs")
        );
    }
}
