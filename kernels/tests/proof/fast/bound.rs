//! How far `fast-1` may be from exact arithmetic, derived from its roundings.
//!
//! With `u` the unit roundoff of the 16-bit type (2^-11 for f16, 2^-8 for bf16):
//!
//! - an activation is off by at most `u |x| + 2^-26 amax` (f16's subnormal step is 2^-24, and the row is
//!   scaled to at least 2);
//! - a dense weight is exact; one of a block of 32 is rounded once, `u |w| + 2^-25`; one of a K-quant
//!   after its scale and its minimum were;
//! - a chain of `n` fused multiply-adds is off by at most `n 2^-24 / (1 - n 2^-24)` of the sum of
//!   the products' magnitudes, and so are the additions of segments.

use super::cases::{Layer, formats};
use super::parts::parts;
use super::rules::Kind;

/// The half of an f16's subnormal step.
const HALF_STEP: f64 = 1.0 / 33_554_432.0;

/// A weight in exact arithmetic, and the most that the rounded one is off.
fn weights(layer: &Layer, output: usize) -> Vec<(f64, f64)> {
    let (ggml_type, rows) = layer.matrix.file_rows();
    if ggml_type.block_len() == 1 {
        let row = layer.matrix.row(output);
        return row.into_iter().map(|w| (f64::from(w), 0.0)).collect();
    }
    let u = f64::exp2(-11.0);
    let bound = |part: super::parts::Parts| {
        let scale = part.d.to_f64() * f64::from(part.scale);
        let (scaled, minimum) = (
            scale * f64::from(part.q),
            part.m.to_f64() * f64::from(part.minimum),
        );
        let exact = scaled + minimum;
        let before = if ggml_type.block_len() == 256 {
            let steps = HALF_STEP * f64::from(part.q.abs() + 1);
            u * (scaled.abs() + minimum.abs()) + steps
        } else {
            0.0
        };
        (exact, before + u * (exact.abs() + before) + HALF_STEP)
    };
    parts(ggml_type, &rows[output])
        .into_iter()
        .map(bound)
        .collect()
}

/// An output in exact arithmetic, and the most that it may be off.
pub(super) fn output(layer: &Layer, x: &[f32], output: usize) -> (f64, f64) {
    let u = match layer.kind {
        Kind::Half => f64::exp2(-11.0),
        Kind::Brain => f64::exp2(-8.0),
    };
    let amax = x.iter().fold(0.0_f64, |m, x| m.max(f64::from(*x).abs()));
    let (mut exact, mut rounding, mut magnitude) = (0.0, 0.0, 0.0);
    for (x, (w, off_w)) in x.iter().zip(weights(layer, output)) {
        let x = f64::from(*x);
        let off_x = u * x.abs() + amax * f64::exp2(-26.0);
        exact += w * x;
        rounding += (w.abs() + off_w) * off_x + off_w * x.abs();
        magnitude += (w.abs() + off_w) * (x.abs() + off_x);
    }
    let additions = (layer.inputs.min(512) + layer.inputs.div_ceil(512)) as f64 * f64::exp2(-24.0);
    // The exact sum is itself rounded to f64, and a row's results may be subnormal.
    let slack = magnitude * f64::exp2(-40.0) + f64::from(f32::MIN_POSITIVE);
    (
        exact,
        rounding + additions / (1.0 - additions) * magnitude + slack,
    )
}

/// The greatest part of its bound that an output takes.
fn greatest_part(layer: &Layer) -> f64 {
    let mut greatest = 0.0_f64;
    for (x, outputs) in layer.x.chunks(layer.inputs).zip(&layer.expected) {
        for (index, found) in outputs.iter().enumerate() {
            let (exact, bound) = output(layer, x, index);
            let part = (f64::from(*found) - exact).abs() / bound;
            assert!(
                part <= 1.0,
                "{:?}: {found} for {exact}, bound {bound}",
                layer.format
            );
            greatest = greatest.max(part);
        }
    }
    greatest
}

#[test]
fn every_output_is_within_the_bound_of_its_roundings() {
    for format in formats() {
        let block = format.block_len();
        let lengths = [block, 512 + block, 512 * 3 + block];
        let parts = lengths.map(|inputs| greatest_part(&Layer::new(format, (33, inputs, 20))));
        let greatest = parts.into_iter().fold(0.0, f64::max);
        // A bound of which nothing takes a hundredth would bound nothing.
        assert!(greatest > 0.01, "{format:?}: {greatest}");
    }
}
