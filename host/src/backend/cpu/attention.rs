//! Attention over the KV blocks: splits of 256 absolute positions, merged in ascending order.

#![expect(
    clippy::needless_range_loop,
    reason = "loops over registers index several arrays at once"
)]

use super::kv::{KvDtype, KvElement, KvPool};
use super::rows::{exp, fold_lanes};
use super::simd::{Kernel, Simd, WIDTH, dispatch};
use crate::backend::Isa;
use crate::backend::exp::exp as exp_scalar;
use crate::backend::reference::{LANES, SPLIT};
use half::f16;

/// Rows of a sequence that attend together, sharing loads of keys and values.
pub const ROWS: usize = 4;

/// Rows of one sequence at adjacent positions of one split, and one head of keys.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The layer.
    pub layer: usize,
    /// The head of keys and values.
    pub kv_head: usize,
    /// The sequence's blocks.
    pub blocks: &'a [u32],
    /// The position of the first row; the others follow, at most [`ROWS`], all within one split.
    pub position: usize,
    /// The rotated queries of the first row: `group` heads, one after the other.
    pub queries: *const f32,
    /// Where the first row's results go, likewise.
    pub out: *mut f32,
    /// Elements from one row's queries to the next row's.
    pub query_stride: usize,
    /// Elements from one row's results to the next row's.
    pub out_stride: usize,
    /// How many rows.
    pub rows: usize,
    /// Query heads that share the head of keys.
    pub group: usize,
    /// What scores are multiplied with.
    pub scale: f32,
}

/// A thread's room for one item.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The queries: dimension by dimension.
    queries: Vec<f32>,
    /// Scores, then their exponentials: 256 for every query.
    scores: Vec<f32>,
    /// A split's weighted sums.
    split: Vec<f32>,
    /// The merged sums.
    merged: Vec<f32>,
    /// The merged maximum and denominator of each query.
    state: Vec<(f32, f32)>,
    /// What a split gave of the same.
    split_state: Vec<(f32, f32)>,
}

impl Scratch {
    /// Room for items of a shape.
    pub fn new(group: usize, head_dim: usize) -> Self {
        let queries = ROWS * group;
        Self {
            queries: vec![0.0; queries * head_dim],
            scores: vec![0.0; queries * SPLIT],
            split: vec![0.0; queries * head_dim],
            merged: vec![0.0; queries * head_dim],
            state: vec![(0.0, 0.0); queries],
            split_state: vec![(0.0, 0.0); queries],
        }
    }

    /// Bytes of a thread's room.
    pub const fn bytes(group: usize, head_dim: usize) -> usize {
        ROWS * group * (3 * head_dim * 4 + SPLIT * 4 + 16)
    }
}

/// How much of an item a kernel computes.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// All splits, merged and divided into the results.
    Whole,
    /// One split, into a partial.
    Split(usize, *mut f32),
    /// The merge of the partials, so far apart, and the division into the results.
    Merge(*const f32, usize),
}

/// f32 elements of an item's partial: each query's weighted sums, its maximum and its denominator.
pub const fn partial_len(queries: usize, head_dim: usize) -> usize {
    queries * (head_dim + 2)
}

/// Computes an item.
///
/// # Safety
/// The machine has `isa`; queries and results are valid for the rows, and nobody else touches the
/// results; nobody writes the keys and values up to the last row's position.
///
/// # Panics
/// If the scratch was made for another shape.
pub unsafe fn attend(isa: Isa, pool: &KvPool, item: Item<'_>, scratch: &mut Scratch) {
    // SAFETY: as the caller says.
    unsafe { compute(isa, pool, item, scratch, Part::Whole) };
}

/// Computes split `split` of an item into a partial of [`partial_len`] elements.
///
/// # Safety
/// As for [`attend`]; the partial has room, and nobody else touches it.
///
/// # Panics
/// If the scratch was made for another shape.
pub unsafe fn attend_split(
    isa: Isa,
    pool: &KvPool,
    item: Item<'_>,
    scratch: &mut Scratch,
    split: usize,
    partial: *mut f32,
) {
    // SAFETY: as the caller says.
    unsafe { compute(isa, pool, item, scratch, Part::Split(split, partial)) };
}

