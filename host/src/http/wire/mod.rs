//! The wire format: the only place that knows the field names of requests and answers.

use serde_json::Value;

use super::error::ApiError;
use super::limits::HttpLimits;

pub(super) mod chat;
pub(super) mod common;
pub(super) mod completion;
pub(super) mod constraint;
pub(super) mod fields;
pub(super) mod message;
pub(super) mod output;
pub(super) mod responses;

pub(super) use fields::Fields;

/// What the reading of a request is bounded by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<'a> {
    pub(super) limits: &'a HttpLimits,
    pub(super) vocab_size: u32,
    pub(super) max_model_len: u32,
}

/// The fields of a body.
///
/// # Errors
/// 400 for what is no JSON object or nested too deeply. The messages are fixed texts with a place:
/// nothing of the body is repeated.
pub(super) fn parse_object(body: &[u8], limits: &HttpLimits) -> Result<Fields, ApiError> {
    check_depth(body, limits.max_json_depth)?;
    let value: Value = serde_json::from_slice(body).map_err(|error| not_json(&error))?;
    Fields::new(value, "")
}

fn not_json(error: &serde_json::Error) -> ApiError {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "ends too early",
        // The library has no other way to tell it.
        _ if error.to_string().starts_with("number out of range") => {
            "has a number that no double holds"
        }
        _ => "is not valid JSON",
    };
    let (line, column) = (error.line(), error.column());
    ApiError::invalid(format!("the body {what} at line {line}, column {column}"))
        .code("invalid_json")
}

/// Bounds the nesting before a parser recurses into it.
fn check_depth(body: &[u8], max: usize) -> Result<(), ApiError> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in body {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > max {
            let message = format!("the body is nested deeper than the limit of {max}");
            return Err(ApiError::invalid(message).code("nested_too_deeply"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_with_a_place_and_without_its_text() {
        let limits = HttpLimits::default();
        let cases: [&[u8]; 10] = [
            b"",
            b"secret",
            b"{\"secret\": ",
            b"{\"a\": NaN}",
            b"{\"a\": 1e999}",
            b"{\"a\": \"\\ud83d\"}",
            b"{\"a\": \"\\ude00secret\"}",
            b"{\"a\": \"\xff\xfe\"}",
            b"{\"a\": 1} secret",
            b"[1, 2]",
        ];
        for body in cases {
            let error = parse_object(body, &limits).unwrap_err();
            assert_eq!(error.status, 400);
            assert!(!error.message.contains("secret"), "{}", error.message);
        }
    }

    #[test]
    fn a_number_without_a_double_is_told_so() {
        let digits = format!("{{\"a\": {}}}", "9".repeat(400));
        for body in ["{\"a\": 1e400}", digits.as_str()] {
            let error = parse_object(body.as_bytes(), &HttpLimits::default()).unwrap_err();
            assert!(error.message.contains("no double"), "{}", error.message);
        }
    }

    #[test]
    fn nesting_is_bounded_and_brackets_in_strings_do_not_count() {
        let limits = HttpLimits::default();
        let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse_object(nested(63).as_bytes(), &limits).is_ok());
        let error = parse_object(nested(64).as_bytes(), &limits).unwrap_err();
        assert_eq!(error.code, Some("nested_too_deeply"));
        assert!(parse_object("[".repeat(1_000_000).as_bytes(), &limits).is_err());
        let text = format!("{{\"a\":\"\\\"{}\"}}", "[".repeat(100));
        assert!(parse_object(text.as_bytes(), &limits).is_ok());
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let limits = HttpLimits::default();
        let mut fields = parse_object(b"{\"n\": 1, \"n\": 2}", &limits).unwrap();
        assert_eq!(fields.count("n", 0..=5).unwrap(), Some(2));
    }
}
