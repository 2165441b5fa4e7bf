//! The operations of a decoder on the CPU: each one a round of the thread pool.
//!
//! Work is parted by outputs, rows or heads, never along a sum: so who computes what is chance and
//! changes no bit.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::activations::{Activations, Form};
use super::attention::{self, Item, ROWS, Scratch};
use super::kv::KvPool;
use super::linear::{Output, linear};
use super::memory::Floats;
use super::pack::PackedMatrix;
use super::pool::Pool;
use super::rows;
use crate::backend::Isa;
use crate::backend::reference::SPLIT;

/// Outputs of a tile.
const TILE: usize = 16;
/// Up to so many rows, row-wise work is done at once instead of being shared.
const FEW_ROWS: usize = 2;

/// Rows of f32, all of one width.
#[derive(Debug)]
pub struct Rows {
    floats: Floats,
    width: usize,
}

impl Rows {
    /// Room for so many rows.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn new(rows: usize, width: usize) -> io::Result<Self> {
        let size = rows.checked_mul(width).ok_or(io::ErrorKind::OutOfMemory)?;
        let floats = Floats::zeroed(size)?;
        Ok(Self { floats, width })
    }

    /// # Safety
    /// Nobody writes the row meanwhile.
    unsafe fn row(&self, row: usize) -> &[f32] {
        // SAFETY: as the caller says.
        unsafe { self.floats.part(row * self.width, self.width) }
    }

    /// # Safety
    /// Nobody else touches this part meanwhile.
    #[expect(
        clippy::mut_from_ref,
        reason = "several threads write disjoint parts of one buffer"
    )]
    unsafe fn part(&self, row: usize, range: Range<usize>) -> &mut [f32] {
        assert!(range.end <= self.width);
        // SAFETY: as the caller says.
        unsafe {
            self.floats
                .part_mut(row * self.width + range.start, range.len())
        }
    }

    fn output(&self, rows: usize, first: usize) -> Output {
        assert!(rows * self.width <= self.floats.len() && first <= self.width);
        Output {
            // SAFETY: within the buffer.
            base: unsafe { self.floats.as_ptr().add(first) },
            stride: self.width,
        }
    }
}

/// Rows that met a value that is not finite.
#[derive(Debug)]
pub struct Flags(Vec<AtomicBool>);

impl Flags {
    /// None of so many rows.
    pub fn new(rows: usize) -> Self {
        Self((0..rows).map(|_| AtomicBool::new(false)).collect())
    }

    /// Takes back all.
    pub fn clear(&mut self) {
        self.0.fill_with(|| AtomicBool::new(false));
    }

    /// Whether a row of a range is flagged.
    pub fn any(&self, rows: Range<usize>) -> bool {
        self.0[rows].iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    fn note(&self, row: usize, finite: bool) {
        if !finite {
            self.0[row].store(true, Ordering::Relaxed);
        }
    }
}

/// Cosines and sines: for every position a head's worth.
#[derive(Debug)]
pub struct RopeTables {
    cos: Vec<f32>,
    sin: Vec<f32>,
    head_dim: usize,
}

impl RopeTables {
    /// Tables for `positions` positions: pair `i` turns by `position * frequencies[i]`, computed in
    /// f64.
    pub fn new(positions: usize, frequencies: &[f64]) -> Self {
        let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for angle in angles {
            let (c, s) = (libm::cos(angle) as f32, libm::sin(angle) as f32);
            cos.extend([c, c]);
            sin.extend([-s, s]);
        }
        let head_dim = 2 * frequencies.len();
        Self { cos, sin, head_dim }
    }

    fn part(&self, position: usize, dims: Range<usize>) -> (&[f32], &[f32]) {
        let base = position * self.head_dim;
        let range = base + dims.start..base + dims.end;
        (&self.cos[range.clone()], &self.sin[range])
    }
}

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
    /// How many splits its rows see.
    fn splits(&self) -> usize {
        (self.position + self.rows).div_ceil(SPLIT)
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
            scale: shape.scale,
        }
    }
}

/// Room for what splits give before they are merged.
#[derive(Debug)]
struct Partials {
    floats: Floats,
    items: usize,
    splits: usize,
    /// Elements of one partial.
    len: usize,
}

impl Partials {
    fn new(items: usize, splits: usize, len: usize) -> io::Result<Self> {
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
    let len = attention::partial_len(ROWS * shape.group, shape.head_dim);
    SPLIT_ITEMS * threads * positions.div_ceil(SPLIT) * len
}

/// Items a thread up to which attention is parted into splits as well.
const SPLIT_ITEMS: usize = 4;

/// The CPU: an instruction set and threads.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    pool: Pool,
    scratch: Vec<Mutex<Scratch>>,
    partials: Partials,
}

