//! Attention of a batch: its rows in pieces, its pieces among the threads.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;

use lockstep_simd::attention::{self, Item, Next, ROWS, partial_len};
use lockstep_simd::contract::{SPLIT, seen};

use super::super::kv::KvPool;
use super::super::memory::Floats;
use super::{Cpu, Rows};
use crate::backend::Isa;

/// The rows of a batch, as attention needs them.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Each row's position.
    pub positions: &'a [u32],
    /// Each row's slot in the pool.
    pub slots: &'a [u32],
    /// All block tables.
    pub block_tables: &'a [u32],
    /// The pieces that attention is parted into.
    pub pieces: &'a [Piece],
}

/// Rows of one sequence that attend together.
#[derive(Clone, Debug)]
pub struct Piece {
    first_row: usize,
    rows: usize,
    position: usize,
    table: Range<usize>,
}

impl Piece {
    /// The splits that its rows see anything of.
    fn splits(&self, window: usize) -> Range<usize> {
        let first = seen(self.position, window).start / SPLIT;
        first..(self.position + self.rows).div_ceil(SPLIT)
    }

    /// Appends the pieces of a sequence's rows, cut so that none crosses a split.
    pub fn cut(
        pieces: &mut Vec<Self>,
        first_row: usize,
        rows: usize,
        position: usize,
        table: Range<usize>,
    ) {
        let mut done = 0;
        while done < rows {
            let position = position + done;
            let rows = ROWS.min(rows - done).min(SPLIT - position % SPLIT);
            pieces.push(Self {
                first_row: first_row + done,
                rows,
                position,
                table: table.clone(),
            });
            done += rows;
        }
    }
}

/// The shape of attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Query heads that share a head of keys.
    pub group: usize,
    /// Heads of keys.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Positions that a row sees, its own the last of them; 0 for all.
    pub window: usize,
    /// What scores are multiplied with.
    pub scale: f32,
}

/// The items of a round of attention.
struct AttentionWork<'a> {
    isa: Isa,
    shape: &'a AttentionShape,
    layer: usize,
    places: &'a Places<'a>,
    queries: &'a Rows,
    out: &'a Rows,
}

impl AttentionWork<'_> {
    /// Long pieces stand last: taken first, they leave the threads nothing to wait for.
    fn piece(&self, index: usize) -> &Piece {
        let pieces = self.places.pieces;
        &pieces[pieces.len() - 1 - index / self.shape.kv_heads]
    }

    /// What a thread asks for before it works the item.
    fn next(&self, index: usize) -> Option<Next<'_>> {
        let (places, kv_heads) = (self.places, self.shape.kv_heads);
        (index < places.pieces.len() * kv_heads).then(|| Next {
            kv_head: index % kv_heads,
            blocks: &places.block_tables[self.piece(index).table.clone()],
        })
    }

    /// An item whose rows are within the buffers.
    fn item(&self, index: usize) -> Item<'_> {
        let (piece, shape) = (self.piece(index), self.shape);
        let kv_head = index % shape.kv_heads;
        let width = shape.group * shape.head_dim;
        let first = kv_head * width;
        let place = |rows: &Rows| {
            let end = (piece.first_row + piece.rows) * rows.width;
            assert!(first + width <= rows.width && end <= rows.floats.len());
            // SAFETY: the rows are within the buffer.
            unsafe {
                let base = rows.floats.as_ptr();
                base.add(piece.first_row * rows.width + first)
            }
        };
        Item {
            layer: self.layer,
            kv_head,
            blocks: &self.places.block_tables[piece.table.clone()],
            position: piece.position,
            queries: place(self.queries),
            out: place(self.out),
            query_stride: self.queries.width,
            out_stride: self.out.width,
            rows: piece.rows,
            group: shape.group,
            window: shape.window,
            scale: shape.scale,
            next: self.next(index + 1),
        }
    }
}

/// Room for what splits give before they are merged.
#[derive(Debug)]
pub(super) struct Partials {
    floats: Floats,
    items: usize,
    splits: usize,
    /// Elements of one partial.
    len: usize,
}

impl Partials {
    /// Room for the items that so many threads part.
    pub(super) fn new(
        threads: usize,
        positions: usize,
        shape: &AttentionShape,
    ) -> io::Result<Self> {
        let (items, splits) = (SPLIT_ITEMS * threads, positions.div_ceil(SPLIT));
        let len = partial_len(ROWS * shape.group, shape.head_dim);
        let floats = Floats::zeroed(items * splits * len)?;
        Ok(Self {
            floats,
            items,
            splits,
            len,
        })
    }

    fn at(&self, item: usize, split: usize) -> *mut f32 {
        assert!(item < self.items && split < self.splits);
        // SAFETY: within the buffer.
        unsafe {
            self.floats
                .as_ptr()
                .add((item * self.splits + split) * self.len)
        }
    }
}

/// f32 elements that a CPU keeps for partial results of attention.
pub const fn partial_floats(threads: usize, positions: usize, shape: &AttentionShape) -> usize {
    let len = partial_len(ROWS * shape.group, shape.head_dim);
    SPLIT_ITEMS * threads * positions.div_ceil(SPLIT) * len
}

/// Items a thread up to which attention is parted into splits as well.
const SPLIT_ITEMS: usize = 4;

impl Cpu {
    /// Attention of every row's queries over the pool.
    pub fn attend(
        &mut self,
        shape: &AttentionShape,
        layer: usize,
        places: &Places<'_>,
        queries: &Rows,
        kv: &KvPool,
        out: &mut Rows,
    ) {
        let work = AttentionWork {
            isa: self.isa,
            shape,
            layer,
            places,
            queries,
            out,
        };
        let items = places.pieces.len() * shape.kv_heads;
        let seen = |piece: &Piece| piece.splits(shape.window);
        let most = places.pieces.iter().map(|piece| seen(piece).len()).max();
        let splits = places.pieces.iter().map(|piece| seen(piece).end).max();
        let splits = splits.unwrap_or(0);
        let scratch = &self.scratch;
        let locked = |thread: usize| {
            scratch[thread]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if most < Some(2) || items > self.partials.items || splits > self.partials.splits {
            return self.pool.share(items, 1, &|thread, range| {
                let mut scratch = locked(thread);
                for index in range {
                    // SAFETY: each item is worked once; the rest is as `item` says.
                    unsafe {
                        attention::attend(work.isa, **kv, work.item(index), scratch.as_mut_slice())
                    };
                }
            });
        }
        // Too few items to keep the threads busy: splits are parted as well, and merged after.
        let partials = &self.partials;
        self.pool.share(items * splits, 1, &|thread, range| {
            let mut scratch = locked(thread);
            for (index, split) in range.map(|i| (i / splits, i % splits)) {
                let item = work.item(index);
                if seen(work.piece(index)).contains(&split) {
                    let partial = partials.at(index, split);
                    // SAFETY: each split of each item is worked once.
                    unsafe {
                        attention::attend_split(
                            work.isa,
                            **kv,
                            item,
                            scratch.as_mut_slice(),
                            split,
                            partial,
                        );
                    }
                }
            }
        });
        self.pool.share(items, 1, &|thread, range| {
            let mut scratch = locked(thread);
            for index in range {
                let (item, partial) = (work.item(index), partials.at(index, 0));
                // SAFETY: each item is worked once; its partials were written in the last round.
                unsafe {
                    attention::merge_splits(
                        work.isa,
                        **kv,
                        item,
                        scratch.as_mut_slice(),
                        partial,
                        partials.len,
                    );
                }
            }
        });
    }
}
