//! What one lane computes: integers that wrap, and f32 rounded once, to nearest even.

use std::cmp::Ordering;

use crate::fault::FaultKind;
use crate::float;
use crate::instruction::{Binary, Class, Comparison, Rounding, Ternary, Type, Unary};

/// The low `bits` of `value` as a signed number.
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    let unused = 64 - bits;
    ((value << unused) as i64) >> unused
}

fn wide(value: u64, kind: Type) -> i128 {
    if kind.is_signed() {
        i128::from(sign_extend(value, kind.bits))
    } else {
        i128::from(value & kind.mask())
    }
}

fn f32_of(value: u64) -> f32 {
    f32::from_bits(value as u32)
}

fn bits_of(value: f32) -> u64 {
    u64::from(float::canonical(value).to_bits())
}

/// Operations of one source.
pub(crate) fn unary(operation: Unary, kind: Type, a: u64) -> u64 {
    let float = kind.class == Class::Float;
    let a = a & kind.mask();
    match operation {
        Unary::Not => !a,
        Unary::Negate if kind.class == Class::HalfPair => a ^ 0x8000_8000,
        Unary::Negate if float => a ^ 0x8000_0000,
        Unary::Negate => a.wrapping_neg(),
        Unary::Absolute if float => a & 0x7fff_ffff,
        Unary::Absolute => sign_extend(a, kind.bits).unsigned_abs(),
        Unary::SquareRoot => bits_of(f32_of(a).sqrt()),
        Unary::PopulationCount => u64::from(a.count_ones()),
        Unary::LeadingZeros => u64::from(a.leading_zeros() - (64 - kind.bits)),
        Unary::ReverseBits => a.reverse_bits() >> (64 - kind.bits),
        Unary::ToBrainFloat => u64::from(float::to_brain_float(f32_of(a))),
    }
}

/// Operations of two sources.
///
/// # Errors
/// An integer division by zero.
pub(crate) fn binary(operation: Binary, kind: Type, a: u64, b: u64) -> Result<u64, FaultKind> {
    if kind.class == Class::HalfPair {
        return Ok(half_pair([a, b, 0], |[a, b, _]| {
            half_binary(operation, a, b)
        }));
    }
    if kind.class == Class::Float {
        return Ok(float_binary(operation, f32_of(a), f32_of(b)));
    }
    let (x, y) = (wide(a, kind), wide(b, kind));
    Ok(match operation {
        Binary::Add => x.wrapping_add(y) as u64,
        Binary::Sub => x.wrapping_sub(y) as u64,
        Binary::MulLow | Binary::MulWide => x.wrapping_mul(y) as u64,
        Binary::MulHigh => (x.wrapping_mul(y) >> kind.bits) as u64,
        Binary::Div | Binary::Rem if y == 0 => return Err(FaultKind::DivisionByZero),
        Binary::Div => (x / y) as u64,
        Binary::Rem => (x % y) as u64,
        Binary::Min => x.min(y) as u64,
        Binary::Max => x.max(y) as u64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::ShiftLeft => shift(a & kind.mask(), b, kind.bits, |v, s| v << s),
        Binary::ShiftRight => {
            let by = (b & 0xffff_ffff).min(u64::from(kind.bits));
            (x >> by) as u64
        }
    })
}

fn shift(value: u64, by: u64, bits: u32, shifted: impl Fn(u64, u32) -> u64) -> u64 {
    let by = (by & 0xffff_ffff).min(u64::from(bits)) as u32;
    if by >= bits { 0 } else { shifted(value, by) }
}

/// What `each` gives for the lower and for the upper half of each word.
fn half_pair(words: [u64; 3], each: impl Fn([u16; 3]) -> u16) -> u64 {
    let low = each(words.map(|word| word as u16));
    let high = each(words.map(|word| (word >> 16) as u16));
    u64::from(high) << 16 | u64::from(low)
}

fn half_binary(operation: Binary, a: u16, b: u16) -> u16 {
    let (x, y) = (float::from_half(a), float::from_half(b));
    // An f32 holds a sum of halves well enough, and a product exactly, to be rounded again.
    float::to_half(match operation {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        // The decoder lets no other operation have a pair's type.
        _ => x * y,
    })
}

fn float_binary(operation: Binary, a: f32, b: f32) -> u64 {
    bits_of(match operation {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Div => a / b,
        Binary::Min => float::min(a, b),
        Binary::Max => float::max(a, b),
        // The decoder lets no other operation have a float's type.
        _ => a * b,
    })
}

