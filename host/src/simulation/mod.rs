//! Loads run through the production scheduler under a fake engine, and checked at every step.
//!
//! A [`Simulation`] takes a [`Workload`] and a configuration. [`swarm`] makes both from one seed;
//! a [`Checker`] holds every plan against a second account of what may be.

mod check;
mod drive;
mod model;
mod random;
mod swarm;
mod workload;

pub use check::{Checker, Violation};
pub use drive::{Outcome, Simulation};
pub use model::{FakeModel, Oracle, expected_token};
pub use random::Random;
pub use swarm::swarm;
pub use workload::{SimulatedRequest, Workload};
