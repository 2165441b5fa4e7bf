//! The only door to wall time: metrics, logs and the expiries that are recorded as inputs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment to measure a duration from.
#[derive(Clone, Copy, Debug)]
pub struct Moment(Instant);

/// The present moment.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the door that the lint points to"
)]
pub fn now() -> Moment {
    Moment(Instant::now())
}

/// Seconds since the Unix epoch, for the `created` field and for logs.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the door that the lint points to"
)]
pub fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}

impl Moment {
    /// How long ago this moment was.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// From `earlier` to this moment; zero if that is negative.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}
