//! The softmax of one split of attention: maxima, exponentials and their sums.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::array;
use core::ops::Range;

use super::{Attend, STRIDE};
use crate::contract::LANES;
use crate::kv::KvElement;
use crate::lanes::{Simd, WIDTH};
use crate::rows::{exp_of_negative, fold_lanes};

impl<E: KvElement> Attend<'_, E> {
    /// Turns each query's scores into exponentials: first the maxima of all, so that nothing waits for
    /// them.
    #[inline(always)]
    pub(super) unsafe fn exponentials<S: Simd>(&mut self, start: usize) {
        for q in 0..self.queries {
            let seen = self.seen_in(q, start);
            let scores = &mut self.scratch.scores[q * STRIDE..(q + 1) * STRIDE];
            let first = seen.start / WIDTH * WIDTH;
            scores[first..seen.start].fill(f32::NEG_INFINITY);
            // SAFETY: after the last score of a split there is room for a vector.
            unsafe {
                let after = scores[seen.end..][..WIDTH].as_mut_ptr();
                S::store(after, S::splat(f32::NEG_INFINITY));
                let scores = &scores[first..seen.end.next_multiple_of(WIDTH)];
                self.scratch.split_state[q][0] = greatest::<S>(scores);
            }
        }
        for q in 0..self.queries {
            let seen = self.seen_in(q, start);
            let vectors = seen.start / WIDTH..seen.end.div_ceil(WIDTH);
            let scores = &mut self.scratch.scores[q * STRIDE..(q + 1) * STRIDE];
            let state = &mut self.scratch.split_state[q];
            // SAFETY: the scores are those of a split.
            state[1] = unsafe { exponentials::<S>(scores, state[0], vectors) };
        }
    }
}

/// The greatest of whole vectors of scores.
#[inline(always)]
unsafe fn greatest<S: Simd>(scores: &[f32]) -> f32 {
    let (quads, rest) = scores.as_chunks::<LANES>();
    // SAFETY: multiples of 16.
    unsafe {
        let mut greatest = [S::splat(f32::NEG_INFINITY); LANES / WIDTH];
        for quad in quads {
            for (i, greatest) in greatest.iter_mut().enumerate() {
                *greatest = S::max(*greatest, S::load(quad.as_ptr().add(i * WIDTH)));
            }
        }
        let [a, b, c, d] = greatest;
        let mut greatest = S::max(S::max(a, b), S::max(c, d));
        for score in rest.chunks_exact(WIDTH) {
            greatest = S::max(greatest, S::load(score.as_ptr()));
        }
        S::greatest(greatest)
    }
}

/// Replaces vectors of a split's scores by their exponentials; their sum. What is masked is +0
/// afterwards, whose addition changes nothing.
#[inline(always)]
unsafe fn exponentials<S: Simd>(scores: &mut [f32], m: f32, vectors: Range<usize>) -> f32 {
    const N: usize = LANES / WIDTH;
    let (first, end) = (vectors.start, vectors.end);
    assert!(end * WIDTH <= scores.len());
    let scores = scores.as_mut_ptr();
    // SAFETY: the vectors are within the scores.
    unsafe {
        let m = S::splat(m);
        let mut lanes = [S::splat(0.0); N];
        let aligned = first.next_multiple_of(N).min(end);
        let quads = (end - aligned) / N;
        // Constant lanes, which stay in registers.
        for i in 0..N {
            if (first..aligned).contains(&(first / N * N + i)) {
                let score = scores.add((first / N * N + i) * WIDTH);
                exponential::<S, 1>(score, m, array::from_mut(&mut lanes[i]));
            }
        }
        for i in 0..quads {
            exponential::<S, N>(scores.add((aligned + i * N) * WIDTH), m, &mut lanes);
        }
        for i in 0..N {
            if aligned + quads * N + i < end {
                let score = scores.add((aligned + quads * N + i) * WIDTH);
                exponential::<S, 1>(score, m, array::from_mut(&mut lanes[i]));
            }
        }
        fold_lanes::<S>(lanes)
    }
}

/// Replaces `N` vectors of scores by their exponentials, and adds those to the lanes.
#[inline(always)]
unsafe fn exponential<S: Simd, const N: usize>(scores: *mut f32, m: S::F, lanes: &mut [S::F; N]) {
    // SAFETY: the vectors are there.
    unsafe {
        let mut x = [m; N];
        for i in 0..N {
            x[i] = S::sub(S::load(scores.add(i * WIDTH)), m);
        }
        let p = exp_of_negative::<S, N>(x);
        for i in 0..N {
            S::store(scores.add(i * WIDTH), p[i]);
            lanes[i] = S::add(lanes[i], p[i]);
        }
    }
}
