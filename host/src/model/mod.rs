//! The model: what a file says of it, its weights on a backend, and the forward pass.
//!
//! [`Model::load`] makes one from a GGUF file; it then runs batches through
//! [`Forward`](crate::batch::Forward), against a KV pool of its own.

mod check;
mod config;
mod error;
mod footprint;
mod numerics;
mod on_device;
mod placement;
mod transformer;
mod weights;

#[cfg(test)]
mod tests;

pub use config::{ModelConfig, RopeScaling};
pub use error::ModelError;
pub use footprint::{Footprint, Item};
pub use numerics::{FAST_VERSION, Numerics};
pub use on_device::{DeviceFootprint, OnDevice};
pub use placement::{Placement, PlacementRequest};
pub use transformer::Model;

pub use crate::backend::Isa;
pub use crate::backend::cpu::kv::KvDtype;
pub use crate::backend::reference::NUMERICS_VERSION;

/// How a model is to be loaded and how large its batches get.
#[derive(Clone, Copy, Debug)]
pub struct ModelOptions {
    /// Threads that compute, the caller's included; 1 to 256. No result depends on it.
    pub threads: usize,
    /// How keys and values are stored.
    pub kv_dtype: KvDtype,
    /// Blocks of the KV pool, at least 1.
    pub num_blocks: u32,
    /// Positions of a block: a multiple of 16. No result depends on it.
    pub block_size: u32,
    /// The most rows of a batch (`max_num_batched_tokens`).
    pub max_rows: usize,
    /// The most positions of a sequence (`max_model_len`); the model's context length limits it.
    pub max_positions: u32,
    /// The vector instructions to use; the best that the machine has if none are named. No result
    /// depends on it.
    pub isa: Option<Isa>,
    /// Launches every kernel of a decode step by itself, where a device could launch a graph. No
    /// result depends on it.
    pub enforce_eager: bool,
    /// The profile of the numerics contract; a CPU has the portable one only.
    pub numerics: Numerics,
}

impl Default for ModelOptions {
    /// Two threads, 16 positions a block, f16, and room for 512 rows and 8192 positions.
    fn default() -> Self {
        Self {
            threads: 2,
            kv_dtype: KvDtype::F16,
            num_blocks: 512,
            block_size: 16,
            max_rows: 512,
            max_positions: 8192,
            isa: None,
            enforce_eager: false,
            numerics: Numerics::Portable,
        }
    }
}
