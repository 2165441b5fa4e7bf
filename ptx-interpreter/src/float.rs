//! Half precision, rounding to integers, and how PTX treats NaN.

use crate::instruction::{Rounding, Type};

/// What PTX writes for every NaN that an f32 operation makes.
const CANONICAL_NAN: u32 = 0x7fff_ffff;

/// The value itself, or the canonical NaN.
pub(crate) fn canonical(value: f32) -> f32 {
    if value.is_nan() {
        f32::from_bits(CANONICAL_NAN)
    } else {
        value
    }
}

/// The lesser; the number where one is NaN; -0 is less than +0.
pub(crate) fn min(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a.total_cmp(&b).is_lt() => a,
        _ => b,
    }
}

/// The greater; the number where one is NaN; +0 is greater than -0.
pub(crate) fn max(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a.total_cmp(&b).is_gt() => a,
        _ => b,
    }
}

/// Rounds to an integral float where `rounding` says so.
pub(crate) fn round(rounding: Rounding, value: f32) -> f32 {
    match rounding {
        Rounding::None | Rounding::Nearest => value,
        Rounding::NearestInteger => value.round_ties_even(),
        Rounding::TowardsZero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

/// Rounds to an integer of type `to`, clamped to its range; NaN gives zero.
pub(crate) fn to_integer(to: Type, rounding: Rounding, value: f32) -> u64 {
    let value = round(rounding, value);
    if to.is_signed() {
        let limit = i64::MAX >> (64 - to.bits);
        (value as i64).clamp(-limit - 1, limit) as u64
    } else {
        (value as u64).min(to.mask())
    }
}

/// The f32 that an f16 stands for.
pub(crate) fn from_half(half: u16) -> f32 {
    let sign = u32::from(half >> 15) << 31;
    let exponent = u32::from(half >> 10 & 31);
    let mantissa = u32::from(half & 0x3ff);
    let magnitude = match exponent {
        0 => return f32::from_bits(sign | (mantissa as f32 / 16_777_216.0).to_bits()),
        31 if mantissa == 0 => 0x7f80_0000,
        31 => CANONICAL_NAN,
        _ => (exponent + 112) << 23 | mantissa << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// The nearest f16, ties to even.
pub(crate) fn to_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return 0x7fff;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Adding 2^23 units of 2^-24 makes the f32 adder round at an f16's subnormal step.
        let steps = (f32::from_bits(magnitude) * 16_777_216.0 + 8_388_608.0).to_bits();
        return sign | (steps - 8_388_608.0_f32.to_bits()) as u16;
    }
    let even = magnitude >> 13 & 1;
    sign | ((magnitude - 0x3800_0000 + 0xfff + even) >> 13) as u16
}

/// The f32 that a bf16 stands for.
pub(crate) fn from_brain_float(value: u16) -> f32 {
    f32::from_bits(u32::from(value) << 16)
}

/// The nearest bf16, ties to even.
pub(crate) fn to_brain_float(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    let even = bits >> 16 & 1;
    ((bits + 0x7fff + even) >> 16) as u16
}

/// `a * b + c` of halves, rounded once.
pub(crate) fn half_fma(a: u16, b: u16, c: u16) -> u16 {
    let [x, y, z] = [a, b, c].map(from_half);
    if !(x.is_finite() && y.is_finite() && z.is_finite()) {
        // With an operand that is not finite, no rounding decides the result.
        return to_half(x * y + z);
    }
    // Every product is a multiple of 2^-48, and every half of 2^-24.
    let fixed = |value: f32| (value * 16_777_216.0) as i128;
    let sum = fixed(x) * fixed(y) + (fixed(z) << 24);
    if sum == 0 {
        return to_half(x * y + z);
    }
    let bits = 128 - sum.unsigned_abs().leading_zeros();
    // Kept: 24 bits, the last of which is set where anything below it was lost. An f16 has at
    // most 11 of them, so that rounding them once more is rounding the sum once.
    let drop = bits.saturating_sub(24);
    let lost = sum.unsigned_abs() & ((1 << drop) - 1) != 0;
    let kept = (sum.unsigned_abs() >> drop | u128::from(lost)) as f32;
    let magnitude = kept * power_of_two(drop as i32 - 48);
    to_half(if sum < 0 { -magnitude } else { magnitude })
}

/// Two to a power from -126 to 127.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}
