//! The tokens of a file: their texts, their bytes and what they are for.

use std::collections::BTreeMap;

use super::byte_level;
use super::{TokenizerError, special::Specials};
use crate::batch::TokenId;
use crate::gguf::{Gguf, GgufError};

/// What a token is for, by the numbers of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for text that has no token.
    Unknown,
    /// Structure of a conversation or a document, never text that a user writes.
    Control,
    /// Text added to the vocabulary as a whole.
    UserDefined,
    /// A place that nothing uses.
    Unused,
    /// A single byte.
    Byte,
}

/// Texts that end an answer wherever a vocabulary has them as control tokens.
///
/// Files often name only the end of a sequence; what ends a *turn* is known by its text.
const END_TEXTS: [&str; 10] = [
    "<|endoftext|>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|eot|>",
    "<|end_of_text|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "</s>",
];

/// A vocabulary: tokens by id.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pub(super) texts: Vec<Box<str>>,
    pub(super) kinds: Vec<TokenKind>,
    /// The bytes of all tokens, one after the other.
    bytes: Vec<u8>,
    /// Where each token's bytes end.
    ends: Vec<usize>,
    /// Ids by text.
    pub(super) ids: BTreeMap<Box<str>, TokenId>,
    pub(super) bos: Option<TokenId>,
    pub(super) eos: Option<TokenId>,
    pub(super) end_of_generation: Vec<TokenId>,
    /// Rows of the embedding matrix: the length of a row of logits.
    pub(super) rows: usize,
}

impl Vocabulary {
    pub(super) fn read(file: &Gguf) -> Result<Self, TokenizerError> {
        let key = "tokenizer.ggml.tokens";
        let texts = file
            .strings(key)?
            .ok_or_else(|| GgufError::missing(key))?
            .to_vec();
        let kinds = read_kinds(file, texts.len())?;
        let mut ids = BTreeMap::new();
        for (id, text) in (0..).zip(&texts) {
            if ids.insert(text.clone(), id).is_some() {
                return Err(TokenizerError::DuplicateToken {
                    token: text.to_string(),
                });
            }
        }
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(texts.len()));
        for (text, kind) in texts.iter().zip(&kinds) {
            push_bytes(&mut bytes, text, *kind);
            ends.push(bytes.len());
        }
        let bos = read_id(file, "tokenizer.ggml.bos_token_id", texts.len())?;
        let eos = read_id(file, "tokenizer.ggml.eos_token_id", texts.len())?;
        let rows = read_rows(file, texts.len())?;
        let end_of_generation = Vec::new();
        let mut vocabulary = Self {
            texts,
            kinds,
            bytes,
            ends,
            ids,
            bos,
            eos,
            end_of_generation,
            rows,
        };
        vocabulary.end_of_generation = vocabulary.ends_of_generation(file)?;
        Ok(vocabulary)
    }

    pub(super) fn bytes(&self, id: TokenId) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.ends.get(id)?;
        let start = match id.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    pub(super) fn kind(&self, id: TokenId) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// The tokens that are found in text as a whole: control and user-defined ones.
    pub(super) fn specials(&self) -> Specials {
        let all = (0..).zip(&self.texts).zip(&self.kinds);
        Specials::new(all.filter_map(|((id, text), kind)| match kind {
            TokenKind::Control => Some((text.clone(), id, true)),
            TokenKind::UserDefined => Some((text.clone(), id, false)),
            _ => None,
        }))
    }

    /// Ascending ids: those that the file names, and those known by their text.
    fn ends_of_generation(&self, file: &Gguf) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ends: Vec<TokenId> = self.eos.into_iter().collect();
        for key in ["tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"] {
            ends.extend(read_id(file, key, self.texts.len())?);
        }
        let known = END_TEXTS.iter().filter_map(|text| self.ids.get(*text));
        ends.extend(known.filter(|id| self.kind(**id) == Some(TokenKind::Control)));
        ends.sort_unstable();
        ends.dedup();
        Ok(ends)
    }
}

fn read_kinds(file: &Gguf, tokens: usize) -> Result<Vec<TokenKind>, TokenizerError> {
    let Some(numbers) = file.i32s("tokenizer.ggml.token_type")? else {
        return Ok(vec![TokenKind::Normal; tokens]);
    };
    if numbers.len() != tokens {
        let (what, found) = ("token types", numbers.len());
        return Err(TokenizerError::LengthMismatch {
            what,
            found,
            expected: tokens,
        });
    }
    Ok(numbers.iter().map(|number| kind(*number)).collect())
}

const fn kind(number: i32) -> TokenKind {
    match number {
        2 => TokenKind::Unknown,
        3 => TokenKind::Control,
        4 => TokenKind::UserDefined,
        5 => TokenKind::Unused,
        6 => TokenKind::Byte,
        _ => TokenKind::Normal,
    }
}

fn read_id(
    file: &Gguf,
    key: &'static str,
    tokens: usize,
) -> Result<Option<TokenId>, TokenizerError> {
    match file.u32(key)? {
        Some(id) if id as usize >= tokens => Err(TokenizerError::BadTokenId { key, id, tokens }),
        id => Ok(id),
    }
}

fn read_rows(file: &Gguf, tokens: usize) -> Result<usize, TokenizerError> {
    let Some(embedding) = file.tensor("token_embd.weight") else {
        return Ok(tokens);
    };
    let found = embedding.rows() as usize;
    if found < tokens {
        let what = "rows in token_embd.weight";
        return Err(TokenizerError::LengthMismatch {
            what,
            found,
            expected: tokens,
        });
    }
    Ok(found)
}

/// A token's bytes: through GPT-2's alphabet, except where the text is meant literally.
fn push_bytes(out: &mut Vec<u8>, text: &str, kind: TokenKind) {
    let literal = matches!(kind, TokenKind::Control | TokenKind::UserDefined);
    let start = out.len();
    for symbol in text.chars() {
        match byte_level::byte(symbol) {
            Some(byte) if !literal => out.push(byte),
            _ => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}
