//! Formats whose weights are plain numbers.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::marker::PhantomData;
use core::ops::Range;

use super::{GROUP, Kernel, Simd, Task, WIDTH, add_segment, piece, prefetch, store_some};
use crate::contract::SEGMENT;

/// A dense format.
pub(super) trait Dense: Copy {
    /// Bytes of a weight.
    const BYTES: usize;
    /// Sixteen weights, converted exactly.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

macro_rules! formats {
    ($($name:ident, $bytes:expr, $load:ident;)*) => {$(
        /// The format of this name.
        #[derive(Clone, Copy)]
        pub(super) struct $name;

        impl Dense for $name {
            const BYTES: usize = $bytes;

            #[inline(always)]
            unsafe fn load<S: Simd>(p: *const u8) -> S::F {
                // SAFETY: sixteen weights are there.
                unsafe { S::$load(p.cast()) }
            }
        }
    )*};
}

formats! {
    F32, 4, load;
    F16, 2, load_f16;
    Bf16, 2, load_bf16;
}

/// Some rows of one tile.
pub(super) struct DenseTile<'a, D> {
    task: Task<'a>,
    tile: usize,
    rows: Range<usize>,
    format: PhantomData<D>,
}

impl<'a, D: Dense> DenseTile<'a, D> {
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
    unsafe fn rows<S: Simd, const R: usize>(&self, weights: *const u8, row: usize) {
        let inputs = self.task.matrix.inputs();
        let first = row / GROUP * GROUP;
        let stride = GROUP.min(self.task.rows - first);
        let corner = first * inputs + (row - first);
        // SAFETY: the activations hold every row's elements; the output has room for the rows.
        unsafe {
            let x = self.task.activations.cast::<f32>().add(corner);
            let sums = sums::<S, D, R>(weights, inputs, x, stride, row == self.rows.start);
            for (r, sum) in sums.into_iter().enumerate() {
                let (place, valid) = self.task.place(self.tile, row + r);
                store_some::<S>(place, sum, valid);
            }
        }
    }
}

impl<D: Dense> Kernel for DenseTile<'_, D> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let weights = self.task.matrix.tile(self.tile).quants;
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
unsafe fn sums<S: Simd, D: Dense, const R: usize>(
    weights: *const u8,
    inputs: usize,
    x: *const f32,
    stride: usize,
    first_pass: bool,
) -> [S::F; R] {
    // SAFETY: as the caller says.
    unsafe {
        let mut totals = [S::splat(0.0); R];
        let mut k = 0;
        while k < inputs {
            let (first, end) = (k == 0, inputs.min(k + SEGMENT));
            let mut sums = [S::splat(0.0); R];
            while k < end {
                let place = weights.add(k * WIDTH * D::BYTES);
                if first_pass {
                    prefetch::<S, R>(place, WIDTH * D::BYTES);
                }
                let weight = D::load::<S>(place);
                for r in 0..R {
                    let x = S::splat(*x.add(k * stride + r));
                    sums[r] = S::fma(weight, x, sums[r]);
                }
                k += 1;
            }
            add_segment::<S, R>(&mut totals, sums, first);
        }
        totals
    }
}
