//! The exponential of the numerics contract: its constants, and the scalar definition.
//!
//! Cody-Waite reduction and a polynomial of degree 6, every operation an IEEE-754 one, so that a
//! vector unit or a GPU thread repeats it bit for bit. The error is below 3 units in the last place.

use crate::math::fma;

/// Below this the result is +0.
pub const LOWEST: f32 = -87.33;
/// Above this the result is infinite: just under 127.5 ln 2, where the power of two leaves the range.
pub const HIGHEST: f32 = 88.37;
/// log2 e.
pub const LOG2_E: f32 = core::f32::consts::LOG2_E;
/// The upper bits of ln 2: products with integers up to 2^8 are exact.
pub const LN2_HIGH: f32 = 0.693_359_4;
/// ln 2 less [`LN2_HIGH`].
pub const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding and subtracting 1.5 x 2^23 rounds to the nearest integer, ties to even.
pub const ROUNDER: f32 = 12_582_912.0;
/// The polynomial's coefficients, the highest power first: 1/6! to 1/0!, rounded.
pub const COEFFICIENTS: [f32; 7] = [
    1.388_888_9e-3,
    8.333_334e-3,
    4.166_666_8e-2,
    1.666_666_7e-1,
    0.5,
    1.0,
    1.0,
];

/// e to the power of `x`.
pub fn exp(x: f32) -> f32 {
    let shifted = fma(x, LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = fma(n, -LN2_LOW, fma(n, -LN2_HIGH, x));
    let p = COEFFICIENTS[1..]
        .iter()
        .fold(COEFFICIENTS[0], |p, &c| fma(p, r, c));
    // The low bits of `shifted` are n: moved into the exponent they make 2^n.
    let power = f32::from_bits(shifted.to_bits().wrapping_shl(23).wrapping_add(127 << 23));
    let value = p * power;
    if x < LOWEST {
        0.0
    } else if x > HIGHEST {
        f32::INFINITY
    } else {
        value
    }
}

/// The logistic function times `x`.
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Twice the square root of 2 / pi.
pub const GELU_LINEAR: f32 = 1.595_769;
/// [`GELU_LINEAR`] times 0.044715.
pub const GELU_CUBIC: f32 = 0.071_354_814;

/// The Gaussian error linear unit in its tanh form, `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`,
/// by way of `(1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u))`.
///
/// Hendrycks, Gimpel: "Gaussian error linear units" (2016).
pub fn gelu(x: f32) -> f32 {
    let u = x * fma(x * x, GELU_CUBIC, GELU_LINEAR);
    x / (1.0 + exp(-u))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_below_three_units_in_the_last_place() {
        let mut worst = 0.0_f64;
        for i in -870_000..883_000 {
            let x = i as f32 * 1e-4;
            let exact = libm::exp(f64::from(x));
            let ulp = f64::from(f32::from_bits((exact as f32).to_bits() + 1) - exact as f32);
            worst = worst.max((f64::from(exp(x)) - exact).abs() / ulp);
        }
        assert!(worst < 3.0, "{worst} units in the last place");
    }

    #[test]
    fn gelu_is_its_tanh_form() {
        for i in -12_000..12_000 {
            let x = i as f32 * 1e-3;
            let wide = f64::from(x);
            let inner = (2.0 / core::f64::consts::PI).sqrt() * (wide + 0.044_715 * wide.powi(3));
            let exact = wide / 2.0 * (1.0 + libm::tanh(inner));
            let error = (f64::from(gelu(x)) - exact).abs();
            assert!(error <= 4e-7 * wide.abs().max(1.0), "{x}: {error}");
        }
        for x in [1e20, f32::MAX] {
            assert_eq!(gelu(x), x);
            assert_eq!(gelu(-x), 0.0);
        }
    }

    #[test]
    fn the_ends_are_as_the_contract_says() {
        assert_eq!(exp(-87.34).to_bits(), 0);
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(88.4), f32::INFINITY);
        assert_eq!(exp(0.0).to_bits(), 1.0_f32.to_bits());
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(88.37) < f32::INFINITY);
    }
}
