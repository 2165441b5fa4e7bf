//! What can be wrong with a model file, one variant for each kind of damage.

use std::fmt;
use std::path::PathBuf;

/// Why a file is not a usable GGUF file. Offsets are in bytes from the start of the file.
#[derive(Debug)]
pub enum GgufError {
    /// The file could not be opened or mapped.
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path names a directory, a pipe or the like.
    NotRegularFile {
        /// The path.
        path: PathBuf,
    },
    /// The first four bytes are not `GGUF`.
    BadMagic {
        /// The bytes found, fewer than four if the file is shorter.
        found: Vec<u8>,
    },
    /// Another version of the format than 2 and 3, or a big-endian file.
    BadVersion {
        /// The version as read in little-endian order.
        found: u32,
    },
    /// The file ends inside something.
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it begins.
        offset: usize,
        /// Bytes it takes.
        needed: u64,
        /// Bytes left in the file.
        available: usize,
    },
    /// A count of things that cannot fit in the rest of the file.
    CountTooLarge {
        /// What is counted.
        what: &'static str,
        /// Where the count stands.
        offset: usize,
        /// The count.
        count: u64,
        /// The most that could fit.
        limit: u64,
    },
    /// A string is not UTF-8.
    BadUtf8 {
        /// What the string is.
        what: &'static str,
        /// Where its bytes begin.
        offset: usize,
    },
    /// A key or a tensor's name is empty or too long.
    BadNameLength {
        /// What the name is.
        what: &'static str,
        /// Where it stands.
        offset: usize,
        /// Its length in bytes.
        length: u64,
        /// The longest allowed.
        limit: u64,
    },
    /// A key or a tensor's name stands twice.
    Duplicate {
        /// What the name is.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A metadata value of an unknown type.
    BadValueType {
        /// Its key.
        key: String,
        /// Where the type stands.
        offset: usize,
        /// The type's number.
        type_id: u32,
    },
    /// A boolean that is neither 0 nor 1.
    BadBool {
        /// Where it stands.
        offset: usize,
        /// The byte.
        value: u8,
    },
    /// Arrays of arrays deeper than allowed.
    NestedTooDeep {
        /// Their key.
        key: String,
        /// Where the array too many begins.
        offset: usize,
        /// The depth allowed.
        limit: usize,
    },
    /// `general.alignment` is zero or not a power of two.
    BadAlignment {
        /// The value.
        value: u32,
    },
    /// A tensor has no dimension or more than four.
    BadRank {
        /// The tensor.
        name: String,
        /// Its number of dimensions.
        rank: u32,
    },
    /// One of a tensor's dimensions is zero.
    ZeroDimension {
        /// The tensor.
        name: String,
    },
    /// The product of a tensor's dimensions, or its size in bytes, does not fit in 64 bits.
    DimensionOverflow {
        /// The tensor.
        name: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },
    /// A tensor of a type that is unknown or has no kernel here.
    UnsupportedType {
        /// The tensor.
        name: String,
        /// The type's number in ggml.
        type_id: u32,
    },
    /// A row of a quantised tensor is not a whole number of blocks.
    PartialBlock {
        /// The tensor.
        name: String,
        /// Elements in a row.
        row: u64,
        /// Elements in a block of its type.
        block: u64,
    },
    /// A tensor's data begins off the file's alignment.
    Misaligned {
        /// The tensor.
        name: String,
        /// Its offset, from the start of the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u32,
    },
    /// A tensor's data reaches past the end of the file.
    OutOfFile {
        /// The tensor.
        name: String,
        /// Where its data begins, from the start of the data section.
        offset: u64,
        /// Bytes it takes.
        length: u64,
        /// Bytes in the data section.
        available: u64,
    },
    /// Two tensors claim the same bytes.
    Overlap {
        /// The tensor that begins first.
        first: String,
        /// The other.
        second: String,
    },
    /// The file is one part of a model in several files.
    Split {
        /// How many parts there are.
        parts: u32,
    },
    /// A key that is needed is not there.
    MissingKey {
        /// The key.
        key: String,
    },
    /// A value has another type than its key demands, or does not fit in it.
    WrongType {
        /// The key.
        key: String,
        /// What is demanded.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
}

impl GgufError {
    /// The error for a key that is needed and absent.
    pub fn missing(key: &str) -> Self {
        Self::MissingKey { key: key.into() }
    }
}

impl fmt::Display for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { .. }
            | Self::NotRegularFile { .. }
            | Self::BadMagic { .. }
            | Self::BadVersion { .. }
            | Self::Split { .. } => self.fmt_file(f),
            Self::BadRank { .. }
            | Self::ZeroDimension { .. }
            | Self::DimensionOverflow { .. }
            | Self::UnsupportedType { .. }
            | Self::PartialBlock { .. }
            | Self::Misaligned { .. }
            | Self::OutOfFile { .. }
            | Self::Overlap { .. } => self.fmt_tensor(f),
            _ => self.fmt_metadata(f),
        }
    }
}

