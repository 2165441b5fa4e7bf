//! Probes and what a server says of itself.

use std::sync::atomic::Ordering;

use hyper::StatusCode;
use serde_json::json;

use super::body::{Reply, json_ok, reply};
use super::error::ApiError;
use super::server::Server;
use crate::intake::EngineState;
use crate::metrics::CONTENT_TYPE;

/// Answers `/health`: the engine lives.
///
/// # Errors
/// 503 once it is dead.
pub(super) fn health(server: &Server) -> Result<Reply, ApiError> {
    match server.app.intake.state() {
        EngineState::Dead => Err(unavailable("the engine has ended", "engine_dead", 30)),
        _ => json_ok(&json!({"status": "ok"})),
    }
}

/// Answers `/live`: the process answers.
///
/// # Errors
/// None of its own.
pub(super) fn live() -> Result<Reply, ApiError> {
    json_ok(&json!({"status": "live"}))
}

/// Answers `/ready`: requests are taken.
///
/// # Errors
/// 503 while the engine loads, drains or is dead.
pub(super) fn ready(server: &Server) -> Result<Reply, ApiError> {
    match server.app.intake.state() {
        EngineState::Ready => json_ok(&json!({"status": "ready"})),
        EngineState::Loading => Err(unavailable("the engine is loading", "loading", 5)),
        EngineState::Draining => Err(unavailable("the server is shutting down", "draining", 5)),
        EngineState::Dead => Err(unavailable("the engine has ended", "engine_dead", 30)),
    }
}

fn unavailable(message: &str, code: &'static str, seconds: u32) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        .code(code)
        .retry_after(seconds)
}

/// Answers `/version`.
///
/// # Errors
/// None of its own.
pub(super) fn version(server: &Server) -> Result<Reply, ApiError> {
    json_ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "system_fingerprint": server.fingerprint(),
    }))
}

/// Answers `/server_info`.
///
/// # Errors
/// None of its own.
pub(super) fn server_info(server: &Server) -> Result<Reply, ApiError> {
    let card = &server.app.model;
    json_ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model_path": card.root,
        "served_model_name": card.id,
        "max_model_len": card.max_model_len,
        "system_fingerprint": server.fingerprint(),
        "started": server.started,
        "config": server.app.config,
    }))
}

/// Answers `/metrics`.
///
/// # Errors
/// None of its own.
pub(super) fn metrics(server: &Server) -> Result<Reply, ApiError> {
    Ok(reply(
        StatusCode::OK,
        CONTENT_TYPE,
        server.app.metrics.render(),
    ))
}

/// Answers `/load`, in vLLM's form.
///
/// # Errors
/// None of its own.
pub(super) fn load(server: &Server) -> Result<Reply, ApiError> {
    let calls = server.app.metrics.in_flight().load(Ordering::Relaxed);
    json_ok(&json!({"server_load": calls}))
}

/// Answers `/v1/loads`, in SGLang's form.
///
/// # Errors
/// None of its own.
pub(super) fn loads(server: &Server) -> Result<Reply, ApiError> {
    let metrics = &server.app.metrics;
    let load = metrics.load();
    let seats = metrics.labels().max_num_seqs;
    let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
    json_ok(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "dp_rank_count": 1,
        "loads": [{
            "dp_rank": 0,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_total_reqs": load.running + load.waiting,
            "num_waiting_uncached_tokens": load.waiting_uncached_tokens,
            "num_used_tokens": load.used_tokens,
            "max_total_num_tokens": load.total_tokens,
            "max_running_requests": seats,
            "token_usage": share(load.used_tokens, load.total_tokens),
            "gen_throughput": load.generated_per_second,
            "cache_hit_rate": load.cache_hit_rate,
            "utilization": share(load.running, seats as usize),
        }],
    }))
}

/// The description of the API for programs.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// Answers `/openapi.json`.
///
/// # Errors
/// None of its own.
pub(super) fn openapi() -> Result<Reply, ApiError> {
    Ok(reply(StatusCode::OK, "application/json", OPENAPI))
}
