//! Linear layers of every format: one row and many, tiles that are full and one that is not, one
//! segment and several.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use lockstep_simd::activations::{Form, bytes_of, write_row};
use lockstep_simd::linear::{Output, linear};
use lockstep_simd::matrix::{Matrix, pack_tile, tile_bytes};
use lockstep_simd::{GgmlType, Isa, WIDTH, decode, reference};

use super::random::Random;
use super::{Digest, Lines, Path};

/// Outputs, inputs in units of the longest of a step and the format's block, rows.
const SHAPES: [(usize, usize, usize); 6] = [
    (1, 1, 1),
    (16, 2, 8),
    (17, 3, 9),
    (33, 5, 1),
    (5, 17, 7),
    (50, 4, 23),
];

pub(super) fn run(lines: &mut Lines<'_>) -> fmt::Result {
    for ggml_type in GgmlType::ALL {
        for (i, (outputs, units, rows)) in SHAPES.into_iter().enumerate() {
            let inputs = units * ggml_type.block_len().max(32);
            let mut random = Random(u64::from(ggml_type.id()) << 32 | i as u64);
            let layer = Layer::random(&mut random, ggml_type, outputs, inputs, rows);
            let found = match lines.path {
                Path::Reference => layer.reference(),
                Path::Kernels(isa) => layer.kernels(isa),
            };
            let digest = Digest::of(&found);
            lines.put(
                format_args!("linear {ggml_type} {outputs} x {inputs}, {rows} rows"),
                digest,
            )?;
        }
    }
    Ok(())
}

struct Layer {
    ggml_type: GgmlType,
    outputs: usize,
    inputs: usize,
    bytes: Vec<u8>,
    rows: Vec<Vec<f32>>,
}

/// A cache line, for its alignment.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "only its place is used")] [u8; 64]);

impl Layer {
    fn random(
        random: &mut Random,
        ggml_type: GgmlType,
        outputs: usize,
        inputs: usize,
        rows: usize,
    ) -> Self {
        let blocks = outputs * inputs / ggml_type.block_len();
        let mut bytes = vec![0; blocks * ggml_type.block_bytes()];
        for block in bytes.chunks_exact_mut(ggml_type.block_bytes()) {
            random.block(ggml_type, block);
        }
        let row = |_| (0..inputs).map(|_| random.number()).collect();
        Self {
            ggml_type,
            outputs,
            inputs,
            bytes,
            rows: (0..rows).map(row).collect(),
        }
    }

    fn row_bytes(&self) -> usize {
        self.bytes.len() / self.outputs
    }

    /// Every row's products, then every weight.
    fn reference(&self) -> Vec<f32> {
        let mut out = Vec::with_capacity((self.rows.len() + self.inputs) * self.outputs);
        for x in &self.rows {
            for weights in self.bytes.chunks_exact(self.row_bytes()) {
                out.push(reference::dot(self.ggml_type, weights, x));
            }
        }
        for weights in self.bytes.chunks_exact(self.row_bytes()) {
            let mut values = vec![0.0; self.inputs];
            decode::row(self.ggml_type, weights, &mut values);
            out.extend(values);
        }
        out
    }

    /// The same.
    fn kernels(&self, isa: Isa) -> Vec<f32> {
        let packed = self.pack();
        let matrix = Matrix::new(self.ggml_type, self.outputs, self.inputs, &packed);
        let (form, rows) = (Form::of(self.ggml_type), self.rows.len());
        let mut room = vec![Line([0; 64]); bytes_of(form, rows, self.inputs).div_ceil(64)];
        let base = room.as_mut_ptr().cast();
        let mut out = vec![f32::NAN; rows * self.outputs];
        let output = Output {
            base: out.as_mut_ptr(),
            stride: self.outputs,
            add: false,
        };
        // SAFETY: the machine has `isa`; everything is as large as the shapes say.
        unsafe {
            for (row, x) in self.rows.iter().enumerate() {
                assert!(write_row(isa, form, x, base, row, rows), "finite rows");
            }
            linear(isa, matrix, 0..matrix.tiles(), base, rows, output, None);
        }
        for row in 0..self.outputs {
            let mut values = vec![0.0; self.inputs];
            matrix.row(row, &mut values);
            out.extend(values);
        }
        out
    }

    fn pack(&self) -> Vec<u8> {
        let size = tile_bytes(self.ggml_type, self.inputs).expect("small");
        let mut packed = vec![0; size * self.outputs.div_ceil(WIDTH)];
        let rows = self.bytes.chunks(WIDTH * self.row_bytes());
        for (rows, tile) in rows.zip(packed.chunks_exact_mut(size)) {
            pack_tile(self.ggml_type, rows, self.row_bytes(), tile);
        }
        packed
    }
}
