//! What the engine owes the scheduler, checked before a step takes anything in.

use std::fmt;

use policy_core::SequenceId;

use super::Scheduler;
use super::inputs::Inputs;
use crate::request::RequestId;

/// Inputs that no engine gives: a bug in the engine, or a journal that was tampered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A chunk sampled, and its outcome is missing.
    NoAdvance(SequenceId),
    /// An advance of a sequence that was not in the last plan, or stands in another order.
    NotInPlan(SequenceId),
    /// An advance that neither appends a token nor ends the answer.
    NoToken(SequenceId),
    /// A token beyond the request's `max_tokens`.
    TooManyTokens(SequenceId),
    /// A request whose number is not above all before it.
    OutOfOrder(RequestId),
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAdvance(id) => write!(f, "sequence {id} sampled and has no advance"),
            Self::NotInPlan(id) => {
                write!(
                    f,
                    "the advance of sequence {id} answers no chunk of the last plan"
                )
            }
            Self::NoToken(id) => write!(f, "sequence {id} goes on without a token"),
            Self::TooManyTokens(id) => write!(f, "sequence {id} has its max_tokens"),
            Self::OutOfOrder(request) => write!(f, "request {request} does not arrive in order"),
        }
    }
}

impl std::error::Error for ProtocolError {}

impl Scheduler {
    /// Whether `inputs` may be the next step's. O(inputs + chunks of the last plan).
    ///
    /// # Errors
    /// The first of them that may not.
    pub fn check(&self, inputs: &Inputs) -> Result<(), ProtocolError> {
        let mut advances = inputs.advances.iter().peekable();
        for chunk in &self.in_flight {
            let advance = advances.next_if(|advance| advance.sequence == chunk.sequence);
            if advance.is_none() && chunk.sample {
                return Err(ProtocolError::NoAdvance(chunk.sequence));
            }
            let goes_on = advance.is_some_and(|advance| advance.finished.is_none());
            let appends = advance.is_some_and(|advance| advance.token.is_some());
            if goes_on && !(appends && chunk.sample) {
                return Err(ProtocolError::NoToken(chunk.sequence));
            }
            let sequence = self.live.at(chunk.index);
            if appends && sequence.generated_tokens() >= sequence.max_tokens {
                return Err(ProtocolError::TooManyTokens(chunk.sequence));
            }
        }
        if let Some(advance) = advances.next() {
            return Err(ProtocolError::NotInPlan(advance.sequence));
        }
        let mut last = self.last_request;
        for arrival in &inputs.arrivals {
            if last.is_some_and(|last| last >= arrival.request) {
                return Err(ProtocolError::OutOfOrder(arrival.request));
            }
            last = Some(arrival.request);
        }
        Ok(())
    }
}
