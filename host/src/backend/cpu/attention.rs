//! Room for attention.

use lockstep_simd::attention::scratch_len;

/// A thread's room for one item.
#[derive(Debug)]
pub struct Scratch(Vec<f32>);

impl Scratch {
    /// Room for items of a shape.
    pub fn new(group: usize, head_dim: usize) -> Self {
        Self(vec![0.0; scratch_len(group, head_dim)])
    }

    /// Bytes of a thread's room.
    pub const fn bytes(group: usize, head_dim: usize) -> usize {
        scratch_len(group, head_dim) * 4
    }

    /// The room.
    pub const fn as_mut_slice(&mut self) -> &mut [f32] {
        self.0.as_mut_slice()
    }
}
