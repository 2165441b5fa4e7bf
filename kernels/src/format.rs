//! The packed weight formats that the kernels read, and their sizes.

/// Outputs of a tile.
const TILE: usize = 16;

/// A format of packed weights (the layout: `simd/src/matrix.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of GGUF's types")]
#[expect(non_camel_case_types, reason = "the names are those of GGUF's types")]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    IQ4_NL,
    MXFP4,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_XS,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::IQ4_NL,
        Self::MXFP4,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_XS,
    ];

    /// The part of the entries' names that stands for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::IQ4_NL => "iq4_nl",
            Self::MXFP4 => "mxfp4",
            Self::Q2_K => "q2_k",
            Self::Q3_K => "q3_k",
            Self::Q4_K => "q4_k",
            Self::Q5_K => "q5_k",
            Self::Q6_K => "q6_k",
            Self::IQ4_XS => "iq4_xs",
        }
    }

    /// Elements of a block of weights, and of the activations that meet it; 1 where the weights
    /// are dense and the activations are not quantised.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::IQ4_NL | Self::MXFP4 => 32,
            Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K | Self::IQ4_XS => 256,
        }
    }

    /// Whether activations that meet it are quantised.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// The rows that the linear kernel for a step of `rows` rows takes at once: what follows the
    /// `x` in its entry's name. The choice changes no bit.
    pub const fn rows_at_once(self, rows: u32) -> u32 {
        match rows {
            0 | 1 => 1,
            2..=8 => 8,
            _ if self.is_quantised() => 64,
            _ => 8,
        }
    }

    /// Bits of an element's code, and bytes of a block's scales for the outputs of a tile.
    const fn layout(self) -> (usize, usize) {
        match self {
            Self::F32 => (32, 0),
            Self::F16 | Self::BF16 => (16, 0),
            Self::Q4_0 | Self::IQ4_NL => (4, 32),
            Self::MXFP4 => (4, 16),
            Self::Q4_1 => (4, 64),
            Self::Q5_0 => (5, 32),
            Self::Q5_1 => (5, 64),
            Self::Q8_0 => (8, 32),
            Self::Q2_K => (2, 320),
            Self::Q3_K => (3, 288),
            Self::Q4_K => (4, 320),
            Self::Q5_K => (5, 320),
            Self::Q6_K => (6, 288),
            Self::IQ4_XS => (4, 160),
        }
    }

    /// Where the scales begin in a tile of rows of `inputs` elements, in bytes.
    pub const fn scales_offset(self, inputs: usize) -> usize {
        inputs * TILE * self.layout().0 / 8
    }

    /// Bytes of a tile of sixteen rows of `inputs` elements; a multiple of 64.
    pub const fn tile_bytes(self, inputs: usize) -> usize {
        let scales = inputs / self.block_len() * self.layout().1;
        (self.scales_offset(inputs) + scales).next_multiple_of(64)
    }

    /// Bytes of a packed matrix of `outputs` rows of `inputs` elements.
    pub const fn packed_bytes(self, outputs: usize, inputs: usize) -> usize {
        outputs.div_ceil(TILE) * self.tile_bytes(inputs)
    }
}
