//! The backends: memory and arithmetic.
//!
//! The arithmetic is [`lockstep_simd`]'s: the numerics contract as plain scalar code
//! ([`reference`](mod@reference)) and the same bits fast; [`cpu`] gives it memory and threads.

pub mod cpu;
pub mod device;

pub use lockstep_simd::{Isa, WIDTH, decode, exp, reference};
