//! Operations on single rows: norm, gate, rotation, addition, and the exponential they share.

use crate::Isa;
use crate::contract::LANES;
use crate::exp::{
    COEFFICIENTS, GELU_CUBIC, GELU_LINEAR, HIGHEST, LN2_HIGH, LN2_LOW, LOG2_E, LOWEST, ROUNDER,
};
use crate::lanes::{Kernel, Simd, WIDTH, dispatch};
use crate::math::sqrt;

/// Vectors of the virtual lanes.
const LANE_VECTORS: usize = LANES / WIDTH;

/// [`exp`](crate::exp::exp) of sixteen lanes.
#[inline(always)]
pub(super) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the instruction set is enabled.
    unsafe {
        let [value] = exp_of_negative::<S, 1>([x]);
        S::select_less(S::splat(HIGHEST), x, S::splat(f32::INFINITY), value)
    }
}

/// [`exp`] of numbers that are not above [`HIGHEST`], step by step for several vectors at once, since
/// one alone waits for its own last step.
#[inline(always)]
pub(super) unsafe fn exp_of_negative<S: Simd, const N: usize>(x: [S::F; N]) -> [S::F; N] {
    let (mut shifted, mut r, mut p) = (x, x, x);
    // SAFETY: the instruction set is enabled.
    unsafe {
        let rounder = S::splat(ROUNDER);
        for i in 0..N {
            shifted[i] = S::fma(x[i], S::splat(LOG2_E), rounder);
        }
        for i in 0..N {
            p[i] = S::sub(shifted[i], rounder);
        }
        for i in 0..N {
            r[i] = S::fnma(p[i], S::splat(LN2_HIGH), x[i]);
        }
        for i in 0..N {
            r[i] = S::fnma(p[i], S::splat(LN2_LOW), r[i]);
            p[i] = S::splat(COEFFICIENTS[0]);
        }
        for c in &COEFFICIENTS[1..] {
            for i in 0..N {
                p[i] = S::fma(p[i], r[i], S::splat(*c));
            }
        }
        for i in 0..N {
            let power = S::add_int(S::shl::<23>(S::bits(shifted[i])), S::splat_int(127 << 23));
            let value = S::mul(p[i], S::from_bits(power));
            p[i] = S::select_less(x[i], S::splat(LOWEST), S::splat(0.0), value);
        }
    }
    p
}

/// Folds 64 virtual lanes.
#[inline(always)]
pub(super) unsafe fn fold_lanes<S: Simd>([a, b, c, d]: [S::F; LANE_VECTORS]) -> f32 {
    // SAFETY: the instruction set is enabled.
    unsafe { S::fold(S::add(S::add(a, c), S::add(b, d))) }
}

/// RMSNorm of `x` into `out`; whether the sum of squares is finite.
///
/// # Safety
/// The machine has `isa`.
///
/// # Panics
/// If the lengths differ or are not a multiple of 16.
pub unsafe fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) -> bool {
    assert!(x.len() == weight.len() && x.len() == out.len() && x.len().is_multiple_of(WIDTH));
    let mut finite = true;
    let kernel = RmsNorm {
        x,
        weight,
        epsilon,
        out,
        finite: &mut finite,
    };
    // SAFETY: the machine has `isa`, the lengths are as they should.
    unsafe { dispatch(isa, kernel) };
    finite
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
    finite: &'a mut bool,
}

/// Adds the squares of `N` vectors to as many lanes.
#[inline(always)]
unsafe fn square<S: Simd, const N: usize>(x: *const f32, lanes: &mut [S::F; N]) {
    for (i, lane) in lanes.iter_mut().enumerate() {
        // SAFETY: the vectors are there.
        unsafe {
            let x = S::load(x.add(i * WIDTH));
            *lane = S::fma(x, x, *lane);
        }
    }
}

