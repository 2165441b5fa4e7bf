//! Random packed matrices, and what their elements are.

use lockstep_kernels::Format;

use crate::random::Random;
use crate::reference::{self, half_to_f32};

const TILE: usize = 16;
const STEP: usize = 32;

/// A block of one row, taken apart.
#[derive(Clone, Debug)]
struct Block {
    codes: Vec<u8>,
    /// Sub-scales and sub-minimums of every 16 or 32 elements.
    scales: Vec<i32>,
    mins: Vec<i32>,
    d: u16,
    min: u16,
}

/// A matrix in the packed layout.
pub(crate) struct Weights {
    pub(crate) format: Format,
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    /// Blocks of each row; empty where dense.
    blocks: Vec<Vec<Block>>,
    /// Elements of each row as they are stored; empty where quantised.
    dense: Vec<Vec<u32>>,
}

/// How a format is made: bits of the two planes, what a code exceeds its integer by, elements of a
/// sub-block, and whether there is a minimum.
fn traits(format: Format) -> (u32, u32, i32, usize, bool) {
    match format {
        Format::Q4_0 => (4, 0, 8, 0, false),
        Format::Q4_1 => (4, 0, 0, 0, true),
        Format::Q5_0 => (4, 1, 16, 0, false),
        Format::Q5_1 => (4, 1, 0, 0, true),
        Format::Q8_0 => (8, 0, 128, 0, false),
        Format::Q4_K => (4, 0, 0, 32, true),
        Format::Q5_K => (4, 1, 0, 32, true),
        Format::Q6_K => (4, 2, 32, 16, false),
        Format::F32 | Format::F16 | Format::BF16 => (0, 0, 0, 0, false),
    }
}

impl Weights {
    pub(crate) fn random(format: Format, outputs: usize, inputs: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (mut blocks, mut dense) = (Vec::new(), Vec::new());
        for _ in 0..outputs {
            if format.block_len() == 1 {
                dense.push((0..inputs).map(|_| element(format, &mut random)).collect());
            } else {
                let count = inputs / format.block_len();
                blocks.push((0..count).map(|_| block(format, &mut random)).collect());
            }
        }
        Self {
            format,
            outputs,
            inputs,
            blocks,
            dense,
        }
    }

    /// Packed as the CPU backend does at load.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let tile_bytes = self.format.tile_bytes(self.inputs);
        let mut out = vec![0; self.format.packed_bytes(self.outputs, self.inputs)];
        for row in 0..self.outputs {
            let tile = &mut out[row / TILE * tile_bytes..][..tile_bytes];
            if self.dense.is_empty() {
                self.pack_quantised(row, tile);
            } else {
                let size = if self.format == Format::F32 { 4 } else { 2 };
                for (k, bits) in self.dense[row].iter().enumerate() {
                    let place = (k * TILE + row % TILE) * size;
                    tile[place..place + size].copy_from_slice(&bits.to_le_bytes()[..size]);
                }
            }
        }
        out
    }

    fn pack_quantised(&self, row: usize, tile: &mut [u8]) {
        let (low, high, ..) = traits(self.format);
        let (length, output) = (self.format.block_len(), row % TILE);
        let (quants, scales) = tile.split_at_mut(self.format.scales_offset(self.inputs));
        let step_bytes = STEP * TILE / 8 * (low + high) as usize;
        let scale_bytes = scales.len() / (self.inputs / length);
        for (i, block) in self.blocks[row].iter().enumerate() {
            for (k, code) in block.codes.iter().enumerate() {
                let step = &mut quants[(i * length + k) / STEP * step_bytes..][..step_bytes];
                let (low_plane, high_plane) = step.split_at_mut(64 * low as usize);
                put(low_plane, low, output, k % STEP, *code);
                if high > 0 {
                    put(high_plane, high, output, k % STEP, code >> low);
                }
            }
            let scale_bytes = match self.format {
                Format::Q4_K | Format::Q5_K => 320,
                Format::Q6_K => 288,
                Format::Q4_1 | Format::Q5_1 => 64,
                _ => 32.min(scale_bytes),
            };
            pack_scales(block, self.format, output, &mut scales[i * scale_bytes..]);
        }
    }

    /// Element `k` of a row as a float.
    pub(crate) fn element(&self, row: usize, k: usize) -> f32 {
        if let Some(row) = self.dense.get(row) {
            return dense_value(self.format, row[k]);
        }
        let (_, _, excess, sub, _) = traits(self.format);
        let length = self.format.block_len();
        let block = &self.blocks[row][k / length];
        let integer = (i32::from(block.codes[k % length]) - excess) as f32;
        let (d, min) = (half_to_f32(block.d), half_to_f32(block.min));
        match self.format {
            Format::Q4_1 | Format::Q5_1 => d * integer + min,
            Format::Q4_K | Format::Q5_K => {
                let sub = k % length / sub;
                d * block.scales[sub] as f32 * integer - min * block.mins[sub] as f32
            }
            Format::Q6_K => d * block.scales[k % length / sub] as f32 * integer,
            _ => d * integer,
        }
    }

    /// Rules 2 to 4: one row times `x`.
    pub(crate) fn dot(&self, row: usize, x: &[f32]) -> f32 {
        let length = self.format.block_len();
        let segments = x.chunks(reference::SEGMENT).enumerate();
        reference::sum_segments(segments.map(|(segment, x)| {
            let first = segment * reference::SEGMENT;
            if let Some(row) = self.dense.get(row) {
                let pairs = row[first..].iter().zip(x);
                let chain =
                    |acc: f32, (w, x): (&u32, &f32)| dense_value(self.format, *w).mul_add(*x, acc);
                return pairs.fold(0.0, chain);
            }
            let blocks = self.blocks[row][first / length..]
                .iter()
                .zip(x.chunks(length));
            blocks.fold(0.0, |acc, (block, x)| self.step(block, x, acc))
        }))
    }

    /// Rule 2: one block's part of the chain.
    fn step(&self, block: &Block, x: &[f32], acc: f32) -> f32 {
        let (_, _, excess, sub, _) = traits(self.format);
        let (dx, q) = reference::quantise(x);
        let (d, min) = (half_to_f32(block.d), half_to_f32(block.min));
        let (mut int, mut low) = (0, 0);
        for (k, (code, q)) in block.codes.iter().zip(&q).enumerate() {
            let scale = if sub == 0 { 1 } else { block.scales[k / sub] };
            let minimum = if block.mins.is_empty() {
                1
            } else {
                block.mins[k / sub]
            };
            int += scale * (i32::from(*code) - excess) * i32::from(*q);
            low += minimum * i32::from(*q);
        }
        let acc = (d * dx).mul_add(int as f32, acc);
        match self.format {
            Format::Q4_1 | Format::Q5_1 => min.mul_add(dx * low as f32, acc),
            Format::Q4_K | Format::Q5_K => (-min * dx).mul_add(low as f32, acc),
            _ => acc,
        }
    }
}

