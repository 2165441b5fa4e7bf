//! Reading the fields of a JSON object, with an error that says which and why.
//!
//! Null means absent everywhere. A field that nobody takes is ignored; its name is logged.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::super::error::ApiError;

/// Names of ignored fields that are logged per object, and how much of each.
const LOGGED_NAMES: usize = 16;
const LOGGED_CHARS: usize = 40;

/// An object whose fields are taken out one by one.
#[derive(Debug)]
pub(in crate::http) struct Fields {
    map: Map<String, Value>,
    path: String,
}

impl Fields {
    /// The fields of an object at `path`; the body itself is at the empty path.
    ///
    /// # Errors
    /// 400 where the value is not an object.
    pub(in crate::http) fn new(value: Value, path: &str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self {
                map,
                path: path.to_owned(),
            }),
            other if path.is_empty() => Err(ApiError::invalid(format!(
                "the body must be a JSON object, not {}",
                kind(&other)
            ))),
            other => Err(wrong_type(path, "an object", &other)),
        }
    }

    /// The full path of one of its fields.
    pub(in crate::http) fn path(&self, name: &str) -> String {
        if self.path.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    /// Takes a field of any type.
    pub(in crate::http) fn any(&mut self, name: &str) -> Option<Value> {
        self.map.shift_remove(name).filter(|value| !value.is_null())
    }

    /// Takes a field of any type that must be there.
    pub(in crate::http) fn required(&mut self, name: &str) -> Result<Value, ApiError> {
        self.any(name).ok_or_else(|| {
            let path = self.path(name);
            ApiError::invalid(format!("{path} is missing"))
                .at(path)
                .code("missing_field")
        })
    }

    /// Takes a truth value.
    pub(in crate::http) fn bool(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(&self.path(name), "true or false", &other)),
        }
    }

    /// Takes a text.
    pub(in crate::http) fn string(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(Value::String(value)) => Ok(Some(value)),
            Some(other) => Err(wrong_type(&self.path(name), "a string", &other)),
        }
    }

    /// Takes a number in a range.
    pub(in crate::http) fn float(
        &mut self,
        name: &str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f32>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(value) => float(&value, &self.path(name), range).map(Some),
        }
    }

    /// Takes a whole number in a range.
    pub(in crate::http) fn integer(
        &mut self,
        name: &str,
        range: RangeInclusive<i128>,
    ) -> Result<Option<i128>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(value) => integer(&value, &self.path(name), range).map(Some),
        }
    }

    /// Takes a count: a whole number from `range`, which lies in `u32`.
    pub(in crate::http) fn count(
        &mut self,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ApiError> {
        let range = i128::from(*range.start())..=i128::from(*range.end());
        let value = self.integer(name, range)?;
        Ok(value.and_then(|value| u32::try_from(value).ok()))
    }

    /// Takes a list of at most `max` entries.
    pub(in crate::http) fn list(
        &mut self,
        name: &str,
        max: usize,
    ) -> Result<Option<Vec<Value>>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(value) => list(value, &self.path(name), max).map(Some),
        }
    }

    /// Takes an object, as it is.
    pub(in crate::http) fn object(
        &mut self,
        name: &str,
    ) -> Result<Option<Map<String, Value>>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(wrong_type(&self.path(name), "an object", &other)),
        }
    }

    /// Takes an object, to read its fields.
    pub(in crate::http) fn fields(&mut self, name: &str) -> Result<Option<Fields>, ApiError> {
        match self.any(name) {
            None => Ok(None),
            Some(value) => Fields::new(value, &self.path(name)).map(Some),
        }
    }

    /// A field as it is, left where it is; null where there is none.
    pub(in crate::http) fn peek(&self, name: &str) -> Value {
        self.map.get(name).cloned().unwrap_or_default()
    }

    /// Sets a field, in place of what the caller wrote under another name.
    pub(in crate::http) fn set(&mut self, name: &str, value: Value) {
        self.map.insert(name.to_owned(), value);
    }

    /// What has not been taken.
    pub(in crate::http) fn into_map(self) -> Map<String, Value> {
        self.map
    }

    /// Takes fields that are known and mean nothing here.
    pub(in crate::http) fn ignore(&mut self, names: &[&str]) {
        for name in names {
            self.map.shift_remove(*name);
        }
    }

    /// Ends the reading: what is left is unknown. Only names are logged, escaped and cut.
    pub(in crate::http) fn finish(self) {
        if self.map.is_empty() || !log::log_enabled!(log::Level::Debug) {
            return;
        }
        let cut = |name: &String| name.chars().take(LOGGED_CHARS).collect::<String>();
        let names: Vec<String> = self.map.keys().take(LOGGED_NAMES).map(cut).collect();
        log::debug!("ignored {} unknown fields: {names:?}", self.map.len());
    }
}

