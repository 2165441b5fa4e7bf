//! `POST /abort`.

use serde_json::{Value, json};

use super::body::{Reply, json_ok};
use super::call::Call;
use super::error::ApiError;
use super::wire::{fields, parse_object};

/// The most names of one call.
const MAX_NAMES: usize = 1024;

/// Aborts the calls with the given names: ids of answers, or labels from `x-request-id`. They come
/// as `request_id` or `rid`, each a text or a list of texts.
///
/// # Errors
/// 400 for a malformed body, 404 where no call has any of the names.
pub(super) async fn abort(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let mut fields = parse_object(&body, &call.server.app.limits)?;
    let mut names = Vec::new();
    for field in ["request_id", "request_ids", "rid"] {
        match fields.any(field) {
            None => {}
            Some(Value::String(name)) => names.push(name),
            Some(Value::Array(items)) => {
                let items = fields::list(Value::Array(items), field, MAX_NAMES)?;
                names.extend(fields::strings(items, field)?);
            }
            Some(other) => {
                let wanted = "a string or a list of strings";
                return Err(fields::wrong_type(field, wanted, &other));
            }
        }
    }
    fields.finish();
    if names.is_empty() {
        return Err(ApiError::field("request_id", "request_id is missing").code("missing_field"));
    }
    let in_flight = &call.server.in_flight;
    let aborted: usize = names.iter().map(|name| in_flight.abort(name)).sum();
    if aborted == 0 {
        let status = hyper::StatusCode::NOT_FOUND;
        return Err(
            ApiError::new(status, "no call of that name is in flight").code("unknown_request")
        );
    }
    json_ok(&json!({"aborted": aborted}))
}
