//! The CUDA backend: a GPU behind NVIDIA's driver, which is found at run time.
//!
//! [`devices`] asks whether a driver answers; [`Cuda::open`] takes one of its devices and loads the
//! kernels. Nothing here links against the driver, and nothing here is needed where there is none.
//!
//! # Streams
//! Weights are copied on a stream of their own, through pinned memory, while the caller prepares
//! the next ones; the compute stream waits for them by an event. Whatever belongs to a step (its
//! inputs, its launches or its graph, its logits) is in order on the compute stream.
//!
//! # Failures
//! Every error names the driver's call, the driver's name for the error and its message. All of
//! them are fatal: a context that has failed once answers every later call with the same error.

mod device;
mod driver;
mod graph;
mod memory;
mod module;
mod staging;

pub use device::Cuda;
pub use driver::{DriverInfo, GpuInfo, Unavailable, devices};
pub use memory::Buffer;
pub use staging::Piece;
