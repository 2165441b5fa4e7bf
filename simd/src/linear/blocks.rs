//! Formats with blocks of 32.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::marker::PhantomData;

use super::quant::{Quant, VECTORS, bias_index, unpack};
use super::{Format, Simd, Step, Tile, WIDTH, prefetch};
use crate::matrix::STEP;

/// A family of one format.
#[derive(Clone, Copy)]
pub(super) struct Blocks<Q>(PhantomData<Q>);

impl<Q: Quant> Format for Blocks<Q> {
    type Activation = Step;
    const ACTIVATIONS: usize = 1;
    const ELEMENTS: usize = STEP;
    const BYTES: usize = Q::STEP_BYTES + scale_bytes::<Q>();

    #[inline(always)]
    unsafe fn add<S: Simd, const R: usize>(
        tile: &Tile,
        block: usize,
        x: *const Step,
        _: usize,
        ahead: Option<*const u8>,
        sums: &mut [S::F; R],
    ) {
        // SAFETY: the tile holds the block, the activations its step of each row.
        unsafe {
            if let Some(ahead) = ahead {
                prefetch::<S>(ahead, Self::BYTES);
            }
            let bytes = unpack::<S, Q>(tile.quants.add(block * Q::STEP_BYTES));
            let (scale, min) = scales::<S, Q>(tile.scales, block);
            let ints = step_dots::<S, Q, R>(&bytes, x);
            for r in 0..R {
                let x = &*x.add(r);
                let int = S::to_float(ints[r]);
                sums[r] = S::fma(S::mul(scale, S::splat(x.d)), int, sums[r]);
                if Q::MIN {
                    sums[r] = S::fma(min, S::splat(x.d_sum), sums[r]);
                }
            }
        }
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
