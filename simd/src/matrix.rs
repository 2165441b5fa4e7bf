//! Packed weights: tiles of sixteen outputs, interleaved, in about the file's size.
//!
//! A tile holds sixteen rows of the matrix. Quantised tiles are, for every 32 elements of the rows,
//! bit planes of the codes; then the scales. In a plane vector `j` of eight holds elements
//! `4 j..4 j + 4` of each of the sixteen outputs, so that one instruction multiplies four elements
//! of sixteen outputs. Dense tiles hold for every element its sixteen weights.

use half::f16;

use crate::GgmlType;
use crate::decode::{self, Block, MAX_BLOCK, Minimum, SUB};
use crate::lanes::WIDTH;

/// Elements that one step of a quantised kernel covers.
pub(crate) const STEP: usize = 32;
/// Bytes of one bit of every code of a tile's step.
const PLANE: usize = STEP * WIDTH / 8;

/// How a type is laid out in a tile.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bits of a code in the lower plane: 8, 4 or 2; 0 for dense types.
    low: u32,
    /// Bits of a code in the upper plane: 0, 1 or 2.
    high: u32,
    /// Bytes of the scales of a block of a tile.
    scales: usize,
}

/// How `ggml_type` is laid out.
const fn layout(ggml_type: GgmlType) -> Layout {
    let (low, high, scales) = match ggml_type {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => (0, 0, 0),
        GgmlType::Q4_0 | GgmlType::IQ4_NL => (4, 0, 32),
        GgmlType::Q4_1 => (4, 0, 64),
        GgmlType::Q5_0 => (4, 1, 32),
        GgmlType::Q5_1 => (4, 1, 64),
        GgmlType::Q8_0 => (8, 0, 32),
        GgmlType::MXFP4 => (4, 0, 16),
        GgmlType::Q2_K => (2, 0, 64 + 256),
        GgmlType::Q3_K => (2, 1, 32 + 256),
        GgmlType::Q4_K => (4, 0, 64 + 128 + 128),
        GgmlType::Q5_K => (4, 1, 64 + 128 + 128),
        GgmlType::Q6_K => (4, 2, 32 + 256),
        GgmlType::IQ4_XS => (4, 0, 32 + 128),
    };
    Layout { low, high, scales }
}

/// A matrix of packed weights, `outputs` rows of `inputs` elements.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    ggml_type: GgmlType,
    outputs: usize,
    inputs: usize,
    bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// Bytes that a matrix takes when packed; `None` where that exceeds the address space.
    pub fn packed_bytes(ggml_type: GgmlType, outputs: usize, inputs: usize) -> Option<usize> {
        tile_bytes(ggml_type, inputs)?.checked_mul(outputs.div_ceil(WIDTH))
    }

    /// The matrix whose tiles [`pack_tile`] wrote one after the other into `bytes`.
    ///
    /// # Panics
    /// If `bytes` is not as long as the shape says.
    pub fn new(ggml_type: GgmlType, outputs: usize, inputs: usize, bytes: &'a [u8]) -> Self {
        let size = Self::packed_bytes(ggml_type, outputs, inputs);
        assert!(size == Some(bytes.len()), "a matrix of another size");
        Self {
            ggml_type,
            outputs,
            inputs,
            bytes,
        }
    }

    /// The type of the weights.
    pub const fn ggml_type(self) -> GgmlType {
        self.ggml_type
    }

    /// Rows of the matrix.
    pub const fn outputs(self) -> usize {
        self.outputs
    }

    /// Elements of a row.
    pub const fn inputs(self) -> usize {
        self.inputs
    }

    /// Tiles of sixteen rows, the last one filled up with zeros.
    pub const fn tiles(self) -> usize {
        self.outputs.div_ceil(WIDTH)
    }

    /// Decodes one row into f32, as [`decode::row`] decodes it from the file; `out` is as long as the
    /// row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(self, output: usize, out: &mut [f32]) {
        let size = self.bytes.len() / self.tiles();
        let tile = &self.bytes[output / WIDTH * size..][..size];
        let (quants, scales) = tile.split_at(scales_offset(self.ggml_type, self.inputs));
        let (block_len, lane) = (self.ggml_type.block_len(), output % WIDTH);
        if !self.ggml_type.is_quantised() {
            let size = self.ggml_type.block_bytes();
            let elements = quants.chunks_exact(size).skip(lane).step_by(WIDTH);
            for (element, out) in elements.zip(out) {
                decode::row(self.ggml_type, element, core::slice::from_mut(out));
            }
            return;
        }
        for (i, out) in out.chunks_mut(block_len).enumerate() {
            let block = unpack_block(self.ggml_type, lane, i, quants, scales);
            decode::block_values(self.ggml_type, &block, out);
        }
    }

    /// Where tile `tile` begins.
    ///
    /// # Panics
    /// If there is none.
    pub fn place(self, tile: usize) -> *const u8 {
        self.tile(tile).quants
    }

    pub(crate) fn tile(self, tile: usize) -> Tile {
        let size = self.bytes.len() / self.tiles();
        let bytes = &self.bytes[tile * size..(tile + 1) * size];
        Tile {
            quants: bytes.as_ptr(),
            scales: bytes[scales_offset(self.ggml_type, self.inputs)..].as_ptr(),
            size,
            next: bytes.as_ptr_range().end,
        }
    }
}

