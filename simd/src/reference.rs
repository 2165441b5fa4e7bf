//! The numerics contract as plain scalar code: slow, short, and what every fast path is compared
//! with bit for bit.

use alloc::vec;
use alloc::vec::Vec;

use crate::GgmlType;
use crate::decode::{self, Block, MAX_BLOCK, Minimum, SUB};
use crate::exp::exp;
use crate::math::{fma, round_ties_even, sqrt};

pub use crate::contract::{LANES, NUMERICS_VERSION, SEGMENT, SPLIT, TINY, fold, seen};

/// A block of activations, quantised.
#[derive(Clone, Debug)]
pub struct QuantisedBlock {
    /// The scale.
    pub d: f32,
    /// The integers, -127 to 127; those after the block's length are 0.
    pub q: [i8; MAX_BLOCK],
}

/// Quantises a block of at most 256 activations.
pub fn quantise(x: &[f32]) -> QuantisedBlock {
    let amax = x.iter().fold(0.0_f32, |amax, v| amax.max(v.abs()));
    let mut q = [0; MAX_BLOCK];
    if amax < TINY {
        return QuantisedBlock { d: 0.0, q };
    }
    let (d, inverse) = (amax / 127.0, 127.0 / amax);
    for (q, v) in q.iter_mut().zip(x) {
        *q = round_ties_even(v * inverse).clamp(-127.0, 127.0) as i8;
    }
    QuantisedBlock { d, q }
}

/// One output of a linear layer: the row of weights `bytes` times `x`.
pub fn dot(ggml_type: GgmlType, bytes: &[u8], x: &[f32]) -> f32 {
    let row_bytes = SEGMENT / ggml_type.block_len() * ggml_type.block_bytes();
    let mut segments = x.chunks(SEGMENT).zip(bytes.chunks(row_bytes));
    let segment = |(x, bytes): (&[f32], &[u8])| match ggml_type.is_quantised() {
        true => quantised_segment(ggml_type, bytes, x),
        false => dense_segment(ggml_type, bytes, x),
    };
    let first = segments.next().map_or(0.0, segment);
    segments.fold(first, |total, next| total + segment(next))
}

fn dense_segment(ggml_type: GgmlType, bytes: &[u8], x: &[f32]) -> f32 {
    let mut weights = vec![0.0; x.len()];
    decode::row(ggml_type, bytes, &mut weights);
    weights
        .iter()
        .zip(x)
        .fold(0.0_f32, |acc, (w, x)| fma(*w, *x, acc))
}

fn quantised_segment(ggml_type: GgmlType, bytes: &[u8], x: &[f32]) -> f32 {
    let blocks = bytes.chunks_exact(ggml_type.block_bytes());
    let mut acc = 0.0_f32;
    for (bytes, x) in blocks.zip(x.chunks(ggml_type.block_len())) {
        let weights = Block::decode(ggml_type, bytes);
        let activations = quantise(x);
        acc = block_step(ggml_type, &weights, &activations, acc);
    }
    acc
}

fn block_step(ggml_type: GgmlType, w: &Block, x: &QuantisedBlock, acc: f32) -> f32 {
    let (mut int, mut sum, mut min_int) = (0_i32, 0_i32, 0_i32);
    for sub in 0..SUB {
        let range = sub * SUB..(sub + 1) * SUB;
        let products = w.codes[range.clone()].iter().zip(&x.q[range.clone()]);
        let dot: i32 = products
            .map(|(&code, &q)| decode::int(ggml_type, code) * i32::from(q))
            .sum();
        let sub_sum: i32 = x.q[range].iter().map(|&q| i32::from(q)).sum();
        int += i32::from(w.scales[sub]) * dot;
        min_int += i32::from(w.mins[sub]) * sub_sum;
        sum += sub_sum;
    }
    let acc = fma(w.d * x.d, int as f32, acc);
    match decode::minimum(ggml_type) {
        Minimum::None => acc,
        Minimum::Added => fma(w.min, x.d * sum as f32, acc),
        Minimum::Scaled => fma(-w.min * x.d, min_int as f32, acc),
    }
}

/// RMSNorm of a row; not finite where its sum of squares is not.
pub fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut lanes = [0.0_f32; LANES];
    for (i, v) in x.iter().enumerate() {
        lanes[i % LANES] = fma(*v, *v, lanes[i % LANES]);
    }
    let scale = 1.0 / sqrt(fold(lanes) / x.len() as f32 + epsilon);
    x.iter().zip(weight).map(|(v, w)| v * scale * w).collect()
}

/// Rotates adjacent pairs in place; `cos` and `sin` hold one value per pair.
pub fn rope(x: &mut [f32], cos: &[f32], sin: &[f32]) {
    for (pair, (c, s)) in x.chunks_exact_mut(2).zip(cos.iter().zip(sin)) {
        let (x0, x1) = (pair[0], pair[1]);
        pair[0] = x0 * c - x1 * s;
        pair[1] = x0 * s + x1 * c;
    }
}

/// A split's share of attention, or several merged.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The greatest score.
    pub m: f32,
    /// The sum of the exponentials.
    pub l: f32,
    /// The weighted sum of the values, not divided.
    pub o: Vec<f32>,
}

impl Partial {
    /// Merges with the next split in ascending order.
    pub fn merge(&self, next: &Self) -> Self {
        let m = self.m.max(next.m);
        let (a, b) = (exp(self.m - m), exp(next.m - m));
        let merged = |x1: f32, x2: f32| fma(x2, b, x1 * a);
        let pairs = self.o.iter().zip(&next.o);
        Self {
            m,
            l: merged(self.l, next.l),
            o: pairs.map(|(x1, x2)| merged(*x1, *x2)).collect(),
        }
    }
}

/// Attention of one query head at the last of the positions of `keys` and `values`, of which it sees
/// the last `window`, or all where that is 0; there is at least one.
pub fn attention(
    q: &[f32],
    keys: &[Vec<f32>],
    values: &[Vec<f32>],
    scale: f32,
    window: usize,
) -> Vec<f32> {
    let seen = seen(keys.len() - 1, window);
    let splits = seen.start / SPLIT..seen.end.div_ceil(SPLIT);
    let merged = splits
        .map(|i| seen.start.max(i * SPLIT)..seen.end.min((i + 1) * SPLIT))
        .map(|range| split(q, range.start, &keys[range.clone()], &values[range], scale))
        .reduce(|merged, next| merged.merge(&next));
    let Some(merged) = merged else {
        return vec![0.0; q.len()];
    };
    merged.o.iter().map(|o| o / merged.l).collect()
}

/// A split's share: the keys and values from absolute position `first` on.
fn split(q: &[f32], first: usize, keys: &[Vec<f32>], values: &[Vec<f32>], scale: f32) -> Partial {
    let score = |k: &Vec<f32>| {
        let pairs = q.iter().zip(k);
        pairs.fold(0.0_f32, |acc, (q, k)| fma(*q, *k, acc)) * scale
    };
    let scores: Vec<f32> = keys.iter().map(score).collect();
    let m = scores.iter().fold(f32::NEG_INFINITY, |m, s| m.max(*s));
    let (mut lanes, mut o) = ([0.0_f32; LANES], vec![0.0_f32; q.len()]);
    for (i, (s, v)) in scores.iter().zip(values).enumerate() {
        let p = exp(s - m);
        lanes[(first + i) % LANES] += p;
        for (o, v) in o.iter_mut().zip(v) {
            *o = fma(p, *v, *o);
        }
    }
    Partial {
        m,
        l: fold(lanes),
        o,
    }
}
