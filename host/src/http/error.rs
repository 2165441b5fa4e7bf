//! The one shape of an error answer, and the status codes that go with it.

use hyper::StatusCode;
use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER};
use serde::Serialize;

use super::body::{Body, Reply, json_reply};
use crate::intake::Refusal;
use crate::request::Failure;

/// Why a request is not answered: always `{"error": {message, type, param, code}}`.
///
/// Messages are fixed texts with numbers in them. They never repeat text of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The status of the answer.
    pub status: StatusCode,
    /// A sentence for the caller.
    pub message: String,
    /// The field at fault, as a path from the body's root.
    pub param: Option<String>,
    /// A stable word for programs.
    pub code: Option<&'static str>,
    /// Seconds after which another try makes sense.
    pub retry_after: Option<u32>,
    /// The methods that the path knows, where the method was wrong.
    pub allow: Option<&'static str>,
}

impl ApiError {
    /// An error with this status and message, and nothing else.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            param: None,
            code: None,
            retry_after: None,
            allow: None,
        }
    }

    /// A request that is wrong in itself.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A field with a value that cannot be.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(message).at(param).code("invalid_value")
    }

    /// A field that asks for something this server does not do.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(message).at(param).code("unsupported")
    }

    /// The same error, naming the field at fault.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// The same error with a word for programs.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// The same error, saying when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The `type` field that belongs to the status.
    pub fn kind(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            404 => "not_found_error",
            429 => "rate_limit_error",
            503 => "service_unavailable_error",
            500..=599 => "server_error",
            _ => "invalid_request_error",
        }
    }

    /// The body of the answer, also used as a fault in mid-stream.
    pub fn to_json(&self) -> Vec<u8> {
        let wire = Envelope {
            error: Detail {
                message: &self.message,
                kind: self.kind(),
                param: self.param.as_deref(),
                code: self.code,
            },
        };
        // Strings and options of strings always serialise.
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    pub(super) fn reply(&self) -> Reply {
        let mut reply = json_reply(self.status, self.to_json());
        let headers = reply.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(methods));
        }
        reply
    }
}

impl From<ApiError> for hyper::Response<Body> {
    fn from(error: ApiError) -> Self {
        error.reply()
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::QueueFull { .. } => Self::new(StatusCode::TOO_MANY_REQUESTS, message)
                .code("queue_full")
                .retry_after(1),
            Refusal::Draining => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .code("draining")
                .retry_after(5),
            Refusal::EngineDead => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .code("engine_dead")
                .retry_after(30),
            Refusal::EmptyPrompt => Self::field("prompt", message).code("empty_prompt"),
            Refusal::Unsound => Self::invalid(message),
            Refusal::TooManyChoices { .. } => Self::invalid(message).code("too_many_choices"),
            Refusal::TooLong { .. } => Self::invalid(message).code("context_length_exceeded"),
            Refusal::UnknownToken { .. } => Self::invalid(message).code("unknown_token"),
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        let message = failure.to_string();
        match failure {
            Failure::Expired => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .code("expired")
                .retry_after(5),
            Failure::ShuttingDown => Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
                .code("draining")
                .retry_after(5),
            Failure::NonFinite => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("non_finite")
            }
            Failure::Constraint(_) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, message).code("constraint_failure")
            }
            // What failed names files and devices of the server: that is for its log.
            Failure::Engine(_) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the engine failed; the server's log says how",
            )
            .code("engine_failure"),
        }
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: Option<&'static str>,
}
