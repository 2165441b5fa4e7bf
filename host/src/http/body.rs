//! The bodies of answers: whole, or as streams.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

use super::account::Guard;
use super::error::ApiError;

/// An answer on its way out.
pub(super) type Reply = Response<Body>;

/// A source of an answer's bytes, over time.
type Stream = Pin<Box<dyn HttpBody<Data = Bytes, Error = Infallible> + Send>>;

/// The body of an answer. While it lives its request is being answered.
pub struct Body {
    content: Content,
    guard: Option<Guard>,
}

enum Content {
    Whole(Option<Bytes>),
    Stream(Stream),
}

impl Body {
    /// A body that is there at once.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            content: Content::Whole(Some(bytes.into())),
            guard: None,
        }
    }

    /// A body that comes over time; dropping it early drops the stream.
    pub(super) fn stream(
        stream: impl HttpBody<Data = Bytes, Error = Infallible> + Send + 'static,
    ) -> Self {
        Self {
            content: Content::Stream(Box::pin(stream)),
            guard: None,
        }
    }

    /// The same body, which keeps `guard` until it is gone.
    pub(super) fn guarded(mut self, guard: Guard) -> Self {
        self.guard = Some(guard);
        self
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.content {
            Content::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Stream(stream) => stream.as_mut().poll_frame(cx),
        };
        if let (Poll::Ready(None), Some(guard)) = (&frame, &mut self.guard) {
            guard.complete();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64)
            }
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

impl Drop for Body {
    /// A whole body that was handed over counts as answered: how far the socket got is not known.
    fn drop(&mut self) {
        if let (Content::Whole(_), Some(guard)) = (&self.content, &mut self.guard) {
            guard.complete();
        }
    }
}

/// An answer in JSON.
pub(super) fn json_reply(status: StatusCode, json: impl Into<Bytes>) -> Reply {
    reply(status, "application/json", json)
}

/// An answer in JSON with status 200.
///
/// # Errors
/// 500 where the value does not serialise, which no type of the wire format does.
pub(super) fn json_ok(value: &impl serde::Serialize) -> Result<Reply, ApiError> {
    match serde_json::to_vec(value) {
        Ok(json) => Ok(json_reply(StatusCode::OK, json)),
        Err(_) => Err(ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the answer could not be written as JSON",
        )),
    }
}

/// An answer of any type.
pub(super) fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Body::whole(body));
    *reply.status_mut() = status;
    reply
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}
