//! Quantises a row: several blocks at once, so that nothing waits for the maximum of one or for its
//! divisions.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::mem::offset_of;

use super::{OFFSETS, Step};
use crate::contract::TINY;
use crate::lanes::{Kernel, Simd, WIDTH};
use crate::matrix::STEP;

/// Quantises a row into steps that are `stride` apart.
pub(super) struct Quantise<'a> {
    pub(super) x: &'a [f32],
    /// Elements of a block: 32 or 256.
    pub(super) block: usize,
    pub(super) out: *mut Step,
    pub(super) stride: usize,
    pub(super) finite: &'a mut bool,
}

/// What each lane of a step's second half is multiplied with, two steps side by side: the negated
/// [`OFFSETS`], in their lanes.
const FACTORS: [i32; WIDTH] = {
    let mut factors = [0; WIDTH];
    let mut i = 0;
    while i < OFFSETS.len() {
        factors[4 + i] = -OFFSETS[i];
        factors[12 + i] = -OFFSETS[i];
        i += 1;
    }
    factors
};
/// Where those lanes begin in a step; the lanes of its scale, of the scale times the sum, and of the
/// sums are those before.
const FACTS: usize = STEP;
const _: () = assert!(
    offset_of!(Step, d) == FACTS
        && offset_of!(Step, d_sum) == FACTS + 4
        && offset_of!(Step, sums) == FACTS + 8
        && offset_of!(Step, biases) == FACTS + 16
        && size_of::<Step>() == FACTS + 32
);
/// The lanes in which `lane` of each step is.
const fn both(lane: usize) -> u16 {
    0x0101 << lane
}

impl Kernel for Quantise<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let steps = self.x.len() / STEP;
        let mut finite = true;
        let mut step = 0;
        // SAFETY: the row has all steps that are quantised, the caller gave room for them.
        unsafe {
            while step < steps {
                let left = steps - step;
                step += match (self.block, left) {
                    (STEP, 16..) => self.blocks::<S, 16, 1>(step, &mut finite),
                    (STEP, 2..) => self.blocks::<S, 2, 1>(step, &mut finite),
                    (STEP, _) => self.blocks::<S, 1, 1>(step, &mut finite),
                    _ => self.blocks::<S, 1, 8>(step, &mut finite),
                };
            }
            if !finite {
                for step in 0..steps {
                    *self.out.add(step * self.stride) = Step::ZERO;
                }
            }
        }
        *self.finite = finite;
    }
}

impl Quantise<'_> {
    /// `B` blocks of `N` steps each from step `first` on; how many steps that are.
    #[inline(always)]
    unsafe fn blocks<S: Simd, const B: usize, const N: usize>(
        &self,
        first: usize,
        finite: &mut bool,
    ) -> usize {
        let steps = B * N;
        // SAFETY: the row has these steps.
        unsafe {
            let x = self.x.as_ptr().add(first * STEP);
            let (scales, all) = scales::<S, B, N>(x);
            *finite &= all;
            let out = |step: usize| self.out.wrapping_add((first + step) * self.stride);
            for step in (0..steps / 2 * 2).step_by(2) {
                let scales = [scales[step / N], scales[(step + 1) / N]];
                let x = [x.add(step * STEP), x.add((step + 1) * STEP)];
                quantise_two::<S>(x, scales, [out(step), out(step + 1)]);
            }
            if !steps.is_multiple_of(2) {
                let step = steps - 1;
                let mut spare = Step::ZERO;
                let x = x.add(step * STEP);
                quantise_two::<S>([x; 2], [scales[step / N]; 2], [out(step), &mut spare]);
            }
        }
        steps
    }
}

/// What the elements of a block become integers with, and what makes them of those again.
#[derive(Clone, Copy)]
struct Scale {
    inverse: f32,
    d: f32,
}

