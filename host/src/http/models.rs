//! `/v1/models`.

use serde_json::{Value, json};

use super::body::{Reply, json_ok};
use super::error::ApiError;
use super::server::Server;

/// Answers `/v1/models`: the model under each of its names.
///
/// # Errors
/// None of its own.
pub(super) fn list(server: &Server) -> Result<Reply, ApiError> {
    let card = &server.app.model;
    let names = std::iter::once(&card.id).chain(&card.aliases);
    let data: Vec<Value> = names.map(|name| describe(server, name)).collect();
    json_ok(&json!({"object": "list", "data": data}))
}

/// Answers `/v1/models/{id}`.
///
/// # Errors
/// 404 for another name.
pub(super) fn one(server: &Server, name: &str) -> Result<Reply, ApiError> {
    let card = &server.app.model;
    if !card.answers_to(name) {
        return Err(ApiError::new(
            hyper::StatusCode::NOT_FOUND,
            format!(
                "the named model is not served here; this server has {}",
                card.id
            ),
        )
        .at("model")
        .code("model_not_found"));
    }
    json_ok(&describe(server, name))
}

fn describe(server: &Server, name: &str) -> Value {
    let card = &server.app.model;
    json!({
        "id": name,
        "object": "model",
        "created": card.created,
        "owned_by": "lockstep",
        "root": card.root,
        "parent": null,
        "max_model_len": card.max_model_len,
        "system_fingerprint": server.fingerprint(),
    })
}
