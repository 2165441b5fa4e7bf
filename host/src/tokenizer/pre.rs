//! Pre-tokenizers: how text is cut into words before any merge, by the name the file gives.
//!
//! The patterns are those of the models' own `tokenizer.json` files. A wrong one gives plausible
//! text and wrong ids, so a name that is not in the table is an error and never a guess.

use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{NormalizerWrapper, SplitDelimiterBehavior};

use super::TokenizerError;

/// How a text is treated before the merges.
pub(super) struct Pre {
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) pre_tokenizer: PreTokenizerWrapper,
    /// Whether a word that is a token needs no merges to become it.
    pub(super) ignore_merges: bool,
    /// Whether a text begins with the beginning-of-sequence token unless the file says otherwise.
    pub(super) add_bos: bool,
}

/// The cut of a family of models.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// GPT-2's own pattern.
    Gpt2,
    /// Every digit apart, then GPT-2's pattern.
    DigitsGpt2,
    /// Llama 3's pattern: up to three digits together.
    Llama3,
    /// Qwen 2's: Llama 3's with every digit apart, on text in NFC.
    Qwen2,
    /// Mistral's Tekken: words cut where case changes.
    Tekken,
    /// GPT-4o's `o200k`: Tekken's with contractions, up to three digits together.
    O200k,
}

/// Names as GGUF files have them in `tokenizer.ggml.pre`.
const TABLE: [(&str, Family); 22] = [
    ("gpt-2", Family::Gpt2),
    ("phi-2", Family::Gpt2),
    ("olmo", Family::Gpt2),
    ("mpt", Family::Gpt2),
    ("smollm", Family::DigitsGpt2),
    ("starcoder", Family::DigitsGpt2),
    ("codeshell", Family::DigitsGpt2),
    ("refact", Family::DigitsGpt2),
    ("command-r", Family::DigitsGpt2),
    ("llama3", Family::Llama3),
    ("llama-v3", Family::Llama3),
    ("llama-bpe", Family::Llama3),
    ("falcon3", Family::Llama3),
    ("pixtral", Family::Llama3),
    ("lfm2", Family::Llama3),
    ("dbrx", Family::Llama3),
    ("smaug-bpe", Family::Llama3),
    ("qwen2", Family::Qwen2),
    ("deepseek-r1-qwen", Family::Qwen2),
    ("tekken", Family::Tekken),
    ("gpt-4o", Family::O200k),
    ("llama4", Family::O200k),
];

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The names of the table, in its order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.into_iter().map(|(name, _)| name)
}

impl Pre {
    /// The treatment that `tokenizer.ggml.pre` names.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let unknown = || TokenizerError::UnknownPreTokenizer { pre: name.into() };
        let found = TABLE.into_iter().find(|(known, _)| *known == name);
        let (_, family) = found.ok_or_else(unknown)?;
        Ok(Self {
            normalizer: (family == Family::Qwen2).then(|| NFC.into()),
            pre_tokenizer: cut(family)?,
            ignore_merges: matches!(family, Family::Llama3 | Family::Tekken),
            add_bos: matches!(family, Family::Llama3 | Family::Tekken),
        })
    }
}

fn cut(family: Family) -> Result<PreTokenizerWrapper, TokenizerError> {
    let bytes = ByteLevel::new(false, false, false).into();
    let gpt2 = ByteLevel::new(false, false, true).into();
    let steps = match family {
        Family::Gpt2 => vec![gpt2],
        Family::DigitsGpt2 => vec![Digits::new(true).into(), gpt2],
        Family::Llama3 => vec![split(LLAMA3)?, bytes],
        Family::Qwen2 => vec![split(QWEN2)?, bytes],
        Family::Tekken => vec![split(TEKKEN)?, bytes],
        Family::O200k => vec![split(O200K)?, bytes],
    };
    Ok(Sequence::new(steps).into())
}

fn split(pattern: &str) -> Result<PreTokenizerWrapper, TokenizerError> {
    let pattern = SplitPattern::Regex(pattern.into());
    Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        .map(Into::into)
        .map_err(|error| TokenizerError::Library(error.to_string()))
}