/// The scales of `B` blocks of `N` steps, and whether all elements are finite.
#[inline(always)]
unsafe fn scales<S: Simd, const B: usize, const N: usize>(x: *const f32) -> ([Scale; B], bool) {
    // SAFETY: the row has these blocks.
    unsafe {
        let mut greatest = [S::zero(); B];
        for b in 0..B {
            // The bits of a number that is not finite are greater than all.
            for i in 0..N * STEP / WIDTH {
                let x = S::bits(S::load(x.add(b * N * STEP + i * WIDTH)));
                let magnitude = S::and(x, S::splat_int(i32::MAX));
                greatest[b] = S::max_int(greatest[b], magnitude);
            }
        }
        let greatest = maxima::<S, B>(greatest);
        let amax = S::from_bits(greatest);
        let (d, inverse) = (S::div(amax, S::splat(127.0)), S::div(S::splat(127.0), amax));
        let (mut ds, mut inverses) = ([0.0; WIDTH], [0.0; WIDTH]);
        for (x, out) in [(d, &mut ds), (inverse, &mut inverses)] {
            let x = S::select_less(amax, S::splat(TINY), S::splat(0.0), x);
            S::store(out.as_mut_ptr(), x);
        }
        let scales = core::array::from_fn(|b| Scale {
            inverse: inverses[b],
            d: ds[b],
        });
        (scales, !S::any_above(greatest, f32::MAX.to_bits() as i32))
    }
}

/// The greatest lanes of `B` vectors, a power of two: that of vector `b` in lane `b`, and in all
/// lanes that are `b` modulo `B`.
#[inline(always)]
unsafe fn maxima<S: Simd, const B: usize>(mut x: [S::I; B]) -> S::I {
    // Lanes whose number has a certain bit.
    const BITS: [u16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
    macro_rules! round {
        ($n:literal, $bits:expr) => {
            // SAFETY: the instruction set is enabled.
            unsafe {
                if B > $n {
                    for i in 0..B / (2 * $n) {
                        let (a, b) = (x[2 * i], x[2 * i + 1]);
                        let straight = S::blend($bits, a, b);
                        let crossed = S::exchange::<$n>(S::blend($bits, b, a));
                        x[i] = S::max_int(straight, crossed);
                    }
                } else {
                    x[0] = S::max_int(x[0], S::exchange::<$n>(x[0]));
                }
            }
        };
    }
    round!(1, BITS[0]);
    round!(2, BITS[1]);
    round!(4, BITS[2]);
    round!(8, BITS[3]);
    x[0]
}

/// Quantises two steps. No clamp is needed: the greatest magnitude times `127 / amax` rounds to 127.
#[inline(always)]
unsafe fn quantise_two<S: Simd>(x: [*const f32; 2], scales: [Scale; 2], out: [*mut Step; 2]) {
    // SAFETY: 32 elements are at each place, and room for a step.
    unsafe {
        let mut q = [S::zero(); 4];
        for i in 0..4 {
            let x = S::load(x[i / 2].add(i % 2 * WIDTH));
            q[i] = S::to_int(S::mul(x, S::splat(scales[i / 2].inverse)));
        }
        let bytes = S::narrow(q);
        let places = out.map(|out| out.cast::<u8>());
        S::store_halves(places, bytes);

        let d = S::bits(S::splat(scales[0].d));
        let d = S::blend(0xff00, d, S::bits(S::splat(scales[1].d)));
        // Four lanes for every sixteen bytes, each of them their sum in the end.
        let sums = S::sum_fours(bytes);
        let sums = S::add_int(sums, S::exchange::<1>(sums));
        let sums = S::add_int(sums, S::exchange::<2>(sums));
        let others = S::exchange::<4>(sums);
        let total = S::add_int(sums, others);
        let d_sum = S::bits(S::mul(S::from_bits(d), S::to_float(total)));
        let facts = S::mul_int(total, S::bits(S::load(FACTORS.as_ptr().cast())));
        let facts = S::blend(both(0), facts, d);
        let facts = S::blend(both(1), facts, d_sum);
        let facts = S::blend(both(2), facts, sums);
        let facts = S::blend(both(3), facts, others);
        S::store_halves(places.map(|place| place.add(FACTS)), facts);
    }
}
