//! The backends: memory and arithmetic.
//!
//! The arithmetic is [`lockstep_simd`]'s: the numerics contract as plain scalar code
//! ([`reference`](mod@reference)) and the same bits fast; [`cpu`] gives it memory and threads. [`cuda`]
//! computes the same bits on a GPU, through the narrow trait of [`device`].

mod choice;
pub mod cpu;
pub mod cuda;
pub mod device;

pub use choice::DeviceChoice;
pub use lockstep_simd::{Isa, WIDTH, decode, exp, reference};
