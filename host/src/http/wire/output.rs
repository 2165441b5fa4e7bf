//! The bodies of answers: whole ones and the chunks of streams.

use serde::{Serialize, Serializer};

use crate::batch::TokenId;
use crate::request::{FinishReason, StopCause, Usage};

/// What every answer and every chunk of it says of itself.
#[derive(Clone, Debug)]
pub(in crate::http) struct Head {
    pub(in crate::http) id: String,
    pub(in crate::http) object: &'static str,
    pub(in crate::http) created: u64,
    pub(in crate::http) model: String,
    pub(in crate::http) system_fingerprint: String,
    /// The seed of choice 0, given or asked for.
    pub(in crate::http) seed: u64,
}

/// An answer or a chunk of it.
#[derive(Debug, Serialize)]
pub(in crate::http) struct Envelope<'a, C> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    choices: &'a [C],
    /// Absent, or null, or there.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<UsageBody>>,
    system_fingerprint: &'a str,
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<&'a PromptLogprobs>,
}

impl<'a, C: Serialize> Envelope<'a, C> {
    /// An envelope around choices, without usage.
    pub(in crate::http) fn new(head: &'a Head, choices: &'a [C]) -> Self {
        Self {
            id: &head.id,
            object: head.object,
            created: head.created,
            model: &head.model,
            choices,
            usage: None,
            system_fingerprint: &head.system_fingerprint,
            seed: head.seed,
            prompt_token_ids: None,
            prompt_logprobs: None,
        }
    }

    /// The same with usage, possibly null.
    pub(in crate::http) fn usage(mut self, usage: Option<UsageBody>) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The same with what is told of the prompt.
    pub(in crate::http) fn prompt(
        mut self,
        token_ids: Option<&'a [TokenId]>,
        logprobs: Option<&'a PromptLogprobs>,
    ) -> Self {
        self.prompt_token_ids = token_ids;
        self.prompt_logprobs = logprobs;
        self
    }
}

/// What an answer took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::http) struct UsageBody {
    pub(in crate::http) prompt_tokens: u64,
    pub(in crate::http) completion_tokens: u64,
    pub(in crate::http) total_tokens: u64,
    pub(in crate::http) prompt_tokens_details: PromptDetails,
    /// How often the request was preempted.
    pub(in crate::http) preemptions: u64,
}

/// What of the prompt was cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::http) struct PromptDetails {
    pub(in crate::http) cached_tokens: u64,
}

impl UsageBody {
    /// Adds a choice. A prompt counts once, with its first choice.
    pub(in crate::http) fn add(&mut self, usage: &Usage, first_of_prompt: bool) {
        if first_of_prompt {
            self.prompt_tokens += u64::from(usage.prompt_tokens);
            self.prompt_tokens_details.cached_tokens += u64::from(usage.cached_tokens);
        }
        self.completion_tokens += u64::from(usage.completion_tokens);
        self.preemptions += u64::from(usage.preemptions);
        self.total_tokens = self.prompt_tokens + self.completion_tokens;
    }
}

/// A choice of a chat answer, or of a chunk: `message` in the one, `delta` in the other.
#[derive(Debug, Default, Serialize)]
pub(in crate::http) struct ChatChoice {
    pub(in crate::http) index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) message: Option<Message>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) delta: Option<Delta>,
    pub(in crate::http) logprobs: Option<ChatLogprobs>,
    pub(in crate::http) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) token_ids: Option<Vec<TokenId>>,
}

/// The assistant's message, whole.
#[derive(Debug, Default, Serialize)]
pub(in crate::http) struct Message {
    pub(in crate::http) role: &'static str,
    pub(in crate::http) content: Option<String>,
    pub(in crate::http) refusal: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) tool_calls: Vec<ToolCall>,
}

/// What a chunk adds to the message.
#[derive(Debug, Default, Serialize)]
pub(in crate::http) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::http) tool_calls: Vec<ToolCall>,
}

/// A call of a tool, or what a chunk adds to one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::http) struct ToolCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) id: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(in crate::http) kind: Option<&'static str>,
    pub(in crate::http) function: FunctionCall,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::http) struct FunctionCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) name: Option<String>,
    pub(in crate::http) arguments: String,
}

/// Logprobs in the shape of chat: one entry per token.
#[derive(Debug, Default, Serialize)]
pub(in crate::http) struct ChatLogprobs {
    pub(in crate::http) content: Vec<ChatTokenLogprob>,
}

/// A token and its alternatives.
#[derive(Debug, Serialize)]
pub(in crate::http) struct ChatTokenLogprob {
    #[serde(flatten)]
    pub(in crate::http) chosen: NamedLogprob,
    pub(in crate::http) top_logprobs: Vec<NamedLogprob>,
}

/// A token as text and raw bytes, with its logprob.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::http) struct NamedLogprob {
    pub(in crate::http) token: String,
    pub(in crate::http) logprob: f32,
    pub(in crate::http) bytes: Vec<u8>,
}

/// A choice of a completion, whole or of a chunk.
#[derive(Debug, Default, Serialize)]
pub(in crate::http) struct TextChoice {
    pub(in crate::http) index: u32,
    pub(in crate::http) text: String,
    pub(in crate::http) logprobs: Option<TextLogprobs>,
    pub(in crate::http) finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) prompt_logprobs: Option<PromptLogprobs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) prompt_token_ids: Option<Vec<TokenId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::http) token_ids: Option<Vec<TokenId>>,
}

/// Logprobs in the shape of completions: four lists of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(in crate::http) struct TextLogprobs {
    /// Where each token starts in the text, in characters.
    pub(in crate::http) text_offset: Vec<usize>,
    /// Null for a prompt's first token.
    pub(in crate::http) token_logprobs: Vec<Option<f32>>,
    pub(in crate::http) tokens: Vec<String>,
    pub(in crate::http) top_logprobs: Vec<Option<Alternatives>>,
}

/// Texts of tokens with their logprobs, as an object, most likely first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::http) struct Alternatives(pub(in crate::http) Vec<(String, f32)>);

impl Serialize for Alternatives {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(token, logprob)| (token, logprob)))
    }
}

/// vLLM's shape for a prompt's logprobs: null for the first token, then one object per token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(in crate::http) struct PromptLogprobs(pub(in crate::http) Vec<Option<RankedAlternatives>>);

/// Tokens by id, with logprob, rank and text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::http) struct RankedAlternatives(pub(in crate::http) Vec<(TokenId, RankedLogprob)>);

impl Serialize for RankedAlternatives {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, ranked)| (id.to_string(), ranked)))
    }
}

/// One of a prompt token's alternatives.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::http) struct RankedLogprob {
    pub(in crate::http) logprob: f32,
    pub(in crate::http) rank: u32,
    pub(in crate::http) decoded_token: String,
}

/// What exactly stopped an answer: a token or a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(in crate::http) enum StopReason {
    /// One of `stop_token_ids`.
    Token(TokenId),
    /// One of `stop`.
    Text(String),
}

/// The name of a finish reason.
pub(in crate::http) fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
    }
}

/// What stopped an answer, where that is not the model's own end.
pub(in crate::http) fn stop_reason(stop: Option<StopCause>) -> Option<StopReason> {
    match stop? {
        StopCause::EndToken(_) => None,
        StopCause::StopToken(id) => Some(StopReason::Token(id)),
        StopCause::Text(text) => Some(StopReason::Text(text)),
    }
}
