//! What the world says to the scheduler: the whole of a step's input.

use std::sync::Arc;

use policy_core::{RequestPriority, SequenceId};
use serde::{Deserialize, Serialize};

use crate::batch::TokenId;
use crate::request::{RequestId, SamplingParams, StopConditions};

/// The inputs of one step, applied in the order of the fields: advances, arrivals, cancels,
/// expiries, drain.
///
/// So the token of a request that is cancelled in the same step still counts, and an advance that
/// finishes it wins over its cancel. A cancel or an expiry of a request that is not live is ignored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// The outcome of each sampling chunk of the last plan, in that plan's order, none left out.
    pub advances: Vec<Advance>,
    /// New requests; their ids rise, within a step and from step to step.
    pub arrivals: Vec<Arrival>,
    /// Requests whose callers went away.
    pub cancels: Vec<RequestId>,
    /// Requests whose time is up: wall time enters here and nowhere else.
    pub expiries: Vec<RequestId>,
    /// Whether arrivals are rejected from now on; it stays so.
    pub drain: bool,
}

impl Inputs {
    /// Empties the inputs and keeps their memory.
    pub fn clear(&mut self) {
        self.advances.clear();
        self.arrivals.clear();
        self.cancels.clear();
        self.expiries.clear();
        self.drain = false;
    }

    /// Whether there is nothing in them.
    pub fn is_empty(&self) -> bool {
        self.advances.is_empty()
            && self.arrivals.is_empty()
            && self.cancels.is_empty()
            && self.expiries.is_empty()
            && !self.drain
    }
}

/// A request as the scheduler sees it. A choice of an `n > 1` is a request of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Its number.
    pub request: RequestId,
    /// Its class.
    pub priority: RequestPriority,
    /// Its prompt, at least one token.
    pub prompt: Arc<[TokenId]>,
    /// The most tokens of the answer. A bound that is checked, never a reservation.
    pub max_tokens: u32,
    /// Whether its output is structured: exempt from preemption for a seat.
    pub structured: bool,
    /// Separates prefix caches: requests with different salts share nothing.
    pub cache_salt: Option<Arc<str>>,
    /// The first choice of the same `n > 1`, an earlier request with the same prompt, class and
    /// salt: its prompt blocks are shared, its partial last block copied.
    pub sibling_of: Option<RequestId>,
    /// What a token replay needs besides; recorded, and never read by the scheduler.
    pub parameters: Option<Arc<Parameters>>,
}

/// How a request's tokens are drawn and when its answer ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// When the answer ends.
    pub stop: StopConditions,
}

/// The outcome of one sampling chunk of the last plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// The chunk's sequence.
    pub sequence: SequenceId,
    /// The token appended; `None` only where the answer ends without one.
    pub token: Option<TokenId>,
    /// Whether the answer ends here, and how.
    pub finished: Option<Finish>,
}

/// How an answer ended, on the engine's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// An end token or a stop text.
    Stop,
    /// The limit of its length.
    Length,
    /// Its activations were not finite.
    NonFinite,
    /// No token may follow: its constraint, or what it allows and rules out, leaves none.
    NoToken,
}
