//! Marks in text that survive a template: where a message spells a control token, and where the
//! last message ends.
//!
//! A mark is a Unicode noncharacter that occurs nowhere in the conversation. In a user's text it
//! stands behind the first character of whatever spells a control token, or could begin one that
//! the next text completes. A template can cut, join and quote such a text as it likes; what it
//! writes tells afterwards which characters were a user's.

use minijinja::Value;
use serde_json::{Number, Value as Json};

use super::{ChatError, Conversation};
use crate::tokenizer::Prompt;

/// Characters that can be marks: noncharacters, which no text interchanged has a use for.
const CANDIDATES: std::ops::RangeInclusive<char> = '\u{fdd0}'..='\u{fdef}';

/// Whether a character may be a mark, so that a filter must pass it on as it is.
pub(super) fn may_be_mark(character: char) -> bool {
    CANDIDATES.contains(&character)
}

/// The marks of one rendering.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    /// Behind the first character of what is not to become a control token.
    literal: char,
    /// At the end of a message that is to be continued.
    open_end: char,
}

impl Marks {
    /// Two characters that occur nowhere in `conversation`; `None` if too few are left.
    pub(super) fn unused_in(conversation: &Conversation<'_>) -> Option<Self> {
        let mut used = Vec::new();
        let all = conversation.messages.iter().chain(conversation.tools);
        all.for_each(|value| note_used(value, &mut used));
        for (key, value) in conversation.kwargs.into_iter().flatten() {
            note_text(key, &mut used);
            note_used(value, &mut used);
        }
        let mut free = CANDIDATES.filter(|candidate| !used.contains(candidate));
        Some(Self {
            literal: free.next()?,
            open_end: free.next()?,
        })
    }

    /// `value` for a template, with all its texts (keys, too) marked.
    pub(super) fn protect(&self, value: &Json, control: &ControlTexts) -> Value {
        match value {
            Json::Null => Value::from(()),
            Json::Bool(value) => Value::from(*value),
            Json::Number(value) => number(value),
            Json::String(text) => Value::from(self.protect_text(text, control)),
            Json::Array(values) => self.protect_all(values, control),
            Json::Object(pairs) => Value::from_pairs(pairs.iter().map(|(key, value)| {
                (
                    self.protect_text(key, control),
                    self.protect(value, control),
                )
            })),
        }
    }

    /// A list of values for a template.
    pub(super) fn protect_all(&self, values: &[Json], control: &ControlTexts) -> Value {
        values
            .iter()
            .map(|value| self.protect(value, control))
            .collect()
    }

    fn protect_text(&self, text: &str, control: &ControlTexts) -> String {
        // Templates take spaces at the end away, so that what stands before them is the end.
        let end = text.trim_end_matches(self.open_end).trim_end().len();
        let mut out = String::with_capacity(text.len());
        for (at, character) in text.char_indices() {
            out.push(character);
            if control.may_begin(text, at, end) {
                out.push(self.literal);
            }
        }
        out
    }

    /// Marks the end of the last message as open.
    pub(super) fn open_end(&self, messages: &mut [Json]) -> Result<(), ChatError> {
        match messages
            .last_mut()
            .and_then(|message| message.get_mut("content"))
        {
            Some(Json::String(text)) => {
                text.push(self.open_end);
                Ok(())
            }
            _ => Err(ChatError::NothingToContinue),
        }
    }

    /// What a template wrote up to the open end.
    pub(super) fn cut_at_open_end<'a>(&self, text: &'a str) -> Result<&'a str, ChatError> {
        let end = text
            .rfind(self.open_end)
            .ok_or(ChatError::NothingToContinue)?;
        text.get(..end).ok_or(ChatError::NothingToContinue)
    }

    /// The prompt that a marked text stands for.
    pub(super) fn finish(&self, text: &str) -> Result<Prompt, ChatError> {
        let mut prompt = Prompt {
            text: String::with_capacity(text.len()),
            literal: Vec::new(),
        };
        let mut last = None;
        for character in text.chars() {
            if character == self.literal {
                prompt.literal.extend(last);
            } else if character != self.open_end {
                last = Some(prompt.text.len());
                prompt.text.push(character);
            }
        }
        // Two marks may meet where a template took away what was between them.
        prompt.literal.dedup();
        Ok(prompt)
    }
}

/// The texts of all control tokens.
#[derive(Debug)]
pub(super) struct ControlTexts {
    texts: Vec<String>,
    /// Whether one of them begins with this byte.
    first: [bool; 256],
}

impl ControlTexts {
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let texts: Vec<String> = texts
            .filter(|text| !text.is_empty())
            .map(Into::into)
            .collect();
        let mut first = [false; 256];
        for byte in texts.iter().filter_map(|text| text.bytes().next()) {
            if let Some(known) = first.get_mut(usize::from(byte)) {
                *known = true;
            }
        }
        Self { texts, first }
    }

    /// Whether `text` spells one of them from byte `at`, or would if another text followed it at
    /// byte `end`.
    fn may_begin(&self, text: &str, at: usize, end: usize) -> bool {
        let Some(rest) = text.get(at..) else {
            return false;
        };
        let byte = rest.bytes().next().map(usize::from);
        if !byte
            .and_then(|byte| self.first.get(byte))
            .is_some_and(|known| *known)
        {
            return false;
        }
        let tail = text.get(at..end).filter(|tail| !tail.is_empty());
        self.texts.iter().any(|control| {
            rest.starts_with(control) || tail.is_some_and(|tail| control.starts_with(tail))
        })
    }
}

fn number(value: &Number) -> Value {
    match (value.as_i64(), value.as_u64()) {
        (Some(integer), _) => Value::from(integer),
        (None, Some(integer)) => Value::from(integer),
        (None, None) => Value::from(value.as_f64()),
    }
}

fn note_used(value: &Json, used: &mut Vec<char>) {
    match value {
        Json::String(text) => note_text(text, used),
        Json::Array(values) => values.iter().for_each(|value| note_used(value, used)),
        Json::Object(pairs) => pairs.iter().for_each(|(key, value)| {
            note_text(key, used);
            note_used(value, used);
        }),
        _ => {}
    }
}

fn note_text(text: &str, used: &mut Vec<char>) {
    for character in text.chars().filter(|character| may_be_mark(*character)) {
        if !used.contains(&character) {
            used.push(character);
        }
    }
}
