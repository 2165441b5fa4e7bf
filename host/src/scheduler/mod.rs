//! The state machine behind the door: [`Scheduler::step`] turns inputs into a plan, and nothing else.

mod config;
mod inputs;
mod plan;

pub use config::{ConfigError, SchedulerConfig, parse_policy, policy_label};
pub use inputs::{Advance, Arrival, Finish, Inputs, Parameters};
pub use plan::{
    Admission, Blocked, Chunk, Plan, Preemption, RejectReason, Release, ReleaseCause, Wait,
};

use crate::batch::{Batch, TokenId};
use crate::request::RequestId;

/// Queue, running batch, preemption and block accounting: a function of its inputs.
#[derive(Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
}

impl Scheduler {
    /// An empty scheduler.
    ///
    /// # Errors
    /// The first limit of `config` that does not hold.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    /// Takes one step: applies `inputs`, then writes the decision into `plan`.
    ///
    /// With no inputs and nothing live there is no step: the plan is empty and its number 0.
    ///
    /// # Panics
    /// Where the engine breaks the protocol: advances that do not answer the sampling chunks of
    /// the last plan one by one, or request ids that do not rise.
    pub fn step(&mut self, inputs: &Inputs, plan: &mut Plan) {
        let _ = (inputs, plan);
        unimplemented!("the interface stands; the pass follows")
    }

    /// Writes the arrays of a forward pass for the plan of the last step.
    ///
    /// # Panics
    /// If `plan` is not the plan of the last step.
    pub fn fill_batch(&self, plan: &Plan, batch: &mut Batch) {
        let _ = (plan, batch);
        unimplemented!("the interface stands; the pass follows")
    }

    /// The limits it works within.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The tokens of a live request: prompt, then what was generated. `None` if it is not live.
    pub fn tokens(&self, request: RequestId) -> Option<&[TokenId]> {
        let _ = request;
        None
    }

    /// Requests that wait for a seat.
    pub fn num_waiting(&self) -> usize {
        0
    }

    /// Sequences that have a seat.
    pub fn num_running(&self) -> usize {
        0
    }

    /// Whether nothing is live.
    pub fn is_idle(&self) -> bool {
        self.num_waiting() == 0 && self.num_running() == 0
    }

    /// Blocks that hold nothing worth keeping.
    pub fn num_free_blocks(&self) -> usize {
        0
    }

    /// Blocks that no sequence references and whose content may be found again.
    pub fn num_cached_blocks(&self) -> usize {
        0
    }
}
