//! The second half of a step: one pass in order of importance over everything alive.

use policy_core::SequenceId;

use super::plan::{Admission, Blocked, Chunk, Plan, Wait};
use super::preempt::Demand;
use super::{InFlight, Scheduler};

/// What is left of a step, as the pass goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pass {
    /// How many running sequences have been visited: the rest may be preempted.
    pub(super) visited: usize,
    /// Tokens of the budget that are not granted.
    budget: u32,
    /// One token for every decoding sequence that was not visited.
    pub(super) reserved: u32,
    /// Blocks that the running sequences lack for the tokens they have.
    pub(super) lacking_blocks: u32,
    /// Whether waiting sequences may still be admitted.
    open: bool,
}

impl Pass {
    /// A pass that has visited nobody.
    pub(super) fn at_start(scheduler: &Scheduler) -> Self {
        let mut pass = Self {
            visited: 0,
            budget: scheduler.config.max_num_batched_tokens,
            reserved: 0,
            lacking_blocks: 0,
            open: true,
        };
        for place in &scheduler.running {
            let sequence = scheduler.live.at(place.index);
            pass.reserved += u32::from(sequence.decodes());
            pass.lacking_blocks += sequence.lacking_blocks(scheduler.config.block_size);
        }
        pass
    }

    /// Tokens that may be granted to whoever is visited.
    pub(super) fn allowed(&self) -> u32 {
        self.budget - self.reserved
    }
}

/// What a waiting sequence finds computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reuse {
    /// How many tokens.
    tokens: u32,
    /// The sibling's block to copy, behind those that are shared.
    copy: Option<u32>,
}

impl Scheduler {
    pub(super) fn pass(&mut self, plan: &mut Plan) {
        let mut pass = Pass::at_start(self);
        loop {
            let running = self.running.get(pass.visited);
            let waiting = self.waiting.front().filter(|_| pass.open);
            // Importance is unique by its arrival number: no two places are equal.
            match (running, waiting) {
                (Some(running), Some(waiting)) if waiting < running => self.admit(&mut pass, plan),
                (Some(_), _) => self.continue_running(&mut pass, plan),
                (None, Some(_)) => self.admit(&mut pass, plan),
                (None, None) => break,
            }
        }
        if plan.blocked.is_none() && !self.waiting.is_empty() {
            plan.blocked = self.blocked(Wait::Shortage);
        }
    }

    /// Grants a running sequence what it lacks, as far as budget and blocks go.
    fn continue_running(&mut self, pass: &mut Pass, plan: &mut Plan) {
        let place = self.running[pass.visited];
        pass.visited += 1;
        let sequence = self.live.at(place.index);
        pass.reserved -= u32::from(sequence.decodes());
        let wanted = sequence
            .lacking_tokens()
            .min(self.config.max_chunk_tokens)
            .min(pass.allowed());
        if wanted == 0 {
            return;
        }
        let len = wanted.min(self.room(place.index));
        if len < wanted {
            // Whoever waits is behind a sequence that lacks blocks: it is not admitted past it.
            pass.open = false;
        }
        if len > 0 {
            self.grant(place.index, len, pass, plan);
        } else if self.preempt_for_growth(place, pass, plan) {
            let len = wanted.min(self.room(place.index));
            self.grant(place.index, len, pass, plan);
        }
    }

    /// Tokens that a sequence could compute with its blocks and those that can be had.
    fn room(&self, index: u32) -> u32 {
        let sequence = self.live.at(index);
        let blocks = sequence.blocks.len() + self.pool.num_available();
        let slots = blocks as u64 * u64::from(self.config.block_size);
        u32::try_from(slots - u64::from(sequence.num_computed_tokens)).unwrap_or(u32::MAX)
    }

    fn preempt_for_growth(
        &mut self,
        place: super::sequence::Place,
        pass: &mut Pass,
        plan: &mut Plan,
    ) -> bool {
        self.found.clear();
        let sequence = self.live.at(place.index);
        let demand = Demand {
            request: sequence.request,
            priority: sequence.priority,
            running: true,
            blocks: 1,
        };
        self.preempt_for(&demand, pass, plan).is_ok()
    }

    /// Admits the most important waiting sequence, or says why it waits.
    fn admit(&mut self, pass: &mut Pass, plan: &mut Plan) {
        let place = self.waiting[0];
        let admitted = self.try_admit(place.index, pass, plan);
        match admitted {
            Ok(reuse) => {
                self.waiting.pop_front();
                self.seat(place, reuse, pass, plan);
            }
            Err(wait) => {
                pass.open = false;
                plan.blocked = self.blocked(wait);
            }
        }
    }

    fn blocked(&self, wait: Wait) -> Option<Blocked> {
        let request = self.live.at(self.waiting.front()?.index).request;
        Some(Blocked { request, wait })
    }

    /// Checks seat, blocks and budget together, and preempts whom it takes; leaves what the
    /// sequence shares in `found`.
    fn try_admit(&mut self, index: u32, pass: &mut Pass, plan: &mut Plan) -> Result<Reuse, Wait> {
        let sequence = self.live.at(index);
        if sequence.preempted_step == self.step {
            return Err(Wait::Preempted);
        }
        if !self.has_seat_for(index, pass) {
            return Err(Wait::Seat);
        }
        let reuse = self.reuse(index)?;
        let sequence = self.live.at(index);
        let own = sequence.num_tokens().div_ceil(self.config.block_size) - self.found.len() as u32;
        let demand = Demand {
            request: sequence.request,
            priority: sequence.priority,
            running: false,
            blocks: own + self.headroom(sequence.priority),
        };
        self.preempt_for(&demand, pass, plan)?;
        Ok(reuse)
    }

