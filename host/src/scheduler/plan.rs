//! What one step decided: everything that the engine, the journal and an account need of it.

use policy_core::{Candidate, Need, RequestPriority, Separator, SequenceId};

use super::inputs::Finish;
use crate::request::RequestId;

/// The decision of one step. Owned by the caller, and reused: [`super::Scheduler::step`] clears it first.
///
/// It is carried out in the order of the fields: requests end, blocks are copied in order, and
/// then the chunks are computed together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The step's number, from 1.
    pub step: u64,
    /// Requests that ended, each once: what comes after is no longer theirs.
    pub releases: Vec<Release>,
    /// Who was preempted, in the order in which they were taken.
    pub preemptions: Vec<Preemption>,
    /// The candidates of all preemptions, each in order of importance ([`Preemption::candidates`]).
    pub candidates: Vec<Candidate>,
    /// Cached blocks whose content was given up, in order.
    pub evictions: Vec<u32>,
    /// Who got a seat, in order of importance.
    pub admissions: Vec<Admission>,
    /// Blocks to copy, in order and before the chunks, each `(from, to)`.
    pub copies: Vec<(u32, u32)>,
    /// What is computed, in order of importance: the order of the batch.
    pub chunks: Vec<Chunk>,
    /// The block tables of all chunks, one after the other.
    pub block_tables: Vec<u32>,
    /// Why the most important waiting request was not admitted; `None` where none waits.
    pub blocked: Option<Blocked>,
}

impl Plan {
    /// Empties the plan and keeps its memory.
    pub fn clear(&mut self) {
        self.step = 0;
        self.releases.clear();
        self.preemptions.clear();
        self.candidates.clear();
        self.evictions.clear();
        self.admissions.clear();
        self.copies.clear();
        self.chunks.clear();
        self.block_tables.clear();
        self.blocked = None;
    }

    /// The block table of one of its chunks: it covers every position up to the chunk's last.
    pub fn block_table(&self, chunk: &Chunk) -> &[u32] {
        let first = chunk.first_block as usize;
        &self.block_tables[first..first + chunk.blocks as usize]
    }

    /// The blocks that a chunk got in this step: the last ones of its table.
    pub fn new_blocks(&self, chunk: &Chunk) -> &[u32] {
        let table = self.block_table(chunk);
        &table[table.len() - chunk.new_blocks as usize..]
    }

    /// Tokens computed in this step.
    pub fn num_tokens(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len as usize).sum()
    }
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The request.
    pub request: RequestId,
    /// How it ended.
    pub cause: ReleaseCause,
    /// Tokens generated.
    pub generated_tokens: u32,
    /// Tokens of the prompt that were found in the prefix cache at the first admission.
    pub cached_tokens: u32,
    /// How often it was preempted.
    pub preemptions: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseCause {
    /// Its answer is whole, or could not be computed.
    Finished(Finish),
    /// Its caller went away.
    Cancelled,
    /// Its time was up.
    Expired,
    /// It was never live: see the reason.
    Rejected(RejectReason),
}

/// Why an arrival was not taken. The door checks the same, so that these are a second line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// Its prompt has no token.
    EmptyPrompt,
    /// Prompt and answer together exceed `max_model_len`.
    TooLong,
    /// The scheduler drains.
    Draining,
}

/// A seat given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The id of this admission.
    pub sequence: SequenceId,
    /// The request.
    pub request: RequestId,
    /// Tokens whose keys and values need not be computed: prefix cache or sibling.
    pub cached_tokens: u32,
    /// How often the request had been preempted: 0 is the first admission.
    pub preemptions: u32,
}

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The sequence.
    pub sequence: SequenceId,
    /// Its request.
    pub request: RequestId,
    /// The position of its first token: so many tokens are already computed.
    pub start: u32,
    /// How many tokens are computed, at least one.
    pub len: u32,
    /// Whether the last row's logits give a token: the chunk reaches `num_tokens`.
    pub sample: bool,
    /// Where its block table starts in [`Plan::block_tables`].
    pub first_block: u32,
    /// Blocks of its table.
    pub blocks: u32,
    /// How many of them, the last ones, it got in this step.
    pub new_blocks: u32,
}

/// One preemption, with the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Who gave way.
    pub victim: Candidate,
    /// The victim's request.
    pub request: RequestId,
    /// Whom for.
    pub beneficiary: RequestId,
    /// The class of whom it was for.
    pub beneficiary_priority: RequestPriority,
    /// What for.
    pub need: Need,
    /// Who would have been next.
    pub runner_up: Option<Candidate>,
    /// The component of the key that separated the two.
    pub separator: Option<Separator>,
    /// Where the candidates start in [`Plan::candidates`].
    pub first_candidate: u32,
    /// How many there were, the exempt ones included.
    pub considered: u32,
    /// How many of them were exempt.
    pub exempt: u32,
    /// Blocks that could be had (free, or cached and unreferenced) before.
    pub blocks_before: u32,
    /// The same after.
    pub blocks_after: u32,
    /// Tokens whose keys and values the victim gave up.
    pub computed_tokens: u32,
    /// How many of them must be computed again even if nothing of its content is evicted.
    pub recompute_tokens: u32,
}

impl Preemption {
    /// The candidates it was chosen among, in order of importance.
    pub fn candidates<'a>(&self, plan: &'a Plan) -> &'a [Candidate] {
        let first = self.first_candidate as usize;
        &plan.candidates[first..first + self.considered as usize]
    }
}

/// The most important request that waits, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The request.
    pub request: RequestId,
    /// What it waits for.
    pub wait: Wait,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A seat.
    Seat,
    /// KV blocks, for what it has and the headroom of those that run.
    Blocks {
        /// How many it needs.
        needed: u32,
        /// How many could be had.
        available: u32,
    },
    /// A token of the step's budget.
    Budget,
    /// Its own preemption was in this step.
    Preempted,
    /// A sequence ahead of it lacked blocks in this step.
    Shortage,
    /// The first choice of its request, which computes the prompt that they share.
    Sibling,
}
