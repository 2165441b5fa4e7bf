//! Tokens and their logprobs in the shapes that answers show.

use std::fmt::Write;

use super::text::TextModel;
use super::wire::output::{
    Alternatives, ChatTokenLogprob, NamedLogprob, PromptLogprobs, RankedAlternatives,
    RankedLogprob, TextLogprobs,
};
use crate::batch::TokenId;
use crate::request::{PositionLogprobs, TokenLogprob};

/// JSON has no infinity: this stands for a probability of zero, as it does at OpenAI.
const LEAST_LOGPROB: f32 = -9999.0;

/// Shows tokens of one model.
#[derive(Clone, Copy)]
pub(super) struct TokenNames<'a> {
    pub(super) text: &'a dyn TextModel,
    /// Whether tokens are shown as `token_id:7`.
    pub(super) as_ids: bool,
}

impl TokenNames<'_> {
    /// A token as text. Bytes that are no whole characters are shown as `bytes:\xe2\x80`.
    pub(super) fn name(&self, token: TokenId) -> String {
        if self.as_ids {
            return format!("token_id:{token}");
        }
        match String::from_utf8(self.text.token_bytes(token)) {
            Ok(text) => text,
            Err(error) => {
                let mut name = String::from("bytes:");
                for byte in error.as_bytes() {
                    // Writing to a string cannot fail.
                    let _ = write!(name, "\\x{byte:02x}");
                }
                name
            }
        }
    }

    /// The entry of a chat answer's logprobs.
    pub(super) fn chat(&self, position: &PositionLogprobs) -> ChatTokenLogprob {
        ChatTokenLogprob {
            chosen: self.named(&position.chosen),
            top_logprobs: position.top.iter().map(|entry| self.named(entry)).collect(),
        }
    }

    fn named(&self, entry: &TokenLogprob) -> NamedLogprob {
        NamedLogprob {
            token: self.name(entry.token),
            logprob: shown(entry.logprob),
            bytes: self.text.token_bytes(entry.token),
        }
    }

    /// Adds a token to a completion's logprobs; `None` is a prompt's first token. The chosen token
    /// is among the alternatives, with the very same value.
    pub(super) fn push_text(
        &self,
        logprobs: &mut TextLogprobs,
        offset: &mut usize,
        token: TokenId,
        position: Option<&PositionLogprobs>,
    ) {
        let name = self.name(token);
        logprobs.text_offset.push(*offset);
        *offset += name.chars().count();
        logprobs
            .token_logprobs
            .push(position.map(|position| shown(position.chosen.logprob)));
        logprobs
            .top_logprobs
            .push(position.map(|position| self.alternatives(position)));
        logprobs.tokens.push(name);
    }

    fn alternatives(&self, position: &PositionLogprobs) -> Alternatives {
        let mut entries: Vec<(String, f32)> = Vec::with_capacity(position.top.len() + 1);
        for entry in ranked(position) {
            let name = self.name(entry.token);
            // Different tokens can have one text; an object has each key once: the likelier stays.
            if !entries.iter().any(|(known, _)| *known == name) {
                entries.push((name, shown(entry.logprob)));
            }
        }
        Alternatives(entries)
    }

    /// A prompt's logprobs in vLLM's shape.
    pub(super) fn prompt(&self, positions: &[PositionLogprobs]) -> PromptLogprobs {
        let entry = |position: &PositionLogprobs| {
            let entries = ranked(position).map(|entry| {
                let ranked = RankedLogprob {
                    logprob: shown(entry.logprob),
                    rank: entry.rank,
                    decoded_token: self.name(entry.token),
                };
                (entry.token, ranked)
            });
            Some(RankedAlternatives(entries.collect()))
        };
        PromptLogprobs(
            std::iter::once(None)
                .chain(positions.iter().map(entry))
                .collect(),
        )
    }
}

/// The alternatives, and the chosen token where it is not one of them.
fn ranked(position: &PositionLogprobs) -> impl Iterator<Item = &TokenLogprob> {
    let chosen = &position.chosen;
    let listed = position.top.iter().any(|entry| entry.token == chosen.token);
    position.top.iter().chain((!listed).then_some(chosen))
}

fn shown(logprob: f32) -> f32 {
    // Written so that NaN is covered as well.
    if logprob > LEAST_LOGPROB {
        logprob
    } else {
        LEAST_LOGPROB
    }
}
