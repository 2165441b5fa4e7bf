//! What several tests of the harness share: the real model, and an engine that is driven by turns.

mod rig;

pub use rig::{Answer, Fault, Rig, RigOptions, Stream, Want};

use std::path::PathBuf;

/// The real model's file: SmolLM2-135M-Instruct, as `lockstep pull smollm2-135m` leaves it.
///
/// # Panics
/// If it was not pulled: `make test` does that first.
pub fn real_model() -> PathBuf {
    lockstep::hub::resolve("smollm2-135m")
        .unwrap_or_else(|error| panic!("the tests need the real model (`make model`): {error}"))
}
