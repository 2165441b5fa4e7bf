//! The operations of a decoder on the CPU: each one a round of the thread pool.
//!
//! Work is parted by outputs, rows or heads, never along a sum: so who computes what is chance and
//! changes no bit.

use std::io;
use std::ops::Range;
use std::sync::Mutex;

use lockstep_simd::activations::GROUP;
use lockstep_simd::linear::{self as kernel, Output};
use lockstep_simd::rows;

use super::activations::{Activations, Form};
use super::attention::Scratch;
use super::kv::KvPool;
use super::pack::PackedMatrix;
use super::pool::{Pool, region};
use crate::backend::Isa;

mod attend;
mod buffers;

pub use attend::{AttentionShape, Piece, Places, partial_floats};
pub use buffers::{Flags, RopeTables, Rows};

use attend::Partials;

/// Outputs of a tile.
const TILE: usize = 16;
/// Up to so many rows, row-wise work is done at once instead of being shared.
const FEW_ROWS: usize = 2;

/// The CPU: an instruction set and threads.
#[derive(Debug)]
pub struct Cpu {
    isa: Isa,
    pool: Pool,
    scratch: Vec<Mutex<Scratch>>,
    partials: Partials,
}

/// Multiplies `rows` rows of prepared activations with the outputs of a range of tiles, and asks for the
/// weights that the thread reads `next`; those after the range, where none are named.
///
/// # Safety
/// The machine has `isa`; nobody writes the activations meanwhile; the output has room for the rows at
/// the tiles' outputs, and nobody else touches it there.
///
/// # Panics
/// If the activations have no room for such rows.
pub(super) unsafe fn linear(
    isa: Isa,
    matrix: &PackedMatrix,
    tiles: Range<usize>,
    activations: &Activations,
    rows: usize,
    output: Output,
    next: Option<*const u8>,
) {
    let form = Form::of(matrix.ggml_type());
    let activations = activations.base(form, rows, matrix.inputs());
    // SAFETY: the activations have room for the rows; the rest is as the caller says.
    unsafe { kernel::linear(isa, matrix.matrix(), tiles, activations, rows, output, next) };
}

