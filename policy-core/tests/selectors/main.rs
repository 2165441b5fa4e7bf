//! The selectors against their laws, their names, and the mistakes that they are there to prevent.

mod cases;
mod decisions;
mod duplicates;
mod eviction;
mod exhaustive;
mod fence;
mod hash_order;
mod laws;
mod naive;
mod names;
mod orders;
mod queue;
mod rotation;
mod routing;
