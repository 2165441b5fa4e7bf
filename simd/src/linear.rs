//! Linear layers: tiles of sixteen outputs by groups of eight rows.

use core::ops::Range;

use crate::activations::{GROUP, Step};
use crate::lanes::{Kernel, Simd, WIDTH, dispatch};
use crate::matrix::Matrix;
use crate::{GgmlType, Isa};

mod dense;
mod quant;
mod quantised;
mod superblock;

use quant::*;

/// Rows that pass over a run of tiles together: their activations stay in the second-level cache.
const PANEL: usize = 128;

/// The results of a linear layer: row `r` begins `r * stride` after `base`.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Where output 0 of row 0 is.
    pub base: *mut f32,
    /// Elements from one row to the next.
    pub stride: usize,
}

// SAFETY: a destination is no access; who writes through it answers for disjointness.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Multiplies `rows` rows of activations with the outputs of a range of tiles.
///
/// # Safety
/// The machine has `isa`. At `activations` stand `rows` rows of the matrix's inputs in its
/// [form](crate::activations::Form::of), nobody writes them meanwhile; the output has room for the
/// rows at the tiles' outputs, and nobody else touches it there.
pub unsafe fn linear(
    isa: Isa,
    matrix: Matrix<'_>,
    tiles: Range<usize>,
    activations: *const u8,
    rows: usize,
    output: Output,
) {
    let task = Task {
        matrix,
        activations,
        rows,
        output,
    };
    for first in (0..rows).step_by(PANEL) {
        let panel = first..rows.min(first + PANEL);
        for tile in tiles.clone() {
            // SAFETY: as the caller says.
            unsafe { task.tile(isa, tile, panel.clone()) };
        }
    }
}

/// What the kernels of one call share.
#[derive(Clone, Copy)]
struct Task<'a> {
    matrix: Matrix<'a>,
    activations: *const u8,
    rows: usize,
    output: Output,
}

impl Task<'_> {
    unsafe fn tile(self, isa: Isa, tile: usize, rows: Range<usize>) {
        macro_rules! run {
            ($kernel:ident, $format:ty) => {
                dispatch(isa, $kernel::<$format>::new(self, tile, rows))
            };
        }
        use dense::DenseTile;
        use quantised::QuantisedTile;
        use superblock::SuperblockTile;
        // SAFETY: as the caller of `linear` says.
        unsafe {
            match self.matrix.ggml_type() {
                GgmlType::F32 => run!(DenseTile, dense::F32),
                GgmlType::F16 => run!(DenseTile, dense::F16),
                GgmlType::BF16 => run!(DenseTile, dense::Bf16),
                GgmlType::Q4_0 => run!(QuantisedTile, Q4_0),
                GgmlType::Q4_1 => run!(QuantisedTile, Q4_1),
                GgmlType::Q5_0 => run!(QuantisedTile, Q5_0),
                GgmlType::Q5_1 => run!(QuantisedTile, Q5_1),
                GgmlType::Q8_0 => run!(QuantisedTile, Q8_0),
                GgmlType::IQ4_NL => run!(QuantisedTile, IQ4_NL),
                GgmlType::MXFP4 => run!(QuantisedTile, MXFP4),
                GgmlType::Q2_K => run!(SuperblockTile, Q2_K),
                GgmlType::Q3_K => run!(SuperblockTile, Q3_K),
                GgmlType::Q4_K => run!(SuperblockTile, Q4_K),
                GgmlType::Q5_K => run!(SuperblockTile, Q5_K),
                GgmlType::Q6_K => run!(SuperblockTile, Q6_K),
                GgmlType::IQ4_XS => run!(SuperblockTile, IQ4_XS),
            }
        }
    }

    /// Output `tile * 16` of row `row`, and how many of the sixteen there are.
    fn place(&self, tile: usize, row: usize) -> (*mut f32, usize) {
        let first = tile * WIDTH;
        let valid = WIDTH.min(self.matrix.outputs() - first);
        let offset = row * self.output.stride + first;
        // SAFETY: the output has room for this row at this tile.
        (unsafe { self.output.base.add(offset) }, valid)
    }
}

/// How far ahead the first pass over a tile asks for weights, in bytes: it is bound by memory, and
/// the hardware's own prefetching starts anew with every run of tiles. Measured: a single row passes
/// over them faster than memory gives them, several rows have more time for each.
const fn ahead(rows: usize) -> usize {
    if rows == 1 { 4096 } else { 8192 }
}

/// Asks for the `bytes` bytes that `R` rows will need after those at `p`.
#[inline(always)]
unsafe fn prefetch<S: Simd, const R: usize>(p: *const u8, bytes: usize) {
    for offset in (0..bytes).step_by(64) {
        // SAFETY: the instruction set is enabled; the address need not be valid.
        unsafe { S::prefetch(p.wrapping_add(ahead(R) + offset)) };
    }
}

/// Stores the first `valid` of sixteen lanes.
#[inline(always)]
unsafe fn store_some<S: Simd>(p: *mut f32, x: S::F, valid: usize) {
    // SAFETY: there is room for `valid` elements.
    unsafe {
        if valid == WIDTH {
            S::store(p, x);
        } else {
            let mut all = [0.0_f32; WIDTH];
            S::store(all.as_mut_ptr(), x);
            core::ptr::copy_nonoverlapping(all.as_ptr(), p, valid);
        }
    }
}

/// Ends a segment: its sums are the total, or are added to it.
#[inline(always)]
unsafe fn add_segment<S: Simd, const R: usize>(
    totals: &mut [S::F; R],
    sums: [S::F; R],
    first: bool,
) {
    for r in 0..R {
        totals[r] = match first {
            true => sums[r],
            // SAFETY: the instruction set is enabled.
            false => unsafe { S::add(totals[r], sums[r]) },
        };
    }
}

/// Rows that remain, in the pieces that kernels are built for.
#[inline(always)]
const fn piece(remaining: usize) -> usize {
    match remaining {
        8.. => 8,
        4..8 => 4,
        2..4 => 2,
        _ => 1,
    }
}