/// Operations of three sources.
pub(crate) fn ternary(operation: Ternary, kind: Type, a: u64, b: u64, c: u64) -> u64 {
    match operation {
        Ternary::MadLow => a.wrapping_mul(b).wrapping_add(c),
        Ternary::MadWide => (wide(a, kind).wrapping_mul(wide(b, kind)) as u64).wrapping_add(c),
        Ternary::FusedMultiplyAdd if kind.class == Class::HalfPair => {
            half_pair([a, b, c], |[a, b, c]| float::half_fma(a, b, c))
        }
        Ternary::FusedMultiplyAdd => bits_of(f32_of(a).mul_add(f32_of(b), f32_of(c))),
        Ternary::ExtractBits => extract(kind, a, b, c),
        Ternary::Permute => permute(a as u32, b as u32, c as u32),
        Ternary::FunnelLeft => {
            let both = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
            (both << (c & 31)) >> 32
        }
        Ternary::FunnelRight => ((b & 0xffff_ffff) << 32 | a & 0xffff_ffff) >> (c & 31),
        Ternary::DotProduct4 { a_signed, b_signed } => {
            let byte = |word: u64, index: u32, signed: bool| {
                let byte = (word >> (8 * index)) as u8;
                if signed {
                    i32::from(byte as i8)
                } else {
                    i32::from(byte)
                }
            };
            let products = (0..4).map(|i| byte(a, i, a_signed) * byte(b, i, b_signed));
            products
                .fold(c as u32, |sum, p| sum.wrapping_add(p as u32))
                .into()
        }
        Ternary::Lookup(table) => lookup(table, a, b, c),
    }
}

fn extract(kind: Type, value: u64, at: u64, length: u64) -> u64 {
    let (at, length) = ((at & 255) as u32, (length & 255) as u32);
    if length == 0 {
        return 0;
    }
    let value = i128::from(if kind.is_signed() {
        sign_extend(value, kind.bits)
    } else {
        (value & kind.mask()) as i64
    });
    let unsigned = value & i128::from(u64::MAX >> (64 - kind.bits));
    let source = if kind.is_signed() { value } else { unsigned };
    let field = (source >> at.min(100)) as u64;
    let length = length.min(kind.bits);
    if kind.is_signed() {
        sign_extend(field, length) as u64
    } else {
        field & (u64::MAX >> (64 - length))
    }
}

/// `bfi`: `length` low bits of `a` put into `b` at `at`.
pub(crate) fn insert(kind: Type, a: u64, b: u64, at: u64, length: u64) -> u64 {
    let (at, length) = ((at & 255) as u32, (length & 255) as u32);
    if length == 0 || at >= kind.bits {
        return b;
    }
    let field = (u64::MAX >> (64 - length.min(64))) << at;
    b & !field | (a << at) & field
}

fn permute(a: u32, b: u32, selectors: u32) -> u64 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    let mut out = 0;
    for index in 0..4 {
        let selector = selectors >> (4 * index) & 15;
        let byte = (bytes >> (8 * (selector & 7))) as u8;
        let byte = if selector & 8 == 0 {
            byte
        } else {
            ((byte as i8) >> 7) as u8
        };
        out |= u64::from(byte) << (8 * index);
    }
    out
}

fn lookup(table: u8, a: u64, b: u64, c: u64) -> u64 {
    let mut out = 0;
    for row in 0..8 {
        let pick = |value: u64, bit: u8| if row & bit == 0 { !value } else { value };
        if table >> row & 1 == 1 {
            out |= pick(a, 4) & pick(b, 2) & pick(c, 1);
        }
    }
    out
}

/// Whether the comparison holds.
pub(crate) fn compare(comparison: Comparison, kind: Type, a: u64, b: u64) -> bool {
    use Comparison as C;
    let order = match kind.class {
        Class::Float => f32_of(a).partial_cmp(&f32_of(b)),
        _ => Some(wide(a, kind).cmp(&wide(b, kind))),
    };
    let Some(order) = order else {
        return !matches!(
            comparison,
            C::Equal
                | C::NotEqual
                | C::Less
                | C::LessEqual
                | C::Greater
                | C::GreaterEqual
                | C::BothNumbers
        );
    };
    match comparison {
        C::Equal | C::EqualUnordered => order == Ordering::Equal,
        C::NotEqual | C::NotEqualUnordered => order != Ordering::Equal,
        C::Less | C::LessUnordered => order == Ordering::Less,
        C::LessEqual | C::LessEqualUnordered => order != Ordering::Greater,
        C::Greater | C::GreaterUnordered => order == Ordering::Greater,
        C::GreaterEqual | C::GreaterEqualUnordered => order != Ordering::Less,
        C::BothNumbers => true,
        C::AnyNan => false,
    }
}

/// `cvt`.
pub(crate) fn convert(to: Type, from: Type, rounding: Rounding, value: u64) -> u64 {
    match (from.class == Class::Float, to.class == Class::Float) {
        (false, false) => wide(value, from) as u64,
        (false, true) => {
            let rounded = if from.is_signed() {
                sign_extend(value, from.bits) as f32
            } else {
                (value & from.mask()) as f32
            };
            if to.bits == 16 {
                u64::from(float::to_half(rounded))
            } else {
                bits_of(rounded)
            }
        }
        (true, false) => float::to_integer(to, rounding, read_float(from, value)),
        (true, true) => {
            let rounded = float::round(rounding, read_float(from, value));
            if to.bits == 16 {
                u64::from(float::to_half(rounded))
            } else {
                bits_of(rounded)
            }
        }
    }
}

fn read_float(kind: Type, value: u64) -> f32 {
    if kind.bits == 16 {
        float::from_half(value as u16)
    } else {
        f32_of(value)
    }
}