/// How far ahead of its reads a kernel asks for weights, in bytes. Measured: more gains nothing, less
/// leaves reads waiting for memory; a first-level cache holds it beside the activations.
const AHEAD: usize = 12 << 10;

/// Where the parts of a tile begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) quants: *const u8,
    pub(crate) scales: *const u8,
    /// Its bytes.
    size: usize,
    /// What is read after the tile; need not be valid.
    pub(crate) next: *const u8,
}

impl Tile {
    /// What is to be asked for when a kernel has read `offset` bytes: the tile and what follows it
    /// are one stream, since the hardware's own prefetching starts anew with every page and would
    /// take codes and scales for two streams.
    #[inline(always)]
    pub(crate) fn ahead(&self, offset: usize) -> *const u8 {
        let ahead = offset + AHEAD;
        match ahead < self.size {
            true => self.quants.wrapping_add(ahead),
            false => self.next.wrapping_add(ahead - self.size),
        }
    }
}

/// Packs the rows of one tile, at most sixteen of them one after the other in `rows`, into zeroed
/// bytes: tile `i` of a matrix stands `i` times [`tile_bytes`] after its beginning.
///
/// # Panics
/// If `out` is shorter than a tile of these rows.
pub fn pack_tile(ggml_type: GgmlType, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    match ggml_type.is_quantised() {
        true => pack_quantised(ggml_type, rows, row_bytes, out),
        false => pack_dense(ggml_type, rows, row_bytes, out),
    }
}

/// Bytes of a tile; `None` where that exceeds the address space.
pub fn tile_bytes(ggml_type: GgmlType, inputs: usize) -> Option<usize> {
    // Below this no product in these functions overflows.
    if inputs > usize::MAX >> 12 {
        return None;
    }
    let scales = inputs / ggml_type.block_len() * layout(ggml_type).scales;
    Some((scales_offset(ggml_type, inputs) + scales).next_multiple_of(64))
}

const fn scales_offset(ggml_type: GgmlType, inputs: usize) -> usize {
    let layout = layout(ggml_type);
    match ggml_type.is_quantised() {
        true => inputs / STEP * PLANE * (layout.low + layout.high) as usize,
        false => inputs * WIDTH * ggml_type.block_bytes(),
    }
}

fn pack_dense(ggml_type: GgmlType, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let size = ggml_type.block_bytes();
    for (output, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (k, element) in row.chunks_exact(size).enumerate() {
            let place = (k * WIDTH + output) * size;
            out[place..place + size].copy_from_slice(element);
        }
    }
}

fn pack_quantised(ggml_type: GgmlType, rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let layout = layout(ggml_type);
    let (block_len, block_bytes) = (ggml_type.block_len(), ggml_type.block_bytes());
    let inputs = row_bytes / block_bytes * block_len;
    let (quants, scales) = out.split_at_mut(scales_offset(ggml_type, inputs));
    let step_bytes = PLANE * (layout.low + layout.high) as usize;
    for (output, row) in rows.chunks_exact(row_bytes).enumerate() {
        for (i, bytes) in row.chunks_exact(block_bytes).enumerate() {
            let block = Block::decode(ggml_type, bytes);
            let steps = &mut quants[i * block_len / STEP * step_bytes..];
            let codes = block.codes[..block_len].chunks_exact(STEP);
            for (codes, step) in codes.zip(steps.chunks_exact_mut(step_bytes)) {
                pack_codes(layout, output, codes, step);
            }
            let scales = &mut scales[i * layout.scales..(i + 1) * layout.scales];
            pack_scales(ggml_type, output, &block, scales);
        }
    }
}

/// Spreads the 32 codes of one output over the planes of its step.
fn pack_codes(layout: Layout, output: usize, codes: &[u8], step: &mut [u8]) {
    let (low, high) = step.split_at_mut(PLANE * layout.low as usize);
    for (k, code) in codes.iter().enumerate() {
        put_bits(low, layout.low, output, k, *code);
        if layout.high > 0 {
            put_bits(high, layout.high, output, k, code >> layout.low);
        }
    }
}

