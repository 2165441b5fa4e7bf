//! Linear layers: tiles of sixteen outputs by groups of eight rows.

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
    /// Whether results are added to what stands there, and do not replace it.
    pub add: bool,
}

// SAFETY: a destination is no access; who writes through it answers for disjointness.
unsafe impl Send for Output {}
// SAFETY: as above.
unsafe impl Sync for Output {}

/// Multiplies `rows` rows of activations with the outputs of a range of tiles. Towards the end it asks
/// the caches for what the thread will read `next`, any place; without one, for what stands after the
/// tiles.
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
    next: Option<*const u8>,
) {
    let task = Task {
        matrix,
        activations,
        rows,
        output,
        next,
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
    next: Option<*const u8>,
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

    /// Bytes of a block of a tile, its scales included.
    const BYTES: usize;

    /// Adds block `block` of `R` rows, whose activations stand `stride` apart from `x` on, to the sums
    /// of a tile. On the first pass over the tile it asks for as many bytes as the block has, those
    /// at `ahead`.
    unsafe fn add<S: Simd, const R: usize>(
        tile: &Tile,
        block: usize,
        x: *const Self::Activation,
        stride: usize,
        ahead: Option<*const u8>,
        sums: &mut [S::F; R],
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
                    8 => self.piece::<S, 8>(tile, row),
                    4 => self.piece::<S, 4>(tile, row),
                    2 => self.piece::<S, 2>(tile, row),
                    _ => self.piece::<S, 1>(tile, row),
                }
            }
            row += rows;
        }
    }

    /// `R` rows from `row` on, all of one group.
    #[inline(always)]
    unsafe fn piece<S: Simd, const R: usize>(&self, tile: usize, row: usize) {
        let blocks = self.task.matrix.inputs() / F::ELEMENTS;
        let first = row / GROUP * GROUP;
        let stride = GROUP.min(self.task.rows - first);
        let corner = first * blocks * F::ACTIVATIONS + (row - first);
        let mut weights = self.task.matrix.tile(tile);
        if tile + 1 == self.tiles.end {
            weights.next = self.task.next.unwrap_or(weights.next);
        }
        // SAFETY: the activations hold every row's blocks; the output has room for the rows.
        unsafe {
            let x = self.task.activations.cast::<F::Activation>().add(corner);
            let first_pass = row == self.rows.start;
            let sums = sums::<S, F, R>(&weights, blocks, x, stride, first_pass);
            for (r, sum) in sums.into_iter().enumerate() {
                let (place, valid) = self.task.place(tile, row + r);
                store_some::<S>(place, sum, valid, self.task.output.add);
            }
        }
    }
}

impl<F: Format> Kernel for Tiles<'_, F> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for tile in self.tiles.clone() {
            // SAFETY: as the caller of `linear` says.
            unsafe { self.tile::<S>(tile) };
        }
    }
}

/// The sums of `R` rows with the outputs of a tile, a chain for each segment.
#[inline(always)]
unsafe fn sums<S: Simd, F: Format, const R: usize>(
    tile: &Tile,
    blocks: usize,
    x: *const F::Activation,
    stride: usize,
    first_pass: bool,
) -> [S::F; R] {
    // SAFETY: as the caller says.
    unsafe {
        let mut totals = [S::splat(0.0); R];
        let mut block = 0;
        while block < blocks {
            let (first, end) = (block == 0, blocks.min(block + SEGMENT / F::ELEMENTS));
            let mut sums = [S::splat(0.0); R];
            while block < end {
                let x = x.add(block * F::ACTIVATIONS * stride);
                let ahead = first_pass.then(|| tile.ahead(block * F::BYTES));
                F::add::<S, R>(tile, block, x, stride, ahead, &mut sums);
                block += 1;
            }
            add_segment::<S, R>(&mut totals, sums, first);
        }
        totals
    }
}

/// Asks for `bytes` bytes at `p`.
#[inline(always)]
unsafe fn prefetch<S: Simd>(p: *const u8, bytes: usize) {
    for offset in (0..bytes).step_by(64) {
        // SAFETY: the instruction set is enabled; the address need not be valid.
        unsafe { S::prefetch(p.wrapping_add(offset)) };
    }
}

/// Stores the first `valid` of sixteen lanes, or adds them to what is there.
#[inline(always)]
unsafe fn store_some<S: Simd>(p: *mut f32, x: S::F, valid: usize, add: bool) {
    // SAFETY: there is room for `valid` elements.
    unsafe {
        if valid == WIDTH {
            let sum = if add { S::add(S::load(p), x) } else { x };
            S::store(p, sum);
        } else {
            let mut all = [0.0_f32; WIDTH];
            S::store(all.as_mut_ptr(), x);
            for (i, x) in all[..valid].iter().enumerate() {
                *p.add(i) = if add { *p.add(i) + x } else { *x };
            }
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
