//! The memory of the KV pool; its layout is [`lockstep_simd::kv`]'s.

use std::io;
use std::ops::{Deref, Range};

use lockstep_simd::kv::Kv;
pub use lockstep_simd::kv::{KvDtype, KvShape};

use super::memory::Bytes;

/// The keys and values of every block and layer.
#[derive(Debug)]
pub struct KvPool {
    bytes: Bytes,
    places: Kv,
}

/// Where everything is in it.
impl Deref for KvPool {
    type Target = Kv;

    fn deref(&self) -> &Kv {
        &self.places
    }
}

impl KvPool {
    /// A pool of this shape; memory is taken from the system as blocks are first written.
    ///
    /// # Errors
    /// The system has no address space for it.
    pub fn new(shape: KvShape) -> io::Result<Self> {
        let size = shape.bytes().ok_or(io::ErrorKind::OutOfMemory)?;
        let mut bytes = Bytes::zeroed(size)?;
        // SAFETY: the bytes are there as long as the pool is, aligned to a page.
        let places = unsafe { Kv::new(shape, bytes.as_mut_ptr()) };
        Ok(Self { bytes, places })
    }

    fn block_range(&self, layer: usize, block: usize) -> Range<usize> {
        let size = self.shape().block_bytes();
        let first = (layer * self.shape().blocks + block) * size;
        first..first + size
    }

    /// Copies a block in every layer.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn copy_block(&mut self, from: usize, to: usize) {
        assert!(from < self.shape().blocks && to < self.shape().blocks);
        for layer in 0..self.shape().layers {
            let (from, to) = (self.block_range(layer, from), self.block_range(layer, to));
            self.bytes.as_mut_slice().copy_within(from, to.start);
        }
    }
}
