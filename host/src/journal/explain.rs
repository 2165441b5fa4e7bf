//! The account of one request, from a journal.

use std::fmt;
use std::path::Path;

use super::account::Account;
use super::chronicle::Chronicle;
use super::reader::{JournalReader, ReadError};
use super::replay::{Difference, replay_with};
use crate::request::RequestId;

/// Why a journal gives no account.
#[derive(Debug)]
pub enum ExplainError {
    /// It cannot be read.
    Read(ReadError),
    /// It names no such request.
    UnknownRequest {
        /// The request.
        request: RequestId,
        /// The last that it names, if any.
        last: Option<RequestId>,
    },
    /// What it says is not what its inputs give: an account would be a guess.
    Different(Box<Difference>),
}

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::UnknownRequest { request, last } => {
                write!(f, "the journal names no request {request}")?;
                match last {
                    Some(last) => write!(f, "; the last it names is {last}"),
                    None => f.write_str(", and no other"),
                }
            }
            Self::Different(difference) => write!(f, "the journal does not replay: {difference}"),
        }
    }
}

impl std::error::Error for ExplainError {}

/// Accounts kept behind the one that is looked for: more than can end in one step.
const KEPT: usize = 1 << 14;

/// The account of one request: replays the journal, and so checks it on the way.
///
/// # Errors
/// Where the journal cannot be read, does not replay, or does not name the request.
pub fn explain(path: &Path, request: RequestId) -> Result<Account, ExplainError> {
    let reader = JournalReader::open(path).map_err(ExplainError::Read)?;
    let mut chronicle = Chronicle::new(reader.header().config.preemption_policy, KEPT);
    let mut last = None;
    let mut account = None;
    let report = replay_with(path, |inputs, plan| {
        chronicle.record(inputs, plan);
        last = inputs.arrivals.last().map(|a| a.request).or(last);
        if plan
            .releases
            .iter()
            .any(|release| release.request == request)
        {
            account = chronicle.ended(request).cloned();
        }
    })
    .map_err(ExplainError::Read)?;
    if let Some(difference) = report.difference {
        return Err(ExplainError::Different(Box::new(difference)));
    }
    account
        .or_else(|| chronicle.account(request).cloned())
        .ok_or(ExplainError::UnknownRequest { request, last })
}
