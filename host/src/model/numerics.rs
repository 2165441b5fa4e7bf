//! The profile of the numerics contract that a model is computed under.

use std::fmt;
use std::str::FromStr;

use super::NUMERICS_VERSION;

/// The version of the `fast` profile.
pub const FAST_VERSION: &str = "fast-1";

/// A profile of the numerics contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numerics {
    /// The same bits on every machine.
    #[default]
    Portable,
    /// Linear layers by 16-bit tensor cores: the same bits on one kind of GPU, whatever the batch.
    Fast,
}

impl Numerics {
    /// The version of the contract that results computed on `device` fulfil. That of `fast` holds
    /// the device's name, since other devices give other bits.
    pub fn version(self, device: &str) -> String {
        match self {
            Self::Portable => NUMERICS_VERSION.to_owned(),
            Self::Fast => format!("{FAST_VERSION}/{device}"),
        }
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Fast => "fast",
        })
    }
}

impl FromStr for Numerics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "portable" => Ok(Self::Portable),
            "fast" => Ok(Self::Fast),
            _ => Err(format!("{text:?} are no numerics: portable or fast")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_others_are_refused() {
        for numerics in [Numerics::Portable, Numerics::Fast] {
            assert_eq!(numerics.to_string().parse(), Ok(numerics));
        }
        for text in ["", "Fast", "fast-1", "fast ", "portable-1"] {
            assert!(text.parse::<Numerics>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_the_fast_profile_names_the_device() {
        assert_eq!(Numerics::Portable.version("a GPU"), "portable-1");
        assert_eq!(Numerics::Fast.version("a GPU"), "fast-1/a GPU");
    }
}
