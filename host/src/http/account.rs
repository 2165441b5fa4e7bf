//! What is known of a call while it runs, and the one line that is logged at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use hyper::header::HeaderMap;

use super::connection::Phase;
use crate::clock::{self, Moment};

/// The longest label a client can give its request.
const MAX_LABEL: usize = 128;

/// Counts of one call, filled in while it is answered.
#[derive(Debug, Default)]
pub(super) struct Account {
    prompt_tokens: AtomicU32,
    completion_tokens: AtomicU32,
    preemptions: AtomicU32,
    failed: AtomicBool,
}

impl Account {
    /// A choice was handed to the engine.
    pub(super) fn submitted(&self, prompt_tokens: usize) {
        let tokens = u32::try_from(prompt_tokens).unwrap_or(u32::MAX);
        self.prompt_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// A choice has its next token.
    pub(super) fn token(&self) {
        self.completion_tokens.fetch_add(1, Ordering::Relaxed);
    }

    /// A choice is whole, and was preempted so often.
    pub(super) fn preempted(&self, times: u32) {
        self.preemptions.fetch_add(times, Ordering::Relaxed);
    }

    /// A choice ended without a whole answer.
    pub(super) fn failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

/// Lives as long as a call and its answer; logs the call when dropped.
pub(super) struct Guard {
    account: Arc<Account>,
    phase: Phase,
    label: Box<str>,
    route: &'static str,
    started: Moment,
    status: Option<u16>,
    complete: bool,
}

impl Guard {
    /// A guard of a call that begins.
    pub(super) fn new(label: &str, route: &'static str, phase: Phase) -> Self {
        phase.busy();
        Self {
            account: Arc::default(),
            phase,
            label: label.into(),
            route,
            started: clock::now(),
            status: None,
            complete: false,
        }
    }

    /// Where the call's counts go.
    pub(super) fn account(&self) -> Arc<Account> {
        Arc::clone(&self.account)
    }

    /// The answer has this status.
    pub(super) fn status(&mut self, status: u16) {
        self.status = Some(status);
    }

    /// The answer is whole.
    pub(super) fn complete(&mut self) {
        self.complete = true;
    }
}

impl Drop for Guard {
    /// One line per call, without any text of it: the label is sanitised, the route is ours.
    fn drop(&mut self) {
        self.phase.idle();
        let read = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        log::info!(
            "request={} route={} status={} end={} prompt_tokens={} completion_tokens={} preemptions={} seconds={:.4}",
            self.label,
            self.route,
            self.status.unwrap_or(0),
            match (self.complete, self.account.failed.load(Ordering::Relaxed)) {
                (_, true) => "failed",
                (true, false) => "complete",
                (false, false) => "client-gone",
            },
            read(&self.account.prompt_tokens),
            read(&self.account.completion_tokens),
            read(&self.account.preemptions),
            self.started.elapsed().as_secs_f64(),
        );
    }
}

/// The label that a client gave its request in `x-request-id`, reduced to letters, digits and
/// `._:-`, so that it is safe in a log line and in a header; `None` if nothing is left.
pub(super) fn label_of(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("x-request-id")?;
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    let bytes = value.as_bytes().iter().copied().filter(allowed);
    let label: String = bytes.take(MAX_LABEL).map(char::from).collect();
    (!label.is_empty()).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_reduced_to_safe_characters() {
        let of = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            let value = hyper::header::HeaderValue::from_bytes(value).unwrap();
            headers.insert("x-request-id", value);
            label_of(&headers)
        };
        assert_eq!(of(b"abc-1.2_3:4").as_deref(), Some("abc-1.2_3:4"));
        assert_eq!(
            of("a b\t\"x\" é=status=200".as_bytes()).as_deref(),
            Some("abxstatus200")
        );
        assert_eq!(of(b" \xff ").as_deref(), None);
        assert_eq!(of(&[b'x'; 500]).map(|label| label.len()), Some(128));
        assert_eq!(label_of(&HeaderMap::new()), None);
    }
}
