//! Formats with super-blocks of 256: sub-scales multiply in integers.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::marker::PhantomData;

use super::quant::{Quant, SubScale, VECTORS, unpack};
use super::{Format, Simd, Step, Tile, WIDTH, prefetch};
use crate::matrix::STEP;

/// Steps of a super-block.
const STEPS: usize = 8;

/// A family of one format.
#[derive(Clone, Copy)]
pub(super) struct Superblocks<Q>(PhantomData<Q>);

impl<Q: Quant> Format for Superblocks<Q> {
    type Activation = Step;
    const ACTIVATIONS: usize = STEPS;
    const ELEMENTS: usize = STEPS * STEP;
    const BYTES: usize = STEPS * Q::STEP_BYTES + scale_bytes::<Q>();

    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize>(
        tile: &Tile,
        block: usize,
        x: *const Step,
        stride: usize,
        ahead: Option<*const u8>,
        sums: &mut [S::F; R],
    ) {
        // SAFETY: the tile holds the super-block, the activations its steps of each row.
        unsafe {
            let quants = tile.quants.add(block * STEPS * Q::STEP_BYTES);
            let scales = tile.scales.add(block * scale_bytes::<Q>());
            let ints = block_dots::<S, Q, R>(quants, scales, x, stride, ahead);
            let d = S::load_f16(scales.cast());
            for r in 0..R {
                let scale = S::mul(d, S::splat((*x.add(r)).d));
                sums[r] = S::fma(scale, S::to_float(ints[r]), sums[r]);
            }
            if has_min::<Q>() {
                subtract_minimums::<S, Q, R>(scales, x, stride, sums);
            }
        }
    }
}

const fn has_min<Q: Quant>() -> bool {
    matches!(Q::SUB_SCALE, SubScale::WithMin16 | SubScale::WithMin32)
}

const fn halves<Q: Quant>() -> bool {
    matches!(Q::SUB_SCALE, SubScale::WithMin16 | SubScale::Signed16)
}

/// Bytes of a super-block's scales in a tile.
const fn scale_bytes<Q: Quant>() -> usize {
    match Q::SUB_SCALE {
        SubScale::Signed16 => 32 + 256,
        SubScale::Signed32 => 32 + 128,
        SubScale::WithMin32 => 64 + 128 + 128,
        SubScale::WithMin16 => 64 + 256,
    }
}

/// The exact integer products of a super-block, sub-scales included.
#[inline(always)]
unsafe fn block_dots<S: Simd, Q: Quant, const R: usize>(
    quants: *const u8,
    scales: *const u8,
    x: *const Step,
    stride: usize,
    ahead: Option<*const u8>,
) -> [S::I; R] {
    // SAFETY: the super-block is whole, and so are the activations.
    unsafe {
        let mut ints = [S::zero(); R];
        let share = Superblocks::<Q>::BYTES / STEPS;
        for step in 0..STEPS {
            if let Some(ahead) = ahead {
                prefetch::<S>(ahead.wrapping_add(step * share), share);
            }
            let bytes = unpack::<S, Q>(quants.add(step * Q::STEP_BYTES));
            let parts = if halves::<Q>() { 2 } else { 1 };
            for part in 0..parts {
                let scale = sub_scale::<S, Q>(scales, step * parts + part);
                let width = VECTORS / parts;
                for r in 0..R {
                    let x = &*x.add(step * stride + r);
                    let dot = part_dot::<S, Q>(&bytes, x, part * width, width);
                    ints[r] = S::add_int(ints[r], S::mul_int(dot, scale));
                }
            }
        }
        ints
    }
}

/// The exact integer product of `width` vectors from `first` on: all eight, or half of them.
#[inline(always)]
unsafe fn part_dot<S: Simd, Q: Quant>(
    bytes: &[S::I; VECTORS],
    x: &Step,
    first: usize,
    width: usize,
) -> S::I {
    // SAFETY: the instruction set is enabled, the step has 32 bytes.
    unsafe {
        let biased = Q::OFFSET != 0 && (!Q::WIDE || S::WIDE_IS_BIASED);
        let sum = match width {
            VECTORS => x.sums[0] + x.sums[1],
            _ => x.sums[first / width],
        };
        let mut dot = match biased {
            true => S::splat_int(-Q::OFFSET * sum),
            false => S::zero(),
        };
        for j in first..first + width {
            let q = x.q.as_ptr().add(4 * j);
            dot = match Q::WIDE {
                true => S::dot_wide(dot, bytes[j], q),
                false => S::dot(dot, bytes[j], q),
            };
        }
        dot
    }
}

#[inline(always)]
unsafe fn sub_scale<S: Simd, Q: Quant>(scales: *const u8, sub: usize) -> S::I {
    // SAFETY: the tile has a sub-scale for each part.
    unsafe {
        match Q::SUB_SCALE {
            SubScale::Signed16 | SubScale::Signed32 => S::load_i8(scales.add(32 + sub * WIDTH)),
            SubScale::WithMin32 => S::load_u8(scales.add(64 + sub * WIDTH)),
            SubScale::WithMin16 => {
                S::and(S::load_u8(scales.add(64 + sub * WIDTH)), S::splat_int(15))
            }
        }
    }
}

#[inline(always)]
unsafe fn sub_min<S: Simd, Q: Quant>(scales: *const u8, sub: usize) -> S::I {
    // SAFETY: the tile has a sub-minimum for each part.
    unsafe {
        match Q::SUB_SCALE {
            SubScale::WithMin16 => S::shr::<4>(S::load_u8(scales.add(64 + sub * WIDTH))),
            _ => S::load_u8(scales.add(192 + sub * WIDTH)),
        }
    }
}

/// The second `fma` of the chain, for formats with minimums.
#[inline(always)]
unsafe fn subtract_minimums<S: Simd, Q: Quant, const R: usize>(
    scales: *const u8,
    x: *const Step,
    stride: usize,
    sums: &mut [S::F; R],
) {
    // SAFETY: the super-block is whole, and so are the activations.
    unsafe {
        let mut ints = [S::zero(); R];
        for step in 0..STEPS {
            let parts = if halves::<Q>() { 2 } else { 1 };
            for part in 0..parts {
                let min = sub_min::<S, Q>(scales, step * parts + part);
                for r in 0..R {
                    let [low, high] = (*x.add(step * stride + r)).sums;
                    let sum = match (parts, part) {
                        (1, _) => low + high,
                        (_, 0) => low,
                        _ => high,
                    };
                    ints[r] = S::add_int(ints[r], S::mul_int(min, S::splat_int(sum)));
                }
            }
        }
        let min = S::load_f16(scales.add(32).cast());
        for r in 0..R {
            let scale = S::mul(min, S::splat(-(*x.add(r)).d));
            sums[r] = S::fma(scale, S::to_float(ints[r]), sums[r]);
        }
    }
}
