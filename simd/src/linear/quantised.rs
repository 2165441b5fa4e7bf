//! Formats with blocks of 32.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::marker::PhantomData;
use core::ops::Range;

use super::quant::{Quant, VECTORS, bias_index, unpack};
use super::{GROUP, Kernel, Simd, Step, Task, WIDTH, add_segment, piece, prefetch, store_some};
use crate::contract::SEGMENT;
use crate::matrix::{STEP, Tile};

/// Some rows of one tile.
pub(super) struct QuantisedTile<'a, Q> {
    task: Task<'a>,
    tile: usize,
    rows: Range<usize>,
    format: PhantomData<Q>,
}

impl<'a, Q: Quant> QuantisedTile<'a, Q> {
    pub(super) fn new(task: Task<'a>, tile: usize, rows: Range<usize>) -> Self {
        Self {
            task,
            tile,
            rows,
            format: PhantomData,
        }
    }

    /// `R` rows from `row` on, all of one group.
    #[inline(always)]
    unsafe fn rows<S: Simd, const R: usize>(&self, weights: Tile, row: usize) {
        let steps = self.task.matrix.inputs() / STEP;
        let first = row / GROUP * GROUP;
        let stride = GROUP.min(self.task.rows - first);
        let corner = first * steps + (row - first);
        // SAFETY: the activations hold every row's steps; the output has room for the rows.
        unsafe {
            let activations = self.task.activations.cast::<Step>().add(corner);
            let sums = sums::<S, Q, R>(weights, steps, activations, stride, row == self.rows.start);
            for (r, sum) in sums.into_iter().enumerate() {
                let (place, valid) = self.task.place(self.tile, row + r);
                store_some::<S>(place, sum, valid);
            }
        }
    }
}

impl<Q: Quant> Kernel for QuantisedTile<'_, Q> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let weights = self.task.matrix.tile(self.tile);
        let mut row = self.rows.start;
        while row < self.rows.end {
            let rows = piece((self.rows.end - row).min(GROUP - row % GROUP));
            // SAFETY: as the caller of `linear` says.
            unsafe {
                match rows {
                    8 => self.rows::<S, 8>(weights, row),
                    4 => self.rows::<S, 4>(weights, row),
                    2 => self.rows::<S, 2>(weights, row),
                    _ => self.rows::<S, 1>(weights, row),
                }
            }
            row += rows;
        }
    }
}

/// The sums of `R` rows with sixteen outputs.
#[inline(always)]
unsafe fn sums<S: Simd, Q: Quant, const R: usize>(
    weights: Tile,
    steps: usize,
    activations: *const Step,
    stride: usize,
    first_pass: bool,
) -> [S::F; R] {
    // SAFETY: as the caller says.
    unsafe {
        let mut totals = [S::splat(0.0); R];
        let mut step = 0;
        while step < steps {
            let (first, end) = (step == 0, steps.min(step + SEGMENT / STEP));
            let mut sums = [S::splat(0.0); R];
            while step < end {
                let quants = weights.quants.add(step * Q::STEP_BYTES);
                if first_pass {
                    prefetch::<S, R>(quants, Q::STEP_BYTES);
                    // The next tile's scales: a stream of its own, too short for the hardware.
                    let scales = weights.scales.wrapping_add(step * scale_bytes::<Q>());
                    S::prefetch(scales.wrapping_add(weights.size));
                }
                let bytes = unpack::<S, Q>(quants);
                let (scale, min) = scales::<S, Q>(weights.scales, step);
                let rows = activations.add(step * stride);
                let ints = step_dots::<S, Q, R>(&bytes, rows);
                for r in 0..R {
                    let x = &*rows.add(r);
                    let int = S::to_float(ints[r]);
                    sums[r] = S::fma(S::mul(scale, S::splat(x.d)), int, sums[r]);
                    if Q::MIN {
                        sums[r] = S::fma(min, S::splat(x.d_sum), sums[r]);
                    }
                }
                step += 1;
            }
            add_segment::<S, R>(&mut totals, sums, first);
        }
        totals
    }
}

/// The exact integer products of a step with `R` rows: as many chains side by side, since one alone
/// waits for its own last product.
#[inline(always)]
unsafe fn step_dots<S: Simd, Q: Quant, const R: usize>(
    bytes: &[S::I; VECTORS],
    rows: *const Step,
) -> [S::I; R] {
    // SAFETY: the instruction set is enabled, the steps have 32 bytes.
    unsafe {
        let biased = Q::OFFSET != 0 && (!Q::WIDE || S::WIDE_IS_BIASED);
        let mut sums = [S::zero(); R];
        for r in 0..R {
            if biased {
                sums[r] = S::splat_int((*rows.add(r)).biases[const { bias_index(Q::OFFSET) % 4 }]);
            }
        }
        for (j, vector) in bytes.iter().enumerate() {
            for r in 0..R {
                let q = (*rows.add(r)).q.as_ptr().add(4 * j);
                sums[r] = match Q::WIDE {
                    true => S::dot_wide(sums[r], *vector, q),
                    false => S::dot(sums[r], *vector, q),
                };
            }
        }
        sums
    }
}

/// Bytes of a step's scales in a tile.
const fn scale_bytes<Q: Quant>() -> usize {
    match (Q::E8M0, Q::MIN) {
        (true, _) => WIDTH,
        (_, true) => 4 * WIDTH,
        _ => 2 * WIDTH,
    }
}

/// The scales of a step, and its minimums where the format has them.
#[inline(always)]
unsafe fn scales<S: Simd, Q: Quant>(base: *const u8, step: usize) -> (S::F, S::F) {
    // SAFETY: the tile has scales for each of its steps.
    unsafe {
        if Q::E8M0 {
            let bits = S::shl::<23>(S::load_u8(base.add(step * scale_bytes::<Q>())));
            let bits = S::max_int(bits, S::splat_int(0x0040_0000));
            let scale = S::mul(S::from_bits(bits), S::splat(0.5));
            return (scale, scale);
        }
        let p = base.add(step * scale_bytes::<Q>()).cast::<u16>();
        let scale = S::load_f16(p);
        match Q::MIN {
            true => (scale, S::load_f16(p.add(WIDTH))),
            false => (scale, scale),
        }
    }
}
