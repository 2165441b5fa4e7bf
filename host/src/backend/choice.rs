//! What `--device` says.

use std::fmt;
use std::str::FromStr;

/// The greatest number that a device may have: more than any machine's.
const MAX_ORDINAL: u32 = 1023;

/// Where a model is to compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// On the first CUDA device, where a driver answers and the model is supported there; else on
    /// the CPU.
    #[default]
    Auto,
    /// On the CPU.
    Cpu,
    /// On the CUDA device of that number, or not at all.
    Cuda(u32),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbered = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits)?;
            (number <= MAX_ORDINAL).then_some(Self::Cuda(number))
        };
        let found = match text {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            _ => text.strip_prefix("cuda:").and_then(numbered),
        };
        found.ok_or_else(|| {
            format!(
                "{text:?} is no device: auto, cpu, cuda or cuda:N with N from 0 to {MAX_ORDINAL}"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for choice in [
            DeviceChoice::Auto,
            DeviceChoice::Cpu,
            DeviceChoice::Cuda(0),
            DeviceChoice::Cuda(99),
        ] {
            assert_eq!(choice.to_string().parse(), Ok(choice));
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "gpu",
            "CUDA",
            "cuda:",
            "cuda:x",
            "cuda:-1",
            "cuda:+1",
            "cuda: 1",
            "cuda:1024",
            "cuda:99999999999",
            "cuda:0 ",
            "cuda0",
            "cpu:0",
            "auto:0",
        ] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text:?}");
        }
    }
}