impl Cpu {
    /// A CPU with so many threads, for sequences of so many positions.
    ///
    /// # Errors
    /// The system gives no more threads.
    ///
    /// # Panics
    /// If the machine does not have `isa`.
    pub fn new(
        isa: Isa,
        threads: usize,
        positions: usize,
        shape: &AttentionShape,
    ) -> io::Result<Self> {
        assert!(isa.available());
        let len = attention::partial_len(ROWS * shape.group, shape.head_dim);
        let splits = positions.div_ceil(SPLIT);
        let scratch = || Mutex::new(Scratch::new(shape.group, shape.head_dim));
        Ok(Self {
            isa,
            pool: Pool::new(threads)?,
            scratch: (0..threads.max(1)).map(|_| scratch()).collect(),
            partials: Partials::new(SPLIT_ITEMS * threads, splits, len)?,
        })
    }

    /// The instruction set.
    pub const fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads.
    pub const fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    fn rows(&mut self, rows: usize, work: &(dyn Fn(usize) + Sync)) {
        let grain = if rows <= FEW_ROWS { FEW_ROWS } else { 1 };
        self.pool
            .share(rows, grain, &|_, range| range.for_each(work));
    }

    /// Tiles that a thread takes at once: few enough that the threads end together.
    fn tile_grain(&self, tiles: usize) -> usize {
        (tiles / (8 * self.pool.threads())).clamp(1, 8)
    }

    /// Decodes each token's embedding.
    pub fn embed(&mut self, table: &PackedMatrix, tokens: &[u32], x: &mut Rows) {
        let x = &*x;
        self.rows(tokens.len(), &|row| {
            // SAFETY: each row is worked once.
            let out = unsafe { x.part(row, 0..x.width) };
            table.row(tokens[row] as usize, out);
        });
    }

    /// Normalises rows and prepares them for linear layers: row `i` of the result is row
    /// `chosen(i)`.
    #[expect(clippy::too_many_arguments, reason = "an operation's operands")]
    pub fn normalise(
        &mut self,
        x: &Rows,
        rows: usize,
        chosen: &(dyn Fn(usize) -> usize + Sync),
        weight: &[f32],
        epsilon: f32,
        normed: &mut Rows,
        activations: &mut Activations,
        forms: &[Form],
        flags: &Flags,
    ) {
        let (isa, normed, activations) = (self.isa, &*normed, &*activations);
        self.rows(rows, &|row| {
            let from = chosen(row);
            // SAFETY: the machine has `isa`; nobody writes `x`; each row is worked once.
            unsafe {
                let out = normed.part(row, 0..x.width);
                flags.note(from, rows::rms_norm(isa, x.row(from), weight, epsilon, out));
                for form in forms {
                    flags.note(from, activations.write(isa, *form, out, row, rows));
                }
            }
        });
    }

    /// Prepares rows for a linear layer as they are.
    pub fn prepare(
        &mut self,
        x: &Rows,
        rows: usize,
        activations: &mut Activations,
        form: Form,
        flags: &Flags,
    ) {
        let (isa, activations) = (self.isa, &*activations);
        self.rows(rows, &|row| {
            // SAFETY: the machine has `isa`; nobody writes `x`; each row is worked once.
            let finite = unsafe { activations.write(isa, form, x.row(row), row, rows) };
            flags.note(row, finite);
        });
    }

    /// Queries, keys and values: the queries rotated in `out`, the keys rotated and the values
    /// stored in the pool.
    #[expect(clippy::too_many_arguments, reason = "an operation's operands")]
    pub fn queries_keys_values(
        &mut self,
        matrices: [&PackedMatrix; 3],
        activations: &Activations,
        layer: usize,
        places: &Places<'_>,
        tables: &RopeTables,
        out: &mut Rows,
        kv: &mut KvPool,
        flags: &Flags,
    ) {
        let (isa, rows, out, kv) = (self.isa, places.positions.len(), &*out, &*kv);
        let ends = [
            matrices[0].tiles(),
            matrices[0].tiles() + matrices[1].tiles(),
        ];
        let firsts = [
            0,
            matrices[0].outputs(),
            matrices[0].outputs() + matrices[1].outputs(),
        ];
        let tiles = ends[1] + matrices[2].tiles();
        let head_dim = kv.shape().head_dim;
        self.pool.share(tiles, self.tile_grain(tiles), &|_, range| {
            for tile in range {
                let (part, tile) = match tile {
                    t if t < ends[0] => (0, t),
                    t if t < ends[1] => (1, t - ends[0]),
                    t => (2, t - ends[1]),
                };
                let output = out.output(rows, firsts[part]);
                let first = firsts[part] + tile * TILE;
                let (head, dim) = (tile * TILE / head_dim, tile * TILE % head_dim);
                // SAFETY: the machine has `isa`; tiles are disjoint, each is worked once, and so are
                // its elements in the pool, which attention reads only after this round.
                unsafe {
                    linear(
                        isa,
                        matrices[part],
                        tile..tile + 1,
                        activations,
                        rows,
                        output,
                    );
                    for row in 0..rows {
                        let x = out.part(row, first..first + TILE);
                        if part < 2 {
                            let position = places.positions[row] as usize;
                            let (cos, sin) = tables.part(position, dim..dim + TILE);
                            rows::rope(isa, x, cos, sin);
                        }
                        let slot = places.slots[row] as usize;
                        flags.note(
                            row,
                            match part {
                                0 => true,
                                1 => kv.store_key(layer, slot, head, dim, x),
                                _ => kv.store_value(layer, slot, head, dim, x),
                            },
                        );
                    }
                }
            }
        });
    }

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
        let splits = places.pieces.iter().map(Piece::splits).max().unwrap_or(0);
        let scratch = &self.scratch;
        let locked = |thread: usize| {
            scratch[thread]
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if splits < 2 || items > self.partials.items || splits > self.partials.splits {
            return self.pool.share(items, 1, &|thread, range| {
                let scratch = &mut *locked(thread);
                for index in range {
                    // SAFETY: each item is worked once; the rest is as `item` says.
                    unsafe { attention::attend(work.isa, kv, work.item(index), scratch) };
                }
            });
        }
        // Too few items to keep the threads busy: splits are parted as well, and merged after.
        let partials = &self.partials;
        self.pool.share(items * splits, 1, &|thread, range| {
            let scratch = &mut *locked(thread);
            for (index, split) in range.map(|i| (i / splits, i % splits)) {
                let item = work.item(index);
                if split < work.piece(index).splits() {
                    let partial = partials.at(index, split);
                    // SAFETY: each split of each item is worked once.
                    unsafe {
                        attention::attend_split(work.isa, kv, item, scratch, split, partial);
                    }
                }
            }
        });
        self.pool.share(items, 1, &|thread, range| {
            let scratch = &mut *locked(thread);
            for index in range {
                let (item, partial) = (work.item(index), partials.at(index, 0));
                // SAFETY: each item is worked once; its partials were written in the last round.
                unsafe {
                    attention::merge_splits(work.isa, kv, item, scratch, partial, partials.len);
                }
            }
        });
    }

