//! Why an engine could not be started.

use std::{fmt, io};

use crate::chat::ChatError;
use crate::gguf::GgufError;
use crate::hub::HubError;
use crate::journal::JournalError;
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
}