impl Kernel for RmsNorm<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: all three slices are equally long, a multiple of 16.
        unsafe {
            let mut lanes = [S::splat(0.0); LANE_VECTORS];
            let (rows, rest) = self.x.as_chunks::<LANES>();
            for x in rows {
                square::<S, LANE_VECTORS>(x.as_ptr(), &mut lanes);
            }
            for (x, lane) in rest.chunks_exact(WIDTH).zip(&mut lanes) {
                square::<S, 1>(x.as_ptr(), core::array::from_mut(lane));
            }
            let sum = fold_lanes::<S>(lanes);
            *self.finite = sum.is_finite();
            let scale = 1.0 / sqrt(sum / self.x.len() as f32 + self.epsilon);
            let pieces = self
                .x
                .chunks_exact(WIDTH)
                .zip(self.weight.chunks_exact(WIDTH));
            for ((x, w), out) in pieces.zip(self.out.chunks_exact_mut(WIDTH)) {
                let scaled = S::mul(S::load(x.as_ptr()), S::splat(scale));
                S::store(out.as_mut_ptr(), S::mul(scaled, S::load(w.as_ptr())));
            }
        }
    }
}

/// `x = x + y`.
///
/// # Safety
/// The machine has `isa`.
///
/// # Panics
/// If the lengths differ or are not a multiple of 16.
pub unsafe fn add(isa: Isa, x: &mut [f32], y: &[f32]) {
    assert!(x.len() == y.len() && x.len().is_multiple_of(WIDTH));
    // SAFETY: the machine has `isa`, the lengths are as they should.
    unsafe { dispatch(isa, Add { x, y }) };
}

struct Add<'a> {
    x: &'a mut [f32],
    y: &'a [f32],
}

impl Kernel for Add<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (x, y) in self
            .x
            .chunks_exact_mut(WIDTH)
            .zip(self.y.chunks_exact(WIDTH))
        {
            // SAFETY: chunks of 16.
            unsafe {
                S::store(
                    x.as_mut_ptr(),
                    S::add(S::load(x.as_ptr()), S::load(y.as_ptr())),
                )
            };
        }
    }
}

/// `gate = silu(gate) * up`.
///
/// # Safety
/// The machine has `isa`.
///
/// # Panics
/// If the lengths differ or are not a multiple of 16.
pub unsafe fn silu_mul(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert!(gate.len() == up.len() && gate.len().is_multiple_of(WIDTH));
    // SAFETY: the machine has `isa`, the lengths are as they should.
    unsafe { dispatch(isa, SiluMul { gate, up }) };
}

struct SiluMul<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for SiluMul<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let pieces = self.gate.chunks_exact_mut(WIDTH);
        for (gate, up) in pieces.zip(self.up.chunks_exact(WIDTH)) {
            // SAFETY: chunks of 16.
            unsafe {
                let x = S::load(gate.as_ptr());
                let negated = S::mul(x, S::splat(-1.0));
                let silu = S::div(x, S::add(S::splat(1.0), exp::<S>(negated)));
                S::store(gate.as_mut_ptr(), S::mul(silu, S::load(up.as_ptr())));
            }
        }
    }
}

/// `gate = gelu(gate) * up`.
///
/// # Safety
/// The machine has `isa`.
///
/// # Panics
/// If the lengths differ or are not a multiple of 16.
pub unsafe fn gelu_mul(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert!(gate.len() == up.len() && gate.len().is_multiple_of(WIDTH));
    // SAFETY: the machine has `isa`, the lengths are as they should.
    unsafe { dispatch(isa, GeluMul { gate, up }) };
}

struct GeluMul<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for GeluMul<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let pieces = self.gate.chunks_exact_mut(WIDTH);
        for (gate, up) in pieces.zip(self.up.chunks_exact(WIDTH)) {
            // SAFETY: chunks of 16.
            unsafe {
                let x = S::load(gate.as_ptr());
                let factor = S::fma(S::mul(x, x), S::splat(GELU_CUBIC), S::splat(GELU_LINEAR));
                let negated = S::mul(S::mul(x, factor), S::splat(-1.0));
                let gelu = S::div(x, S::add(S::splat(1.0), exp::<S>(negated)));
                S::store(gate.as_mut_ptr(), S::mul(gelu, S::load(up.as_ptr())));
            }
        }
    }
}

