//! `/debug`: what the journal knows, told by whoever keeps it.

use super::body::{Reply, json_ok};
use super::error::ApiError;
use super::server::Server;
use crate::request::RequestId;

/// Answers questions about requests and preemptions, from the journal. Called on an HTTP thread:
/// it must not wait for the engine.
pub trait DebugView: Send + Sync {
    /// The account of a request: its number, and everything that happened to it.
    fn request(&self, number: u64) -> Option<serde_json::Value>;

    /// The latest preemptions, newest first, at most `limit`.
    fn preemptions(&self, limit: usize) -> serde_json::Value;
}

/// Preemptions that one answer tells of.
const MAX_PREEMPTIONS: usize = 1000;

/// Answers `/debug/requests/{id}`: the id is the engine's number, an answer's id, or a label.
///
/// # Errors
/// 404 where there is no such request, or nobody who knows.
pub(super) fn request(server: &Server, id: &str) -> Result<Reply, ApiError> {
    let named = || server.in_flight.request_of(id).map(RequestId::number);
    let number = id.parse().ok().or_else(named);
    let view = server.app.debug.as_ref();
    match number.and_then(|number| view?.request(number)) {
        Some(account) => json_ok(&account),
        None => Err(ApiError::new(
            hyper::StatusCode::NOT_FOUND,
            "no request of that number or name is known to this server",
        )
        .code("unknown_request")),
    }
}

/// Answers `/debug/preemptions`.
///
/// # Errors
/// 404 where nobody knows.
pub(super) fn preemptions(server: &Server) -> Result<Reply, ApiError> {
    match &server.app.debug {
        Some(view) => json_ok(&view.preemptions(MAX_PREEMPTIONS)),
        None => Err(ApiError::new(
            hyper::StatusCode::NOT_FOUND,
            "this server keeps no journal to answer from",
        )),
    }
}
