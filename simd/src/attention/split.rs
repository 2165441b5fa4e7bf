//! One split of attention: scores, exponentials, weighted sums.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::ops::Range;

use super::{Attend, RUNS, STRIDE};
use crate::kv::KvElement;
use crate::lanes::{Simd, WIDTH};

/// Up to so many queries, a sequence decodes: its keys and values come from memory, and values are
/// asked for while scores are computed.
const FEW: usize = 4;

impl<E: KvElement> Attend<'_, E> {
    /// The split that begins at `start`, into the scratch.
    #[inline(always)]
    pub(super) unsafe fn split<S: Simd>(&mut self, start: usize) {
        // SAFETY: as the caller of `compute` says.
        unsafe {
            self.locate(start);
            self.scores::<S>(start);
            self.exponentials::<S>(start);
            self.weigh::<S>(start);
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(&mut self, start: usize) {
        let seen = self.seen_in(0, start).start..self.seen_in(self.queries - 1, start).end;
        let runs = seen.start / WIDTH..seen.end.div_ceil(WIDTH);
        let mut q = 0;
        while q < self.queries {
            let runs = runs.clone();
            // As many sums as the registers hold besides the keys.
            // SAFETY: as the caller of `attend` says.
            unsafe {
                q += match (self.queries - q, S::VECTORS) {
                    (8..12 | 16, 32..) => self.score_piece::<S, 8, 3>(q, runs),
                    (12.., 32..) => self.score_piece::<S, 12, 2>(q, runs),
                    (6.., 32..) => self.score_piece::<S, 6, 4>(q, runs),
                    (6.., _) => self.score_piece::<S, 6, 1>(q, runs),
                    (4 | 5, _) => self.score_piece::<S, 4, 2>(q, runs),
                    (3, _) => self.score_piece::<S, 3, 4>(q, runs),
                    (2, _) => self.score_piece::<S, 2, 4>(q, runs),
                    _ => self.score_piece::<S, 1, 4>(q, runs),
                };
            }
        }
    }

    /// Scores of `Q` queries from `first` on with a range of runs, `P` of them at a time.
    #[inline(always)]
    unsafe fn score_piece<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        first: usize,
        runs: Range<usize>,
    ) -> usize {
        let mut run = runs.start;
        while run + P <= runs.end {
            // SAFETY: as the caller of `attend` says.
            unsafe { self.score_tile::<S, Q, P>(first, run) };
            run += P;
        }
        while run < runs.end {
            // SAFETY: as the caller of `attend` says.
            unsafe { self.score_tile::<S, Q, 1>(first, run) };
            run += 1;
        }
        Q
    }

    #[inline(always)]
    unsafe fn score_tile<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        first: usize,
        run: usize,
    ) {
        let mut keys = [core::ptr::null::<E>(); P];
        let mut next = [core::ptr::null::<E>(); P];
        let mut values = [core::ptr::null::<E>(); P];
        for p in 0..P {
            keys[p] = self.keys[run + p];
            next[p] = self.keys[(run + P + p).min(RUNS - 1)];
            values[p] = self.values[run + p];
        }
        // SAFETY: the block holds these keys (stale ones among them are masked later); scratch has
        // scores for each query.
        unsafe {
            let mut sums = [[S::splat(0.0); Q]; P];
            for i in 0..self.head_dim / WIDTH {
                let queries = self.scratch.queries.as_ptr();
                let queries = queries.add((i * self.queries + first) * WIDTH);
                for d in 0..WIDTH {
                    let offset = (i * WIDTH + d) * self.block_size;
                    let mut key = [S::splat(0.0); P];
                    for p in 0..P {
                        S::prefetch(next[p].wrapping_add(offset).cast());
                        if Q <= FEW {
                            S::prefetch(values[p].wrapping_add((i * WIDTH + d) * WIDTH).cast());
                        }
                        key[p] = E::load::<S>(keys[p].add(offset));
                    }
                    for q in 0..Q {
                        let query = S::splat(*queries.add(q * WIDTH + d));
                        for p in 0..P {
                            sums[p][q] = S::fma(query, key[p], sums[p][q]);
                        }
                    }
                }
            }
            let scale = S::splat(self.item.scale);
            let scores = self.scratch.scores.as_mut_ptr();
            for p in 0..P {
                for q in 0..Q {
                    let place = (first + q) * STRIDE + (run + p) * WIDTH;
                    S::store(scores.add(place), S::mul(sums[p][q], scale));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn weigh<S: Simd>(&mut self, start: usize) {
        let slice = if self.head_dim.is_multiple_of(4 * WIDTH) {
            4
        } else {
            1
        };
        for dim in (0..self.head_dim).step_by(slice * WIDTH) {
            let mut q = 0;
            while q < self.queries {
                // SAFETY: as the caller of `attend` says.
                unsafe {
                    q += match (slice, self.queries - q) {
                        (4, 6..) => self.weigh_piece::<S, 6, 4>(q, dim, start),
                        (4, 3..6) => self.weigh_piece::<S, 3, 4>(q, dim, start),
                        (4, _) => self.weigh_piece::<S, 1, 4>(q, dim, start),
                        (_, 3..) => self.weigh_piece::<S, 3, 1>(q, dim, start),
                        _ => self.weigh_piece::<S, 1, 1>(q, dim, start),
                    };
                }
            }
        }
    }

    /// The weighted sums of `Q` queries from `first` on, in `D` vectors of dimensions: each on its own
    /// where not all see the positions, together where all do.
    #[inline(always)]
    unsafe fn weigh_piece<S: Simd, const Q: usize, const D: usize>(
        &mut self,
        first: usize,
        dim: usize,
        start: usize,
    ) -> usize {
        let (earliest, latest) = (
            self.seen_in(first, start),
            self.seen_in(first + Q - 1, start),
        );
        let common = latest.start..earliest.end.max(latest.start);
        // SAFETY: as the caller of `attend` says.
        unsafe {
            let mut sums = [[S::splat(0.0); D]; Q];
            for (q, sums) in sums.iter_mut().enumerate() {
                let seen = self.seen_in(first + q, start);
                self.weigh_alone::<S, D>(
                    first + q,
                    dim,
                    seen.start..seen.end.min(common.start),
                    sums,
                );
            }
            self.weigh_common::<S, Q, D>(first, dim, start, common.clone(), &mut sums);
            for (q, sums) in sums.iter_mut().enumerate() {
                let end = self.seen_in(first + q, start).end;
                self.weigh_alone::<S, D>(first + q, dim, common.end..end, sums);
                let out = self
                    .scratch
                    .split
                    .as_mut_ptr()
                    .add((first + q) * self.head_dim + dim);
                for (d, sum) in sums.iter().enumerate() {
                    S::store(out.add(d * WIDTH), *sum);
                }
            }
        }
        Q
    }

    /// Adds the positions that all `Q` queries see, a run at a time.
    #[inline(always)]
    unsafe fn weigh_common<S: Simd, const Q: usize, const D: usize>(
        &self,
        first: usize,
        dim: usize,
        start: usize,
        common: Range<usize>,
        sums: &mut [[S::F; D]; Q],
    ) {
        // Not through the reference: between runs they stay in registers.
        let mut local = *sums;
        let mut position = common.start;
        while position < common.end {
            let (run, offset) = (position / WIDTH, position % WIDTH);
            if let Some(keys) = self.next_keys(start, run) {
                // SAFETY: the instruction set is enabled; the address need not be valid.
                unsafe { self.ask_keys::<S>(keys) };
            }
            let count = (WIDTH - offset).min(common.end - position);
            let next = self.values[(run + 1).min(RUNS - 1)];
            // SAFETY: as the caller of `attend` says.
            unsafe {
                let values = self.values[run].add(offset * self.head_dim + dim);
                let weights = self.scratch.scores.as_ptr().add(first * STRIDE + position);
                let next = next.add(dim);
                self.weigh_run::<S, Q, D>(values, next, weights, count, &mut local);
            }
            position += count;
        }
        *sums = local;
    }

    /// Asks for the keys of a run.
    #[inline(always)]
    unsafe fn ask_keys<S: Simd>(&self, keys: *const u8) {
        let stride = self.block_size * size_of::<E>();
        for offset in (0..self.head_dim * stride).step_by(stride.max(64)) {
            // SAFETY: the instruction set is enabled; the address need not be valid.
            unsafe { S::prefetch(keys.wrapping_add(offset)) };
        }
    }

    /// Adds `count` positions of one run.
    #[inline(always)]
    unsafe fn weigh_run<S: Simd, const Q: usize, const D: usize>(
        &self,
        values: *const E,
        next: *const E,
        weights: *const f32,
        count: usize,
        sums: &mut [[S::F; D]; Q],
    ) {
        for i in 0..count {
            // SAFETY: the block holds these values, the scores these weights.
            unsafe {
                S::prefetch(next.wrapping_add(i * self.head_dim).cast());
                S::prefetch(next.wrapping_add(i * self.head_dim + 2 * WIDTH).cast());
                let mut value = [S::splat(0.0); D];
                for (d, value) in value.iter_mut().enumerate() {
                    *value = E::load::<S>(values.add(i * self.head_dim + d * WIDTH));
                }
                for q in 0..Q {
                    let weight = S::splat(*weights.add(q * STRIDE + i));
                    for d in 0..D {
                        sums[q][d] = S::fma(weight, value[d], sums[q][d]);
                    }
                }
            }
        }
    }

    /// Adds positions for one query.
    #[inline(always)]
    unsafe fn weigh_alone<S: Simd, const D: usize>(
        &self,
        q: usize,
        dim: usize,
        range: Range<usize>,
        sums: &mut [S::F; D],
    ) {
        // SAFETY: as the caller of `attend` says.
        unsafe {
            for position in range {
                let values = self.values[position / WIDTH].add(position % WIDTH * self.head_dim);
                let weight = self.scratch.scores.as_ptr().add(q * STRIDE + position);
                for (d, sum) in sums.iter_mut().enumerate() {
                    let value = E::load::<S>(values.add(dim + d * WIDTH));
                    *sum = S::fma(S::splat(*weight), value, *sum);
                }
            }
        }
    }
}