/// A number in a range, as the `f32` that the sampler reads.
pub(in crate::http) fn float(
    value: &Value,
    path: &str,
    range: RangeInclusive<f64>,
) -> Result<f32, ApiError> {
    let number = value
        .as_f64()
        .filter(|number| number.is_finite())
        .ok_or_else(|| wrong_type(path, "a finite number", value))?;
    if !range.contains(&number) {
        return Err(out_of_range(path, number, range.start(), range.end()));
    }
    Ok(number as f32)
}

/// A whole number in a range; `3.0` is one, `3.5` is none.
pub(in crate::http) fn integer(
    value: &Value,
    path: &str,
    range: RangeInclusive<i128>,
) -> Result<i128, ApiError> {
    let Value::Number(number) = value else {
        return Err(wrong_type(path, "a whole number", value));
    };
    let whole = number
        .as_i128()
        .or_else(|| number.as_f64().and_then(exact_integer))
        .ok_or_else(|| {
            ApiError::field(path, format!("{path} must be a whole number, not {number}"))
        })?;
    if !range.contains(&whole) {
        return Err(out_of_range(path, whole, range.start(), range.end()));
    }
    Ok(whole)
}

/// Doubles are exact integers up to 2^53; a larger one may not be what the caller wrote.
fn exact_integer(number: f64) -> Option<i128> {
    let exact = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
    exact.then_some(number as i128)
}

/// A list of at most `max` entries.
pub(in crate::http) fn list(value: Value, path: &str, max: usize) -> Result<Vec<Value>, ApiError> {
    match value {
        Value::Array(items) if items.len() <= max => Ok(items),
        Value::Array(items) => Err(ApiError::field(
            path,
            format!("{path} has {} entries; the limit is {max}", items.len()),
        )),
        other => Err(wrong_type(path, "a list", &other)),
    }
}

/// A list of token ids. Ids outside the vocabulary are named.
pub(in crate::http) fn token_ids(
    items: &[Value],
    path: &str,
    vocab_size: u32,
) -> Result<Vec<u32>, ApiError> {
    let mut ids = Vec::with_capacity(items.len());
    for (position, item) in items.iter().enumerate() {
        ids.push(token_id(
            item,
            &format_args!("{path}[{position}]"),
            vocab_size,
        )?);
    }
    Ok(ids)
}

/// A token id, named in the error where it is outside the vocabulary.
pub(in crate::http) fn token_id(
    value: &Value,
    path: &dyn std::fmt::Display,
    vocab_size: u32,
) -> Result<u32, ApiError> {
    let id = value.as_u64().filter(|&id| id < u64::from(vocab_size));
    if let Some(id) = id.and_then(|id| u32::try_from(id).ok()) {
        return Ok(id);
    }
    let path = path.to_string();
    match value {
        Value::Number(number) => Err(ApiError::field(
            path.clone(),
            format!("{path}: token id {number} is outside the vocabulary of {vocab_size}"),
        )
        .code("unknown_token")),
        other => Err(wrong_type(&path, "a token id", other)),
    }
}

/// The error of a field with a value of the wrong type.
pub(in crate::http) fn wrong_type(path: &str, wanted: &str, value: &Value) -> ApiError {
    ApiError::field(
        path,
        format!("{path} must be {wanted}, not {}", kind(value)),
    )
    .code("invalid_type")
}

fn out_of_range(
    path: &str,
    value: impl std::fmt::Display,
    least: impl std::fmt::Display,
    most: impl std::fmt::Display,
) -> ApiError {
    ApiError::field(
        path,
        format!("{path} is {value}; it must lie in {least} to {most}"),
    )
}

/// What a value is, without its content.
pub(in crate::http) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_absent_and_messages_name_value_and_limit() {
        let mut fields =
            Fields::new(json!({"a": null, "b": 3.5, "c": 9, "d": -1e300}), "").unwrap();
        assert_eq!(fields.float("a", 0.0..=1.0).unwrap(), None);
        let error = fields.count("b", 0..=5).unwrap_err();
        assert_eq!(error.message, "b must be a whole number, not 3.5");
        let error = fields.count("c", 0..=5).unwrap_err();
        assert_eq!(error.message, "c is 9; it must lie in 0 to 5");
        assert_eq!(
            fields.float("d", 0.0..=2.0).unwrap_err().param.as_deref(),
            Some("d")
        );
    }

    #[test]
    fn token_ids_outside_the_vocabulary_are_named() {
        let error = token_ids(&[json!(1), json!(4_294_967_297_u64)], "prompt", 10).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("prompt[1]"));
        assert!(error.message.contains("4294967297"), "{}", error.message);
        for bad in [json!(-1), json!(1.5), json!("1"), json!(true), json!(10)] {
            assert!(token_ids(&[bad], "p", 10).is_err());
        }
        assert_eq!(token_ids(&[json!(9)], "p", 10).unwrap(), [9]);
    }
}
