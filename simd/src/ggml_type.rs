//! The tensor types of ggml that have a place here: their numbers and the sizes of their blocks.

/// A tensor's element type. The layouts are those of ggml's `ggml-common.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(
    non_camel_case_types,
    reason = "the field writes these names with underscores"
)]
pub enum GgmlType {
    /// 32-bit IEEE 754.
    F32,
    /// 16-bit IEEE 754.
    F16,
    /// The upper half of an [`F32`](Self::F32).
    BF16,
    /// 4 bits and a scale.
    Q4_0,
    /// 4 bits, a scale and a minimum.
    Q4_1,
    /// 5 bits and a scale.
    Q5_0,
    /// 5 bits, a scale and a minimum.
    Q5_1,
    /// 8 bits and a scale.
    Q8_0,
    /// K-quant of 2 bits.
    Q2_K,
    /// K-quant of 3 bits.
    Q3_K,
    /// K-quant of 4 bits.
    Q4_K,
    /// K-quant of 5 bits.
    Q5_K,
    /// K-quant of 6 bits.
    Q6_K,
    /// 4 bits through a fixed table, and a scale.
    IQ4_NL,
    /// [`IQ4_NL`](Self::IQ4_NL) in blocks of 256 with 6-bit sub-scales.
    IQ4_XS,
    /// OCP microscaling: E2M1 elements with a shared power-of-two scale.
    MXFP4,
}

impl GgmlType {
    /// Every type, in the order of the variants.
    pub const ALL: [Self; 16] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::MXFP4,
    ];

    /// The type with this number in ggml, if it is one of these.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.id() == id)
    }

    /// Its number in ggml and in the file.
    pub const fn id(self) -> u32 {
        self.row().0
    }

    /// Its name as ggml prints it.
    pub const fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements in a block; 1 where there are no blocks.
    pub const fn block_len(self) -> usize {
        self.row().2
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Whether elements are grouped in blocks that share a scale.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }

    /// (id, name, elements in a block, bytes in a block).
    const fn row(self) -> (u32, &'static str, usize, usize) {
        match self {
            Self::F32 => (0, "F32", 1, 4),
            Self::F16 => (1, "F16", 1, 2),
            Self::BF16 => (30, "BF16", 1, 2),
            Self::Q4_0 => (2, "Q4_0", 32, 18),
            Self::Q4_1 => (3, "Q4_1", 32, 20),
            Self::Q5_0 => (6, "Q5_0", 32, 22),
            Self::Q5_1 => (7, "Q5_1", 32, 24),
            Self::Q8_0 => (8, "Q8_0", 32, 34),
            Self::Q2_K => (10, "Q2_K", 256, 84),
            Self::Q3_K => (11, "Q3_K", 256, 110),
            Self::Q4_K => (12, "Q4_K", 256, 144),
            Self::Q5_K => (13, "Q5_K", 256, 176),
            Self::Q6_K => (14, "Q6_K", 256, 210),
            Self::IQ4_NL => (20, "IQ4_NL", 32, 18),
            Self::IQ4_XS => (23, "IQ4_XS", 256, 136),
            Self::MXFP4 => (39, "MXFP4", 32, 17),
        }
    }
}

impl core::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
