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
        found.extend(read_response_format(format)?);
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

fn read_response_format(mut format: Fields) -> Result<Option<(String, Constraint)>, ApiError> {
    let path = format.path("type");
    let constraint = match format.required("type")?.as_str() {
        Some("text") => None,
        Some("json_object") => Some((path, Constraint::JsonObject)),
        Some("json_schema") => {
            let (path, schema) = take_schema(&mut format)?;
            Some((path, Constraint::JsonSchema(schema)))
        }
        _ => {
            let message = format!("{path} must be text, json_object or json_schema");
            return Err(ApiError::field(path, message));
        }
    };
    format.finish();
    Ok(constraint)
}

/// The schema of a `json_schema` format, with its path: nested as in chat, or beside the type as in
/// responses.
fn take_schema(format: &mut Fields) -> Result<(String, Value), ApiError> {
    let Some(mut inner) = format.fields("json_schema")? else {
        let path = format.path("schema");
        let schema = match format.any("schema") {
            Some(schema) => schema,
            None => format.required("json_schema")?,
        };
        return Ok((path.clone(), read_schema(schema, &path)?));
    };
    let path = inner.path("schema");
    let schema = inner.required("schema")?;
    inner.ignore(&["name", "strict", "description"]);
    inner.finish();
    Ok((path.clone(), read_schema(schema, &path)?))
}

fn take_spellings(
    fields: &mut Fields,
    prefix: &str,
    found: &mut Vec<(String, Constraint)>,
) -> Result<(), ApiError> {
    let name = |kind: &str| format!("{prefix}{kind}");
    if let Some(schema) = fields.any(&name("json")) {
        let path = fields.path(&name("json"));
        let schema = read_schema(schema, &path)?;
        found.push((path, Constraint::JsonSchema(schema)));
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
fn read_schema(value: Value, path: &str) -> Result<Value, ApiError> {
    match value {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|_| ApiError::field(path, format!("{path} is a string that holds no JSON"))),
        schema @ (Value::Object(_) | Value::Bool(_)) => Ok(schema),
        other => Err(fields::wrong_type(path, "a JSON schema", &other)),
    }
}

fn read_choices(items: Vec<Value>, path: &str) -> Result<Vec<String>, ApiError> {
    if items.is_empty() {
        return Err(ApiError::field(
            path,
            format!("{path} must have at least one text"),
        ));
    }
    fields::strings(items, path)
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
        for (body, path) in [
            (
                json!({"response_format": {"type": "xml"}}),
                "response_format.type",
            ),
            (
                json!({"response_format": {"type": 3}}),
                "response_format.type",
            ),
            (json!({"response_format": {}}), "response_format.type"),
            (json!({"response_format": "json"}), "response_format"),
            (
                json!({"response_format": {"type": "json_schema"}}),
                "response_format.json_schema",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
                "response_format.json_schema.schema",
            ),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}}),
                "response_format.json_schema.schema",
            ),
            (json!({"guided_choice": []}), "guided_choice"),
            (json!({"guided_choice": "a"}), "guided_choice"),
            (json!({"guided_choice": ["a", 3]}), "guided_choice[1]"),
            (
                json!({"structured_outputs": {"choice": [null]}}),
                "structured_outputs.choice[0]",
            ),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"guided_json": 3}), "guided_json"),
            (
                json!({"guided_regex": "a", "response_format": {"type": "json_object"}}),
                "guided_regex",
            ),
        ] {
            let error = take_constraint(&mut Fields::new(body.clone(), "").unwrap()).unwrap_err();
            assert_eq!(error.status, 400);
            assert_eq!(error.param.as_deref(), Some(path), "{body}");
            assert!(error.message.contains(path) || path == "guided_regex");
        }
    }
}
