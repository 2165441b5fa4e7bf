//! Why a tokenizer cannot be built, or cannot encode.

use std::fmt;

use crate::gguf::GgufError;

/// Why a file's vocabulary gives no tokenizer, or a text no ids.
#[derive(Debug)]
pub enum TokenizerError {
    /// A key is missing or of the wrong type.
    Metadata(GgufError),
    /// A kind of tokenizer that is not supported.
    UnsupportedModel {
        /// The value of `tokenizer.ggml.model`.
        model: String,
    },
    /// A pre-tokenizer that is not in the table.
    UnknownPreTokenizer {
        /// The value of `tokenizer.ggml.pre`.
        pre: String,
    },
    /// Two parts of the file disagree in length.
    LengthMismatch {
        /// The part that is wrong.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length that it must have (or, for the embedding's rows, at least).
        expected: usize,
    },
    /// Two tokens have the same text.
    DuplicateToken {
        /// The text.
        token: String,
    },
    /// A merge is not two tokens whose concatenation is one.
    BadMerge {
        /// Its place in the list.
        rank: usize,
        /// The merge as the file has it.
        merge: String,
    },
    /// An id that stands outside the vocabulary.
    BadTokenId {
        /// The key that holds it.
        key: &'static str,
        /// The id.
        id: u32,
        /// How many tokens there are.
        tokens: usize,
    },
    /// The library refused to build or to encode.
    Library(String),
}

impl fmt::Display for TokenizerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata(error) => write!(f, "{error}"),
            Self::UnsupportedModel { model } => write!(
                f,
                "tokenizer model {model:?} is not supported (byte-level BPE, \"gpt2\", is)"
            ),
            Self::UnknownPreTokenizer { pre } => write!(
                f,
                "pre-tokenizer {pre:?} is unknown (known are: {})",
                super::pre::names().collect::<Vec<_>>().join(", ")
            ),
            Self::LengthMismatch {
                what,
                found,
                expected,
            } => {
                write!(f, "the file has {found} {what}, but {expected} are needed")
            }
            Self::DuplicateToken { token } => write!(f, "token {token:?} stands twice"),
            Self::BadMerge { rank, merge } => {
                write!(
                    f,
                    "merge {rank}, {merge:?}, does not join two tokens to a third"
                )
            }
            Self::BadTokenId { key, id, tokens } => {
                write!(f, "{key} is {id}, but there are {tokens} tokens")
            }
            Self::Library(message) => write!(f, "tokenizer: {message}"),
        }
    }
}

impl std::error::Error for TokenizerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Metadata(error) => Some(error),
            _ => None,
        }
    }
}

impl From<GgufError> for TokenizerError {
    fn from(error: GgufError) -> Self {
        Self::Metadata(error)
    }
}
