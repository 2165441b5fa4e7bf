//! What callers ask and what they hear.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use policy_core::RequestPriority;
use serde::{Deserialize, Serialize};

use crate::batch::TokenId;
use crate::structured::{Constraint, Matcher};

/// A request's number: its place in the order of arrival at the engine. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

impl RequestId {
    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this id.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How tokens are drawn from logits. Every step of it is a total order (numerics contract, rule 9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Divides the logits; below [`Self::LEAST_TEMPERATURE`] is greedy. Finite, not negative.
    pub temperature: f32,
    /// How many of the most likely tokens stay; 0 is all.
    pub top_k: u32,
    /// The probability mass that stays, in (0, 1].
    pub top_p: f32,
    /// What share of the most likely token's probability a token needs, in [0, 1].
    pub min_p: f32,
    /// The seed; a draw is a function of it and of the token's absolute position.
    pub seed: u64,
    /// Subtracted once from every token already generated, in [-2, 2].
    pub presence_penalty: f32,
    /// Subtracted per occurrence from every token already generated, in [-2, 2].
    pub frequency_penalty: f32,
    /// Divides (or multiplies, where negative) logits of tokens in prompt and output; 1 is off.
    pub repetition_penalty: f32,
    /// Added to single logits, ascending by id, each id once.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// The only tokens allowed, ascending; `None` is all.
    pub allowed_token_ids: Option<Arc<[TokenId]>>,
    /// Token sequences whose last token is never drawn after the others.
    pub bad_words: Arc<[Vec<TokenId>]>,
    /// What the answer's text is held to, as it was asked for; [`Request::matcher`] holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<Arc<Constraint>>,
}

impl SamplingParams {
    /// A temperature below this is greedy: logits divided by less could overflow.
    pub const LEAST_TEMPERATURE: f32 = 1e-5;
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            bad_words: Arc::from([]),
            constraint: None,
        }
    }
}

/// When an answer ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopConditions {
    /// The most tokens to generate; 0 only scores the prompt.
    pub max_tokens: u32,
    /// End-of-sequence and stop tokens are not drawn before this many.
    pub min_tokens: u32,
    /// Texts that end the answer and are cut from it.
    pub stop: Vec<String>,
    /// Tokens that end the answer, beside the model's own.
    pub stop_token_ids: Vec<TokenId>,
    /// Whether the model's own end tokens are drawn like any other.
    pub ignore_eos: bool,
    /// Whether stop texts stay in the answer.
    pub include_stop_str_in_output: bool,
    /// Whether special tokens are left out of the text, and so of what stop texts are looked for in.
    pub skip_special_tokens: bool,
}

/// Whether every token that they name is in the vocabulary, every number is finite, and every stop
/// text and bad word has something in it. HTTP says more precisely what is wrong; this is what the
/// engine relies on, whoever asks.
pub fn are_sound(sampling: &SamplingParams, stop: &StopConditions, vocab_size: u32) -> bool {
    let known = |token: &TokenId| *token < vocab_size;
    let numbers = [
        sampling.temperature,
        sampling.top_p,
        sampling.min_p,
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.repetition_penalty,
    ];
    numbers.iter().all(|number| number.is_finite())
        && sampling.temperature >= 0.0
        && sampling.repetition_penalty > 0.0
        && sampling
            .logit_bias
            .iter()
            .all(|(token, bias)| known(token) && bias.is_finite())
        && sampling
            .allowed_token_ids
            .iter()
            .all(|ids| ids.is_sorted() && ids.iter().all(known))
        && sampling
            .bad_words
            .iter()
            .all(|word| !word.is_empty() && word.iter().all(known))
        && stop.stop_token_ids.iter().all(known)
        && stop.stop.iter().all(|text| !text.is_empty())
}

