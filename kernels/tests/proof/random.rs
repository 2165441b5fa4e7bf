//! Random test data from a fixed seed: what a model has, and what breaks kernels.

/// A counter-based generator (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    /// A float of the magnitude that activations have.
    pub(crate) fn float(&mut self) -> f32 {
        (self.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0) * 3.0
    }

    /// Mostly [`float`](Self::float); also signed zeros, subnormals, and large and tiny values.
    pub(crate) fn edgy(&mut self) -> f32 {
        let x = self.float();
        match self.below(24) {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(self.below(1 << 23) as u32),
            3 => x * 1e6,
            4 => x * 1e-20,
            _ => x,
        }
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    /// The same, where each run of 32 may be all zeros, all tiny, or edgy.
    pub(crate) fn activations(&mut self, count: usize) -> Vec<f32> {
        let mut out = Vec::with_capacity(count);
        while out.len() < count {
            let kind = self.below(8);
            for _ in 0..32 {
                out.push(match kind {
                    0 => 0.0,
                    1 => f32::from_bits(self.below(1 << 26) as u32),
                    2 => self.edgy(),
                    _ => self.float(),
                });
            }
        }
        out.truncate(count);
        out
    }

    /// An f16 of a scale's magnitude, sometimes negative, zero or subnormal.
    pub(crate) fn half(&mut self) -> u16 {
        let sign = (self.below(2) << 15) as u16;
        match self.below(16) {
            0 => sign,
            1 => sign | self.below(1 << 10) as u16,
            _ => sign | (0x2000 + self.below(0x1400)) as u16,
        }
    }
}
