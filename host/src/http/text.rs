//! What the HTTP side needs of tokenizer and chat template.

use std::fmt;

use serde_json::{Map, Value};

use crate::batch::TokenId;

/// Text to tokens and back, for one model. Implementations are pure and may be slow: long texts
/// are handed to a blocking thread.
pub trait TextModel: Send + Sync {
    /// The tokens of a text. `add_special` adds what the model puts around every text;
    /// `parse_special` reads control tokens in the text as such, else they are plain text.
    ///
    /// # Errors
    /// [`TextError`] where the tokenizer cannot take the text.
    fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>, TextError>;

    /// The text of tokens; incomplete characters become U+FFFD.
    fn decode(&self, tokens: &[TokenId], skip_special: bool) -> String;

    /// The raw bytes of a token, which may be a part of a character; empty outside the vocabulary.
    fn token_bytes(&self, token: TokenId) -> Vec<u8>;

    /// A conversation as the model wants to read it. Control tokens in contents are plain text.
    ///
    /// # Errors
    /// [`TextError`] with the template's own message.
    fn render_chat(&self, chat: &ChatPrompt) -> Result<Vec<TokenId>, TextError>;

    /// The day, in days since 1970 (UTC), where conversations are rendered with the date in them;
    /// `None` where they are the same on any day.
    fn day(&self) -> Option<u64> {
        None
    }

    /// What `/tokenizer_info` tells.
    fn describe(&self) -> TokenizerInfo;
}

/// A conversation to be rendered, checked and in the shape that templates expect: contents are
/// text, `arguments` of tool calls are objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatPrompt {
    /// The messages, each an object with `role` and `content`.
    pub messages: Vec<Value>,
    /// The tools on offer, as the request has them.
    pub tools: Vec<Value>,
    /// Whether the template opens the assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open, to be gone on with.
    pub continue_final_message: bool,
    /// Further variables of the template.
    pub kwargs: Map<String, Value>,
}

/// What a tokenizer says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizerInfo {
    /// The size of the vocabulary.
    pub vocab_size: u32,
    /// The text of the beginning-of-sequence token.
    pub bos_token: Option<String>,
    /// The text of the end-of-sequence token.
    pub eos_token: Option<String>,
    /// The text of the padding token.
    pub pad_token: Option<String>,
    /// The text of the token for unknown text.
    pub unk_token: Option<String>,
    /// The id of the end-of-sequence token.
    pub eos_token_id: Option<TokenId>,
    /// The source of the chat template.
    pub chat_template: Option<String>,
}

/// Why a text or a conversation has no tokens: a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError(pub String);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TextError {}
