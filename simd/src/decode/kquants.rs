//! The formats with super-blocks of 256 elements.

use super::{Block, MAX_BLOCK, SUB, nibbles, u16_at};
use crate::GgmlType;

/// Takes a super-block apart; leaves the zeros of a type that has none.
pub(super) fn decode(ggml_type: GgmlType, bytes: &[u8], block: &mut Block) {
    let Some(bytes) = bytes.get(..ggml_type.block_bytes()) else {
        return;
    };
    match ggml_type {
        GgmlType::Q2_K => q2_k(bytes, block),
        GgmlType::Q3_K => q3_k(bytes, block),
        GgmlType::Q4_K => q45_k(bytes, None, &bytes[16..], block),
        GgmlType::Q5_K => q45_k(bytes, Some(&bytes[16..48]), &bytes[48..], block),
        GgmlType::Q6_K => q6_k(bytes, block),
        GgmlType::IQ4_XS => iq4_xs(bytes, block),
        _ => {}
    }
}

fn q2_k(bytes: &[u8], block: &mut Block) {
    block.scale(&bytes[80..]);
    block.minimum(&bytes[82..]);
    for (sub, byte) in bytes[..SUB].iter().enumerate() {
        block.scales[sub] = (byte & 15) as i8;
        block.mins[sub] = byte >> 4;
    }
    two_bits(&bytes[16..80], block);
}

/// Element `128 h + 32 j + l` is bits `2 j` of byte `32 h + l`.
fn two_bits(bytes: &[u8], block: &mut Block) {
    for (i, code) in block.codes.iter_mut().enumerate() {
        let (half, shift, l) = (i / 128, i % 128 / 32 * 2, i % 32);
        *code = bytes[32 * half + l] >> shift & 3;
    }
}

fn q3_k(bytes: &[u8], block: &mut Block) {
    block.scale(&bytes[108..]);
    two_bits(&bytes[32..96], block);
    for (i, code) in block.codes.iter_mut().enumerate() {
        *code |= (bytes[i % 32] >> (i / 32) & 1) << 2;
    }
    let packed = &bytes[96..108];
    for (sub, scale) in block.scales.iter_mut().enumerate() {
        let low = packed[sub % 8] >> (sub / 8 * 4) & 15;
        let high = packed[8 + sub % 4] >> (sub / 4 * 2) & 3;
        *scale = (low | high << 4) as i8 - 32;
    }
}

fn q45_k(bytes: &[u8], fifth: Option<&[u8]>, quants: &[u8], block: &mut Block) {
    block.scale(bytes);
    block.minimum(&bytes[2..]);
    for sub in 0..SUB {
        let (scale, min) = six_bit_pair(&bytes[4..16], sub / 2);
        block.scales[sub] = scale as i8;
        block.mins[sub] = min;
    }
    for (codes, quants) in block.codes.chunks_mut(64).zip(quants.chunks(32)) {
        nibbles(quants, codes);
    }
    let Some(fifth) = fifth else { return };
    for (i, code) in block.codes.iter_mut().enumerate() {
        *code |= (fifth[i % 32] >> (i / 32) & 1) << 4;
    }
}

/// Sub-scale and sub-minimum `sub` of eight, six bits each, from twelve bytes.
fn six_bit_pair(packed: &[u8], sub: usize) -> (u8, u8) {
    if sub < 4 {
        return (packed[sub] & 63, packed[sub + 4] & 63);
    }
    let both = packed[sub + 4];
    (
        both & 15 | packed[sub - 4] >> 6 << 4,
        both >> 4 | packed[sub] >> 6 << 4,
    )
}

fn q6_k(bytes: &[u8], block: &mut Block) {
    block.scale(&bytes[208..]);
    for (scale, &byte) in block.scales.iter_mut().zip(&bytes[192..208]) {
        *scale = byte as i8;
    }
    for i in 0..MAX_BLOCK {
        let (half, quarter, l) = (i / 128, i % 128 / 32, i % 32);
        let low = bytes[64 * half + quarter % 2 * 32 + l] >> (quarter / 2 * 4) & 15;
        let high = bytes[128 + 32 * half + l] >> (quarter * 2) & 3;
        block.codes[i] = low | high << 4;
    }
}

fn iq4_xs(bytes: &[u8], block: &mut Block) {
    block.scale(bytes);
    let high = u16_at(bytes, 2);
    for sub in 0..SUB {
        let pair = sub / 2;
        let low = bytes[4 + pair / 2] >> (pair % 2 * 4) & 15;
        block.scales[sub] = (low | ((high >> (2 * pair) & 3) as u8) << 4) as i8 - 32;
    }
    for (codes, quants) in block.codes.chunks_mut(32).zip(bytes[8..].chunks(16)) {
        nibbles(quants, codes);
    }
}
