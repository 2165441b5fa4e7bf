//! Reading the fields of a JSON object, with an error that says which and why.
//!
//! Null means absent everywhere. A field that nobody takes is ignored; its name is logged.

use std::ops::RangeInclusive;

use serde_json::{Map, Number, Value};

use super::super::error::ApiError;

/// Names of ignored fields that are logged per object, and how much of each.
const LOGGED_NAMES: usize = 16;
const LOGGED_CHARS: usize = 40;
/// Up to here every whole number is a double: 2^53.
const LAST_EXACT: f64 = 9_007_199_254_740_992.0;

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
    let (least, most) = (*range.start(), *range.end());
    match whole(number) {
        Some(whole) if range.contains(&whole) => Ok(whole),
        Some(whole) => Err(out_of_range(path, whole, least, most)),
        None => Err(not_exact(number, path, least, most)),
    }
}

/// The whole number that a number is. Doubles are exact up to 2^53: a larger one may not be what the
/// caller wrote.
fn whole(number: &Number) -> Option<i128> {
    let exact = |double: &f64| double.fract() == 0.0 && double.abs() <= LAST_EXACT;
    number
        .as_i128()
        .or_else(|| number.as_f64().filter(exact).map(|double| double as i128))
}

/// The error of a number that is no whole one, or too large a double to tell which it is.
fn not_exact(number: &Number, path: &str, least: i128, most: i128) -> ApiError {
    let double = number.as_f64().unwrap_or(f64::INFINITY);
    if double.abs() <= LAST_EXACT {
        let message = format!("{path} must be a whole number, not {number}");
        return ApiError::field(path, message);
    }
    if double < least as f64 || double > most as f64 {
        return out_of_range(path, number, least, most);
    }
    let message = format!(
        "{path} is {number}, which is not exact: whole numbers above 2^53 must be written in digits, up to {most}"
    );
    ApiError::field(path, message)
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

/// The texts of a list, each named by its place where it is none.
pub(in crate::http) fn strings(items: Vec<Value>, path: &str) -> Result<Vec<String>, ApiError> {
    let text = |(position, item)| match item {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(
            &format!("{path}[{position}]"),
            "a string",
            &other,
        )),
    };
    items.into_iter().enumerate().map(text).collect()
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
    let Value::Number(number) = value else {
        return Err(wrong_type(&path.to_string(), "a token id", value));
    };
    let id = whole(number);
    let known = id.and_then(|id| u32::try_from(id).ok());
    if let Some(id) = known.filter(|&id| id < vocab_size) {
        return Ok(id);
    }
    let path = path.to_string();
    let whole = id.is_some() || number.as_f64().is_some_and(|double| double.fract() == 0.0);
    if !whole {
        let message = format!("{path} must be a token id, which is a whole number, not {number}");
        return Err(ApiError::field(path, message).code("invalid_type"));
    }
    let message = format!("{path}: token id {number} is outside the vocabulary of {vocab_size}");
    Err(ApiError::field(path, message).code("unknown_token"))
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
    fn large_numbers_are_told_what_is_wrong_with_them() {
        let message = |value: Value, range| integer(&value, "n", range).unwrap_err().message;
        assert_eq!(
            message(json!(1e20), 1..=16),
            "n is 1e+20; it must lie in 1 to 16"
        );
        assert_eq!(
            message(json!(-1e300), 1..=16),
            "n is -1e+300; it must lie in 1 to 16"
        );
        let seeds = i128::from(i64::MIN)..=i128::from(u64::MAX);
        let told = message(json!(1e18), seeds.clone());
        assert!(told.contains("not exact"), "{told}");
        assert_eq!(
            integer(&json!(u64::MAX), "n", seeds).unwrap(),
            i128::from(u64::MAX)
        );
    }

    #[test]
    fn whole_doubles_are_token_ids_and_others_are_told_apart() {
        let id = |value: Value| token_id(&value, &"p", 10);
        assert_eq!(id(json!(3.0)).unwrap(), 3);
        assert_eq!(
            id(json!(1.5)).unwrap_err().message,
            "p must be a token id, which is a whole number, not 1.5"
        );
        for outside in [json!(10.0), json!(-1), json!(1e300)] {
            assert_eq!(id(outside).unwrap_err().code, Some("unknown_token"));
        }
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
