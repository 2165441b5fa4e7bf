//! One call of the API, as its handler sees it.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, Request, Uri};

use super::account::Account;
use super::body::Reply;
use super::error::ApiError;
use super::generation::Generation;
use super::received::{Received, read_json_body};
use super::resumable;
use super::server::Server;
use super::sse::{Format, stream_reply};
use super::wire::output::Head;

/// What a handler is given.
pub(super) struct Call {
    pub(super) server: Arc<Server>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// The label of the request, safe to log and to echo.
    pub(super) label: String,
    pub(super) account: Arc<Account>,
    body: Option<Incoming>,
}

impl Call {
    /// The call of a request.
    pub(super) fn new(
        server: Arc<Server>,
        request: Request<Incoming>,
        label: String,
        account: Arc<Account>,
    ) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            server,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            label,
            account,
            body: Some(body),
        }
    }

    /// Reads the JSON body of the call; a second time there is none.
    ///
    /// # Errors
    /// 400, 408, 413, 415 or 503.
    pub(super) async fn read_body(mut self) -> Result<(Self, Received), ApiError> {
        let (limits, budget) = (&self.server.app.limits, &self.server.bodies);
        let received = match self.body.take() {
            Some(body) => read_json_body(&self.headers, body, limits, budget).await?,
            None => Received::nothing(),
        };
        Ok((self, received))
    }

    /// What the answer to this call says of itself, under a fresh id.
    pub(super) fn head(&self, prefix: &str, object: &'static str, seed: u64) -> Head {
        let model = &self.server.app.model;
        Head {
            id: self.server.ids.next_id(prefix),
            object,
            created: crate::clock::unix_seconds(),
            model: model.id.clone(),
            system_fingerprint: self.server.fingerprint(),
            seed,
        }
    }

    /// Hands the requests of the call to the engine.
    ///
    /// # Errors
    /// What the door said.
    pub(super) fn submit(
        &self,
        head: &Head,
        requests: Vec<crate::request::Request>,
        per_prompt: usize,
    ) -> Result<Generation, ApiError> {
        let place = self.server.in_flight.enter(&head.id, &self.label);
        let account = Arc::clone(&self.account);
        Generation::submit(&self.server, requests, per_prompt, place, account)
    }

    /// Answers the call with a stream of its generation. Everything that can be wrong with the
    /// request has been checked.
    ///
    /// # Errors
    /// 429 where a stream that can be resumed is one too many.
    pub(super) fn stream(
        &self,
        generation: Generation,
        format: impl Format + 'static,
        resumable: bool,
    ) -> Result<Reply, ApiError> {
        if resumable {
            return resumable::start(self, generation, format);
        }
        let interval = self.server.app.limits.keep_alive_interval;
        Ok(stream_reply(generation, format, interval))
    }
}
