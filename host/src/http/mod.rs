//! The HTTP API: hyper, routed by hand, in OpenAI's wire format as vLLM extends it.
//!
//! ```text
//! serve(listener, App, shutdown)
//!   server      connections, their limits, the drain
//!   router      path and method -> handler; keys, request ids, the log line
//!   wire        the only place that knows field names
//!   prepare     body -> engine requests: every 4xx is behind us after it
//!   generation  the events of n choices, merged; a terminal event is certain
//!   sse         chunks, keep-alive comments, [DONE]
//! ```
//!
//! A handler's future and a stream's body own the receivers of their events: hyper drops them when
//! the client goes away, streaming or not, and that is how a vanished client becomes a cancel. A
//! client that half-closes its connection while it waits for an answer counts as gone.
//!
//! This side never decides anything that the engine computes: it checks, translates and writes.

use std::sync::Arc;

use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::structured::Grammars;

mod account;
mod args;
mod auth;
mod body;
mod call;
mod chat;
mod completions;
mod connection;
mod cors;
mod debug;
mod error;
mod generation;
mod ids;
mod inflight;
mod limits;
mod models;
mod ops;
mod prepare;
mod probes;
mod received;
mod responses;
mod resumable;
mod router;
mod seeds;
mod server;
mod sse;
pub mod text;
mod tls;
mod tokenize;
mod tokens;
mod tools;
mod wire;

pub use args::HttpArgs;
pub use auth::ApiKeys;
pub use body::Body;
pub use cors::Cors;
pub use debug::DebugView;
pub use error::ApiError;
pub use limits::HttpLimits;
pub use seeds::{SeedSource, choice_seed};
pub use server::{Listener, serve};
pub use tls::{Tls, TlsError};

/// What the HTTP side is given. `lockstep serve` builds one; [`serve`] owns it.
pub struct App {
    /// The door to the engine. When [`serve`] returns, this clone of it is gone.
    pub intake: Intake,
    /// What the served model is called.
    pub model: ModelCard,
    /// Its tokenizer and chat template.
    pub text: Arc<dyn text::TextModel>,
    /// Compiles constraints on answers; without it requests that have one are refused.
    pub grammars: Option<Arc<Grammars>>,
    /// What clients may take up.
    pub limits: HttpLimits,
    /// The keys that open the API.
    pub keys: ApiKeys,
    /// Where connections are encrypted, with which certificate.
    pub tls: Option<Tls>,
    /// The counters, shared with the engine.
    pub metrics: Arc<Metrics>,
    /// Where requests without a seed get one: `SeedSource::new(--seed)`.
    pub seeds: SeedSource,
    /// The origins whose pages may call; none by default.
    pub cors: Option<Cors>,
    /// Who answers `/debug`; `None` is 404.
    pub debug: Option<Arc<dyn DebugView>>,
    /// What `/server_info` tells of the configuration: an object without secrets.
    pub config: serde_json::Value,
}

/// What the served model is called and what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCard {
    /// Its first name, which answers carry.
    pub id: String,
    /// Further names that requests may use.
    pub aliases: Vec<String>,
    /// When it was loaded, in Unix seconds.
    pub created: u64,
    /// Where its file lies, or its full name.
    pub root: String,
    /// The most tokens of prompt and answer together.
    pub max_model_len: u32,
    /// Digest of all that decides an answer beside its request: equal fingerprints answer equal
    /// requests with equal tokens, text and logprobs.
    pub fingerprint: String,
}

impl ModelCard {
    /// Whether a request with this model name is for it.
    pub fn answers_to(&self, name: &str) -> bool {
        self.id == name || self.aliases.iter().any(|alias| alias == name)
    }
}