/// Merges the partials of all splits of an item, `stride` elements apart, into its results: the same
/// bits as [`attend`].
///
/// # Safety
/// As for [`attend`]; the partials are there.
///
/// # Panics
/// If the scratch was made for another shape.
pub unsafe fn merge_splits(
    isa: Isa,
    pool: &KvPool,
    item: Item<'_>,
    scratch: &mut Scratch,
    partials: *const f32,
    stride: usize,
) {
    // SAFETY: as the caller says.
    unsafe { compute(isa, pool, item, scratch, Part::Merge(partials, stride)) };
}

unsafe fn compute(isa: Isa, pool: &KvPool, item: Item<'_>, scratch: &mut Scratch, part: Part) {
    let queries = item.rows * item.group;
    assert!(item.rows <= ROWS && scratch.state.len() >= queries);
    assert!(scratch.queries.len() >= queries * pool.shape().head_dim);
    assert!((item.position + item.rows - 1) / SPLIT == item.position / SPLIT);
    // SAFETY: as the caller says.
    unsafe {
        match pool.shape().dtype {
            KvDtype::F16 => dispatch(isa, Attend::<f16>::new(pool, item, scratch, part)),
            KvDtype::F32 => dispatch(isa, Attend::<f32>::new(pool, item, scratch, part)),
        }
    }
}

struct Attend<'a, E> {
    pool: &'a KvPool,
    item: Item<'a>,
    scratch: &'a mut Scratch,
    queries: usize,
    head_dim: usize,
    block_size: usize,
    part: Part,
    element: std::marker::PhantomData<E>,
}

impl<'a, E: KvElement> Attend<'a, E> {
    fn new(pool: &'a KvPool, item: Item<'a>, scratch: &'a mut Scratch, part: Part) -> Self {
        Self {
            pool,
            item,
            scratch,
            queries: item.rows * item.group,
            head_dim: pool.shape().head_dim,
            block_size: pool.shape().block_size,
            part,
            element: std::marker::PhantomData,
        }
    }

    /// Element 0 of the 16 keys from `position` on: dimensions are a block size apart.
    #[inline(always)]
    fn keys(&self, position: usize) -> *const E {
        let block = self.item.blocks[position / self.block_size] as usize;
        let base = self
            .pool
            .place(self.item.layer, block, 0, self.item.kv_head);
        // SAFETY: the offset is within the block.
        unsafe { base.cast::<E>().add(position % self.block_size) }
    }

    /// The value at `position`.
    #[inline(always)]
    fn values(&self, position: usize) -> *const E {
        let block = self.item.blocks[position / self.block_size] as usize;
        let base = self
            .pool
            .place(self.item.layer, block, 1, self.item.kv_head);
        // SAFETY: the offset is within the block.
        unsafe {
            base.cast::<E>()
                .add(position % self.block_size * self.head_dim)
        }
    }

    /// Positions that query `q` sees in the split that begins at `start`.
    fn seen(&self, q: usize, start: usize) -> usize {
        let position = self.item.position + q / self.item.group;
        SPLIT.min(position + 1 - start)
    }

    fn gather_queries(&mut self) {
        for q in 0..self.queries {
            let (row, head) = (q / self.item.group, q % self.item.group);
            let offset = row * self.item.query_stride + head * self.head_dim;
            for d in 0..self.head_dim {
                // SAFETY: the queries are valid for the item's rows and heads.
                let x = unsafe { *self.item.queries.add(offset + d) };
                self.scratch.queries[d * self.queries + q] = x;
            }
        }
    }

    #[inline(always)]
    unsafe fn scores<S: Simd>(&mut self, start: usize, count: usize) {
        let mut q = 0;
        while q < self.queries {
            // SAFETY: as the caller of `attend` says.
            unsafe {
                q += match self.queries - q {
                    12.. => self.score_piece::<S, 12, 1>(q, start, count),
                    6..12 => self.score_piece::<S, 6, 2>(q, start, count),
                    4 | 5 => self.score_piece::<S, 4, 2>(q, start, count),
                    3 => self.score_piece::<S, 3, 4>(q, start, count),
                    2 => self.score_piece::<S, 2, 4>(q, start, count),
                    _ => self.score_piece::<S, 1, 4>(q, start, count),
                };
            }
        }
    }