    /// A linear layer whose results are added to `x`; `room` takes them in between.
    pub fn linear_add(
        &mut self,
        matrix: &PackedMatrix,
        activations: &Activations,
        rows: usize,
        room: &mut Rows,
        x: &mut Rows,
    ) {
        let (isa, room, x) = (self.isa, &*room, &*x);
        let tiles = matrix.tiles();
        self.pool.share(tiles, self.tile_grain(tiles), &|_, range| {
            let outputs = range.start * TILE..matrix.outputs().min(range.end * TILE);
            // SAFETY: the machine has `isa`; tiles are disjoint, and each is worked once.
            unsafe {
                linear(isa, matrix, range, activations, rows, room.output(rows, 0));
                for row in 0..rows {
                    let y = room.part(row, outputs.clone());
                    rows::add(isa, x.part(row, outputs.clone()), y);
                }
            }
        });
    }

    /// The gated half of a feed-forward layer: `silu(gate) * up`, left in `gate`.
    pub fn gate_up(
        &mut self,
        matrices: [&PackedMatrix; 2],
        activations: &Activations,
        rows: usize,
        gate: &mut Rows,
        up: &mut Rows,
    ) {
        let (isa, gate, up) = (self.isa, &*gate, &*up);
        let tiles = matrices[0].tiles();
        assert_eq!(matrices[0].outputs(), matrices[1].outputs());
        self.pool.share(tiles, self.tile_grain(tiles), &|_, range| {
            let outputs = range.start * TILE..matrices[0].outputs().min(range.end * TILE);
            // SAFETY: the machine has `isa`; tiles are disjoint, and each is worked once.
            unsafe {
                for (matrix, out) in matrices.into_iter().zip([gate, up]) {
                    linear(
                        isa,
                        matrix,
                        range.clone(),
                        activations,
                        rows,
                        out.output(rows, 0),
                    );
                }
                for row in 0..rows {
                    let up = up.part(row, outputs.clone());
                    rows::silu_mul(isa, gate.part(row, outputs.clone()), up);
                }
            }
        });
    }

    /// A linear layer into rows that the caller owns, `matrix.outputs()` elements each.
    ///
    /// # Panics
    /// If `out` is not as long as the rows.
    pub fn linear(
        &mut self,
        matrix: &PackedMatrix,
        activations: &Activations,
        rows: usize,
        out: &mut [f32],
    ) {
        assert_eq!(out.len(), rows * matrix.outputs());
        let isa = self.isa;
        let output = Output {
            base: out.as_mut_ptr(),
            stride: matrix.outputs(),
        };
        let tiles = matrix.tiles();
        self.pool.share(tiles, self.tile_grain(tiles), &|_, range| {
            // SAFETY: the machine has `isa`; tiles are disjoint, and each is worked once.
            unsafe { linear(isa, matrix, range, activations, rows, output) };
        });
    }

    /// Flags the rows whose logits are not all finite: row `i` of them is row `rows[i]`'s.
    pub fn check_finite(&mut self, rows: &[u32], logits: &[f32], flags: &Flags) {
        let width = logits.len() / rows.len().max(1);
        self.rows(rows.len(), &|i| {
            let finite = |x: &f32| x.to_bits() << 1 < f32::INFINITY.to_bits() << 1;
            let all = logits[i * width..(i + 1) * width]
                .iter()
                .fold(true, |all, x| all & finite(x));
            flags.note(rows[i] as usize, all);
        });
    }
}
