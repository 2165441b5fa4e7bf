//! Scheduling choices as total orders.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod admission;
pub mod eviction;
mod names;
pub mod order;
pub mod priority;
pub mod routing;
pub mod sequence;
pub mod victim;

pub use heapless;

pub use admission::{Aging, Arrival, Importance};
pub use eviction::{BlockId, CachedBlock, EvictionKey, EvictionRank, select_block};
pub use names::UnknownName;
pub use order::{
    Choice, DuplicateId, Identified, Ranked, Ranking, first_duplicate, select_least, select_least_n,
};
pub use priority::RequestPriority;
pub use routing::{WorkerId, select_worker};
pub use sequence::SequenceId;
pub use victim::{
    Candidate, Need, PreemptionPolicy, Reach, Selection, Separator, VictimKey, VictimRank, Victims,
    select_victim, select_victims,
};
