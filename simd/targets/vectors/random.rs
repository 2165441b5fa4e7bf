//! Seeded inputs: ordinary numbers among subnormals, zeros of both signs and extreme scales.

use half::{bf16, f16};

use lockstep_simd::GgmlType;

/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// About -4 to 4.
    fn ordinary(&mut self) -> f32 {
        ((self.next() >> 40) as i32 - (1 << 23)) as f32 / (1 << 21) as f32
    }

    /// An activation, or a dense weight.
    pub(super) fn number(&mut self) -> f32 {
        let ordinary = self.ordinary();
        match self.next() % 16 {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(self.next() as u32 & 0x807f_ffff),
            3 => ordinary * 1e-30,
            4 => ordinary * 1e12,
            _ => ordinary,
        }
    }

    /// A number no greater than `limit`.
    pub(super) fn bounded(&mut self, limit: f32) -> f32 {
        self.number().clamp(-limit, limit)
    }

    fn scale(&mut self) -> f16 {
        match self.next() % 16 {
            0 => f16::from_bits(self.next() as u16 & 0x83ff),
            1 => f16::from_bits(0x8000),
            2 => f16::MAX,
            _ => f16::from_f32(self.ordinary() / 16.0),
        }
    }

    /// A block's bytes: any codes, but scales that are numbers.
    pub(super) fn block(&mut self, ggml_type: GgmlType, block: &mut [u8]) {
        block.fill_with(|| self.byte());
        let scales: &[usize] = match ggml_type {
            GgmlType::F32 => return block.copy_from_slice(&self.number().to_le_bytes()),
            GgmlType::BF16 => {
                let value = bf16::from_f32(self.number());
                return block.copy_from_slice(&value.to_le_bytes());
            }
            GgmlType::MXFP4 => {
                block[0] = [0, 1, 2, 120, 127, 130, 140][usize::from(block[0]) % 7];
                &[]
            }
            GgmlType::Q4_1 | GgmlType::Q5_1 | GgmlType::Q4_K | GgmlType::Q5_K => &[0, 2],
            GgmlType::Q2_K => &[80, 82],
            GgmlType::Q3_K => &[108],
            GgmlType::Q6_K => &[208],
            GgmlType::F16 | GgmlType::Q4_0 | GgmlType::Q5_0 | GgmlType::Q8_0 => &[0],
            GgmlType::IQ4_NL | GgmlType::IQ4_XS => &[0],
        };
        for &place in scales {
            block[place..place + 2].copy_from_slice(&self.scale().to_le_bytes());
        }
    }
}
