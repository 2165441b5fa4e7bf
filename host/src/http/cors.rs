//! Cross-origin requests: off unless origins are named.

use hyper::StatusCode;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderMap, HeaderValue, ORIGIN, VARY,
};

use super::body::{Body, Reply};

/// The origins whose pages may call the API. Credentials of a browser are never allowed along, so
/// `*` is safe to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// Origins such as `https://example.org`, or `*`.
    pub origins: Vec<String>,
}

impl Cors {
    fn allowed(&self, request: &HeaderMap) -> Option<HeaderValue> {
        if self.origins.iter().any(|origin| origin == "*") {
            return Some(HeaderValue::from_static("*"));
        }
        let origin = request.get(ORIGIN)?;
        let named = |own: &String| own.as_bytes() == origin.as_bytes();
        self.origins.iter().any(named).then(|| origin.clone())
    }

    /// Adds to an answer what lets a page of an allowed origin read it.
    pub(super) fn mark(&self, request: &HeaderMap, answer: &mut HeaderMap) {
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = self.allowed(request) {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            let exposed = HeaderValue::from_static("x-request-id, retry-after");
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
    }

    /// The answer to a browser that asks first.
    pub(super) fn preflight(&self) -> Reply {
        let mut reply = Reply::new(Body::whole(""));
        *reply.status_mut() = StatusCode::NO_CONTENT;
        let headers = reply.headers_mut();
        let mut set = |name, value| headers.insert(name, HeaderValue::from_static(value));
        set(ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS");
        set(
            ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, x-request-id, x-priority",
        );
        set(ACCESS_CONTROL_MAX_AGE, "600");
        reply
    }
}