/// A request as the engine takes it: tokenized, and checked against every limit.
#[derive(Clone, Debug)]
pub struct Request {
    /// The prompt's tokens, at least one.
    pub prompt: Arc<[TokenId]>,
    /// Its class.
    pub priority: RequestPriority,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// When the answer ends.
    pub stop: StopConditions,
    /// How many alternatives are reported per generated token, beside the token itself.
    pub logprobs: Option<u32>,
    /// The same for each token of the prompt but the first.
    pub prompt_logprobs: Option<u32>,
    /// Separates prefix caches: requests with different salts share nothing.
    pub cache_salt: Option<Arc<str>>,
    /// How long after it passed the door it fails if it has not ended; the expiry is a recorded
    /// input.
    pub timeout: Option<Duration>,
    /// The same, if it has no first seat by then.
    pub queue_timeout: Option<Duration>,
    /// The constraint of [`SamplingParams::constraint`], compiled, at the answer's beginning.
    pub matcher: Option<Matcher>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token or a stop text.
    Stop,
    /// `max_tokens`, or the model's context.
    Length,
}

/// A token and the natural logarithm of its probability (temperature 1, no other change).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub token: TokenId,
    /// The logarithm of its probability, at most 0.
    pub logprob: f32,
    /// Its rank by (logit descending, id ascending), from 1.
    pub rank: u32,
}

/// The token at one position and its most likely alternatives.
#[derive(Clone, Debug, PartialEq)]
pub struct PositionLogprobs {
    /// The token that stands there.
    pub chosen: TokenLogprob,
    /// The most likely tokens, most likely first.
    pub top: Vec<TokenLogprob>,
}

/// What was read and written for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub completion_tokens: u32,
    /// Tokens of the prompt that the prefix cache held at first admission.
    pub cached_tokens: u32,
    /// How often it was preempted.
    pub preemptions: u32,
}

/// What a caller hears, in this order: `Accepted`, `Started` once, `Token`s, then one terminal
/// event (`Finished` or `Failed`), then nothing.
#[derive(Clone, Debug)]
pub enum Event {
    /// The engine has taken it, under this id.
    Accepted {
        /// Its id, as the journal names it.
        request: RequestId,
    },
    /// It has its first seat.
    Started {
        /// Tokens of the prompt that the prefix cache held.
        cached_tokens: u32,
        /// The prompt's logprobs, one per token but the first; empty unless asked for.
        prompt_logprobs: Vec<PositionLogprobs>,
    },
    /// The next token.
    Token(TokenEvent),
    /// Terminal: the answer is whole.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// The stop text or token that ended it.
        stop: Option<StopCause>,
        /// Text that was withheld and belongs to the answer.
        text: String,
        /// What it took.
        usage: Usage,
    },
    /// Terminal: there is no more of it.
    Failed(Failure),
}

/// What exactly stopped an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The model's own end token.
    EndToken(TokenId),
    /// One of the request's `stop_token_ids`.
    StopToken(TokenId),
    /// One of the request's stop texts.
    Text(String),
}

/// One token of an answer.
#[derive(Clone, Debug)]
pub struct TokenEvent {
    /// Its place in the answer, from 0, rising by one always.
    pub index: u32,
    /// The token.
    pub token: TokenId,
    /// Text that became certain with it: whole characters, possibly none.
    pub text: String,
    /// Its logprobs, if asked for.
    pub logprobs: Option<PositionLogprobs>,
}

/// Why a stream ended without a whole answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its deadline passed, or it waited too long.
    Expired,
    /// The server is shutting down and its time was up.
    ShuttingDown,
    /// Its activations were not finite.
    NonFinite,
    /// Its constraint could not be kept; the message says why.
    Constraint(String),
    /// The engine failed; the message says how.
    Engine(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the request's time was up"),
            Self::ShuttingDown => f.write_str("the server is shutting down"),
            Self::NonFinite => f.write_str("the model computed a value that is not finite"),
            Self::Constraint(message) => f.write_str(message),
            Self::Engine(message) => write!(f, "the engine failed: {message}"),
        }
    }
}

impl std::error::Error for Failure {}
