//! Cases of the `fast` kernels: one step and less, a segment and a bit, more segments than a block
//! has warps; a tile and one output more, more outputs and rows than a block has.

use lockstep_kernels::{Format, Shape, fast_linear, reads_rounded};

use super::rules::{self, Kind, Rounded};
use crate::case::{Case, Value, bytes_of_f32, in_f32, out_f32, written};
use crate::random::Random;
use crate::weights::Weights;

/// The formats that have tensor-core kernels.
pub(crate) fn formats() -> impl Iterator<Item = Format> {
    Format::ALL
        .into_iter()
        .filter(|format| fast_linear(*format, 1).is_some())
}

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for (kind, name) in [
        (Kind::Half, "fast_round_f16"),
        (Kind::Brain, "fast_round_bf16"),
    ] {
        // The greatest anywhere: in each warp's part, in a thread's second turn.
        let shapes = [
            (1, 1),
            (45, 5),
            (46, 1),
            (64, 2),
            (576, 2),
            (1024, 64),
            (2049, 2),
            (2081, 1),
        ];
        for (inputs, rows) in shapes {
            out.push(round_case(name, kind, inputs, rows));
        }
    }
    for format in formats() {
        for shape in narrow_shapes(format) {
            out.push(Layer::new(format, shape).case(1));
        }
        for shape in wide_shapes(format) {
            out.push(Layer::new(format, shape).case(u32::MAX));
        }
    }
    out
}

/// Outputs, inputs, rows.
pub(crate) type Size = (usize, usize, usize);

pub(super) fn narrow_shapes(format: Format) -> Vec<Size> {
    let block = format.block_len();
    let ragged = if block == 1 { 45 } else { block };
    let mut out = vec![
        (17, block, 3),
        (16, ragged, 8),
        (3, 512 + ragged, 11),
        (17, 512 * 8 + block, 1),
        (48, 512, 16),
    ];
    out.extend(
        lengths(format)
            .filter(|inputs| *inputs < 16_384)
            .map(|inputs| (17, inputs, 1)),
    );
    out
}

/// Of dense weights, ends in either half of a step, without padding behind them, in the first steps
/// and later. Tiles without padding; rows so long that a byte too much in each block is not lost in it.
fn lengths(format: Format) -> impl Iterator<Item = usize> {
    let lengths: &[usize] = match format.block_len() {
        1 => &[46, 54, 64, 174, 182],
        32 => &[64, 192],
        _ => &[512, 16_384],
    };
    lengths.iter().copied()
}

pub(super) fn wide_shapes(format: Format) -> Vec<Size> {
    let block = format.block_len();
    let ragged = if block == 1 { 45 } else { block };
    let mut out = vec![
        (17, block, 3),
        (33, ragged, 9),
        (20, 512 + ragged, 5),
        (145, if block == 256 { 256 } else { 128 + ragged }, 66),
        (16, block, 64),
        (17, if block == 1 { 7 } else { block }, 131),
    ];
    out.extend(lengths(format).map(|inputs| (33, inputs, 1)));
    // The last row, and the last output, is each that a lane may have.
    let outputs = if block == 1 {
        [3, 9, 17, 25]
    } else {
        [1, 2, 17, 18]
    };
    let rows = (0..64).step_by(8).flat_map(|row| [row + 3, row + 4]);
    out.extend(
        rows.zip(outputs.into_iter().cycle())
            .map(|(rows, outputs)| (outputs, ragged, rows)),
    );
    out
}

fn round_case(entry: &str, kind: Kind, inputs: usize, rows: usize) -> Case {
    let mut random = Random::new((inputs * 3 + rows) as u64);
    let mut x = random.activations(rows * inputs);
    // The greatest of a row anywhere in it, with what the others are multiplied with: one that is
    // too small to have a scale, and the least that is not.
    const GREATEST: [(f32, f32); 5] = [
        (f32::MAX, 1.0),
        (-1e-5, 1e-12),
        (7.888_608e-31, 1e-37),
        (7.888_609e-31, 1e-37),
        (5.0, 1.0),
    ];
    for (index, row) in x.chunks_mut(inputs).enumerate() {
        let (greatest, factor) = GREATEST[(index + inputs / 3 + rows) % GREATEST.len()];
        row.iter_mut().for_each(|x| *x *= factor);
        row[(index * 33 + inputs / 2) % inputs] = greatest;
    }
    let rounded: Vec<Rounded> = x.chunks(inputs).map(|x| rules::round(x, kind)).collect();
    let scales: Vec<f32> = rounded.iter().map(|r| r.scale).collect();
    let shape = Shape {
        rows: rows as u32,
        ..Shape::default()
    };
    let values = vec![
        in_f32(&x),
        Value::Out(written(bytes_of_rows(&rounded, kind))),
        out_f32(&scales),
        Value::U32(inputs as u32),
    ];
    Case::new(entry, format!("{rows} rows of {inputs}"), shape, values)
}

