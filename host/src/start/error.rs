//! Why an engine could not be started.

use std::{fmt, io};

use crate::chat::ChatError;
use crate::gguf::GgufError;
use crate::hub::HubError;
use crate::journal::{JournalError, ReadError};
use crate::model::ModelError;
use crate::scheduler::ConfigError;
use crate::tokenizer::TokenizerError;

/// Why an engine could not be started: each variant is the sentence of the part that refused.
#[derive(Debug)]
pub enum StartError {
    /// The model was not found.
    Hub(HubError),
    /// The file is damaged or not a model.
    Gguf(GgufError),
    /// The model is not supported, or does not fit.
    Model(ModelError),
    /// Its tokenizer is not supported.
    Tokenizer(TokenizerError),
    /// Its chat template does not work.
    Chat(ChatError),
    /// The limits do not fit each other.
    Config(ConfigError),
    /// The journal cannot be written.
    Journal(JournalError),
    /// The journal cannot be read.
    Read(ReadError),
    /// The journal was written with another model.
    OtherModel {
        /// The digest that the journal names.
        journal: String,
        /// The digest of the model's file.
        model: String,
    },
    /// The model was not made for so long a context.
    ContextTooShort {
        /// `--max-model-len`.
        max_model_len: u32,
        /// Positions that the model was made for.
        context_length: u32,
    },
    /// The journal was written under numerics that are not computed here.
    OtherNumerics {
        /// What the journal names.
        journal: String,
        /// The kind of device that it was to be computed on; `None` where no device of this build would
        /// do.
        device: Option<String>,
    },
    /// The thread cannot be started.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub(error) => error.fmt(f),
            Self::Gguf(error) => error.fmt(f),
            Self::Model(error) => error.fmt(f),
            Self::Tokenizer(error) => error.fmt(f),
            Self::Chat(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Journal(error) => error.fmt(f),
            Self::Read(error) => error.fmt(f),
            Self::ContextTooShort {
                max_model_len,
                context_length,
            } => write!(
                f,
                "max_model_len is {max_model_len} and must be at most the model's context of {context_length} tokens"
            ),
            Self::OtherModel { journal, model } => write!(
                f,
                "the journal was written with a model of digest {journal}, and this one's is {model}"
            ),
            Self::OtherNumerics {
                journal,
                device: None,
            } => write!(
                f,
                "the journal was written under the numerics {journal:?}, which this build does not compute"
            ),
            Self::OtherNumerics {
                journal,
                device: Some(device),
            } => write!(
                f,
                "the journal was written under the numerics {journal:?}: only the kind of device that they name draws its tokens \
                 again, and this is {device:?}; without --tokens its plans replay anywhere"
            ),
            Self::Thread(error) => write!(f, "the engine's thread cannot be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

macro_rules! from {
    ($($variant:ident($error:ty)),* $(,)?) => {
        $(impl From<$error> for StartError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from! {
    Hub(HubError),
    Gguf(GgufError),
    Model(ModelError),
    Tokenizer(TokenizerError),
    Chat(ChatError),
    Config(ConfigError),
    Journal(JournalError),
    Read(ReadError),
}
