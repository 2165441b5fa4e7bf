//! One split of attention: scores, exponentials, weighted sums.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use core::ops::Range;

use super::Attend;
use crate::contract::{LANES, SPLIT};
use crate::kv::KvElement;
use crate::lanes::{Simd, WIDTH};
use crate::rows::{exp, fold_lanes};

impl<E: KvElement> Attend<'_, E> {
    /// The split that begins at `start`, into the scratch.
    #[inline(always)]
    pub(super) unsafe fn split<S: Simd>(&mut self, start: usize) {
        // SAFETY: as the caller of `compute` says.
        unsafe {
            self.scores::<S>(start);
            self.exponentials::<S>(start);
            self.weigh::<S>(start);
        }
    }

    /// Element 0 of the 16 keys from `position` on: dimensions are a block size apart.
    #[inline(always)]
    fn keys(&self, position: usize) -> *const E {
        let block = self.item.blocks[position / self.block_size] as usize;
        let base = self.kv.place(self.item.layer, block, 0, self.item.kv_head);
        // SAFETY: the offset is within the block.
        unsafe { base.cast::<E>().add(position % self.block_size) }
    }

    /// The value at `position`.
    #[inline(always)]
    fn values(&self, position: usize) -> *const E {
        let block = self.item.blocks[position / self.block_size] as usize;
        let base = self.kv.place(self.item.layer, block, 1, self.item.kv_head);
        // SAFETY: the offset is within the block.
        unsafe {
            base.cast::<E>()
                .add(position % self.block_size * self.head_dim)
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(&mut self, start: usize) {
        let seen =
            self.seen_in(0, start).start / WIDTH * WIDTH..self.seen_in(self.queries - 1, start).end;
        let mut q = 0;
        while q < self.queries {
            // SAFETY: as the caller of `attend` says.
            unsafe {
                q += match self.queries - q {
                    12.. => self.score_piece::<S, 12, 1>(q, start, seen.clone()),
                    6..12 => self.score_piece::<S, 6, 2>(q, start, seen.clone()),
                    4 | 5 => self.score_piece::<S, 4, 2>(q, start, seen.clone()),
                    3 => self.score_piece::<S, 3, 4>(q, start, seen.clone()),
                    2 => self.score_piece::<S, 2, 4>(q, start, seen.clone()),
                    _ => self.score_piece::<S, 1, 4>(q, start, seen.clone()),
                };
            }
        }
    }

    /// Scores of `Q` queries from `first` on with a range of positions, `P` times 16 at a time.
    #[inline(always)]
    unsafe fn score_piece<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        first: usize,
        start: usize,
        range: Range<usize>,
    ) -> usize {
        let mut position = range.start;
        while position + P * WIDTH <= range.end {
            // SAFETY: as the caller of `attend` says.
            unsafe { self.score_tile::<S, Q, P>(first, start, position) };
            position += P * WIDTH;
        }
        while position < range.end {
            // SAFETY: as the caller of `attend` says.
            unsafe { self.score_tile::<S, Q, 1>(first, start, position) };
            position += WIDTH;
        }
        Q
    }

    #[inline(always)]
    unsafe fn score_tile<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        first: usize,
        start: usize,
        position: usize,
    ) {
        let mut keys = [core::ptr::null::<E>(); P];
        let mut next = [core::ptr::null::<E>(); P];
        let last = self.item.position + self.item.rows - 1;
        for p in 0..P {
            let position = start + position + p * WIDTH;
            keys[p] = self.keys(position);
            next[p] = self.keys(last.min(position + P * WIDTH));
        }
        // SAFETY: the block holds these keys (stale ones among them are masked later); scratch has
        // 256 scores for each query.
        unsafe {
            let queries = self.scratch.queries.as_ptr().add(first);
            let mut sums = [[S::splat(0.0); Q]; P];
            for d in 0..self.head_dim {
                for p in 0..P {
                    S::prefetch(next[p].add(d * self.block_size).cast());
                    let key = E::load::<S>(keys[p].add(d * self.block_size));
                    for q in 0..Q {
                        let query = S::splat(*queries.add(d * self.queries + q));
                        sums[p][q] = S::fma(query, key, sums[p][q]);
                    }
                }
            }
            let scale = S::splat(self.item.scale);
            let scores = self.scratch.scores.as_mut_ptr();
            for p in 0..P {
                for q in 0..Q {
                    let place = (first + q) * SPLIT + position + p * WIDTH;
                    S::store(scores.add(place), S::mul(sums[p][q], scale));
                }
            }
        }
    }

    /// Turns each query's scores into exponentials; masked ones, in whole rows of 64, into +0.
    #[inline(always)]
    unsafe fn exponentials<S: Simd>(&mut self, start: usize) {
        for q in 0..self.queries {
            let seen = self.seen_in(q, start);
            let scores = &mut self.scratch.scores[q * SPLIT..(q + 1) * SPLIT];
            let rows = seen.start / LANES * LANES..seen.end.next_multiple_of(LANES);
            scores[rows.start..seen.start].fill(f32::NEG_INFINITY);
            scores[seen.end..rows.end].fill(f32::NEG_INFINITY);
            // SAFETY: chunks of 16.
            unsafe {
                let mut greatest = S::splat(f32::NEG_INFINITY);
                for score in scores[rows.clone()].chunks_exact(WIDTH) {
                    greatest = S::max(greatest, S::load(score.as_ptr()));
                }
                let m = greatest_lane::<S>(greatest);
                let mut lanes = [S::splat(0.0); LANES / WIDTH];
                for (i, score) in scores[rows].chunks_exact_mut(WIDTH).enumerate() {
                    let p = exp::<S>(S::sub(S::load(score.as_ptr()), S::splat(m)));
                    S::store(score.as_mut_ptr(), p);
                    let lane = i % (LANES / WIDTH);
                    lanes[lane] = S::add(lanes[lane], p);
                }
                self.scratch.split_state[q] = [m, fold_lanes::<S>(lanes)];
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
                    start,
                    seen.start..seen.end.min(common.start),
                    sums,
                );
            }
            self.weigh_common::<S, Q, D>(first, dim, start, common.clone(), &mut sums);
            for (q, sums) in sums.iter_mut().enumerate() {
                let end = self.seen_in(first + q, start).end;
                self.weigh_alone::<S, D>(first + q, dim, start, common.end..end, sums);
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

    /// Adds the positions that all `Q` queries see, a block's run at a time.
    #[inline(always)]
    unsafe fn weigh_common<S: Simd, const Q: usize, const D: usize>(
        &self,
        first: usize,
        dim: usize,
        start: usize,
        common: Range<usize>,
        sums: &mut [[S::F; D]; Q],
    ) {
        let last = self.item.position + self.item.rows - 1;
        let mut position = common.start;
        // SAFETY: as the caller of `attend` says.
        unsafe {
            while position < common.end {
                let block = self.block_size - (start + position) % self.block_size;
                let run = block.min(common.end - position);
                let values = self.values(start + position).add(dim);
                let next = self.values(last.min(start + position + run)).add(dim);
                let weights = self.scratch.scores.as_ptr().add(first * SPLIT + position);
                self.weigh_run::<S, Q, D>(values, next, weights, run, sums);
                position += run;
            }
        }
    }

    /// Adds `run` positions of one block.
    #[inline(always)]
    unsafe fn weigh_run<S: Simd, const Q: usize, const D: usize>(
        &self,
        values: *const E,
        next: *const E,
        weights: *const f32,
        run: usize,
        sums: &mut [[S::F; D]; Q],
    ) {
        for i in 0..run {
            // SAFETY: the block holds these values, the scores these weights.
            unsafe {
                S::prefetch(next.wrapping_add(i * self.head_dim).cast());
                S::prefetch(next.wrapping_add(i * self.head_dim + 2 * WIDTH).cast());
                let mut value = [S::splat(0.0); D];
                for (d, value) in value.iter_mut().enumerate() {
                    *value = E::load::<S>(values.add(i * self.head_dim + d * WIDTH));
                }
                for q in 0..Q {
                    let weight = S::splat(*weights.add(q * SPLIT + i));
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
        start: usize,
        range: Range<usize>,
        sums: &mut [S::F; D],
    ) {
        // SAFETY: as the caller of `attend` says.
        unsafe {
            for position in range {
                let values = self.values(start + position).add(dim);
                let weight = self.scratch.scores.as_ptr().add(q * SPLIT + position);
                self.weigh_run::<S, 1, D>(values, values, weight, 1, core::array::from_mut(sums));
            }
        }
    }
}

#[inline(always)]
unsafe fn greatest_lane<S: Simd>(x: S::F) -> f32 {
    let mut lanes = [0.0_f32; WIDTH];
    // SAFETY: there is room for 16 lanes.
    unsafe { S::store(lanes.as_mut_ptr(), x) };
    lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
}