/// Where a thread of `threads` reads after the last of its region of `tiles`, `end` being behind what
/// it works now: its region's beginning in the product that follows, whose matrices are `following`.
/// `None` if more of the region comes, or nothing follows.
fn place_after(
    threads: usize,
    thread: usize,
    tiles: usize,
    end: usize,
    following: &[&PackedMatrix],
) -> Option<*const u8> {
    if end != region(tiles, thread, threads).end {
        return None;
    }
    let all = following.iter().map(|matrix| matrix.tiles()).sum();
    let mut tile = region(all, thread, threads).start;
    for matrix in following {
        match matrix.place(tile) {
            None => tile -= matrix.tiles(),
            place => return place,
        }
    }
    None
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

        let scratch = || Mutex::new(Scratch::new(shape.group, shape.head_dim));
        Ok(Self {
            isa,
            pool: Pool::new(threads)?,
            scratch: (0..threads.max(1)).map(|_| scratch()).collect(),
            partials: Partials::new(threads, positions, shape)?,
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
        let grain = match rows {
            ..=FEW_ROWS => FEW_ROWS,
            // Whole groups, whose rows are neighbours in memory.
            _ => (rows / (4 * self.pool.threads()) / GROUP * GROUP).clamp(1, GROUP),
        };
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
    /// stored in the pool. The product that `following` matrices are for comes next.
    #[expect(clippy::too_many_arguments, reason = "an operation's operands")]
    pub fn queries_keys_values(
        &mut self,
        matrices: [&PackedMatrix; 3],
        following: &[&PackedMatrix],
        activations: &Activations,
        layer: usize,
        places: &Places<'_>,
        tables: &RopeTables,
        out: &mut Rows,
        kv: &mut KvPool,
        flags: &Flags,
    ) {
        let (isa, rows, out, kv) = (self.isa, places.positions.len(), &*out, &*kv);
        let tiles = matrices.map(PackedMatrix::tiles);
        let outputs = matrices.map(PackedMatrix::outputs);
        let starts = [0, tiles[0], tiles[0] + tiles[1]];
        let firsts = [0, outputs[0], outputs[0] + outputs[1]];
        let head_dim = kv.shape().head_dim;
        let finish = |part: usize, tile: usize| {
            let first = firsts[part] + tile * TILE;
            let (head, dim) = (tile * TILE / head_dim, tile * TILE % head_dim);
            for row in 0..rows {
                // SAFETY: the machine has `isa`; each tile is worked once, and so are its elements in
                // the pool, which attention reads only after this round.
                let finite = unsafe {
                    let x = out.part(row, first..first + TILE);
                    if part < 2 {
                        let position = places.positions[row] as usize;
                        let (cos, sin) = tables.part(position, dim..dim + TILE);
                        rows::rope(isa, x, cos, sin);
                    }
                    let slot = places.slots[row] as usize;
                    match (part, x.as_array()) {
                        (1, Some(x)) => kv.store_key(isa, layer, slot, head, dim, x),
                        (2, Some(x)) => kv.store_value(isa, layer, slot, head, dim, x),
                        _ => true,
                    }
                };
                flags.note(row, finite);
            }
        };
        let all = starts[2] + tiles[2];
        let threads = self.pool.threads();
        let work = |thread: usize, range: Range<usize>| {
            let next = place_after(threads, thread, all, range.end, following);
            for (part, matrix) in matrices.into_iter().enumerate() {
                let from = range.start.max(starts[part]) - starts[part];
                let to = range.end.saturating_sub(starts[part]).min(tiles[part]);
                let output = out.output(rows, firsts[part]);
                if from < to {
                    // SAFETY: the machine has `isa`; tiles are disjoint, each is worked once.
                    unsafe { linear(isa, matrix, from..to, activations, rows, output, next) };
                    (from..to).for_each(|tile| finish(part, tile));
                }
            }
        };
        self.pool.share(all, self.tile_grain(all), &work);
    }

    /// A linear layer whose results are added to `x`. The product that `following` matrices are for
    /// comes next.
    pub fn linear_add(
        &mut self,
        matrix: &PackedMatrix,
        following: &[&PackedMatrix],
        activations: &Activations,
        rows: usize,
        x: &mut Rows,
    ) {
        let isa = self.isa;
        let output = Output {
            add: true,
            ..x.output(rows, 0)
        };
        let tiles = matrix.tiles();
        let threads = self.pool.threads();
        let work = |thread: usize, range: Range<usize>| {
            let next = place_after(threads, thread, tiles, range.end, following);
            // SAFETY: the machine has `isa`; tiles are disjoint, and each is worked once.
            unsafe { linear(isa, matrix, range, activations, rows, output, next) };
        };
        self.pool.share(tiles, self.tile_grain(tiles), &work);
    }

    /// The gated half of a feed-forward layer: `silu(gate) * up`, left in `gate`. The
    /// product that `following` matrices are for comes next.
    pub fn gate_up(
        &mut self,
        matrices: [&PackedMatrix; 2],
        following: &[&PackedMatrix],
        activations: &Activations,
        rows: usize,
        gate: &mut Rows,
        up: &mut Rows,
    ) {
        let (isa, gate, up) = (self.isa, &*gate, &*up);
        let tiles = matrices[0].tiles();
        assert_eq!(matrices[0].outputs(), matrices[1].outputs());
        let threads = self.pool.threads();
        let work = |thread: usize, range: Range<usize>| {
            let outputs = range.start * TILE..matrices[0].outputs().min(range.end * TILE);
            let after = place_after(threads, thread, tiles, range.end, following);
            let next = [
                matrices[1].place(range.start),
                after.or(matrices[0].place(range.end)),
            ];
            // SAFETY: the machine has `isa`; tiles are disjoint, and each is worked once.
            unsafe {
                for i in 0..2 {
                    let output = [gate, up][i].output(rows, 0);
                    let (matrix, tiles) = (matrices[i], range.clone());
                    linear(isa, matrix, tiles, activations, rows, output, next[i]);
                }
                for row in 0..rows {
                    let up = up.part(row, outputs.clone());
                    rows::silu_mul(isa, gate.part(row, outputs.clone()), up);
                }
            }
        };
        self.pool.share(tiles, self.tile_grain(tiles), &work);
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
            add: false,
        };
        let tiles = matrix.tiles();
        self.pool.share(tiles, self.tile_grain(tiles), &|_, range| {
            // SAFETY: the machine has `isa`; tiles are disjoint, and each is worked once.
            unsafe { linear(isa, matrix, range, activations, rows, output, None) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::GgmlType;

    #[test]
    fn a_region_is_followed_by_the_threads_own_in_the_next_product() {
        let mut pool = Pool::new(1).expect("threads");
        let mut packed = |tiles: usize| {
            let bytes = vec![0; tiles * TILE * GgmlType::Q8_0.block_bytes()];
            let (outputs, inputs) = (tiles * TILE, GgmlType::Q8_0.block_len());
            PackedMatrix::pack(GgmlType::Q8_0, outputs, inputs, &bytes, &mut pool).expect("memory")
        };
        let (a, b) = (packed(4), packed(3));
        let after =
            |thread, end, following: &[&PackedMatrix]| place_after(2, thread, 10, end, following);
        assert_eq!(after(0, 4, &[&a]), None, "more of the region comes");
        assert_eq!(after(0, 5, &[&a, &b]), a.place(0));
        assert_eq!(after(1, 10, &[&a, &b]), a.place(3));
        assert_eq!(after(1, 10, &[&b, &a]), a.place(0));
        assert_eq!(after(1, 10, &[&b]), b.place(1));
        assert_eq!(after(1, 10, &[]), None);
    }
}
