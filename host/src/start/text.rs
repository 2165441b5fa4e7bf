//! The tokenizer and the template of the served model, as the HTTP side wants them.

use std::sync::Arc;

use crate::batch::TokenId;
use crate::chat::{ChatTemplate, Conversation};
use crate::clock;
use crate::http::text::{ChatPrompt, TextError, TextModel, TokenizerInfo};
use crate::tokenizer::{Encoding, Tokenizer};

/// A tokenizer and, where the model has one, its chat template.
#[derive(Debug)]
pub struct ServedText {
    /// The tokenizer, shared with the engine.
    pub tokenizer: Arc<Tokenizer>,
    /// The template.
    pub template: Option<ChatTemplate>,
    /// The template's source.
    pub template_source: Option<String>,
}

impl ServedText {
    fn text_of(&self, token: Option<TokenId>) -> Option<String> {
        let bytes = self.tokenizer.token_bytes(token?)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl TextModel for ServedText {
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
        self.tokenizer
            .encode(text, how)
            .map_err(|error| TextError(error.to_string()))
    }

    fn decode(&self, tokens: &[TokenId], skip_special: bool) -> String {
        self.tokenizer.decode(tokens, skip_special)
    }

    fn token_bytes(&self, token: TokenId) -> Vec<u8> {
        self.tokenizer
            .token_bytes(token)
            .unwrap_or_default()
            .to_vec()
    }

    fn render_chat(&self, chat: &ChatPrompt) -> Result<Vec<TokenId>, TextError> {
        let template = self.template.as_ref();
        let template =
            template.ok_or_else(|| TextError("the model file has no chat template".to_owned()))?;
        let conversation = Conversation {
            messages: &chat.messages,
            tools: &chat.tools,
            add_generation_prompt: chat.add_generation_prompt,
            continue_final_message: chat.continue_final_message,
            kwargs: Some(&chat.kwargs),
            now: Some(clock::unix_seconds()),
        };
        let prompt = template
            .render(&conversation)
            .map_err(|error| TextError(error.to_string()))?;
        self.tokenizer
            .encode_prompt(&prompt)
            .map_err(|error| TextError(error.to_string()))
    }

    fn day(&self) -> Option<u64> {
        let reads_it = |source: &String| source.contains("strftime_now");
        let dated = self.template_source.as_ref().is_some_and(reads_it);
        dated.then(|| clock::unix_seconds() / 86_400)
    }

    fn describe(&self) -> TokenizerInfo {
        TokenizerInfo {
            vocab_size: self.tokenizer.vocab_size() as u32,
            bos_token: self.text_of(self.tokenizer.bos()),
            eos_token: self.text_of(self.tokenizer.eos()),
            pad_token: None,
            unk_token: None,
            eos_token_id: self.tokenizer.eos(),
            chat_template: self.template_source.clone(),
        }
    }
}
