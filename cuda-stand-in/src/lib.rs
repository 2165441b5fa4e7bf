//! A `libcuda.so.1` that is no GPU: the driver's entry points over the PTX interpreter, so that the
//! real host code runs end to end on a machine without a device.
//!
//! It is found only where a test points at it: the library's file has another name, and a test
//! links it as `libcuda.so.1` into a folder of its own that it puts into a child's
//! `LD_LIBRARY_PATH`. Its one device is named [`NAME`].
//!
//! # What it checks
//! Everything that the interpreter does, and what a driver would let pass in silence:
//! - Work on a stream runs as late as its order allows: when somebody synchronises with it, or waits
//!   for an event of it. A missing wait then reads what was never written, and a pinned buffer that
//!   is used again too early sends the wrong bytes.
//! - Asynchronous copies go from and to pinned memory only, inside of live allocations.
//! - Every call that needs a context finds one that is bound to its thread; every handle is live.
//!
//! # What it fails on demand
//! Environment variables plan failures; see [`faults`](mod@faults).
//!
//! # What it is not
//! Not a model of time, of a device's limits beyond its memory, or of the driver's compiler.

pub mod api;
mod error;
pub mod faults;
mod pinned;
mod state;
mod stream;

/// The device's name.
pub const NAME: &str = "PTX interpreter (not a GPU)";