fn put(plane: &mut [u8], bits: u32, output: usize, k: usize, code: u8) {
    let vectors = bits as usize;
    let (group, byte) = (k / 4, k % 4);
    let (vector, shift) = (group % vectors, group / vectors * vectors);
    let mask = ((1_u16 << bits) - 1) as u8;
    plane[vector * 64 + output * 4 + byte] |= (code & mask) << shift;
}

fn pack_scales(block: &Block, format: Format, output: usize, out: &mut [u8]) {
    let (.., has_minimum) = traits(format);
    out[output * 2..output * 2 + 2].copy_from_slice(&block.d.to_le_bytes());
    if has_minimum {
        out[32 + output * 2..34 + output * 2].copy_from_slice(&block.min.to_le_bytes());
    }
    let at = if has_minimum { 64 } else { 32 };
    for (sub, scale) in block.scales.iter().enumerate() {
        out[at + sub * TILE + output] = *scale as u8;
    }
    for (sub, min) in block.mins.iter().enumerate() {
        out[192 + sub * TILE + output] = *min as u8;
    }
}

fn element(format: Format, random: &mut Random) -> u32 {
    match format {
        Format::F32 => random.edgy().to_bits(),
        Format::BF16 => random.edgy().to_bits() >> 16,
        _ => u32::from(random.half()),
    }
}

fn dense_value(format: Format, bits: u32) -> f32 {
    match format {
        Format::F32 => f32::from_bits(bits),
        Format::BF16 => f32::from_bits(bits << 16),
        _ => half_to_f32(bits as u16),
    }
}

fn block(format: Format, random: &mut Random) -> Block {
    let (low, high, _, sub, has_minimum) = traits(format);
    let length = format.block_len();
    let subs = length.checked_div(sub).unwrap_or(0);
    // Sub-scales: six unsigned bits, or eight signed.
    let scale = |random: &mut Random| {
        if has_minimum {
            random.below(64) as i32
        } else {
            random.below(256) as i32 - 128
        }
    };
    Block {
        codes: (0..length)
            .map(|_| random.below(1 << (low + high)) as u8)
            .collect(),
        scales: (0..subs).map(|_| scale(random)).collect(),
        mins: (0..if has_minimum { subs } else { 0 })
            .map(|_| random.below(64) as i32)
            .collect(),
        d: random.half(),
        min: if has_minimum { random.half() } else { 0 },
    }
}
