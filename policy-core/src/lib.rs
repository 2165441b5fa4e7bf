//! Scheduling choices as total orders.
#![no_std]
#![forbid(unsafe_code)]

pub mod order;
pub mod priority;
pub mod sequence;
pub mod victim;

pub use order::{Choice, DuplicateId, Identified, Ranked, select_least};
pub use priority::RequestPriority;
pub use sequence::SequenceId;
pub use victim::{Candidate, Need, PreemptionPolicy, Selection, Separator, select_victim};
