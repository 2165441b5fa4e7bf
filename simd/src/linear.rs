//! Linear layers: tiles of sixteen outputs by groups of eight rows.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::marker::PhantomData;
use core::ops::Range;

use crate::activations::{GROUP, Step};
use crate::contract::SEGMENT;
use crate::lanes::{Kernel, Simd, WIDTH, dispatch};
use crate::matrix::{Matrix, Tile};
use crate::{GgmlType, Isa};

mod blocks;
mod dense;
mod quant;
mod superblocks;

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
        // SAFETY: as the caller says.
        unsafe { task.run(isa, tiles.clone(), panel) };
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
    /// All tiles of a range for a panel of rows.
    unsafe fn run(self, isa: Isa, tiles: Range<usize>, rows: Range<usize>) {
        macro_rules! run {
            ($family:ident<$format:ty>) => {
                dispatch(isa, Tiles::<$family<$format>>::new(self, tiles, rows))
            };
        }
        use blocks::Blocks;
        use dense::{Bf16, Dense, F16, F32};
        use superblocks::Superblocks;
        // SAFETY: as the caller of `linear` says.
        unsafe {
            match self.matrix.ggml_type() {
                GgmlType::F32 => run!(Dense<F32>),
                GgmlType::F16 => run!(Dense<F16>),
                GgmlType::BF16 => run!(Dense<Bf16>),
                GgmlType::Q4_0 => run!(Blocks<Q4_0>),
                GgmlType::Q4_1 => run!(Blocks<Q4_1>),
                GgmlType::Q5_0 => run!(Blocks<Q5_0>),
                GgmlType::Q5_1 => run!(Blocks<Q5_1>),
                GgmlType::Q8_0 => run!(Blocks<Q8_0>),
                GgmlType::IQ4_NL => run!(Blocks<IQ4_NL>),
                GgmlType::MXFP4 => run!(Blocks<MXFP4>),
                GgmlType::Q2_K => run!(Superblocks<Q2_K>),
                GgmlType::Q3_K => run!(Superblocks<Q3_K>),
                GgmlType::Q4_K => run!(Superblocks<Q4_K>),
                GgmlType::Q5_K => run!(Superblocks<Q5_K>),
                GgmlType::Q6_K => run!(Superblocks<Q6_K>),
                GgmlType::IQ4_XS => run!(Superblocks<IQ4_XS>),
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

/// A family of formats: how its sums go on by one block.
trait Format: Copy {
    /// What a block of activations begins with.
    type Activation;
    /// Activations, of this type, that a block has.
    const ACTIVATIONS: usize;
    /// Elements of a block.
    const ELEMENTS: usize;
    /// Whether a single row's chains are too few to hide their own latency, so that several tiles go
    /// together.
    const TOGETHER: bool;

    /// Adds block `block` of `R` rows, whose activations stand `stride` apart from `x` on, to the sums
    /// of `T` tiles. On the `first_pass` over the tiles it asks for what comes next.
    unsafe fn add<S: Simd, const R: usize, const T: usize>(
        tiles: &[Tile; T],
        block: usize,
        x: *const Self::Activation,
        stride: usize,
        first_pass: bool,
        sums: &mut [[S::F; R]; T],
    );
}

/// Some tiles for some rows.
struct Tiles<'a, F> {
    task: Task<'a>,
    tiles: Range<usize>,
    rows: Range<usize>,
    format: PhantomData<F>,
}

impl<'a, F: Format> Tiles<'a, F> {
    fn new(task: Task<'a>, tiles: Range<usize>, rows: Range<usize>) -> Self {
        Self {
            task,
            tiles,
            rows,
            format: PhantomData,
        }
    }

    /// Tile `tile` for all rows, in pieces of one group each.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, tile: usize) {
        let mut row = self.rows.start;
        while row < self.rows.end {
            let rows = piece((self.rows.end - row).min(GROUP - row % GROUP));
            // SAFETY: as the caller of `linear` says.
            unsafe {
                match rows {
                    8 => self.piece::<S, 8, 1>(tile, row),
                    4 => self.piece::<S, 4, 1>(tile, row),
                    2 => self.piece::<S, 2, 1>(tile, row),
                    _ => self.piece::<S, 1, 1>(tile, row),
                }
            }
            row += rows;
        }
    }

    /// The only row for as many tiles from `tile` on as go together; how many.
    #[inline(always)]
    unsafe fn together<S: Simd>(&self, tile: usize) -> usize {
        let row = self.rows.start;
        // SAFETY: as the caller of `linear` says.
        unsafe {
            match self.tiles.end - tile {
                4.. => {
                    self.piece::<S, 1, 4>(tile, row);
                    4
                }
                2.. => {
                    self.piece::<S, 1, 2>(tile, row);
                    2
                }
                _ => {
                    self.piece::<S, 1, 1>(tile, row);
                    1
                }
            }
        }
    }

    /// `R` rows from `row` on, all of one group, for `T` tiles from `tile` on.
    #[inline(always)]
    unsafe fn piece<S: Simd, const R: usize, const T: usize>(&self, tile: usize, row: usize) {
        let blocks = self.task.matrix.inputs() / F::ELEMENTS;
        let first = row / GROUP * GROUP;
        let stride = GROUP.min(self.task.rows - first);
        let corner = first * blocks * F::ACTIVATIONS + (row - first);
        let mut tiles = [self.task.matrix.tile(tile); T];
        for t in 1..T {
            tiles[t] = self.task.matrix.tile(tile + t);
        }
        // SAFETY: the activations hold every row's blocks; the output has room for the rows.
        unsafe {
            let x = self.task.activations.cast::<F::Activation>().add(corner);
            let first_pass = row == self.rows.start;
            let sums = sums::<S, F, R, T>(&tiles, blocks, x, stride, first_pass);
            for t in 0..T {
                for r in 0..R {
                    let (place, valid) = self.task.place(tile + t, row + r);
                    store_some::<S>(place, sums[t][r], valid);
                }
            }
        }
    }
}

impl<F: Format> Kernel for Tiles<'_, F> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut tile = self.tiles.start;
        while tile < self.tiles.end {
            // SAFETY: as the caller of `linear` says.
            unsafe {
                tile += if F::TOGETHER && self.rows.len() == 1 {
                    self.together::<S>(tile)
                } else {
                    self.tile::<S>(tile);
                    1
                };
            }
        }
    }
}

/// The sums of `R` rows with the outputs of `T` tiles, a chain for each segment.
#[inline(always)]
unsafe fn sums<S: Simd, F: Format, const R: usize, const T: usize>(
    tiles: &[Tile; T],
    blocks: usize,
    x: *const F::Activation,
    stride: usize,
    first_pass: bool,
) -> [[S::F; R]; T] {
    // SAFETY: as the caller says.
    unsafe {
        let mut totals = [[S::splat(0.0); R]; T];
        let mut block = 0;
        while block < blocks {
            let (first, end) = (block == 0, blocks.min(block + SEGMENT / F::ELEMENTS));
            let mut sums = [[S::splat(0.0); R]; T];
            while block < end {
                let x = x.add(block * F::ACTIVATIONS * stride);
                F::add::<S, R, T>(tiles, block, x, stride, first_pass, &mut sums);
                block += 1;
            }
            for t in 0..T {
                add_segment::<S, R>(&mut totals[t], sums[t], first);
            }
        }
        totals
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
