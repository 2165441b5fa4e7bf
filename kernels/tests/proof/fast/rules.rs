//! `fast-1` as plain Rust.

use half::{bf16, f16};
use lockstep::gguf::GgmlType;
use lockstep_kernels::rounded_stride;

use super::parts::{Parts, parts};
use crate::weights::Weights;

/// Elements of a segment, of a step and of one product.
const SEGMENT: usize = 512;
const STEP: usize = 32;
const PRODUCT: usize = 16;

/// The 16-bit type of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Half,
    Brain,
}

impl Kind {
    pub(crate) fn of(ggml_type: GgmlType) -> Self {
        if ggml_type == GgmlType::BF16 {
            Self::Brain
        } else {
            Self::Half
        }
    }

    fn bits(self, x: f32) -> u16 {
        match self {
            Self::Half => f16::from_f32(x).to_bits(),
            Self::Brain => bf16::from_f32(x).to_bits(),
        }
    }

    fn value(self, bits: u16) -> f32 {
        match self {
            Self::Half => f16::from_bits(bits).to_f32(),
            Self::Brain => bf16::from_bits(bits).to_f32(),
        }
    }
}

/// A row rounded to 16 bits, and what its products are multiplied with.
pub(crate) struct Rounded {
    pub(crate) values: Vec<f32>,
    pub(crate) scale: f32,
}

pub(crate) fn round(x: &[f32], kind: Kind) -> Rounded {
    let greatest = x.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let exponent = greatest.to_bits() >> 23;
    let (up, scale) = if greatest < 2.0_f32.powi(-100) {
        (0.0, 0.0)
    } else {
        (
            f32::from_bits((255 - exponent) << 23),
            f32::from_bits((exponent - 1) << 23),
        )
    };
    Rounded {
        values: x.iter().map(|x| kind.value(kind.bits(x * up))).collect(),
        scale,
    }
}

/// The element that is the `k`-th of a product.
fn element(k: usize) -> usize {
    k % 8 / 2 * 4 + k / 8 * 2 + k % 2
}

/// The bits of a rounded row as the kernels store it.
pub(crate) fn stored(rounded: &Rounded, kind: Kind) -> Vec<u16> {
    let places = 0..rounded_stride(rounded.values.len() as u32) as usize;
    let bits = |place: usize| {
        let index = place / PRODUCT * PRODUCT + element(place % PRODUCT);
        rounded.values.get(index).map_or(0, |x| kind.bits(*x))
    };
    places.map(bits).collect()
}

/// The nearest half of what f64 holds exactly.
fn nearest_half(exact: f64) -> f32 {
    let near = exact as f32;
    // Rounded to odd, so that rounding once more is rounding once.
    let bits = match f64::from(near).abs().partial_cmp(&exact.abs()) {
        Some(std::cmp::Ordering::Greater) => (near.to_bits() - 1) | 1,
        Some(std::cmp::Ordering::Less) => near.to_bits() | 1,
        _ => near.to_bits(),
    };
    f16::from_f32(f32::from_bits(bits)).to_f32()
}

/// A quantised weight as the tensor cores get it.
fn weight(ggml_type: GgmlType, parts: &Parts) -> f32 {
    let Parts {
        d,
        scale,
        q,
        m,
        minimum,
    } = *parts;
    let (scale, minimum) = if ggml_type.block_len() == 256 {
        let product = |half: f16, integer: i32| nearest_half(half.to_f64() * f64::from(integer));
        (product(d, scale), product(m, minimum))
    } else {
        (d.to_f32(), m.to_f32())
    };
    nearest_half(f64::from(scale) * f64::from(q) + f64::from(minimum))
}

/// Each row of a matrix as the tensor cores get it.
pub(crate) fn weights(matrix: &Weights) -> Vec<Vec<f32>> {
    let (ggml_type, rows) = matrix.file_rows();
    let dense = ggml_type.block_len() == 1;
    let row = |(index, row): (usize, &Vec<u8>)| {
        if dense {
            return matrix.row(index);
        }
        let parts = parts(ggml_type, row);
        parts.iter().map(|parts| weight(ggml_type, parts)).collect()
    };
    rows.iter().enumerate().map(row).collect()
}

/// One output: chains over segments, in the order of the products.
pub(crate) fn dot(weights: &[f32], x: &Rounded) -> f32 {
    let mut total = 0.0_f32;
    for start in (0..weights.len()).step_by(SEGMENT) {
        let end = weights.len().min(start + SEGMENT);
        let mut sum = 0.0_f32;
        for product in (start..end.next_multiple_of(STEP)).step_by(PRODUCT) {
            for k in 0..PRODUCT {
                let at = product + element(k);
                if at < end {
                    sum = weights[at].mul_add(x.values[at], sum);
                }
            }
        }
        total += sum;
    }
    total * x.scale
}
