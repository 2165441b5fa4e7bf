//! The backends: memory and arithmetic.
//!
//! [`reference`](mod@reference) is the numerics contract as plain scalar code; [`cpu`] computes the same bits fast, and so
//! does [`cuda`] on a GPU, through the narrow trait of [`device`].

mod choice;
pub mod cpu;
pub mod cuda;
pub mod decode;
pub mod device;
pub mod exp;
mod isa;
pub mod reference;

pub use choice::DeviceChoice;
pub use isa::Isa;
