//! What the HTTP side needs of tokenizer and chat template.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::batch::TokenId;
use crate::chat::{ChatTemplate, Conversation};
use crate::clock;
use crate::tokenizer::{Encoding, Tokenizer};

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

/// The tokenizer and the template of a model file.
pub struct ModelText {
    /// The tokenizer, which the engine shares.
    pub tokenizer: Arc<Tokenizer>,
    /// The template; without one there is no chat.
    pub template: Option<ChatTemplate>,
    /// The template's source, for `/tokenizer_info`.
    pub template_source: Option<String>,
}

impl TextModel for ModelText {
    fn encode(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<TokenId>, TextError> {
        let how = Encoding {
            add_special,
            parse_special,
        };
        let encoded = self.tokenizer.encode(text, how);
        encoded.map_err(|error| TextError(error.to_string()))
    }

    fn decode(&self, tokens: &[TokenId], skip_special: bool) -> String {
        self.tokenizer.decode(tokens, skip_special)
    }

    fn token_bytes(&self, token: TokenId) -> Vec<u8> {
        let bytes = self.tokenizer.token_bytes(token);
        bytes.unwrap_or_default().to_vec()
    }

    fn render_chat(&self, chat: &ChatPrompt) -> Result<Vec<TokenId>, TextError> {
        let Some(template) = &self.template else {
            let message = "the model has no chat template: use /v1/completions";
            return Err(TextError(message.into()));
        };
        let conversation = Conversation {
            messages: &chat.messages,
            tools: &chat.tools,
            add_generation_prompt: chat.add_generation_prompt,
            continue_final_message: chat.continue_final_message,
            kwargs: Some(&chat.kwargs),
            // It becomes part of the prompt, whose tokens the journal records.
            now: Some(clock::unix_seconds()),
        };
        let prompt = template.render(&conversation);
        let prompt = prompt.map_err(|error| TextError(error.to_string()))?;
        let tokens = self.tokenizer.encode_prompt(&prompt);
        tokens.map_err(|error| TextError(error.to_string()))
    }

    fn describe(&self) -> TokenizerInfo {
        let tokenizer = &self.tokenizer;
        let name = |id: Option<TokenId>| {
            let bytes = tokenizer.token_bytes(id?)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        TokenizerInfo {
            vocab_size: u32::try_from(tokenizer.len()).unwrap_or(u32::MAX),
            bos_token: name(tokenizer.bos()),
            eos_token: name(tokenizer.eos()),
            pad_token: None,
            unk_token: None,
            eos_token_id: tokenizer.eos(),
            chat_template: self.template_source.clone(),
        }
    }
}
