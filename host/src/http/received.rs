//! The bodies of requests: read whole, each bounded and all of them together.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};

use super::error::ApiError;
use super::limits::HttpLimits;

/// Seconds after which a client whose body had no room may try again.
const RETRY_AFTER: u32 = 1;

/// The bytes that all bodies in flight may have together.
#[derive(Debug)]
pub(super) struct BodyBudget {
    max: usize,
    taken: AtomicUsize,
}

impl BodyBudget {
    /// A budget of `max` bytes, none of them taken.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: AtomicUsize::new(0),
        })
    }

    fn take(&self, bytes: usize) -> bool {
        let add = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= self.max);
        let order = Ordering::Relaxed;
        self.taken.fetch_update(order, order, add).is_ok()
    }
}

/// A part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl Reservation {
    fn of(budget: &Arc<BodyBudget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Whether so many bytes could be had just now.
    fn check_room(&self, bytes: usize) -> Result<(), ApiError> {
        let taken = self.budget.taken.load(Ordering::Relaxed);
        if bytes > self.budget.max.saturating_sub(taken) {
            return Err(self.none_left());
        }
        Ok(())
    }

    /// Makes it at least as large.
    fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        let more = bytes.saturating_sub(self.bytes);
        if !self.budget.take(more) {
            return Err(self.none_left());
        }
        self.bytes += more;
        Ok(())
    }

    fn none_left(&self) -> ApiError {
        let max = self.budget.max;
        let message = format!(
            "the bodies in flight have the {max} bytes that they may have; try again later"
        );
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message)
            .code("overloaded")
            .retry_after(RETRY_AFTER)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A body that was read. While it lives its bytes count.
#[derive(Debug)]
pub(super) struct Received {
    bytes: Bytes,
    reservation: Option<Reservation>,
}

impl Received {
    /// No body.
    pub(super) fn nothing() -> Self {
        Self {
            bytes: Bytes::new(),
            reservation: None,
        }
    }

    /// Lets go of the bytes, but not of their part of the budget: what was made of them takes at
    /// least as much until the engine has it.
    pub(super) fn into_reservation(self) -> Option<Reservation> {
        self.reservation
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the JSON body of a request, whole and bounded.
///
/// # Errors
/// 415 for another content type or an encoding, 413 for a body over the limit, 503 where all bodies
/// together are over theirs, 408 for one that comes too slowly, 400 for one that breaks off.
pub(super) async fn read_json_body(
    headers: &HeaderMap,
    body: Incoming,
    limits: &HttpLimits,
    budget: &Arc<BodyBudget>,
) -> Result<Received, ApiError> {
    check_content_type(headers)?;
    check_encoding(headers)?;
    let reservation = Reservation::of(budget);
    // Before the client is asked for any of it. Nothing is set aside: a client that only names a
    // length must not keep others out.
    reservation.check_room(check_content_length(headers, limits)?)?;
    let reading = read(body, limits, reservation);
    match tokio::time::timeout(limits.body_timeout, reading).await {
        Ok(outcome) => outcome,
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            format!(
                "the body of the request did not arrive within {} s",
                limits.body_timeout.as_secs_f64()
            ),
        )),
    }
}

async fn read(
    mut body: Incoming,
    limits: &HttpLimits,
    mut reservation: Reservation,
) -> Result<Received, ApiError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let broken = |_| ApiError::invalid("the body of the request broke off");
        let frame = frame.map_err(broken)?;
        // Trailers mean nothing here.
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if data.len() > limits.max_body_bytes - bytes.len() {
            return Err(too_large(limits));
        }
        reservation.grow(bytes.len() + data.len())?;
        bytes.extend_from_slice(data);
    }
    Ok(Received {
        bytes: bytes.into(),
        reservation: Some(reservation),
    })
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let essence = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(str::trim);
    match essence {
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Ok(()),
        _ => Err(unsupported(
            "the header Content-Type must be application/json",
        )),
    }
}

/// A compressed body is refused rather than read as JSON.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let plain = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"identity");
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if encodings.all(|value| plain(value.as_bytes())) {
        return Ok(());
    }
    Err(unsupported(
        "the header Content-Encoding must be identity or absent: compressed bodies are not read",
    ))
}

fn unsupported(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message).code("unsupported_media_type")
}

/// The length that the client names; 0 where it names none.
fn check_content_length(headers: &HeaderMap, limits: &HttpLimits) -> Result<usize, ApiError> {
    let named = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    match usize::try_from(named.unwrap_or(0)) {
        Ok(length) if length <= limits.max_body_bytes => Ok(length),
        _ => Err(too_large(limits)),
    }
}

fn too_large(limits: &HttpLimits) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!(
            "the body is over the limit of {} bytes",
            limits.max_body_bytes
        ),
    )
    .code("body_too_large")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_kept_and_given_back() {
        let budget = BodyBudget::new(100);
        let mut first = Reservation::of(&budget);
        first.grow(60).unwrap();
        // It is so large already.
        first.grow(50).unwrap();
        let mut second = Reservation::of(&budget);
        assert!(second.check_room(41).is_err() && second.check_room(40).is_ok());
        let error = second.grow(41).unwrap_err();
        assert_eq!((error.status.as_u16(), error.retry_after), (503, Some(1)));
        second.grow(40).unwrap();
        assert!(first.grow(usize::MAX).is_err());
        drop(first);
        second.grow(100).unwrap();
        drop(second);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
    }
}
