//! The arithmetic of the numerics contract (`docs/numerics.md`) on every vector unit that is known.
//!
//! Kernels are written once over vectors of sixteen lanes ([`Isa`] names the guises); each lane is a
//! chain of its own, so that no guise can change a bit. [`reference`](mod@reference) is the same
//! contract as plain scalar code, and what the kernels are compared with.
//!
//! The crate allocates nothing, starts no thread and asks no operating system, but for two features:
//! `alloc` adds the reference, `std` asks the machine what it has. So the kernels of another
//! architecture can be built with nothing but `core` and run in an emulator.
#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod activations;
pub mod attention;
pub mod contract;
pub mod decode;
pub mod exp;
mod ggml_type;
mod isa;
pub mod kv;
mod lanes;
pub mod linear;
mod math;
pub mod matrix;
#[cfg(feature = "alloc")]
pub mod reference;
pub mod rows;

pub use ggml_type::GgmlType;
pub use isa::Isa;
pub use lanes::WIDTH;
