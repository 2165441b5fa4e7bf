//! The fields that constrain what an answer may be, in all their spellings.

use serde_json::Value;

use super::fields::{self, Fields};
use crate::http::error::ApiError;
use crate::structured::Constraint;

/// Takes the constraint of a request: `response_format`, vLLM's `structured_outputs`, or the older
/// `guided_*`.
///
/// # Errors
/// 400 for a malformed one, and for more than one.
pub(in crate::http) fn take_constraint(
    body: &mut Fields,
) -> Result<Option<(String, Constraint)>, ApiError> {
    let mut found = Vec::new();
    if let Some(format) = body.fields("response_format")? {
        let path = format.path("type");
        found.extend(read_response_format(format)?.map(|constraint| (path, constraint)));
    }
    if let Some(mut outputs) = body.fields("structured_outputs")? {
        take_spellings(&mut outputs, "", &mut found)?;
        outputs.finish();
    }
    take_spellings(body, "guided_", &mut found)?;
    body.ignore(&["guided_decoding_backend", "guided_whitespace_pattern"]);
    if found.len() > 1 {
        return Err(ApiError::field(
            found.swap_remove(1).0,
            "a request can have one constraint on its answer, not several",
        ));
    }
    Ok(found.pop())
}

fn read_response_format(mut format: Fields) -> Result<Option<Constraint>, ApiError> {
    let path = format.path("type");
    let kind = format.string("type")?.unwrap_or_default();
    let constraint = match kind.as_str() {
        "text" => None,
        "json_object" => Some(Constraint::JsonObject),
        "json_schema" => Some(Constraint::JsonSchema(take_schema(&mut format)?)),
        _ => {
            let message = format!("{path} must be text, json_object or json_schema");
            return Err(ApiError::field(path, message));
        }
    };
    format.finish();
    Ok(constraint)
}

/// The schema of a `json_schema` format: nested as in chat, or beside the type as in responses.
fn take_schema(format: &mut Fields) -> Result<Value, ApiError> {
    match format.fields("json_schema")? {
        Some(mut inner) => {
            let schema = inner.required("schema")?;
            inner.ignore(&["name", "strict", "description"]);
            inner.finish();
            Ok(schema)
        }
        None => format.required("schema"),
    }
}

fn take_spellings(
    fields: &mut Fields,
    prefix: &str,
    found: &mut Vec<(String, Constraint)>,
) -> Result<(), ApiError> {
    let name = |kind: &str| format!("{prefix}{kind}");
    if let Some(schema) = fields.any(&name("json")) {
        found.push((
            fields.path(&name("json")),
            Constraint::JsonSchema(read_schema(schema)?),
        ));
    }
    if fields.bool(&name("json_object"))? == Some(true) {
        found.push((fields.path(&name("json_object")), Constraint::JsonObject));
    }
    if let Some(regex) = fields.string(&name("regex"))? {
        found.push((fields.path(&name("regex")), Constraint::Regex(regex)));
    }
    if let Some(items) = fields.list(&name("choice"), 4096)? {
        let path = fields.path(&name("choice"));
        found.push((
            path.clone(),
            Constraint::Choice(read_choices(items, &path)?),
        ));
    }
    if let Some(grammar) = fields.string(&name("grammar"))? {
        found.push((fields.path(&name("grammar")), Constraint::Grammar(grammar)));
    }
    Ok(())
}

/// A schema, or a text that holds one.
fn read_schema(value: Value) -> Result<Value, ApiError> {
    match value {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|_| ApiError::invalid("the JSON schema is a string that is not JSON")),
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(schema),
        other => Err(ApiError::invalid(format!(
            "a JSON schema must be an object, not {}",
            fields::kind(&other)
        ))),
    }
}

fn read_choices(items: Vec<Value>, path: &str) -> Result<Vec<String>, ApiError> {
    if items.is_empty() {
        return Err(ApiError::field(
            path,
            format!("{path} must have at least one text"),
        ));
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::String(text) => Ok(text),
            other => Err(fields::wrong_type(path, "a list of strings", &other)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_spelling_is_understood() {
        let schema = json!({"type": "object"});
        let cases = [
            (json!({"response_format": {"type": "text"}}), None),
            (
                json!({"response_format": {"type": "json_object"}}),
                Some(Constraint::JsonObject),
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema}}}),
                Some(Constraint::JsonSchema(schema.clone())),
            ),
            (
                json!({"guided_json": "{\"type\": \"object\"}"}),
                Some(Constraint::JsonSchema(schema.clone())),
            ),
            (
                json!({"structured_outputs": {"regex": "a+"}}),
                Some(Constraint::Regex("a+".into())),
            ),
            (
                json!({"guided_choice": ["a"]}),
                Some(Constraint::Choice(vec!["a".into()])),
            ),
            (
                json!({"structured_outputs": {"grammar": "start: \"a\"", "json": null}}),
                Some(Constraint::Grammar("start: \"a\"".into())),
            ),
        ];
        for (body, expected) in cases {
            let found = take_constraint(&mut Fields::new(body, "").unwrap()).unwrap();
            assert_eq!(found.map(|(_, constraint)| constraint), expected);
        }
    }

    #[test]
    fn a_malformed_one_is_refused() {
        for body in [
            json!({"response_format": {"type": "xml"}}),
            json!({"response_format": {}}),
            json!({"response_format": "json"}),
            json!({"response_format": {"type": "json_schema"}}),
            json!({"guided_choice": []}),
            json!({"guided_json": "{"}),
            json!({"guided_json": 3}),
            json!({"guided_regex": "a", "response_format": {"type": "json_object"}}),
        ] {
            let error = take_constraint(&mut Fields::new(body, "").unwrap()).unwrap_err();
            assert_eq!(error.status, 400);
        }
    }
}
