//! Why a model cannot be loaded.

use std::fmt;

use crate::gguf::{GgmlType, GgufError};

/// Why a model cannot be loaded. Nothing of it was kept.
#[derive(Debug)]
pub enum ModelError {
    /// The file is damaged, or a metadata value has the wrong type.
    File(GgufError),
    /// The architecture is not supported.
    Architecture {
        /// What the file says.
        found: String,
    },
    /// A metadata key is missing.
    MissingKey {
        /// Its name.
        key: String,
    },
    /// A metadata value is outside what is supported.
    BadValue {
        /// The name of its key.
        key: String,
        /// What it is.
        found: String,
        /// What would be supported.
        expected: String,
    },
    /// A tensor is missing.
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape than the metadata asks for.
    BadShape {
        /// Its name.
        name: String,
        /// Its dimensions, the length of a row first.
        found: Vec<u64>,
        /// The dimensions that it should have.
        expected: Vec<u64>,
    },
    /// A tensor has a type that it may not have.
    BadType {
        /// Its name.
        name: String,
        /// Its type.
        found: GgmlType,
        /// What would be supported.
        expected: &'static str,
    },
    /// The file has a tensor that this architecture has no use for: computing without it would give
    /// wrong answers.
    UnknownTensor {
        /// Its name.
        name: String,
    },
    /// An option is outside its range.
    BadOption {
        /// Its name.
        option: &'static str,
        /// What it is.
        found: u64,
        /// What it may be.
        expected: &'static str,
    },
    /// The machine does not have the instruction set that was asked for.
    NoIsa {
        /// Its name.
        isa: super::Isa,
    },
    /// The device is not there, or failed: its own message.
    Device(String),
    /// There is no device such as was asked for.
    NoDevice {
        /// What asked for it: a flag and its value.
        asked: String,
        /// Why there is none.
        reason: Box<ModelError>,
        /// What would do without.
        instead: &'static str,
    },
    /// The device's memory has no room for the model and one sequence, or for so many blocks.
    DeviceMemory {
        /// The KV blocks that were asked for; `None` where one sequence would have been enough.
        blocks: Option<u32>,
        /// Bytes that may be used.
        allowed: u64,
        /// Bytes that are needed.
        needed: u64,
    },
    /// The `fast` numerics were asked for without a GPU.
    NeedsGpu,
    /// The system gave no memory or threads.
    System {
        /// For what.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Architecture { found } => {
                write!(
                    f,
                    "architecture {found:?} is not supported: only \"llama\" is"
                )
            }
            Self::MissingKey { key } => write!(f, "the file has no metadata key {key:?}"),
            Self::BadValue {
                key,
                found,
                expected,
            } => write!(f, "{key} is {found}: supported is {expected}"),
            Self::MissingTensor { name } => write!(f, "the file has no tensor {name:?}"),
            Self::BadShape {
                name,
                found,
                expected,
            } => write!(
                f,
                "tensor {name:?} has the shape {found:?} where the metadata asks for {expected:?}"
            ),
            Self::BadType {
                name,
                found,
                expected,
            } => write!(
                f,
                "tensor {name:?} is of type {found}: supported is {expected}"
            ),
            Self::UnknownTensor { name } => write!(
                f,
                "tensor {name:?} has no place in a llama model: its file needs what is not supported"
            ),
            Self::BadOption {
                option,
                found,
                expected,
            } => write!(f, "{option} is {found}: it may be {expected}"),
            Self::NeedsGpu => f.write_str(
                "the numerics \"fast\" need the tensor cores of a GPU: a CPU computes \"portable\" only",
            ),
            Self::NoIsa { isa } => write!(f, "this machine does not have the {isa} instructions"),
            Self::Device(message) => f.write_str(message),
            Self::NoDevice {
                asked,
                reason,
                instead,
            } => write!(f, "no GPU for {asked} ({instead} needs none): {reason}"),
            Self::DeviceMemory {
                blocks,
                allowed,
                needed,
            } => memory(f, *blocks, *allowed, *needed),
            Self::System { what, source } => write!(f, "no {what}: {source}"),
        }
    }
}

fn memory(
    f: &mut fmt::Formatter<'_>,
    blocks: Option<u32>,
    allowed: u64,
    needed: u64,
) -> fmt::Result {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (allowed, needed) = (mib(allowed), mib(needed));
    match blocks {
        Some(blocks) => write!(
            f,
            "the model and {blocks} KV blocks need {needed:.1} MiB of the device's memory, and {allowed:.1} MiB are free: \
             see --num-blocks and --max-num-batched-tokens"
        ),
        None => write!(
            f,
            "the model and one sequence of the greatest length need {needed:.1} MiB of the device's memory, and \
             {allowed:.1} MiB may be used: see --max-model-len, --max-num-batched-tokens and --gpu-memory-utilization"
        ),
    }
}

impl std::error::Error for ModelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<GgufError> for ModelError {
    fn from(error: GgufError) -> Self {
        Self::File(error)
    }
}
