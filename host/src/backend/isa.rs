//! The vector instruction sets that the CPU backend chooses among at run time.

use std::fmt;
use std::str::FromStr;

/// A set of vector instructions. All give the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust: runs anywhere.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 (F, BW, VL, DQ) with VNNI.
    Avx512,
}

impl Isa {
    /// Every set, the slowest first.
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// Whether this machine has it.
    #[cfg(target_arch = "x86_64")]
    pub fn available(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            Self::Avx512 => {
                Self::Avx2.available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
            }
        }
    }

    /// Whether this machine has it.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn available(self) -> bool {
        self == Self::Scalar
    }

    /// The fastest set that this machine has.
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
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.name() == text)
            .ok_or_else(|| format!("unknown instruction set {text:?}: scalar, avx2 or avx512"))
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

    #[test]
    fn the_best_set_is_available() {
        assert!(Isa::best().available());
    }
}
