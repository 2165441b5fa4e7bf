//! Structured output: which tokens keep an answer within a JSON schema, a regular expression, a
//! choice or a grammar.
//!
//! [`Grammars::compile`] turns a [`Constraint`] into a [`Matcher`], away from the engine's thread.
//! The engine asks the matcher for the [mask](Matcher::mask) before each draw and
//! [commits](Matcher::commit) the token after it. A matcher is a function of its constraint and of
//! the tokens committed: one that is rebuilt and given the same tokens gives the same masks.
//!
//! It fails closed: a constraint that cannot be compiled, or whose first mask cannot be computed or
//! is empty, is an error before any token. Work is bounded in fuel, never in time.

use std::fmt;
use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{
    ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie,
};

use crate::batch::TokenId;
use crate::tokenizer::Tokenizer;

mod constraint;

#[cfg(test)]
mod tests;

pub use constraint::Constraint;

/// Bounds of the work on one grammar and one mask, in the library's units.
const LIMITS: ParserLimits = ParserLimits {
    max_items_in_row: 2_000,
    initial_lexer_fuel: 1_000_000,
    step_lexer_fuel: 200_000,
    step_max_items: 50_000,
    max_lexer_states: 50_000,
    max_grammar_size: 200_000,
    precompute_large_lexemes: true,
    // Errors reach the caller: they must not repeat the grammar or the text so far.
    verbose_errors: false,
};

/// Compiles constraints for one model.
pub struct Grammars {
    factory: ParserFactory,
}

/// The state of one constrained answer. A clone goes its own way.
pub struct Matcher {
    inner: llguidance::Matcher,
    mask: SimpleVob,
}

/// Why a constraint does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrammarError {
    /// The vocabulary cannot be used: the model has no end token.
    NoEndToken,
    /// It is no grammar, or not one that is supported, or too large.
    Compile(String),
    /// No token can begin an answer, or it takes too much work to say which can.
    FirstMask(String),
    /// A mask could not be computed, or a token was committed that no mask allowed.
    Step(String),
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEndToken => f.write_str("the model has no end token to end an answer with"),
            Self::Compile(message) => write!(f, "the constraint cannot be compiled: {message}"),
            Self::FirstMask(message) => {
                write!(f, "no answer can begin under the constraint: {message}")
            }
            Self::Step(message) => write!(f, "the constraint failed: {message}"),
        }
    }
}

impl std::error::Error for GrammarError {}

impl Grammars {
    /// Grammars over the vocabulary of a tokenizer.
    ///
    /// # Errors
    /// [`GrammarError::NoEndToken`], or whatever the library finds wrong with the vocabulary.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        let environment = environment(tokenizer)?;
        let slices = SlicedBiasComputer::general_slices();
        let capabilities = InferenceCapabilities::default();
        let mut factory =
            ParserFactory::new(&environment, capabilities, &slices).map_err(compile_error)?;
        factory.quiet();
        *factory.limits_mut() = LIMITS;
        Ok(Self { factory })
    }

    /// A matcher at the beginning of an answer. May take long: not for the engine's thread.
    ///
    /// # Errors
    /// [`GrammarError::Compile`] and [`GrammarError::FirstMask`].
    pub fn compile(&self, constraint: &Constraint) -> Result<Matcher, GrammarError> {
        let grammar: TopLevelGrammar = constraint.grammar().map_err(GrammarError::Compile)?;
        let parser = self.factory.create_parser(grammar).map_err(compile_error)?;
        let mut matcher = Matcher {
            inner: llguidance::Matcher::new(Ok(parser)),
            mask: SimpleVob::new(),
        };
        match matcher.mask() {
            Ok(mask) if mask.iter().all(|&word| word == 0) => {
                Err(GrammarError::FirstMask("no token is allowed".to_owned()))
            }
            Ok(_) => Ok(matcher),
            Err(GrammarError::Step(message)) => Err(GrammarError::FirstMask(message)),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Grammars")
    }
}

impl Matcher {
    /// The tokens that may come next: bit `id % 32` of word `id / 32`. Once the answer is complete
    /// these are the end tokens alone.
    ///
    /// # Errors
    /// [`GrammarError::Step`] where it takes too much work; the answer cannot go on then.
    pub fn mask(&mut self) -> Result<&[u32], GrammarError> {
        self.mask = self.inner.compute_mask_or_eos().map_err(step)?;
        Ok(self.mask.as_slice())
    }

    /// Goes on by one token.
    ///
    /// # Errors
    /// [`GrammarError::Step`] where the mask did not allow it.
    pub fn commit(&mut self, token: TokenId) -> Result<(), GrammarError> {
        if self.inner.is_stopped() {
            // What follows a complete answer is an end token, which changes nothing.
            return Ok(());
        }
        self.inner.consume_token(token).map_err(step)
    }

    /// Goes on by the tokens of an answer so far: how a matcher is rebuilt.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn replay(&mut self, tokens: &[TokenId]) -> Result<(), GrammarError> {
        tokens.iter().try_for_each(|&token| self.commit(token))
    }
}

impl Clone for Matcher {
    /// A deep copy, lexer state included: the library's plain clone would share it.
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.deep_clone(),
            mask: SimpleVob::new(),
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Matcher")
    }
}

/// The vocabulary as the library wants it. Control tokens are marked, so that no text spells them.
fn environment(tokenizer: &Tokenizer) -> Result<TokEnv, GrammarError> {
    let ends = tokenizer.end_of_generation();
    let end = tokenizer.eos().or(ends.first().copied());
    let end = end.ok_or(GrammarError::NoEndToken)?;
    let size = u32::try_from(tokenizer.len()).unwrap_or(u32::MAX);
    let word = |id: TokenId| {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        if !tokenizer.is_control(id) {
            return bytes.to_vec();
        }
        let mut marked = vec![TokTrie::SPECIAL_TOKEN_MARKER];
        marked.extend_from_slice(bytes);
        marked
    };
    let words: Vec<Vec<u8>> = (0..size).map(word).collect();
    let trie = TokTrie::from(&TokRxInfo::new(size, end), &words);
    let known: Vec<TokenId> = ends.iter().copied().filter(|&id| id < size).collect();
    let trie = if known.is_empty() {
        trie
    } else {
        trie.with_eos_tokens(&known)
    };
    Ok(Arc::new(ApproximateTokEnv::new(trie)))
}

fn compile_error(error: impl fmt::Display) -> GrammarError {
    GrammarError::Compile(one_line(&error))
}

fn step(error: impl fmt::Display) -> GrammarError {
    GrammarError::Step(one_line(&error))
}

/// The library's own words, without the lines in which it points into the grammar: the first, and
/// the last where the first only announces it.
fn one_line(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("no reason given");
    let line = match lines.next_back() {
        Some(last) if first.ends_with(':') => format!("{first} {last}"),
        _ => first.to_owned(),
    };
    line.chars().take(300).collect()
}
