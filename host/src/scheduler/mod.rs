//! The state machine behind the door: [`Scheduler::step`] turns inputs into a plan, and nothing else.
//!
//! It knows counts, ids and the content of blocks. It reads no clock, and it never branches on a
//! token: tokens only enter the content hashes of full blocks and the comparison on a hit.
//!
//! A step applies its inputs, then makes one pass in order of importance over everything alive.
//! The engine carries the plan out, and answers it with the advances of the next step.

mod apply;
mod checkpoint;
mod config;
mod inputs;
mod pass;
mod plan;
mod preempt;
mod protocol;
mod sequence;
#[cfg(test)]
mod tests;

pub use checkpoint::Checkpoint;
pub use config::{ConfigError, SchedulerConfig};
pub use inputs::{Advance, Arrival, Finish, Inputs, Parameters};
pub use plan::{
    Admission, Blocked, Chunk, Plan, Preemption, RejectReason, Release, ReleaseCause, Wait,
};

pub use protocol::ProtocolError;

use std::collections::VecDeque;

use policy_core::{Aging, Importance, SequenceId};

use crate::batch::{Batch, BatchSequence, TokenId};
use crate::kv::{BlockPool, ContentId};
use crate::request::RequestId;
use preempt::Trial;
use sequence::{Live, Place};

/// Queue, running batch, preemption and block accounting: a function of its inputs.
#[derive(Clone, Debug)]
pub struct Scheduler {
    config: SchedulerConfig,
    aging: Aging,
    step: u64,
    next_sequence: SequenceId,
    last_request: Option<RequestId>,
    draining: bool,
    live: Live,
    /// In order of importance.
    running: Vec<Place>,
    /// In order of importance.
    waiting: VecDeque<Place>,
    pool: BlockPool,
    /// The chunks of the last plan, in its order.
    in_flight: Vec<InFlight>,
    /// What the advances of this step filled.
    filled: Vec<(SequenceId, ContentId)>,
    /// Scratch: the blocks that the sequence being admitted shares.
    found: Vec<u32>,
    /// Scratch: the victims on paper.
    trials: Vec<Trial>,
    /// Scratch: per block, references gone with the victims on paper, less those to come.
    trial_references: Vec<i32>,
    /// Scratch: where `trial_references` is not 0.
    tried_blocks: Vec<u32>,
}

/// A chunk whose outcome is not known yet.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    sequence: SequenceId,
    index: u32,
    len: u32,
    sample: bool,
}

impl Scheduler {
    /// An empty scheduler.
    ///
    /// # Errors
    /// The first limit of `config` that does not hold.
    pub fn new(config: SchedulerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let seats = config.max_num_seqs as usize;
        let blocks = config.num_blocks as usize;
        Ok(Self {
            aging: Aging::from_steps(config.priority_aging_steps),
            step: 0,
            next_sequence: SequenceId::FIRST,
            last_request: None,
            draining: false,
            live: Live::default(),
            running: Vec::with_capacity(seats),
            waiting: VecDeque::new(),
            pool: BlockPool::new(config.num_blocks, config.block_size),
            in_flight: Vec::with_capacity(seats),
            filled: Vec::with_capacity(seats),
            found: Vec::with_capacity(blocks),
            trials: Vec::with_capacity(seats),
            trial_references: vec![0; blocks],
            tried_blocks: Vec::with_capacity(blocks),
            config,
        })
    }

    /// Takes one step: applies `inputs`, then writes the decision into `plan`.
    ///
    /// With no inputs and nothing live there is no step: the plan is empty and its number 0.
    ///
    /// # Panics
    /// Where the engine breaks the protocol ([`Self::check`]).
    pub fn step(&mut self, inputs: &Inputs, plan: &mut Plan) {
        if let Err(error) = self.check(inputs) {
            panic!("the engine broke the protocol: {error}");
        }
        plan.clear();
        if inputs.is_empty() && self.is_idle() {
            return;
        }
        self.step += 1;
        plan.step = self.step;
        self.apply(inputs, plan);
        self.pass(plan);
    }

