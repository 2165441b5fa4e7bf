//! The vector instruction sets that kernels are built for, and which of them a machine has.

use core::fmt;
use core::str::FromStr;

/// A set of vector instructions. All give the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: runs anywhere.
    Scalar,
    /// AVX2 with FMA and F16C (x86-64).
    Avx2,
    /// AVX-512 (F, BW, VL, DQ) with VNNI (x86-64).
    Avx512,
    /// NEON, the Advanced SIMD that every 64-bit Arm has.
    Neon,
    /// NEON with the dot products of bytes of Armv8.2 (`sdot`).
    NeonDotprod,
}

impl Isa {
    /// Every set; of those that one machine has, the slowest first.
    pub const ALL: [Self; 5] = [
        Self::Scalar,
        Self::Avx2,
        Self::Avx512,
        Self::Neon,
        Self::NeonDotprod,
    ];

    /// Whether this machine has it.
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    pub fn available(self) -> bool {
        use std::is_x86_feature_detected as has;
        match self {
            Self::Scalar => true,
            Self::Avx2 => has!("avx2") && has!("fma") && has!("f16c"),
            Self::Avx512 => {
                Self::Avx2.available()
                    && has!("avx512f")
                    && has!("avx512bw")
                    && has!("avx512vl")
                    && has!("avx512dq")
                    && has!("avx512vnni")
            }
            Self::Neon | Self::NeonDotprod => false,
        }
    }

    /// Whether this machine has it.
    #[cfg(all(feature = "std", target_arch = "aarch64", target_endian = "little"))]
    pub fn available(self) -> bool {
        use std::arch::is_aarch64_feature_detected as has;
        match self {
            Self::Scalar => true,
            Self::Neon => has!("neon"),
            Self::NeonDotprod => has!("neon") && has!("dotprod"),
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Whether this machine has it.
    #[cfg(all(
        feature = "std",
        not(target_arch = "x86_64"),
        not(all(target_arch = "aarch64", target_endian = "little"))
    ))]
    pub fn available(self) -> bool {
        self == Self::Scalar
    }

    /// The fastest set that this machine has.
    #[cfg(feature = "std")]
    pub fn best() -> Self {
        Self::ALL
            .into_iter()
            .rev()
            .find(|isa| isa.available())
            .unwrap_or(Self::Scalar)
    }

    /// Its name, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
            Self::NeonDotprod => "neon-dotprod",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.name() == text)
            .ok_or("unknown instruction set: scalar, avx2, avx512, neon or neon-dotprod")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
        assert!("sse".parse::<Isa>().is_err());
    }

    #[cfg(feature = "std")]
    #[test]
    fn the_best_set_is_available() {
        assert!(Isa::best().available());
    }
}
