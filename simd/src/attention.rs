//! Attention over the KV blocks: splits of 256 absolute positions, merged in ascending order.

use core::ops::Range;

use half::f16;

use crate::Isa;
use crate::contract::{SPLIT, seen};
use crate::exp::exp;
use crate::kv::{Kv, KvDtype, KvElement};
use crate::lanes::{Kernel, Simd, WIDTH, dispatch};
use crate::math::fma;

mod split;

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
    /// Positions that a row sees, its own the last of them; 0 for all.
    pub window: usize,
    /// What scores are multiplied with.
    pub scale: f32,
}

impl Item<'_> {
    /// The splits that a row sees anything of.
    fn splits(&self) -> Range<usize> {
        let last = self.position + self.rows;
        seen(self.position, self.window).start / SPLIT..last.div_ceil(SPLIT)
    }
}

/// f32 elements of the room that an item of a shape needs.
pub const fn scratch_len(group: usize, head_dim: usize) -> usize {
    ROWS * group * (3 * head_dim + SPLIT + 4)
}

/// The room for one item, parted.
struct Scratch<'a> {
    /// The queries: dimension by dimension.
    queries: &'a mut [f32],
    /// Scores, then their exponentials: 256 for every query.
    scores: &'a mut [f32],
    /// A split's weighted sums.
    split: &'a mut [f32],
    /// The merged sums.
    merged: &'a mut [f32],
    /// The merged maximum and denominator of each query.
    state: &'a mut [[f32; 2]],
    /// What a split gave of the same.
    split_state: &'a mut [[f32; 2]],
}

impl<'a> Scratch<'a> {
    /// Parts the room for so many queries.
    fn new(room: &'a mut [f32], queries: usize, head_dim: usize) -> Self {
        let sums = queries * head_dim;
        let (gathered, room) = room.split_at_mut(sums);
        let (scores, room) = room.split_at_mut(queries * SPLIT);
        let (split, room) = room.split_at_mut(sums);
        let (merged, room) = room.split_at_mut(sums);
        let (state, room) = room.split_at_mut(2 * queries);
        Self {
            queries: gathered,
            scores,
            split,
            merged,
            state: state.as_chunks_mut().0,
            split_state: room[..2 * queries].as_chunks_mut().0,
        }
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
/// If the room is shorter than [`scratch_len`], or the rows cross a split.
pub unsafe fn attend(isa: Isa, kv: Kv, item: Item<'_>, room: &mut [f32]) {
    // SAFETY: as the caller says.
    unsafe { compute(isa, kv, item, room, Part::Whole) };
}

/// Computes split `split` of an item into a partial of [`partial_len`] elements.
///
/// # Safety
/// As for [`attend`]; the partial has room, and nobody else touches it.
///
/// # Panics
/// If the room is shorter than [`scratch_len`], or the rows cross a split.
pub unsafe fn attend_split(
    isa: Isa,
    kv: Kv,
    item: Item<'_>,
    room: &mut [f32],
    split: usize,
    partial: *mut f32,
) {
    // SAFETY: as the caller says.
    unsafe { compute(isa, kv, item, room, Part::Split(split, partial)) };
}

/// Merges the partials of all splits of an item, `stride` elements apart, into its results: the same
/// bits as [`attend`].
///
/// # Safety
/// As for [`attend`]; the partials are there.
///
/// # Panics
/// If the room is shorter than [`scratch_len`], or the rows cross a split.
pub unsafe fn merge_splits(
    isa: Isa,
    kv: Kv,
    item: Item<'_>,
    room: &mut [f32],
    partials: *const f32,
    stride: usize,
) {
    // SAFETY: as the caller says.
    unsafe { compute(isa, kv, item, room, Part::Merge(partials, stride)) };
}

unsafe fn compute(isa: Isa, kv: Kv, item: Item<'_>, room: &mut [f32], part: Part) {
    let (queries, head_dim) = (item.rows * item.group, kv.shape().head_dim);
    assert!((1..=ROWS).contains(&item.rows) && room.len() >= scratch_len(item.group, head_dim));
    assert!((item.position + item.rows - 1) / SPLIT == item.position / SPLIT);
    let scratch = Scratch::new(room, queries, head_dim);
    // SAFETY: as the caller says.
    unsafe {
        match kv.shape().dtype {
            KvDtype::F16 => dispatch(isa, Attend::<f16>::new(kv, item, scratch, part)),
            KvDtype::F32 => dispatch(isa, Attend::<f32>::new(kv, item, scratch, part)),
        }
    }
}

struct Attend<'a, E> {
    kv: Kv,
    item: Item<'a>,
    scratch: Scratch<'a>,
    queries: usize,
    head_dim: usize,
    block_size: usize,
    part: Part,
    element: core::marker::PhantomData<E>,
}

impl<'a, E: KvElement> Attend<'a, E> {
    fn new(kv: Kv, item: Item<'a>, scratch: Scratch<'a>, part: Part) -> Self {
        Self {
            kv,
            item,
            scratch,
            queries: item.rows * item.group,
            head_dim: kv.shape().head_dim,
            block_size: kv.shape().block_size,
            part,
            element: core::marker::PhantomData,
        }
    }