// Names come from the file: `{:?}` keeps control characters out of terminals and logs.
impl GgufError {
    fn fmt_file(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { path, source } => {
                write!(f, "cannot open model file {}: {source}", path.display())
            }
            Self::NotRegularFile { path } => {
                write!(f, "{} is not a regular file", path.display())
            }
            Self::BadMagic { found } => {
                write!(
                    f,
                    "not a GGUF file: it begins with {found:02x?}, not with \"GGUF\""
                )
            }
            Self::BadVersion {
                found: found @ (0x0200_0000 | 0x0300_0000),
            } => {
                write!(
                    f,
                    "a big-endian GGUF file (version reads as {found}) is not supported"
                )
            }
            Self::BadVersion { found } => {
                write!(
                    f,
                    "GGUF version {found} is not supported (versions 2 and 3 are)"
                )
            }
            Self::Split { parts } => write!(
                f,
                "the file is one of {parts} parts of a split model; join them into one file first"
            ),
            _ => Ok(()),
        }
    }

    fn fmt_tensor(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadRank { name, rank } => {
                write!(
                    f,
                    "tensor {name:?} has {rank} dimensions (1 to 4 are allowed)"
                )
            }
            Self::ZeroDimension { name } => write!(f, "tensor {name:?} has a dimension of 0"),
            Self::DimensionOverflow { name, dims } => {
                write!(
                    f,
                    "the size of tensor {name:?}, {dims:?}, does not fit in 64 bits"
                )
            }
            Self::UnsupportedType { name, type_id } => match super::types::known_name(*type_id) {
                Some(known) => write!(
                    f,
                    "tensor {name:?} has type {known} (id {type_id}), which is not supported"
                ),
                None => write!(f, "tensor {name:?} has the unknown type id {type_id}"),
            },
            Self::PartialBlock { name, row, block } => write!(
                f,
                "tensor {name:?} has rows of {row} elements, not a multiple of its block of {block}"
            ),
            Self::Misaligned {
                name,
                offset,
                alignment,
            } => write!(
                f,
                "tensor {name:?} begins at offset {offset}, not a multiple of the alignment {alignment}"
            ),
            Self::OutOfFile {
                name,
                offset,
                length,
                available,
            } => write!(
                f,
                "tensor {name:?} takes {length} bytes at offset {offset}, \
                 but the file has {available} bytes of tensor data"
            ),
            Self::Overlap { first, second } => {
                write!(f, "tensors {first:?} and {second:?} overlap")
            }
            _ => Ok(()),
        }
    }

    fn fmt_metadata(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated {
                what,
                offset,
                needed,
                available,
            } => write!(
                f,
                "the file ends inside {what}: {needed} bytes needed at offset {offset}, {available} left"
            ),
            Self::CountTooLarge {
                what,
                offset,
                count,
                limit,
            } => write!(
                f,
                "{count} {what} (count at offset {offset}) cannot fit: the rest of the file holds at most {limit}"
            ),
            Self::BadUtf8 { what, offset } => {
                write!(f, "the {} at offset {offset} is not UTF-8", bare(what))
            }
            Self::BadNameLength {
                what,
                offset,
                length,
                limit,
            } => write!(
                f,
                "the {} at offset {offset} is {length} bytes long (1 to {limit} are allowed)",
                bare(what)
            ),
            Self::Duplicate { what, name } => write!(f, "the {} {name:?} stands twice", bare(what)),
            Self::BadValueType {
                key,
                offset,
                type_id,
            } => write!(
                f,
                "the value of {key:?} at offset {offset} has the unknown type id {type_id}"
            ),
            Self::BadBool { offset, value } => {
                write!(
                    f,
                    "the boolean at offset {offset} is {value}, neither 0 nor 1"
                )
            }
            Self::NestedTooDeep { key, offset, limit } => write!(
                f,
                "the value of {key:?} at offset {offset} nests arrays deeper than {limit}"
            ),
            Self::BadAlignment { value } => {
                write!(f, "general.alignment is {value}, not a power of two")
            }
            Self::MissingKey { key } => write!(f, "the file has no metadata {key:?}"),
            Self::WrongType {
                key,
                expected,
                found,
            } => {
                write!(f, "metadata {key:?} is of type {found}, not {expected}")
            }
            _ => Ok(()),
        }
    }
}

/// A noun without its article.
fn bare(what: &str) -> &str {
    let articles = ["a ", "an ", "the "];
    articles
        .into_iter()
        .find_map(|article| what.strip_prefix(article))
        .unwrap_or(what)
}

impl std::error::Error for GgufError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open { source, .. } => Some(source),
            _ => None,
        }
    }
}
