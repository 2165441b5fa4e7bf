//! Loads run through the production scheduler under a fake engine, and checked at every step.
//!
//! A [`Simulation`] takes a [`Workload`] and a configuration. [`swarm`] makes both from one seed;
//! a [`Checker`] holds every plan against a second account of what may be, and [`verify`] adds that
//! the load drains, that a second run is equal, and that each request alone has the same tokens.

mod check;
mod check_victim;
mod drive;
mod loads;
mod model;
mod random;
mod recorded;
mod summary;
mod swarm;
mod verify;
mod workload;

pub use check::{Checker, Violation};
pub use drive::{Outcome, Simulation};
pub use loads::{LOADS, load};
pub use model::{FakeModel, Oracle, expected_token};
pub use random::Random;
pub use recorded::{RecordedLoad, recorded_load};
pub use summary::{Summary, summarize, table};
pub use swarm::swarm;
pub use verify::{Coverage, Failure, verify, verify_seed};
pub use workload::{SimulatedRequest, Workload};