fn bytes_of_rows(rows: &[Rounded], kind: Kind) -> Vec<u8> {
    let stored = rows.iter().flat_map(|row| rules::stored(row, kind));
    stored.flat_map(u16::to_le_bytes).collect()
}

/// A layer with its rows, and what it gives.
pub(crate) struct Layer {
    pub(crate) format: Format,
    pub(crate) matrix: Weights,
    pub(crate) kind: Kind,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// The rows, before they are rounded.
    pub(crate) x: Vec<f32>,
    /// Each row's outputs.
    pub(crate) expected: Vec<Vec<f32>>,
}

impl Layer {
    pub(crate) fn new(format: Format, (outputs, inputs, rows): Size) -> Self {
        let seed = (outputs * 31 + inputs * 7 + rows) as u64;
        let matrix = Weights::random(format, outputs, inputs, seed);
        let kind = Kind::of(matrix.file_rows().0);
        let mut random = Random::new(seed + 1);
        let mut x = random.activations(rows * inputs);
        // The last elements count: they are all that some segments have.
        for row in x.chunks_mut(inputs) {
            let tail = inputs.saturating_sub(32);
            row[tail..].fill_with(|| random.float());
        }
        let weights = rules::weights(&matrix);
        let row = |x: &[f32]| -> Vec<f32> {
            let x = rules::round(x, kind);
            weights.iter().map(|w| rules::dot(w, &x)).collect()
        };
        let expected = x.chunks(inputs).map(row).collect();
        Self {
            format,
            matrix,
            kind,
            inputs,
            outputs,
            x,
            expected,
        }
    }

    /// All rows, by the kernel for so many.
    pub(crate) fn case(&self, kernel_for: u32) -> Case {
        self.case_of(kernel_for, &(0..self.expected.len()).collect::<Vec<_>>())
    }

    /// Some rows in some order, by the kernel for `kernel_for` rows.
    pub(crate) fn case_of(&self, kernel_for: u32, rows: &[usize]) -> Case {
        let entry = fast_linear(self.format, kernel_for).expect("it has kernels");
        let round =
            |row: &usize| rules::round(&self.x[row * self.inputs..][..self.inputs], self.kind);
        let rounded: Vec<Rounded> = rows.iter().map(round).collect();
        let scales: Vec<f32> = rounded.iter().map(|r| r.scale).collect();
        let expected: Vec<f32> = rows
            .iter()
            .flat_map(|row| self.expected[*row].clone())
            .collect();
        let shape = Shape {
            rows: rows.len() as u32,
            outputs: self.outputs as u32,
            inputs: self.inputs as u32,
            ..Shape::default()
        };
        let mut values = vec![
            Value::In(self.matrix.packed(self.format)),
            Value::In(bytes_of_rows(&rounded, self.kind)),
            Value::In(bytes_of_f32(&scales)),
            out_f32(&expected),
        ];
        values.extend([shape.outputs, shape.inputs, shape.rows].map(Value::U32));
        let name = format!("{} rows, {} x {}", rows.len(), self.outputs, self.inputs);
        debug_assert!(reads_rounded(self.format).is_some());
        Case {
            unread_copies: if kernel_for == 1 {
                0
            } else {
                self.unread_copies(rows.len())
            },
            ..Case::new(entry, name, shape, values)
        }
    }

    /// What the kernel for many rows copies for warps that have no output or no row: a warp has two
    /// tiles and 64 rows, a block four times and twice as much. Units of 16 bytes.
    fn unread_copies(&self, rows: usize) -> u64 {
        let steps = self.inputs.div_ceil(32);
        let scales = match self.format {
            Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => 32,
            Format::Q4_K | Format::Q5_K => 64 + 16 + 16,
            Format::Q6_K => 32 + 32,
            _ => 64,
        };
        let of_tile = if self.format.is_quantised() {
            steps * (self.format.scales_offset(32) + scales) / 16
        } else {
            // Elements beyond the last are not copied.
            self.inputs * 2
        };
        let tiles = self.outputs.div_ceil(16);
        let idle_tiles = 8 * tiles.div_ceil(8) - 2 * tiles.div_ceil(2);
        let idle_rows = 128 * rows.div_ceil(128) - 64 * rows.div_ceil(64);
        (idle_rows * steps * 4 * tiles.div_ceil(8) + idle_tiles * of_tile * rows.div_ceil(128))
            as u64
    }
}
