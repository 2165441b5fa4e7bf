//! What the CPU backend's scalar reference does not say by itself: quantised rows, pairs that are
//! not adjacent, and the splits of attention before they are merged.

use lockstep::backend::exp::exp;
use lockstep::backend::reference::{self, LANES, Partial};

/// Quantised activations: integers, scales, and the sums that the kernels of this block length
/// want: of every 16, or of every 32.
pub(crate) fn quantised(x: &[f32], block: usize) -> (Vec<u8>, Vec<f32>, Vec<u32>) {
    let (mut q, mut d) = (Vec::new(), Vec::new());
    for x in x.chunks(block) {
        let quantised = reference::quantise(x);
        d.push(quantised.d);
        q.extend_from_slice(&quantised.q[..x.len()]);
    }
    let each = if block == 256 { 16 } else { 32 };
    let sum = |q: &[i8]| q.iter().map(|q| i32::from(*q)).sum::<i32>() as u32;
    let sums = q.chunks(each).map(sum).collect();
    (q.into_iter().map(|q| q as u8).collect(), d, sums)
}

/// Rotates a head whose pair `p` is its elements `p * stride` and `p * stride + offset`.
pub(crate) fn rope(head: &mut [f32], cos: &[f32], sin: &[f32], stride: usize, offset: usize) {
    let places: Vec<usize> = (0..cos.len())
        .flat_map(|pair| [pair * stride, pair * stride + offset])
        .collect();
    let mut adjacent: Vec<f32> = places.iter().map(|place| head[*place]).collect();
    reference::rope(&mut adjacent, cos, sin);
    for (place, x) in places.iter().zip(adjacent) {
        head[*place] = x;
    }
}

/// Rule 6 for the positions `first..end` of one split; `key` and `value` give a position's.
pub(crate) fn split(
    q: &[f32],
    (first, end): (usize, usize),
    key: impl Fn(usize) -> Vec<f32>,
    value: impl Fn(usize) -> Vec<f32>,
    scale: f32,
) -> Partial {
    let score = |position: usize| {
        let chain = |sum: f32, (q, k): (&f32, &f32)| q.mul_add(*k, sum);
        q.iter().zip(&key(position)).fold(0.0_f32, chain) * scale
    };
    let scores: Vec<f32> = (first..end).map(score).collect();
    let m = scores.iter().fold(f32::NEG_INFINITY, |m, s| m.max(*s));
    let (mut lanes, mut o) = ([0.0_f32; LANES], vec![0.0_f32; q.len()]);
    for (position, s) in (first..end).zip(scores) {
        let p = exp(s - m);
        lanes[position % LANES] += p;
        for (o, v) in o.iter_mut().zip(value(position)) {
            *o = p.mul_add(v, *o);
        }
    }
    Partial {
        m,
        l: reference::fold(lanes),
        o,
    }
}