    /// Writes the arrays of a forward pass for the plan of the last step.
    ///
    /// # Panics
    /// If `plan` is not the plan of the last step.
    pub fn fill_batch(&self, plan: &Plan, batch: &mut Batch) {
        assert_eq!(plan.step, self.step, "only the last plan is in flight");
        batch.clear();
        for (chunk, in_flight) in plan.chunks.iter().zip(&self.in_flight) {
            let table = plan.block_table(chunk);
            let first_row = batch.token_ids.len() as u32;
            let (start, end) = (chunk.start, chunk.start + chunk.len);
            let tokens = self.live.at(in_flight.index).tokens();
            batch
                .token_ids
                .extend_from_slice(&tokens[start as usize..end as usize]);
            batch.positions.extend(start..end);
            let size = self.config.block_size;
            batch.slots.extend(
                (start..end)
                    .map(|position| table[(position / size) as usize] * size + position % size),
            );
            batch.sequences.push(BatchSequence {
                first_row,
                rows: chunk.len,
                first_block: chunk.first_block,
                blocks: chunk.blocks,
            });
            if chunk.sample {
                batch.sampling_rows.push(first_row + chunk.len - 1);
            }
        }
        batch.block_tables.extend_from_slice(&plan.block_tables);
    }

    /// The limits it works within.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Steps taken.
    pub fn num_steps(&self) -> u64 {
        self.step
    }

    /// The tokens of a live request: prompt, then what was generated. `None` if it is not live.
    pub fn tokens(&self, request: RequestId) -> Option<&[TokenId]> {
        let index = self.live.find(request)?;
        Some(self.live.at(index).tokens())
    }

    /// The blocks that the tokens of this step's advances filled, in the order of the advances, by
    /// the sequence that each belongs to.
    pub fn filled_blocks(&self) -> &[(SequenceId, ContentId)] {
        &self.filled
    }

    /// Every live request, by its number.
    pub fn live(&self) -> impl Iterator<Item = LiveRequest> + '_ {
        self.live.iter().map(|sequence| LiveRequest {
            request: sequence.request,
            sequence: sequence.id,
            num_tokens: sequence.num_tokens(),
            num_prompt_tokens: sequence.num_prompt_tokens,
            num_computed_tokens: sequence.num_computed_tokens,
            num_blocks: sequence.blocks.len() as u32,
            preemptions: sequence.preemptions,
        })
    }

    /// Requests that wait for a seat.
    pub fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sequences that have a seat.
    pub fn num_running(&self) -> usize {
        self.running.len()
    }

    /// Whether nothing is live.
    pub fn is_idle(&self) -> bool {
        self.num_waiting() == 0 && self.num_running() == 0
    }

    /// The pool of KV blocks.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Queues a live sequence at the place that its importance gives it.
    fn enqueue(&mut self, place: Place) {
        let at = self.waiting.partition_point(|other| *other < place);
        self.waiting.insert(at, place);
    }

    fn running_position(&self, importance: Importance) -> usize {
        self.running
            .binary_search_by_key(&importance, |place| place.importance)
            .expect("a running sequence has a seat")
    }

    /// Gives back all blocks of a sequence, the last of its table first.
    fn release_blocks(&mut self, index: u32) {
        let sequence = self.live.at_mut(index);
        while let Some(block) = sequence.blocks.pop() {
            self.pool.release(block, self.step);
        }
    }
}

/// A live request, as an observer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRequest {
    /// The request.
    pub request: RequestId,
    /// The id of its admission; `None` while it waits.
    pub sequence: Option<SequenceId>,
    /// Tokens of prompt and answer.
    pub num_tokens: u32,
    /// Tokens of the prompt.
    pub num_prompt_tokens: u32,
    /// Tokens whose keys and values are written.
    pub num_computed_tokens: u32,
    /// Blocks that it references.
    pub num_blocks: u32,
    /// How often it was preempted.
    pub preemptions: u32,
}
