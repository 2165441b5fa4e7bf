//! Why a conversation gives no prompt.

use std::error::Error as _;
use std::fmt;

use minijinja::{Error, ErrorKind};

use crate::gguf::GgufError;

/// Why there is no template, or why it does not render a conversation.
#[derive(Debug)]
pub enum ChatError {
    /// The file's metadata is of the wrong type.
    Metadata(GgufError),
    /// The file has no template.
    NoTemplate,
    /// The template does not compile.
    Syntax {
        /// What is wrong and where.
        message: String,
    },
    /// The caller's conversation is not one.
    BadConversation {
        /// Which part, as a path such as `messages[2].content`.
        param: String,
        /// What is wrong with it.
        message: String,
    },
    /// Both a new answer and the continuation of the last message are asked for.
    ContinueAndGenerate,
    /// The template did not write the message that is to be continued.
    NothingToContinue,
    /// The template refuses the conversation, in its own words.
    Raised {
        /// Its words.
        message: String,
    },
    /// The template failed.
    Failed {
        /// What is wrong and where.
        message: String,
    },
    /// The template works too long on the conversation.
    OutOfFuel,
    /// The text is longer than allowed.
    TooLong {
        /// The longest allowed, in bytes.
        limit: usize,
    },
    /// The conversation holds every character that could mark a place in it.
    NoMarkLeft,
}

impl ChatError {
    /// Whether the caller can act on it; if not, the model file is to blame.
    pub const fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Metadata(_) | Self::NoTemplate | Self::Syntax { .. }
        )
    }

    pub(super) fn bad(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::BadConversation {
            param: param.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for ChatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metadata(error) => write!(f, "{error}"),
            Self::NoTemplate => f.write_str("the model file has no chat template"),
            Self::Syntax { message } => write!(f, "the chat template is not valid: {message}"),
            Self::BadConversation { param, message } => write!(f, "{param}: {message}"),
            Self::ContinueAndGenerate => {
                f.write_str("add_generation_prompt and continue_final_message exclude each other")
            }
            Self::NothingToContinue => {
                f.write_str("the chat template does not write the message that is to be continued")
            }
            Self::Raised { message } => f.write_str(message),
            Self::Failed { message } => write!(f, "the chat template failed: {message}"),
            Self::OutOfFuel => f.write_str("the chat template works too long on these messages"),
            Self::TooLong { limit } => {
                write!(
                    f,
                    "the chat template writes more than {limit} bytes for these messages"
                )
            }
            Self::NoMarkLeft => f.write_str("the messages hold every Unicode noncharacter"),
        }
    }
}

impl std::error::Error for ChatError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Metadata(error) => Some(error),
            _ => None,
        }
    }
}

impl From<GgufError> for ChatError {
    fn from(error: GgufError) -> Self {
        Self::Metadata(error)
    }
}

/// What a template said through `raise_exception`.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// `raise_exception(message)` as templates call it.
pub(super) fn raise(message: String) -> Result<String, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "raised by the template");
    Err(error.with_source(Raised(message)))
}

/// What an error of a rendering means for the caller.
pub(super) fn of_rendering(error: &Error) -> ChatError {
    if let Some(Raised(message)) = cause(error) {
        return ChatError::Raised {
            message: message.clone(),
        };
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return ChatError::OutOfFuel;
    }
    ChatError::Failed {
        message: describe(error),
    }
}

fn cause(error: &Error) -> Option<&Raised> {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(raised) = inner.downcast_ref() {
            return Some(raised);
        }
        source = inner.source();
    }
    None
}

/// What is wrong, and in which line of the template.
pub(super) fn describe(error: &Error) -> String {
    let what = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}
