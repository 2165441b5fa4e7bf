//! Text to ids and back, from the vocabulary and merges of a model file.
//!
//! # Who may write control tokens
//! A control token (`<|im_end|>`) is structure. A template writes it; a user who writes its text
//! means the text. So whoever encodes says which it is: [`Tokenizer::encode`] takes
//! [`Encoding`], and [`Tokenizer::encode_prompt`] takes a rendered [`Prompt`], which knows the
//! places where a user's words spell a control token.

use tokenizers::models::bpe::{BPE, Merges};
use tokenizers::{
    DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    TokenizerBuilder, TokenizerImpl,
};

use crate::batch::TokenId;
use crate::gguf::{Gguf, GgufError};

pub mod byte_level;

mod error;
mod pre;
mod special;
mod stream;
mod vocabulary;

#[cfg(test)]
mod tests;

pub use error::TokenizerError;
pub use stream::DecodeStream;
pub use vocabulary::TokenKind;

use pre::Pre;
use special::{Specials, Stretch};
use vocabulary::Vocabulary;

type Inner = TokenizerImpl<
    ModelWrapper,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

/// A model's tokenizer.
pub struct Tokenizer {
    inner: Inner,
    vocabulary: Vocabulary,
    specials: Specials,
    add_bos: bool,
    add_eos: bool,
}

/// How a text is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Whether the model's beginning (and end) of sequence is added where the model wants it.
    pub add_special: bool,
    /// Whether the text of a control token is that token; if not, it is text like any other.
    pub parse_special: bool,
}

/// A text in which only some places may hold control tokens: what a chat template rendered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Byte offsets in it, ascending, at which a user's words spell a control token.
    pub literal: Vec<usize>,
}

impl Tokenizer {
    /// The tokenizer that a model file holds.
    ///
    /// # Errors
    /// What is missing, contradictory or not supported.
    pub fn from_gguf(file: &Gguf) -> Result<Self, TokenizerError> {
        let model = required(file, "tokenizer.ggml.model")?;
        if model != "gpt2" {
            return Err(TokenizerError::UnsupportedModel {
                model: model.into(),
            });
        }
        let pre = Pre::named(required(file, "tokenizer.ggml.pre")?)?;
        let vocabulary = Vocabulary::read(file)?;
        let add_bos = file
            .bool("tokenizer.ggml.add_bos_token")?
            .unwrap_or(pre.add_bos);
        let add_eos = file.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        let merges = read_merges(file, &vocabulary)?;
        let inner = build(&vocabulary, merges, pre)?;
        let specials = vocabulary.specials();
        Ok(Self {
            inner,
            vocabulary,
            specials,
            add_bos,
            add_eos,
        })
    }

