//! What several tests of the harness share.

use std::path::PathBuf;

/// The real model that tests run on, as `lockstep pull smollm2-135m` leaves it in the cache.
///
/// # Panics
/// If it was not pulled, with the command that does.
pub fn real_model() -> PathBuf {
    lockstep::hub::resolve("smollm2-135m").unwrap_or_else(|error| panic!("{error}"))
}
