//! Records read back: the inputs of a step, for the production scheduler.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use policy_core::SequenceId;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::encode::finish_name;
use super::{Header, JournalContent};
use crate::batch::TokenId;
use crate::request::RequestId;
use crate::scheduler::{Advance, Arrival, Finish, Inputs, Parameters};

/// A line that is not the record that it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// What is wrong.
    pub message: String,
    /// The column (from 1) where reading stopped, where it stopped inside the text.
    pub column: Option<usize>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl From<serde_json::Error> for DecodeError {
    fn from(error: serde_json::Error) -> Self {
        Self {
            message: error.to_string(),
            column: Some(error.column()).filter(|column| *column > 0),
        }
    }
}

/// Reads the inputs of records, in the order of the journal.
///
/// A journal without tokens replays too: the scheduler only ever asks whether contents are equal,
/// so each content id becomes a number, in the order of first sight, and that number stands as the
/// last token of the block, behind zeros. Blocks are equal then exactly where they were.
#[derive(Clone, Debug)]
pub struct Decoder {
    content: JournalContent,
    block_size: usize,
    /// Numbers of the content ids seen; looked up, never walked.
    numbers: BTreeMap<String, TokenId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    step: u64,
    inputs: RecordInputs,
    #[serde(rename = "plan")]
    _plan: IgnoredAny,
    #[serde(rename = "chain")]
    _chain: IgnoredAny,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RecordInputs {
    advances: Vec<RecordAdvance>,
    arrivals: Vec<RecordArrival>,
    cancels: Vec<u64>,
    expiries: Vec<u64>,
    drain: bool,
}

#[derive(Deserialize)]
struct RecordAdvance(u64, Option<RecordToken>, #[serde(default)] Option<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum RecordToken {
    Token(TokenId),
    Content(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordArrival {
    request: u64,
    priority: String,
    max_tokens: u32,
    #[serde(default)]
    structured: bool,
    #[serde(default)]
    sibling_of: Option<u64>,
    #[serde(default)]
    cache_salt: Option<Arc<str>>,
    #[serde(default)]
    parameters: Option<Arc<Parameters>>,
    #[serde(default)]
    prompt: Vec<TokenId>,
    #[serde(default)]
    prompt_tokens: Option<u32>,
    #[serde(default)]
    prompt_ids: Vec<String>,
}

impl Decoder {
    /// A decoder of the records under this header.
    pub fn new(header: &Header) -> Self {
        Self {
            content: header.content,
            block_size: header.config.block_size as usize,
            numbers: BTreeMap::new(),
        }
    }

    /// The step of a record, and its inputs.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn record(&mut self, line: &[u8]) -> Result<(u64, Inputs), DecodeError> {
        let record: Record = serde_json::from_slice(line)?;
        let inputs = record.inputs;
        Ok((
            record.step,
            Inputs {
                advances: collect(inputs.advances, |advance| self.advance(advance))?,
                arrivals: collect(inputs.arrivals, |arrival| self.arrival(arrival))?,
                cancels: inputs.cancels.into_iter().map(RequestId::new).collect(),
                expiries: inputs.expiries.into_iter().map(RequestId::new).collect(),
                drain: inputs.drain,
            },
        ))
    }

    fn advance(&mut self, advance: RecordAdvance) -> Result<Advance, DecodeError> {
        let RecordAdvance(sequence, token, finished) = advance;
        let token = match (token, self.content) {
            (None, _) => None,
            (Some(RecordToken::Token(token)), JournalContent::Tokens) => Some(token),
            (Some(RecordToken::Token(_)), JournalContent::Ids) => Some(0),
            (Some(RecordToken::Content(id)), JournalContent::Ids) => Some(self.number(id)),
            (Some(RecordToken::Content(_)), JournalContent::Tokens) => {
                return Err(wrong("a content id where a token is recorded"));
            }
        };
        let finished = match finished {
            Some(name) => Some(finish(&name)?),
            None => None,
        };
        Ok(Advance {
            sequence: SequenceId::new(sequence),
            token,
            finished,
        })
    }

    fn arrival(&mut self, arrival: RecordArrival) -> Result<Arrival, DecodeError> {
        let priority = policy_core::RequestPriority::ALL
            .iter()
            .find(|priority| priority.name() == arrival.priority)
            .ok_or_else(|| wrong(&format!("unknown priority {:?}", arrival.priority)))?;
        let prompt = match (self.content, arrival.prompt_tokens) {
            (JournalContent::Tokens, None) => arrival.prompt,
            (JournalContent::Ids, Some(len)) => self.stand_ins(len, arrival.prompt_ids)?,
            _ => return Err(wrong("a prompt that does not fit the header's content")),
        };
        Ok(Arrival {
            request: RequestId::new(arrival.request),
            priority: *priority,
            prompt: Arc::from(prompt),
            max_tokens: arrival.max_tokens,
            structured: arrival.structured,
            cache_salt: arrival.cache_salt,
            sibling_of: arrival.sibling_of.map(RequestId::new),
            parameters: arrival.parameters,
        })
    }

    /// A prompt whose full blocks are equal to others exactly where their contents are.
    fn stand_ins(&mut self, len: u32, ids: Vec<String>) -> Result<Vec<TokenId>, DecodeError> {
        // A damaged length must not become a huge allocation.
        const LONGEST: u32 = 1 << 26;
        let blocks = len as usize / self.block_size.max(1);
        if len > LONGEST || ids.len() > blocks {
            return Err(wrong("a prompt's length does not fit its blocks"));
        }
        let mut tokens = vec![0; len as usize];
        for (block, id) in tokens.chunks_exact_mut(self.block_size.max(1)).zip(ids) {
            let number = self.number(id);
            if let Some(last) = block.last_mut() {
                *last = number;
            }
        }
        Ok(tokens)
    }

    fn number(&mut self, id: String) -> TokenId {
        let next = self.numbers.len() as TokenId + 1;
        *self.numbers.entry(id).or_insert(next)
    }
}

fn finish(name: &str) -> Result<Finish, DecodeError> {
    [
        Finish::Stop,
        Finish::Length,
        Finish::NonFinite,
        Finish::NoToken,
    ]
    .into_iter()
    .find(|finish| finish_name(*finish) == name)
    .ok_or_else(|| wrong(&format!("unknown finish {name:?}")))
}

fn collect<T, U>(
    items: Vec<T>,
    item: impl FnMut(T) -> Result<U, DecodeError>,
) -> Result<Vec<U>, DecodeError> {
    items.into_iter().map(item).collect()
}

fn wrong(message: &str) -> DecodeError {
    DecodeError {
        message: message.to_owned(),
        column: None,
    }
}