/// Writes `bits` bits of element `k`: vectors of a plane hold their parts of the eight groups of
/// four elements one above the other.
fn put_bits(plane: &mut [u8], bits: u32, output: usize, k: usize, code: u8) {
    let vectors = bits as usize;
    let (group, byte) = (k / 4, k % 4);
    let (vector, shift) = (group % vectors, group / vectors * vectors);
    let mask = ((1_u16 << bits) - 1) as u8;
    plane[vector * 64 + output * 4 + byte] |= (code & mask) << shift;
}

fn pack_scales(ggml_type: GgmlType, output: usize, block: &Block, out: &mut [u8]) {
    let mut put = |offset: usize, bytes: &[u8]| {
        out[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    let [d, min] = block.stored;
    if ggml_type == GgmlType::MXFP4 {
        return put(output, &[d as u8]);
    }
    put(output * 2, &d.to_le_bytes());
    match ggml_type {
        GgmlType::Q4_1 | GgmlType::Q5_1 => put(32 + output * 2, &min.to_le_bytes()),
        GgmlType::Q2_K => {
            put(32 + output * 2, &min.to_le_bytes());
            for sub in 0..SUB {
                let both = block.scales[sub] as u8 | block.mins[sub] << 4;
                put(64 + sub * WIDTH + output, &[both]);
            }
        }
        GgmlType::Q4_K | GgmlType::Q5_K => {
            put(32 + output * 2, &min.to_le_bytes());
            for sub in 0..SUB / 2 {
                put(64 + sub * WIDTH + output, &[block.scales[2 * sub] as u8]);
                put(192 + sub * WIDTH + output, &[block.mins[2 * sub]]);
            }
        }
        GgmlType::Q3_K | GgmlType::Q6_K => {
            for sub in 0..SUB {
                put(32 + sub * WIDTH + output, &[block.scales[sub] as u8]);
            }
        }
        GgmlType::IQ4_XS => {
            for sub in 0..SUB / 2 {
                put(32 + sub * WIDTH + output, &[block.scales[2 * sub] as u8]);
            }
        }
        _ => {}
    }
}

fn bits_at(plane: &[u8], bits: u32, output: usize, k: usize) -> u8 {
    let vectors = bits as usize;
    let (group, byte) = (k / 4, k % 4);
    let (vector, shift) = (group % vectors, group / vectors * vectors);
    plane[vector * 64 + output * 4 + byte] >> shift & ((1_u16 << bits) - 1) as u8
}

/// Block `i` of one output of a tile, taken back out of it.
fn unpack_block(
    ggml_type: GgmlType,
    output: usize,
    i: usize,
    quants: &[u8],
    scales: &[u8],
) -> Block {
    let (layout, block_len) = (layout(ggml_type), ggml_type.block_len());
    let step_bytes = PLANE * (layout.low + layout.high) as usize;
    let mut block = Block::ZERO;
    for k in 0..block_len {
        let step = &quants[(i * block_len + k) / STEP * step_bytes..][..step_bytes];
        let (low, high) = step.split_at(PLANE * layout.low as usize);
        block.codes[k] = bits_at(low, layout.low, output, k % STEP);
        if layout.high > 0 {
            block.codes[k] |= bits_at(high, layout.high, output, k % STEP) << layout.low;
        }
    }
    let scales = &scales[i * layout.scales..(i + 1) * layout.scales];
    unpack_scales(ggml_type, output, scales, &mut block);
    block
}

fn unpack_scales(ggml_type: GgmlType, output: usize, scales: &[u8], block: &mut Block) {
    if ggml_type == GgmlType::MXFP4 {
        block.d = decode::e8m0_half(scales[output]);
        return;
    }
    let half = |offset: usize| {
        let place = offset + output * 2;
        f16::from_le_bytes([scales[place], scales[place + 1]]).to_f32()
    };
    let byte = |offset: usize, sub: usize| scales[offset + sub * WIDTH + output];
    block.d = half(0);
    if decode::minimum(ggml_type) != Minimum::None {
        block.min = half(32);
    }
    for sub in 0..SUB {
        let (scale, min) = match ggml_type {
            GgmlType::Q2_K => (byte(64, sub) & 15, byte(64, sub) >> 4),
            GgmlType::Q4_K | GgmlType::Q5_K => (byte(64, sub / 2), byte(192, sub / 2)),
            GgmlType::Q3_K | GgmlType::Q6_K => (byte(32, sub), 0),
            GgmlType::IQ4_XS => (byte(32, sub / 2), 0),
            _ => (1, 0),
        };
        block.scales[sub] = scale as i8;
        block.mins[sub] = min;
    }
}

const _: () = assert!(MAX_BLOCK == SUB * SUB);