    /// Whether there is a seat, or somebody of a lower class behind who might give one up: if not,
    /// its prefix need not be looked up.
    fn has_seat_for(&self, index: u32, pass: &Pass) -> bool {
        let priority = self.live.at(index).priority;
        self.running.len() < self.config.max_num_seqs as usize
            || self.running[pass.visited..]
                .iter()
                .any(|place| self.live.at(place.index).priority < priority)
    }

    /// Blocks left for the growth of those whom a sequence of this class could not displace.
    fn headroom(&self, priority: policy_core::RequestPriority) -> u32 {
        let peers = self
            .running
            .iter()
            .filter(|place| self.live.at(place.index).priority >= priority)
            .count();
        peers as u32 * self.config.admission_headroom_blocks
    }

    /// What a waiting sequence need not compute: its sibling's prompt, or what the prefix index
    /// holds. At least one token stays to be computed, since its logits are wanted.
    fn reuse(&mut self, index: u32) -> Result<Reuse, Wait> {
        self.found.clear();
        let size = self.config.block_size;
        if self.config.enable_prefix_caching {
            self.live.at_mut(index).extend_content_ids(size);
        }
        if let Some(reuse) = self.reuse_sibling(index)? {
            return Ok(reuse);
        }
        if !self.config.enable_prefix_caching {
            return Ok(Reuse {
                tokens: 0,
                copy: None,
            });
        }
        let sequence = self.live.at(index);
        for at in 0..((sequence.num_tokens() - 1) / size) as usize {
            let tokens = sequence.block_tokens(at, size);
            let id = &sequence.content_ids[at];
            match self.pool.find(id, &sequence.parent(at), tokens) {
                Some(block) => self.found.push(block),
                None => break,
            }
        }
        Ok(Reuse {
            tokens: self.found.len() as u32 * size,
            copy: None,
        })
    }

    fn reuse_sibling(&mut self, index: u32) -> Result<Option<Reuse>, Wait> {
        let sequence = self.live.at(index);
        let first = sequence
            .sibling_of
            .filter(|_| sequence.generated_tokens() == 0)
            .and_then(|first| self.live.find(first))
            .map(|first| self.live.at(first))
            .filter(|first| first.id.is_some());
        let Some(first) = first else { return Ok(None) };
        if first.num_computed_tokens < first.num_prompt_tokens {
            return Err(Wait::Sibling);
        }
        let tokens = first.num_prompt_tokens - 1;
        let shared = (tokens / self.config.block_size) as usize;
        self.found.extend_from_slice(&first.blocks[..shared]);
        let partial = !tokens.is_multiple_of(self.config.block_size);
        Ok(Some(Reuse {
            tokens,
            copy: partial.then(|| first.blocks[shared]),
        }))
    }

    /// Gives a sequence a seat, the blocks it shares, and its first chunk.
    fn seat(
        &mut self,
        place: super::sequence::Place,
        reuse: Reuse,
        pass: &mut Pass,
        plan: &mut Plan,
    ) {
        let size = self.config.block_size;
        for at in 0..self.found.len() {
            self.pool.share(self.found[at]);
        }
        let id = self.next_sequence;
        self.next_sequence = SequenceId::successor(id).expect("admissions do not run out");
        let copied = reuse.copy.map(|from| {
            let to = self.allocate(plan);
            plan.copies.push((from, to));
            to
        });
        let sequence = self.live.at_mut(place.index);
        sequence.reserve(size);
        sequence.blocks.extend_from_slice(&self.found);
        sequence.blocks.extend(copied);
        sequence.num_computed_tokens = reuse.tokens;
        sequence.admit(id, self.step);
        if sequence.preemptions == 0 {
            sequence.cached_tokens = reuse.tokens;
        }
        plan.admissions.push(Admission {
            sequence: id,
            request: sequence.request,
            cached_tokens: reuse.tokens,
            preemptions: sequence.preemptions,
        });
        pass.lacking_blocks += sequence.lacking_blocks(size);
        let len = sequence
            .lacking_tokens()
            .min(self.config.max_chunk_tokens)
            .min(pass.allowed());
        self.running.insert(pass.visited, place);
        pass.visited += 1;
        self.grant(place.index, len, pass, plan);
        let copied = u32::from(copied.is_some());
        if let Some(chunk) = plan.chunks.last_mut() {
            chunk.new_blocks += copied;
        }
    }

    /// Grants so many tokens and the blocks for them: the blocks can be had.
    fn grant(&mut self, index: u32, len: u32, pass: &mut Pass, plan: &mut Plan) {
        assert_ne!(len, 0, "a chunk has a token");
        let sequence = self.live.at(index);
        let start = sequence.num_computed_tokens;
        let blocks = (start + len).div_ceil(self.config.block_size);
        let new_blocks = blocks - sequence.blocks.len() as u32;
        for _ in 0..new_blocks {
            let block = self.allocate(plan);
            self.live.at_mut(index).blocks.push(block);
        }
        pass.budget -= len;
        pass.lacking_blocks -= new_blocks;
        let sequence = self.live.at(index);
        let chunk = Chunk {
            sequence: sequence.running_id(),
            request: sequence.request,
            start,
            len,
            sample: start + len == sequence.num_tokens(),
            first_block: plan.block_tables.len() as u32,
            blocks,
            new_blocks,
        };
        plan.block_tables.extend_from_slice(&sequence.blocks);
        plan.chunks.push(chunk);
        self.in_flight.push(InFlight {
            sequence: chunk.sequence,
            index,
            len,
            sample: chunk.sample,
        });
    }

    fn allocate(&mut self, plan: &mut Plan) -> u32 {
        self.pool
            .allocate(&mut plan.evictions)
            .expect("the blocks were counted before")
    }
}