/// `weights[i] = exp(x[i] - highest)`.
///
/// # Safety
/// The machine has `isa`.
///
/// # Panics
/// If the lengths differ.
pub unsafe fn exponentials(isa: Isa, x: &[f32], highest: f32, weights: &mut [f32]) {
    assert!(x.len() == weights.len());
    // SAFETY: the machine has `isa`, the lengths are as they should.
    unsafe {
        dispatch(
            isa,
            Exponentials {
                x,
                highest,
                weights,
            },
        )
    };
}

/// [`exponentials`] with the fastest set that this machine has.
///
/// # Panics
/// If the lengths differ.
#[cfg(feature = "std")]
pub fn fastest_exponentials(x: &[f32], highest: f32, weights: &mut [f32]) {
    // SAFETY: the best set is one that the machine has.
    unsafe { exponentials(Isa::best(), x, highest, weights) };
}

struct Exponentials<'a> {
    x: &'a [f32],
    highest: f32,
    weights: &'a mut [f32],
}

impl Kernel for Exponentials<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (x, x_rest) = self.x.as_chunks::<WIDTH>();
        let (weights, weights_rest) = self.weights.as_chunks_mut::<WIDTH>();
        let mut last = ([0.0; WIDTH], [0.0; WIDTH]);
        last.0[..x_rest.len()].copy_from_slice(x_rest);
        // SAFETY: arrays of 16.
        unsafe {
            let highest = S::splat(self.highest);
            let all = x.iter().zip(weights);
            for (x, weights) in all.chain(core::iter::once((&last.0, &mut last.1))) {
                let weight = exp::<S>(S::sub(S::load(x.as_ptr()), highest));
                S::store(weights.as_mut_ptr(), weight);
            }
        }
        weights_rest.copy_from_slice(&last.1[..weights_rest.len()]);
    }
}

/// Rotates adjacent pairs: `cos` holds each pair's cosine twice, `sin` its negated sine and its sine.
///
/// # Safety
/// The machine has `isa`.
///
/// # Panics
/// If the lengths differ or are not a multiple of 16.
pub unsafe fn rope(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    assert!(x.len() == cos.len() && x.len() == sin.len() && x.len().is_multiple_of(WIDTH));
    // SAFETY: the machine has `isa`, the lengths are as they should.
    unsafe { dispatch(isa, Rope { x, cos, sin }) };
}

struct Rope<'a> {
    x: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Kernel for Rope<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let factors = self
            .cos
            .chunks_exact(WIDTH)
            .zip(self.sin.chunks_exact(WIDTH));
        for (x, (cos, sin)) in self.x.chunks_exact_mut(WIDTH).zip(factors) {
            // SAFETY: chunks of 16.
            unsafe {
                let pairs = S::load(x.as_ptr());
                let straight = S::mul(pairs, S::load(cos.as_ptr()));
                let crossed = S::mul(S::swap_pairs(pairs), S::load(sin.as_ptr()));
                S::store(x.as_mut_ptr(), S::add(straight, crossed));
            }
        }
    }
}

/// Sixteen numbers as the bits of f16, rounded to nearest even.
///
/// # Safety
/// The machine has `isa`.
pub unsafe fn to_f16(isa: Isa, x: &[f32; WIDTH]) -> [u16; WIDTH] {
    let mut out = [0; WIDTH];
    // SAFETY: the machine has `isa`.
    unsafe { dispatch(isa, ToF16 { x, out: &mut out }) };
    out
}

struct ToF16<'a> {
    x: &'a [f32; WIDTH],
    out: &'a mut [u16; WIDTH],
}

impl Kernel for ToF16<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: both arrays hold 16.
        unsafe { S::store_f16(self.out.as_mut_ptr(), S::load(self.x.as_ptr())) };
    }
}