    /// All positions that query `q` sees.
    fn seen(&self, q: usize) -> Range<usize> {
        seen(self.item.position + q / self.item.group, self.item.window)
    }

    /// Those that it sees in the split that begins at `start`, counted from there; may be empty.
    fn seen_in(&self, q: usize, start: usize) -> Range<usize> {
        let seen = self.seen(q);
        let end = SPLIT.min(seen.end.saturating_sub(start));
        seen.start.saturating_sub(start).min(end)..end
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

    /// Copies the split's results out.
    unsafe fn save(&self, partial: *mut f32) {
        let sums = self.queries * self.head_dim;
        // SAFETY: the partial has room for all of it.
        unsafe {
            let split = &self.scratch.split[..sums];
            partial.copy_from_nonoverlapping(split.as_ptr(), sums);
            for (q, [m, l]) in self.scratch.split_state[..self.queries].iter().enumerate() {
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
                *state = [*partial.add(sums + 2 * q), *partial.add(sums + 2 * q + 1)];
            }
        }
    }

    /// Merges split `split` into what went before it; a query that sees nothing of it leaves it out.
    #[inline(always)]
    unsafe fn merge<S: Simd>(&mut self, split: usize) {
        for q in 0..self.queries {
            let first = self.seen(q).start / SPLIT;
            if split < first {
                continue;
            }
            let scratch = &mut self.scratch;
            let range = q * self.head_dim..(q + 1) * self.head_dim;
            let (next, merged) = (&scratch.split[range.clone()], &mut scratch.merged[range]);
            let [m2, l2] = scratch.split_state[q];
            if split == first {
                merged.copy_from_slice(next);
                scratch.state[q] = [m2, l2];
                continue;
            }
            let [m1, l1] = scratch.state[q];
            let m = m1.max(m2);
            let (a, b) = (exp(m1 - m), exp(m2 - m));
            scratch.state[q] = [m, fma(l2, b, l1 * a)];
            for (o1, o2) in merged.chunks_exact_mut(WIDTH).zip(next.chunks_exact(WIDTH)) {
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
                    let quotient = S::div(S::load(o.as_ptr()), S::splat(self.scratch.state[q][1]));
                    S::store(self.item.out.add(offset + d * WIDTH), quotient);
                }
            }
        }
    }
}

impl<E: KvElement> Kernel for Attend<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let splits = self.item.splits();
        // SAFETY: as the caller of `compute` says.
        unsafe {
            match self.part {
                Part::Whole => {
                    self.gather_queries();
                    for split in splits {
                        self.split::<S>(split * SPLIT);
                        self.merge::<S>(split);
                    }
                    self.divide::<S>();
                }
                Part::Split(split, partial) => {
                    if splits.contains(&split) {
                        self.gather_queries();
                        self.split::<S>(split * SPLIT);
                        self.save(partial);
                    }
                }
                Part::Merge(partials, stride) => {
                    for split in splits {
                        self.restore(partials.add(split * stride));
                        self.merge::<S>(split);
                    }
                    self.divide::<S>();
                }
            }
        }
    }
}
