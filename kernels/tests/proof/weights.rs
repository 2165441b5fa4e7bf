//! Random matrices as a file has them, packed by the CPU backend, and what its reference makes of
//! them.

use lockstep::backend::cpu::pack::PackedMatrix;
use lockstep::backend::cpu::pool::Pool;
use lockstep::backend::{decode, reference};
use lockstep::gguf::GgmlType;
use lockstep_kernels::Format;

use crate::random::Random;

/// A matrix: its rows' bytes in the file's format.
pub(crate) struct Weights {
    ggml_type: GgmlType,
    inputs: usize,
    rows: Vec<Vec<u8>>,
}

impl Weights {
    pub(crate) fn random(format: Format, outputs: usize, inputs: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ggml_type = ggml_type(format);
        let blocks = inputs / ggml_type.block_len();
        let row =
            |random: &mut Random| (0..blocks).flat_map(|_| block(ggml_type, random)).collect();
        let rows = (0..outputs).map(|_| row(&mut random)).collect();
        Self {
            ggml_type,
            inputs,
            rows,
        }
    }

    /// Each row's bytes, as a file has them.
    pub(crate) fn file_rows(&self) -> (GgmlType, &[Vec<u8>]) {
        (self.ggml_type, &self.rows)
    }

    /// The bytes that a device gets.
    pub(crate) fn packed(&self, format: Format) -> Vec<u8> {
        let mut pool = Pool::new(1).expect("a thread");
        let bytes = self.rows.concat();
        let packed = PackedMatrix::pack(
            self.ggml_type,
            self.rows.len(),
            self.inputs,
            &bytes,
            &mut pool,
        )
        .expect("memory");
        assert_eq!(
            packed.bytes(),
            format.packed_bytes(self.rows.len(), self.inputs)
        );
        packed.as_slice().to_vec()
    }

    /// A row's elements.
    pub(crate) fn row(&self, row: usize) -> Vec<f32> {
        let mut out = vec![0.0; self.inputs];
        decode::row(self.ggml_type, &self.rows[row], &mut out);
        out
    }

    /// Each row times `x`.
    pub(crate) fn times(&self, x: &[f32]) -> Vec<f32> {
        self.rows
            .iter()
            .map(|row| reference::dot(self.ggml_type, row, x))
            .collect()
    }
}

fn ggml_type(format: Format) -> GgmlType {
    match format {
        Format::F32 => GgmlType::F32,
        Format::F16 => GgmlType::F16,
        Format::BF16 => GgmlType::BF16,
        Format::Q4_0 => GgmlType::Q4_0,
        Format::Q4_1 => GgmlType::Q4_1,
        Format::Q5_0 => GgmlType::Q5_0,
        Format::Q5_1 => GgmlType::Q5_1,
        Format::Q8_0 => GgmlType::Q8_0,
        Format::IQ4_NL => GgmlType::IQ4_NL,
        Format::MXFP4 => GgmlType::MXFP4,
        Format::Q2_K => GgmlType::Q2_K,
        Format::Q3_K => GgmlType::Q3_K,
        Format::Q4_K => GgmlType::Q4_K,
        Format::Q5_K => GgmlType::Q5_K,
        Format::Q6_K => GgmlType::Q6_K,
        Format::IQ4_XS => GgmlType::IQ4_XS,
    }
}

/// A block's bytes: random codes, but scales that are numbers.
fn block(ggml_type: GgmlType, random: &mut Random) -> Vec<u8> {
    match ggml_type {
        GgmlType::F32 => return random.edgy().to_le_bytes().to_vec(),
        GgmlType::BF16 => return random.edgy().to_le_bytes()[2..].to_vec(),
        _ => {}
    }
    let mut bytes: Vec<u8> = (0..ggml_type.block_bytes())
        .map(|_| random.below(256) as u8)
        .collect();
    let scales: &[usize] = match ggml_type {
        GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
        GgmlType::Q2_K => &[80, 82],
        GgmlType::Q3_K => &[108],
        GgmlType::Q6_K => &[208],
        GgmlType::MXFP4 => {
            // Powers of two as scales are; sometimes the least two, which are subnormal.
            bytes[0] = match random.below(16) {
                0 => random.below(2) as u8,
                _ => 110 + random.below(24) as u8,
            };
            &[]
        }
        _ => &[0],
    };
    for at in scales {
        bytes[*at..at + 2].copy_from_slice(&random.half().to_le_bytes());
    }
    bytes
}
