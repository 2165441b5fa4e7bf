//! Scheduling choices as total orders, on any machine that can run Rust.
//!
//! # The problem
//! A serving system is a sequence of choices: which running sequence gives way, which request is
//! next, which cached block goes, which worker takes it. Each is "the best of these, by some key",
//! and keys tie. They tie most where it matters: sequences admitted together decode in lockstep and
//! have equal lengths, and most requests have the default class.
//!
//! Where a tie is left to the container, it is decided by the order of iteration. Over a hash map
//! that order is seeded per *instance*, so two identical workers under identical load preempt
//! different requests, and nobody can tell from the state of the batch why. Over a list it is
//! decided by insertion, which is history that no one meant to count; and
//! [`Iterator::max_by_key`] keeps the last of equals, [`Iterator::min_by_key`] the first.
//!
//! # The principle
//! Everything that is chosen has an id ([`Identified`]). Every choice compares [`Ranked`] values,
//! a key *with the id appended*, and a [`Ranked`] cannot be made without an item that has one. So:
//!
//! - two different items never tie: the order is total by construction;
//! - the answer is a function of what is offered, not of the order in which it comes: any iterator
//!   over any container will do;
//! - there is one direction, the least rank, and [`core::cmp::Reverse`] turns a component round;
//! - a key is [`Ord`], so a float is not one.
//!
//! ```
//! use core::cmp::Reverse;
//! use policy_core::{Identified, select_least};
//!
//! /// A thing of your own.
//! struct Replica { number: u32, free_blocks: u32, queued: u32 }
//!
//! impl Identified for Replica {
//!     type Id = u32;
//!     fn id(&self) -> u32 { self.number }
//! }
//!
//! let replicas = [
//!     Replica { number: 2, free_blocks: 900, queued: 0 },
//!     Replica { number: 0, free_blocks: 900, queued: 0 },
//!     Replica { number: 1, free_blocks: 950, queued: 4 },
//! ];
//! // The shortest queue, then the most free blocks; 0 and 2 tie, and the number separates them.
//! let choice = select_least(&replicas, |r| (r.queued, Reverse(r.free_blocks)))?.unwrap();
//! assert_eq!(choice.winner.number, 0);
//! # Ok::<(), policy_core::DuplicateId<u32>>(())
//! ```
//!
//! # The choices
//! | choice | function | key, least first | then the id |
//! |---|---|---|---|
//! | whom to preempt, `longest-first` | [`select_victim`] | exempt, worn, most tokens generated | sequence |
//! | whom to preempt, `lowest-priority` | [`select_victim`] | exempt, class, worn, most tokens generated | sequence |
//! | several victims, in order | [`select_victims`] | the same | sequence |
//! | who is admitted next | [`select_least`] over [`Importance`] | arrival step and class, as one number | arrival |
//! | which cached block is evicted | [`select_block`] | step of last use, deepest | block |
//! | which worker gets a request | [`select_worker`] | hash of request key and worker | worker |
//! | anything else | [`select_least`], [`select_least_n`] | yours | yours |
//!
//! Why the *smallest* id: a preempted sequence is readmitted under a fresh, higher [`SequenceId`],
//! so the tie-break rotates, and the sequence whose work was just thrown away is the last to be
//! hit again. With the largest id it would be the next victim, for ever.
//!
//! # Evidence
//! A choice that cannot be explained cannot be trusted. [`Choice`] names the runner-up; [`Selection`]
//! also says how many were considered, how many exempt, and which component of the key separated
//! victim and runner-up ([`Separator`]). That is what a journal writes down, and what lets it answer
//! "why this one and not its neighbour?" years later.
//!
//! # When the caller is wrong
//! Two items of one id are a bug of the caller. It is reported as [`DuplicateId`] whenever it could
//! reach the answer, in every order of the iterator or in none, and the report names the same id
//! each time; the exact rule is in [`order`](order#two-items-of-one-id). Nothing here panics, so
//! every error is a value: [`DuplicateId`] and, from parsing, [`UnknownName`].
//!
//! # Time
//! There is no clock. Time is a step count, handed in: [`Importance`] is fixed when a request
//! arrives and never changes, so that ageing needs no re-sorting, and a request that is queued again
//! after a preemption keeps its place.
//!
//! # Cost
//! Each selector is one pass: O(n) time, constant memory, no sort, no allocation. [`select_victim`] takes 2 to 3 ns per
//! candidate over 256 and over 4,096 of them, and some 50 to 80 ns in all over 8
//! (`cargo bench -p policy-core`; the table is in the README).
//!
//! # What this is not
//! Not a scheduler: it holds no state, counts no blocks and decides nothing twice. It says who
//! matters more; what to do about it is its caller's business. Not a source of ids: distinct ids are
//! the caller's promise ([`first_duplicate`] checks it, at a price).
//!
//! # What is proved, and how
//! | claim | proof |
//! |---|---|
//! | no order of the iterator changes an answer | all permutations of up to six candidates over a grid; random shuffles; hash maps rebuilt 64 times, with the naive expressions beside them, which must fail |
//! | each order is total | totality, antisymmetry and transitivity over grids full of ties |
//! | the one pass is right | agreement with sorting everything |
//! | ties rotate | repeated preemption visits all that tie before it hits one twice |
//! | no panic, no overflow | a program with overflow checks whose panic handler does not exist links |
//! | no allocation | a counting allocator; firmware and a WebAssembly module without an allocator link |
//! | the same everywhere | x86-64, Cortex-M4 and WebAssembly print one text (`targets/run.sh`) |
//! | no unsafe code | `forbid(unsafe_code)` |
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

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
