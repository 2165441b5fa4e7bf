//! Attention over the KV blocks: splits of 256 absolute positions, merged in ascending order.

use core::ops::Range;

use half::f16;

use crate::Isa;
use crate::contract::{SPLIT, seen};
use crate::kv::{Kv, KvDtype, KvElement};
use crate::lanes::{Kernel, Simd, WIDTH, dispatch};
use crate::rows::exp_of_negative;

mod scratch;
mod softmax;
mod split;

pub use scratch::{partial_len, scratch_len};

use scratch::{STRIDE, Scratch};

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
    /// What the thread probably attends to next: only its keys are asked for.
    pub next: Option<Next<'a>>,
}

/// A head of keys of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Next<'a> {
    /// The head of keys and values.
    pub kv_head: usize,
    /// The sequence's blocks.
    pub blocks: &'a [u32],
}

impl Item<'_> {
    /// The splits that a row sees anything of.
    fn splits(&self) -> Range<usize> {
        let last = self.position + self.rows;
        seen(self.position, self.window).start / SPLIT..last.div_ceil(SPLIT)
    }
}

/// Runs of 16 positions in a split: each is in one block.
const RUNS: usize = SPLIT / WIDTH;

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
    /// Where the keys of each run of the split begin, dimensions being a block size apart; after the
    /// last run that is seen, that one again.
    keys: [*const E; RUNS],
    /// Where its values begin.
    values: [*const E; RUNS],
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
            keys: [core::ptr::null(); RUNS],
            values: [core::ptr::null(); RUNS],
        }
    }

    /// Finds the keys and values of the split that begins at `start`.
    fn locate(&mut self, start: usize) {
        let seen = self.seen_in(0, start).start..self.seen_in(self.queries - 1, start).end;
        for run in seen.start / WIDTH..RUNS {
            let position = start + (run * WIDTH).min((seen.end - 1) / WIDTH * WIDTH);
            let block = self.item.blocks[position / self.block_size] as usize;
            let place = |part| {
                self.kv
                    .place(self.item.layer, block, part, self.item.kv_head)
            };
            let offset = position % self.block_size;
            // SAFETY: the offsets are within the block.
            unsafe {
                self.keys[run] = place(0).cast::<E>().add(offset);
                self.values[run] = place(1).cast::<E>().add(offset * self.head_dim);
            }
        }
    }

    /// Where the keys of what comes next begin, at the place of run `run` of the split that begins at
    /// `start`; `None` where there are none, or the item is one of a prompt, whose keys are near.
    #[inline(always)]
    fn next_keys(&self, start: usize, run: usize) -> Option<*const u8> {
        let next = self.item.next.filter(|_| self.item.rows == 1)?;
        let position = start + run * WIDTH;
        let block = *next.blocks.get(position / self.block_size)?;
        let place = self
            .kv
            .place(self.item.layer, block as usize, 0, next.kv_head);
        Some(place.wrapping_add(position % self.block_size * size_of::<E>()))
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

    #[inline(always)]
    unsafe fn gather_queries<S: Simd>(&mut self) {
        for q in 0..self.queries {
            let (row, head) = (q / self.item.group, q % self.item.group);
            let offset = row * self.item.query_stride + head * self.head_dim;
            for (i, dim) in (0..self.head_dim).step_by(WIDTH).enumerate() {
                let place = (i * self.queries + q) * WIDTH;
                let out = self.scratch.queries[place..place + WIDTH].as_mut_ptr();
                // SAFETY: the queries are valid for the item's rows and heads.
                unsafe { S::store(out, S::load(self.item.queries.add(offset + dim))) };
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
            // SAFETY: the sums are multiples of 16.
            unsafe {
                let [a, b] = exp_of_negative::<S, 2>([S::splat(m1 - m), S::splat(m2 - m)]);
                let l = S::fma(S::splat(l2), b, S::mul(S::splat(l1), a));
                scratch.state[q] = [m, S::first(l)];
                for (o1, o2) in merged.chunks_exact_mut(WIDTH).zip(next.chunks_exact(WIDTH)) {
                    let scaled = S::mul(S::load(o1.as_ptr()), a);
                    S::store(o1.as_mut_ptr(), S::fma(S::load(o2.as_ptr()), b, scaled));
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
                    self.gather_queries::<S>();
                    for split in splits {
                        self.split::<S>(split * SPLIT);
                        self.merge::<S>(split);
                    }
                    self.divide::<S>();
                }
                Part::Split(split, partial) => {
                    if splits.contains(&split) {
                        self.gather_queries::<S>();
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
