//! The log of inputs and plans: written before each plan is carried out, chained, replayable.
//!
//! A journal is JSON lines. The first is a [`Header`]; each other is one step: its inputs, its
//! plan, and a hash chained to the line before. `docs/journal.md` describes every field.

mod account;
mod chain;
mod chronicle;
mod decode;
mod encode;
mod explain;
mod file;
mod locate;
mod reader;
mod recorder;
mod replay;
mod sync;
mod torn;
mod writer;

pub use account::{Account, AccountEvent, CandidateAccount, PreemptionAccount};
pub use chain::Chain;
pub use chronicle::Chronicle;
pub use decode::{DecodeError, Decoder};
pub use encode::Encoder;
pub use explain::{ExplainError, explain};
pub use reader::{JournalReader, Line, ReadError, Tail};
pub use recorder::Recorder;
pub use replay::{Difference, ReplayReport, replay, replay_files, replay_with};
pub use sync::JournalSync;
pub use writer::{JournalError, JournalOptions, JournalWriter};

use serde::{Deserialize, Serialize};

use crate::scheduler::{Checkpoint, SchedulerConfig};

/// The version of the format that this build writes and reads.
pub const JOURNAL_VERSION: u32 = 1;

/// The first line: what a replay must know, and what the answers depended on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format's version, [`JOURNAL_VERSION`].
    pub journal: u32,
    /// The version of the build that wrote it.
    pub lockstep: String,
    /// The model file's digest; empty where there was no model.
    pub model: String,
    /// The version of the numerics contract.
    pub numerics: String,
    /// What is recorded of prompts and answers.
    pub content: JournalContent,
    /// The scheduler's limits.
    pub config: SchedulerConfig,
    /// The scheduler's state before the first record, in a file that continues another and records
    /// tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The last chain hash of the file that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

impl Header {
    /// The header of a journal that this build writes.
    pub fn new(config: SchedulerConfig, model: &str, numerics: &str) -> Self {
        Self {
            journal: JOURNAL_VERSION,
            lockstep: env!("CARGO_PKG_VERSION").to_owned(),
            model: model.to_owned(),
            numerics: numerics.to_owned(),
            content: JournalContent::Tokens,
            config,
            checkpoint: None,
            previous: None,
        }
    }
}

/// What a journal records of prompts and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum JournalContent {
    /// Their tokens and parameters: plans and tokens replay.
    #[default]
    Tokens,
    /// The content ids of their full blocks, and no parameters: plans replay, texts stay private.
    Ids,
}
