//! The CPU backend: memory for what the kernels of [`lockstep_simd`] read and write, and the threads
//! that share the work.

pub mod activations;
pub mod attention;
pub mod device;
pub mod kv;
pub mod memory;
pub mod pack;
pub mod pool;

#[cfg(test)]
mod tests;