    /// The ids of `text`.
    ///
    /// Bytes that the vocabulary has no token for (in some files a few control characters) are
    /// left out, as the models' own tokenizers do.
    ///
    /// # Errors
    /// [`TokenizerError::Library`] if the library fails.
    pub fn encode(&self, text: &str, how: Encoding) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode_where(text, how.add_special, |_| how.parse_special)
    }

    /// The ids of a rendered prompt: its control tokens are tokens, except at the places where a
    /// user's words spell them. Nothing is added: a template writes its own beginning.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode_where(&prompt.text, false, |at| {
            prompt.literal.binary_search(&at).is_err()
        })
    }

    fn encode_where(
        &self,
        text: &str,
        add_special: bool,
        control_at: impl Fn(usize) -> bool,
    ) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ids = Vec::new();
        if add_special && self.add_bos {
            ids.extend(self.vocabulary.bos);
        }
        for stretch in self.specials.cut(text, control_at) {
            match stretch {
                Stretch::Token(id) => ids.push(id),
                Stretch::Text(piece) => self.encode_text(piece, &mut ids)?,
            }
        }
        if add_special && self.add_eos {
            ids.extend(self.vocabulary.eos);
        }
        Ok(ids)
    }

    fn encode_text(&self, piece: &str, ids: &mut Vec<TokenId>) -> Result<(), TokenizerError> {
        let failed = |error: tokenizers::Error| TokenizerError::Library(error.to_string());
        let encoding = self.inner.encode_fast(piece, false).map_err(failed)?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// The text of `ids`; control tokens are left out if `skip_special`. Bytes that are not UTF-8
    /// become U+FFFD, ids outside the vocabulary nothing.
    pub fn decode(&self, ids: &[TokenId], skip_special: bool) -> String {
        let texts = ids
            .iter()
            .filter_map(|id| self.text_bytes(*id, skip_special));
        let bytes: Vec<u8> = texts.flatten().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What [`DecodeStream::push`] is to be given for a token: its bytes, or none for a control
    /// token that is to be skipped; `None` outside the vocabulary.
    pub fn text_bytes(&self, id: TokenId, skip_special: bool) -> Option<&[u8]> {
        if skip_special && self.is_control(id) {
            return Some(&[]);
        }
        self.token_bytes(id)
    }

    /// The bytes that a token stands for (of a control token: those of its text); `None` outside
    /// the vocabulary.
    pub fn token_bytes(&self, id: TokenId) -> Option<&[u8]> {
        self.vocabulary.bytes(id)
    }

    /// What a token is for; `None` outside the vocabulary.
    pub fn kind(&self, id: TokenId) -> Option<TokenKind> {
        self.vocabulary.kind(id)
    }

    /// Whether a token is structure and not text.
    pub fn is_control(&self, id: TokenId) -> bool {
        matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Unknown))
    }

    /// The id of the control or user-defined token with this text.
    pub fn special_id(&self, text: &str) -> Option<TokenId> {
        let id = *self.vocabulary.ids.get(text)?;
        let special = matches!(self.kind(id)?, TokenKind::Control | TokenKind::UserDefined);
        special.then_some(id)
    }

    /// The texts of all control tokens, by ascending id.
    pub fn control_texts(&self) -> impl Iterator<Item = &str> {
        let all = self.vocabulary.texts.iter().zip(&self.vocabulary.kinds);
        all.filter(|(_, kind)| **kind == TokenKind::Control)
            .map(|(text, _)| &**text)
    }

    /// The token that begins a sequence.
    pub const fn bos(&self) -> Option<TokenId> {
        self.vocabulary.bos
    }

    /// The token that ends a sequence.
    pub const fn eos(&self) -> Option<TokenId> {
        self.vocabulary.eos
    }

    /// Whether a plain text begins with [`bos`](Self::bos).
    pub const fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The tokens that end an answer, ascending: the end of a sequence, of a turn, of a message.
    pub fn end_of_generation(&self) -> &[TokenId] {
        &self.vocabulary.end_of_generation
    }

    /// How many tokens the vocabulary has; ids are below it.
    pub fn len(&self) -> usize {
        self.vocabulary.texts.len()
    }

    /// Whether the vocabulary has no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many logits the model gives: the rows of the embedding matrix, at least
    /// [`len`](Self::len). Ids from `len` on have no text and must not be drawn.
    pub const fn vocab_size(&self) -> usize {
        self.vocabulary.rows
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("tokens", &self.len())
            .finish_non_exhaustive()
    }
}

fn required<'a>(file: &'a Gguf, key: &str) -> Result<&'a str, TokenizerError> {
    Ok(file.str(key)?.ok_or_else(|| GgufError::missing(key))?)
}

fn read_merges(file: &Gguf, vocabulary: &Vocabulary) -> Result<Merges, TokenizerError> {
    let key = "tokenizer.ggml.merges";
    let lines = file.strings(key)?.ok_or_else(|| GgufError::missing(key))?;
    let merge = |(rank, line): (usize, &str)| {
        split_merge(line, vocabulary).ok_or_else(|| TokenizerError::BadMerge {
            rank,
            merge: line.to_string(),
        })
    };
    lines
        .iter()
        .map(AsRef::as_ref)
        .enumerate()
        .map(merge)
        .collect()
}

/// The two tokens of a merge: a space parts them, which is no symbol of a byte-level alphabet.
fn split_merge(line: &str, vocabulary: &Vocabulary) -> Option<(String, String)> {
    let (left, right) = line.split_once(' ')?;
    let known = |text: &str| vocabulary.ids.contains_key(text);
    let whole = known(left) && known(right) && known(&format!("{left}{right}"));
    whole.then(|| (left.into(), right.into()))
}

fn build(vocabulary: &Vocabulary, merges: Merges, pre: Pre) -> Result<Inner, TokenizerError> {
    let failed = |error: tokenizers::Error| TokenizerError::Library(error.to_string());
    let ids = vocabulary
        .ids
        .iter()
        .map(|(text, id)| (text.to_string(), *id));
    let bpe = BPE::builder()
        .vocab_and_merges(ids.collect::<tokenizers::models::bpe::Vocab>(), merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(failed)?;
    TokenizerBuilder::new()
        .with_model(bpe.into())
        .with_normalizer(pre.normalizer)
        .with_pre_tokenizer(Some(pre.pre_tokenizer))
        .with_post_processor(None)
        .with_decoder(None)
        .build()
        .map_err(failed)
}
