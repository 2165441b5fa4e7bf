//! Weights repacked at load, in memory of their own; the layout is [`lockstep_simd::matrix`]'s.

use std::io;
use std::sync::Arc;

use lockstep_simd::matrix::{Matrix, pack_tile, tile_bytes};

use super::memory::{Arena, Piece};
use super::pool::Pool;
use crate::backend::WIDTH;
use crate::gguf::GgmlType;

/// A matrix of weights, `outputs` rows of `inputs` elements, repacked.
#[derive(Debug)]
pub struct PackedMatrix {
    ggml_type: GgmlType,
    outputs: usize,
    inputs: usize,
    bytes: Piece,
}

impl PackedMatrix {
    /// Bytes that a matrix takes when packed; `None` where that exceeds the address space.
    pub fn packed_bytes(ggml_type: GgmlType, outputs: usize, inputs: usize) -> Option<usize> {
        Matrix::packed_bytes(ggml_type, outputs, inputs)
    }

    /// Packs a matrix whose rows stand one after the other in `bytes` into memory of its own.
    ///
    /// # Errors
    /// The system has no memory for it, or `bytes` is not as long as the shape says.
    pub fn pack(
        ggml_type: GgmlType,
        outputs: usize,
        inputs: usize,
        bytes: &[u8],
        pool: &mut Pool,
    ) -> io::Result<Self> {
        let size = Self::packed_bytes(ggml_type, outputs, inputs);
        let arena = Arena::new(size.ok_or(io::ErrorKind::OutOfMemory)?)?;
        Self::pack_into(&arena, ggml_type, outputs, inputs, bytes, pool)
    }

    /// The same into a piece of `arena`.
    ///
    /// # Errors
    /// The arena has no room for it, or `bytes` is not as long as the shape says.
    pub fn pack_into(
        arena: &Arc<Arena>,
        ggml_type: GgmlType,
        outputs: usize,
        inputs: usize,
        bytes: &[u8],
        pool: &mut Pool,
    ) -> io::Result<Self> {
        let row_bytes = inputs / ggml_type.block_len() * ggml_type.block_bytes();
        let whole = inputs.is_multiple_of(ggml_type.block_len());
        if !whole || inputs == 0 || row_bytes.checked_mul(outputs) != Some(bytes.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let size = Self::packed_bytes(ggml_type, outputs, inputs);
        let packed = size.and_then(|size| arena.take(size));
        let mut packed = packed.ok_or(io::ErrorKind::OutOfMemory)?;
        let tile_bytes = tile_bytes(ggml_type, inputs).ok_or(io::ErrorKind::OutOfMemory)?;
        let tiles = Tiles(packed.as_mut_slice().as_mut_ptr());
        pool.share(outputs.div_ceil(WIDTH), 1, &|_, range| {
            for tile in range {
                // SAFETY: tiles are disjoint parts of the buffer, and each is worked once.
                let out = unsafe {
                    std::slice::from_raw_parts_mut(tiles.at(tile * tile_bytes), tile_bytes)
                };
                let first = tile * WIDTH;
                let rows = &bytes[first * row_bytes..outputs.min(first + WIDTH) * row_bytes];
                pack_tile(ggml_type, rows, row_bytes, out);
            }
        });
        Ok(Self {
            ggml_type,
            outputs,
            inputs,
            bytes: packed,
        })
    }

    /// The type of the weights.
    pub const fn ggml_type(&self) -> GgmlType {
        self.ggml_type
    }

    /// Rows of the matrix.
    pub const fn outputs(&self) -> usize {
        self.outputs
    }

    /// Elements of a row.
    pub const fn inputs(&self) -> usize {
        self.inputs
    }

    /// Tiles of sixteen rows, the last one filled up with zeros.
    pub const fn tiles(&self) -> usize {
        self.outputs.div_ceil(WIDTH)
    }

    /// The tiles, one after the other: what a GPU's kernels read as well.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes.as_slice().len()
    }

    /// Decodes one row into f32, as [`decode::row`](crate::backend::decode::row) decodes it from the
    /// file; `out` is as long as the row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, output: usize, out: &mut [f32]) {
        self.matrix().row(output, out);
    }

    /// Where tile `tile` begins, if there is one.
    pub fn place(&self, tile: usize) -> Option<*const u8> {
        (tile < self.tiles()).then(|| self.matrix().place(tile))
    }

    /// What the kernels read.
    pub fn matrix(&self) -> Matrix<'_> {
        Matrix::new(self.ggml_type, self.outputs, self.inputs, self.as_slice())
    }
}

/// A buffer whose tiles several threads fill.
struct Tiles(*mut u8);

// SAFETY: each tile is written by the one thread that was given it.
unsafe impl Sync for Tiles {}

impl Tiles {
    /// # Safety
    /// `offset` is within the buffer.
    unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { self.0.add(offset) }
    }
}
