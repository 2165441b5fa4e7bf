//! The operators of the numerics contract, transcribed as plain scalar code.

pub(crate) const SEGMENT: usize = 512;
pub(crate) const SPLIT: usize = 256;
const LANES: usize = 64;
/// 2^-100.
const TINY: f32 = f32::from_bits(27 << 23);

/// Rule 7.
pub(crate) fn exp(x: f32) -> f32 {
    const ROUNDER: f32 = 12_582_912.0;
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let n = shifted - ROUNDER;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_375, x));
    let coefficients = [8.333_334e-3, 4.166_666_8e-2, 1.666_666_7e-1, 0.5, 1.0, 1.0];
    let p = coefficients
        .iter()
        .fold(1.388_888_9e-3_f32, |p, c| p.mul_add(r, *c));
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.33 {
        0.0
    } else if x > 88.37 {
        f32::INFINITY
    } else {
        p * power
    }
}

pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// Rule 5.
fn fold(mut lanes: [f32; LANES]) -> f32 {
    for width in [32, 16, 8, 4, 2, 1] {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

pub(crate) fn rms_norm(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let mut lanes = [0.0_f32; LANES];
    for (i, v) in x.iter().enumerate() {
        lanes[i % LANES] = v.mul_add(*v, lanes[i % LANES]);
    }
    let scale = 1.0 / (fold(lanes) / x.len() as f32 + epsilon).sqrt();
    x.iter().zip(weight).map(|(v, w)| v * scale * w).collect()
}

/// Rule 2: one block of activations.
pub(crate) fn quantise(x: &[f32]) -> (f32, Vec<i8>) {
    let amax = x.iter().fold(0.0_f32, |amax, v| amax.max(v.abs()));
    if amax < TINY {
        return (0.0, vec![0; x.len()]);
    }
    let inverse = 127.0 / amax;
    let q = |v: &f32| (v * inverse).round_ties_even().clamp(-127.0, 127.0) as i8;
    (amax / 127.0, x.iter().map(q).collect())
}

/// Rule 7, in place.
pub(crate) fn rope(head: &mut [f32], cos: &[f32], sin: &[f32], stride: usize, offset: usize) {
    for (pair, (c, s)) in cos.iter().zip(sin).enumerate() {
        let at = pair * stride;
        let (x0, x1) = (head[at], head[at + offset]);
        head[at] = x0 * c - x1 * s;
        head[at + offset] = x0 * s + x1 * c;
    }
}

/// One split's share of attention: the greatest score, the sum of exponentials, the weighted sum.
pub(crate) type Partial = (f32, f32, Vec<f32>);

/// Rule 6: the keys and values at positions `first..end` of one split.
pub(crate) fn split(
    q: &[f32],
    (first, end): (usize, usize),
    key: impl Fn(usize, usize) -> f32,
    value: impl Fn(usize, usize) -> f32,
    scale: f32,
) -> Partial {
    let score = |position: usize| {
        let chain = |sum: f32, c: usize| q[c].mul_add(key(position, c), sum);
        (0..q.len()).fold(0.0_f32, chain) * scale
    };
    let scores: Vec<f32> = (first..end).map(score).collect();
    let m = scores.iter().fold(f32::NEG_INFINITY, |m, s| m.max(*s));
    let (mut lanes, mut o) = ([0.0_f32; LANES], vec![0.0_f32; q.len()]);
    for (position, s) in (first..end).zip(scores) {
        let p = exp(s - m);
        lanes[position % LANES] += p;
        for (c, o) in o.iter_mut().enumerate() {
            *o = p.mul_add(value(position, c), *o);
        }
    }
    (m, fold(lanes), o)
}

/// Rule 6: merges with the next split.
pub(crate) fn merge((m1, l1, o1): Partial, (m2, l2, o2): Partial) -> Partial {
    let m = m1.max(m2);
    let (a, b) = (exp(m1 - m), exp(m2 - m));
    let merged = |x1: f32, x2: f32| x2.mul_add(b, x1 * a);
    (
        m,
        merged(l1, l2),
        o1.iter()
            .zip(&o2)
            .map(|(x1, x2)| merged(*x1, *x2))
            .collect(),
    )
}

/// Rule 4.
pub(crate) fn sum_segments(segments: impl IntoIterator<Item = f32>) -> f32 {
    segments
        .into_iter()
        .reduce(|total, segment| total + segment)
        .unwrap_or(0.0)
}

pub(crate) fn half_to_f32(half: u16) -> f32 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(half >> 10 & 31), f32::from(half & 0x3ff));
    match exponent {
        0 => sign * mantissa * 2.0_f32.powi(-24),
        31 if mantissa == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1024.0 + mantissa) * 2.0_f32.powi(exponent - 25),
    }
}

/// The nearest f16, ties to even, found by trying both neighbours.
pub(crate) fn f32_to_half(x: f32) -> u16 {
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = f64::from(x.abs());
    // The f16s from zero up ascend with their bits; infinity counts as 65,536.
    let value = |bits: u16| {
        if bits == 0x7c00 {
            65_536.0
        } else {
            f64::from(half_to_f32(bits))
        }
    };
    let below = (0..0x7c00_u16)
        .collect::<Vec<_>>()
        .partition_point(|b| value(*b) <= magnitude);
    let low = (below as u16).saturating_sub(1);
    let high = low + 1;
    let (down, up) = (magnitude - value(low), value(high) - magnitude);
    let nearest = if down < up || down == up && low % 2 == 0 {
        low
    } else {
        high
    };
    sign | nearest
}
