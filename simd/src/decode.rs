//! Scalar decoding of GGUF's quantised blocks: the codes and scales as they are stored, and the
//! values they stand for.
//!
//! The layouts are those of ggml's `ggml-common.h`; the values are, bit for bit, those of the
//! `gguf` Python package's `dequantize`.

use half::{bf16, f16};

use crate::GgmlType;

mod kquants;

/// The most elements that a block has.
pub const MAX_BLOCK: usize = 256;
/// Elements that share a sub-scale in the finest of the formats.
pub const SUB: usize = 16;

/// The values of the IQ4 formats' codes.
pub const IQ4_VALUES: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
/// The values of MXFP4's codes, doubled, so that they are integers.
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// How a format's minimum enters a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Minimum {
    /// It has none.
    None,
    /// `value = d * int + min`.
    Added,
    /// `value = (d * scale) * int - (min * sub-minimum)`.
    Scaled,
}

/// A quantised block as it is stored, taken apart.
#[derive(Clone, Debug)]
pub struct Block {
    /// The code of each element; those after the block's length are 0.
    pub codes: [u8; MAX_BLOCK],
    /// The integer sub-scale of every 16 elements; 1 where the format has none.
    pub scales: [i8; SUB],
    /// The integer sub-minimum of every 16 elements; 0 where the format has none.
    pub mins: [u8; SUB],
    /// The scale.
    pub d: f32,
    /// The minimum, as [`Minimum`] says; 0 where the format has none.
    pub min: f32,
    /// The two above as they are stored, for formats that store them as f16.
    pub stored: [u16; 2],
}

impl Block {
    /// A block of zeros.
    pub const ZERO: Self = Self {
        codes: [0; MAX_BLOCK],
        scales: [1; SUB],
        mins: [0; SUB],
        d: 0.0,
        min: 0.0,
        stored: [0; 2],
    };

    /// Takes a block apart. `bytes` holds at least [`GgmlType::block_bytes`] of a quantised type;
    /// what is missing reads as zeros.
    pub fn decode(ggml_type: GgmlType, bytes: &[u8]) -> Self {
        let mut block = Self::ZERO;
        let at = |offset: usize| bytes.get(offset..).unwrap_or_default();
        match ggml_type {
            GgmlType::Q4_0 | GgmlType::IQ4_NL => {
                block.scale(bytes);
                nibbles(at(2), &mut block.codes[..32]);
            }
            GgmlType::Q4_1 => {
                block.scale(bytes);
                block.minimum(at(2));
                nibbles(at(4), &mut block.codes[..32]);
            }
            GgmlType::Q5_0 => {
                block.scale(bytes);
                nibbles(at(6), &mut block.codes[..32]);
                fifth_bits(at(2), &mut block.codes[..32]);
            }
            GgmlType::Q5_1 => {
                block.scale(bytes);
                block.minimum(at(2));
                nibbles(at(8), &mut block.codes[..32]);
                fifth_bits(at(4), &mut block.codes[..32]);
            }
            GgmlType::Q8_0 => {
                block.scale(bytes);
                // Excess-128, so that every format's codes are unsigned.
                for (code, byte) in block.codes[..32].iter_mut().zip(at(2)) {
                    *code = byte ^ 0x80;
                }
            }
            GgmlType::MXFP4 => {
                let exponent = bytes.first().copied().unwrap_or_default();
                block.d = e8m0_half(exponent);
                block.stored[0] = exponent.into();
                nibbles(at(1), &mut block.codes[..32]);
            }
            _ => kquants::decode(ggml_type, bytes, &mut block),
        }
        block
    }

    fn scale(&mut self, bytes: &[u8]) {
        self.stored[0] = u16_at(bytes, 0);
        self.d = f16::from_bits(self.stored[0]).to_f32();
    }

    fn minimum(&mut self, bytes: &[u8]) {
        self.stored[1] = u16_at(bytes, 0);
        self.min = f16::from_bits(self.stored[1]).to_f32();
    }
}

/// The integer that a code stands for.
pub const fn int(ggml_type: GgmlType, code: u8) -> i32 {
    match ggml_type {
        GgmlType::IQ4_NL | GgmlType::IQ4_XS => IQ4_VALUES[(code & 15) as usize] as i32,
        GgmlType::MXFP4 => MXFP4_VALUES[(code & 15) as usize] as i32,
        GgmlType::Q4_0 => code as i32 - 8,
        GgmlType::Q5_0 => code as i32 - 16,
        GgmlType::Q8_0 => code as i32 - 128,
        GgmlType::Q3_K => code as i32 - 4,
        GgmlType::Q6_K => code as i32 - 32,
        _ => code as i32,
    }
}

/// How a format's minimum enters a value.
pub const fn minimum(ggml_type: GgmlType) -> Minimum {
    match ggml_type {
        GgmlType::Q4_1 | GgmlType::Q5_1 => Minimum::Added,
        GgmlType::Q2_K | GgmlType::Q4_K | GgmlType::Q5_K => Minimum::Scaled,
        _ => Minimum::None,
    }
}

/// Decodes a row of any type into f32; `out` is as long as the row.
pub fn row(ggml_type: GgmlType, bytes: &[u8], out: &mut [f32]) {
    let pieces = bytes.chunks_exact(ggml_type.block_bytes());
    for (piece, values) in pieces.zip(out.chunks_mut(ggml_type.block_len())) {
        match ggml_type {
            GgmlType::F32 => values[0] = f32::from_bits(u32_at(piece, 0)),
            GgmlType::F16 => values[0] = f16::from_bits(u16_at(piece, 0)).to_f32(),
            GgmlType::BF16 => values[0] = bf16::from_bits(u16_at(piece, 0)).to_f32(),
            _ => block_values(ggml_type, &Block::decode(ggml_type, piece), values),
        }
    }
}

/// The values of a block's elements.
pub fn block_values(ggml_type: GgmlType, block: &Block, values: &mut [f32]) {
    for (i, value) in values.iter_mut().enumerate() {
        let int = int(ggml_type, block.codes[i]) as f32;
        let scaled = (block.d * f32::from(block.scales[i / SUB])) * int;
        *value = match minimum(ggml_type) {
            Minimum::None => scaled,
            Minimum::Added => scaled + block.min,
            Minimum::Scaled => scaled - block.min * f32::from(block.mins[i / SUB]),
        };
    }
}

/// Half of an E8M0 scale, 2^(e - 128), exact down to the subnormals; 255 stands for no number.
pub fn e8m0_half(exponent: u8) -> f32 {
    f32::from_bits((u32::from(exponent) << 23).max(0x0040_0000)) * 0.5
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    match bytes.get(offset..offset + 2) {
        Some(&[low, high]) => u16::from_le_bytes([low, high]),
        _ => 0,
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from(u16_at(bytes, offset)) | u32::from(u16_at(bytes, offset + 2)) << 16
}

/// The first half of the codes are low nibbles, the second half high ones.
fn nibbles(bytes: &[u8], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(codes.len() / 2);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

fn fifth_bits(bytes: &[u8], codes: &mut [u8]) {
    let bits = u32_at(bytes, 0);
    for (i, code) in codes.iter_mut().enumerate() {
        *code |= ((bits >> i & 1) as u8) << 4;
    }
}
