//! When records reach the disk.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// How records reach the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalSync {
    /// When the operating system sees fit, and at the end: a crash of the machine may lose a tail.
    #[default]
    None,
    /// After so many records. After each one, a token can wait until its record is durable.
    Every(NonZeroU32),
}

impl JournalSync {
    /// After each record.
    pub const STEP: Self = Self::Every(NonZeroU32::MIN);
}

impl FromStr for JournalSync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "step" => Ok(Self::STEP),
            number => number.parse().map(Self::Every).map_err(|_| {
                format!("{text:?} is not a journal sync: use none, step, or a number of steps")
            }),
        }
    }
}

impl fmt::Display for JournalSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            &Self::STEP => f.write_str("step"),
            Self::Every(steps) => write!(f, "{steps}"),
        }
    }
}
