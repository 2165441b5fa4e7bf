//! The CPU backend: weights repacked so that vector lanes run over outputs, kernels over them, and
//! the threads that share the work.

pub mod activations;
pub mod attention;
pub mod device;
pub mod kv;
pub mod linear;
pub mod memory;
pub mod pack;
pub mod pool;
pub mod rows;
mod simd;

#[cfg(test)]
mod tests;