    /// Scores of `Q` queries from `first` on with `count` positions, `P` times 16 at a time.
    #[inline(always)]
    unsafe fn score_piece<S: Simd, const Q: usize, const P: usize>(
        &mut self,
        first: usize,
        start: usize,
        count: usize,
    ) -> usize {
        let mut position = 0;
        while position + P * WIDTH <= count {
            // SAFETY: as the caller of `attend` says.
            unsafe { self.score_tile::<S, Q, P>(first, start, position) };
            position += P * WIDTH;
        }
        while position < count {
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
        let mut keys = [std::ptr::null::<E>(); P];
        let mut next = [std::ptr::null::<E>(); P];
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

    /// Turns each query's scores into exponentials; masked ones, up to a multiple of 64, into +0.
    #[inline(always)]
    unsafe fn exponentials<S: Simd>(&mut self, start: usize) {
        for q in 0..self.queries {
            let seen = self.seen(q, start);
            let scores = &mut self.scratch.scores[q * SPLIT..(q + 1) * SPLIT];
            let whole = seen.next_multiple_of(LANES);
            scores[seen..whole].fill(f32::NEG_INFINITY);
            // SAFETY: chunks of 16.
            unsafe {
                let mut greatest = S::splat(f32::NEG_INFINITY);
                for score in scores[..whole].chunks_exact(WIDTH) {
                    greatest = S::max(greatest, S::load(score.as_ptr()));
                }
                let m = greatest_lane::<S>(greatest);
                let mut lanes = [S::splat(0.0); LANES / WIDTH];
                for (i, score) in scores[..whole].chunks_exact_mut(WIDTH).enumerate() {
                    let p = exp::<S>(S::sub(S::load(score.as_ptr()), S::splat(m)));
                    S::store(score.as_mut_ptr(), p);
                    let lane = i % (LANES / WIDTH);
                    lanes[lane] = S::add(lanes[lane], p);
                }
                self.scratch.split_state[q] = (m, fold_lanes::<S>(lanes));
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

    /// The weighted sums of `Q` queries from `first` on, in `D` vectors of dimensions.
    #[inline(always)]
    unsafe fn weigh_piece<S: Simd, const Q: usize, const D: usize>(
        &mut self,
        first: usize,
        dim: usize,
        start: usize,
    ) -> usize {
        let common = self.seen(first, start);
        let last = self.item.position + self.item.rows - 1;
        // SAFETY: as the caller of `attend` says.
        unsafe {
            let mut sums = [[S::splat(0.0); D]; Q];
            let mut position = 0;
            while position < common {
                let run =
                    (self.block_size - (start + position) % self.block_size).min(common - position);
                let values = self.values(start + position).add(dim);
                let next = self.values(last.min(start + position + run)).add(dim);
                let weights = self.scratch.scores.as_ptr().add(first * SPLIT + position);
                self.weigh_run::<S, Q, D>(values, next, weights, run, &mut sums);
                position += run;
            }
            for (q, sums) in sums.into_iter().enumerate() {
                self.weigh_rest::<S, D>(first + q, dim, start, common, sums);
            }
        }
        Q
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

    /// The positions that only later rows see, and the end of the chain.
    #[inline(always)]
    unsafe fn weigh_rest<S: Simd, const D: usize>(
        &mut self,
        q: usize,
        dim: usize,
        start: usize,
        common: usize,
        sums: [S::F; D],
    ) {
        // SAFETY: as the caller of `attend` says.
        unsafe {
            let mut sums = [sums];
            for position in common..self.seen(q, start) {
                let values = self.values(start + position).add(dim);
                let weight = self.scratch.scores.as_ptr().add(q * SPLIT + position);
                self.weigh_run::<S, 1, D>(values, values, weight, 1, &mut sums);
            }
            let out = self.scratch.split.as_mut_ptr().add(q * self.head_dim + dim);
            for (d, sum) in sums[0].into_iter().enumerate() {
                S::store(out.add(d * WIDTH), sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn split<S: Simd>(&mut self, start: usize, end: usize) {
        // SAFETY: as the caller of `compute` says.
        unsafe {
            self.scores::<S>(start, SPLIT.min(end - start));
            self.exponentials::<S>(start);
            self.weigh::<S>(start);
        }
    }

    /// Copies the split's results out.
    unsafe fn save(&self, partial: *mut f32) {
        let sums = self.queries * self.head_dim;
        // SAFETY: the partial has room for all of it.
        unsafe {
            let split = &self.scratch.split[..sums];
            partial.copy_from_nonoverlapping(split.as_ptr(), sums);
            for (q, (m, l)) in self.scratch.split_state[..self.queries].iter().enumerate() {
                *partial.add(sums + 2 * q) = *m;
                *partial.add(sums + 2 * q + 1) = *l;
            }
        }
    }

    /// Copies a split's results back.
    unsafe fn restore(&mut self, partial: *const f32) {
        let sums = self.queries * self.head_dim;
        // SAFETY: the partial is whole.
        unsafe {
            let split = &mut self.scratch.split[..sums];
            split.as_mut_ptr().copy_from_nonoverlapping(partial, sums);
            let state = self.scratch.split_state[..self.queries].iter_mut();
            for (q, state) in state.enumerate() {
                *state = (*partial.add(sums + 2 * q), *partial.add(sums + 2 * q + 1));
            }
        }
    }

    /// Merges the split into what went before it.
    #[inline(always)]
    unsafe fn merge<S: Simd>(&mut self, first: bool) {
        let scratch = &mut *self.scratch;
        for q in 0..self.queries {
            let range = q * self.head_dim..(q + 1) * self.head_dim;
            let (split, merged) = (&scratch.split[range.clone()], &mut scratch.merged[range]);
            let (m2, l2) = scratch.split_state[q];
            if first {
                merged.copy_from_slice(split);
                scratch.state[q] = (m2, l2);
                continue;
            }
            let (m1, l1) = scratch.state[q];
            let m = m1.max(m2);
            let (a, b) = (exp_scalar(m1 - m), exp_scalar(m2 - m));
            scratch.state[q] = (m, l2.mul_add(b, l1 * a));
            for (o1, o2) in merged
                .chunks_exact_mut(WIDTH)
                .zip(split.chunks_exact(WIDTH))
            {
                // SAFETY: chunks of 16.
                unsafe {
                    let scaled = S::mul(S::load(o1.as_ptr()), S::splat(a));
                    let sum = S::fma(S::load(o2.as_ptr()), S::splat(b), scaled);
                    S::store(o1.as_mut_ptr(), sum);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn divide<S: Simd>(&self) {
        for q in 0..self.queries {
            let (row, head) = (q / self.item.group, q % self.item.group);
            let merged = &self.scratch.merged[q * self.head_dim..(q + 1) * self.head_dim];
            let offset = row * self.item.out_stride + head * self.head_dim;
            for (d, o) in merged.chunks_exact(WIDTH).enumerate() {
                // SAFETY: the results have room for the item's rows and heads.
                unsafe {
                    let quotient = S::div(S::load(o.as_ptr()), S::splat(self.scratch.state[q].1));
                    S::store(self.item.out.add(offset + d * WIDTH), quotient);
                }
            }
        }
    }
}

impl<E: KvElement> Kernel for Attend<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let end = self.item.position + self.item.rows;
        let splits = end.div_ceil(SPLIT);
        // SAFETY: as the caller of `compute` says.
        unsafe {
            match self.part {
                Part::Whole => {
                    self.gather_queries();
                    for split in 0..splits {
                        self.split::<S>(split * SPLIT, end);
                        self.merge::<S>(split == 0);
                    }
                    self.divide::<S>();
                }
                Part::Split(split, partial) => {
                    self.gather_queries();
                    self.split::<S>(split * SPLIT, end);
                    self.save(partial);
                }
                Part::Merge(partials, stride) => {
                    for split in 0..splits {
                        self.restore(partials.add(split * stride));
                        self.merge::<S>(split == 0);
                    }
                    self.divide::<S>();
                }
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
