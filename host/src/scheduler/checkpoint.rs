//! The whole state of a scheduler as data: what a journal's next file begins with.

use std::sync::Arc;

use policy_core::{RequestPriority, SequenceId};
use serde::{Deserialize, Serialize};

use super::inputs::Arrival;
use super::sequence::Sequence;
use super::{InFlight, Scheduler, SchedulerConfig};
use crate::batch::TokenId;
use crate::kv::{BlockPool, ContentId, PoolCheckpoint};
use crate::request::RequestId;

/// A scheduler between two steps. A restored one decides as the one it was taken of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    step: u64,
    next_sequence: u64,
    last_request: Option<u64>,
    draining: bool,
    live: Vec<LiveCheckpoint>,
    in_flight: Vec<FlightCheckpoint>,
    pool: PoolCheckpoint,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LiveCheckpoint {
    request: u64,
    priority: String,
    arrived_step: u64,
    structured: bool,
    max_tokens: u32,
    num_prompt_tokens: u32,
    sibling_of: Option<u64>,
    root: ContentId,
    tokens: Vec<TokenId>,
    sequence: Option<u64>,
    admitted_step: u64,
    generated_before: u32,
    blocks: Vec<u32>,
    num_computed_tokens: u32,
    preemptions: u32,
    preempted_step: u64,
    cached_tokens: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlightCheckpoint {
    request: u64,
    len: u32,
    sample: bool,
}

impl Scheduler {
    /// Its whole state. O(tokens of live requests and cached blocks).
    pub fn checkpoint(&self) -> Checkpoint {
        let flight = |chunk: &InFlight| FlightCheckpoint {
            request: self.live.at(chunk.index).request.number(),
            len: chunk.len,
            sample: chunk.sample,
        };
        Checkpoint {
            step: self.step,
            next_sequence: self.next_sequence.number(),
            last_request: self.last_request.map(RequestId::number),
            draining: self.draining,
            live: self.live.iter().map(LiveCheckpoint::of).collect(),
            in_flight: self.in_flight.iter().map(flight).collect(),
            pool: self.pool.checkpoint(),
        }
    }

    /// The scheduler that a checkpoint was taken of.
    ///
    /// # Errors
    /// What in it no scheduler can be in, in a file that was tampered with.
    pub fn restore(config: SchedulerConfig, checkpoint: &Checkpoint) -> Result<Self, String> {
        let mut scheduler = Self::new(config).map_err(|error| error.to_string())?;
        scheduler.step = checkpoint.step;
        scheduler.next_sequence = SequenceId::new(checkpoint.next_sequence);
        scheduler.last_request = checkpoint.last_request.map(RequestId::new);
        scheduler.draining = checkpoint.draining;
        let mut references = vec![0; scheduler.config.num_blocks as usize];
        for live in &checkpoint.live {
            let flight = checkpoint
                .in_flight
                .iter()
                .find(|f| f.request == live.request);
            live.check(&scheduler, flight)?;
            for &block in &live.blocks {
                let count = references.get_mut(block as usize);
                *count.ok_or_else(|| format!("block {block} is beyond the pool"))? += 1;
            }
            scheduler.restore_live(live);
        }
        if scheduler.running.len() > scheduler.config.max_num_seqs as usize {
            return Err("more sequences run than there are seats".to_owned());
        }
        scheduler.restore_flight(checkpoint)?;
        let config = &scheduler.config;
        scheduler.pool = BlockPool::restore(
            config.num_blocks,
            config.block_size,
            references,
            &checkpoint.pool,
        )?;
        Ok(scheduler)
    }

    fn restore_live(&mut self, live: &LiveCheckpoint) {
        let priority = live.priority();
        let importance = self.aging.importance(policy_core::Arrival {
            priority,
            step: live.arrived_step,
            number: live.request,
        });
        let mut sequence = Sequence::new(&live.arrival(priority), importance, live.arrived_step);
        sequence.root = live.root;
        sequence.sibling_of = live.sibling_of.map(RequestId::new);
        sequence.blocks.clone_from(&live.blocks);
        sequence.num_computed_tokens = live.num_computed_tokens;
        sequence.preemptions = live.preemptions;
        sequence.preempted_step = live.preempted_step;
        sequence.cached_tokens = live.cached_tokens;
        sequence.restore_answer(
            &live.tokens,
            live.sequence.map(SequenceId::new),
            live.admitted_step,
            live.generated_before,
        );
        if self.config.enable_prefix_caching {
            sequence.extend_content_ids(self.config.block_size);
        }
        let runs = sequence.id.is_some();
        if runs {
            sequence.reserve(self.config.block_size);
        }
        let place = self.live.insert(sequence);
        if runs {
            let at = self.running.partition_point(|other| *other < place);
            self.running.insert(at, place);
        } else {
            self.enqueue(place);
        }
    }

    fn restore_flight(&mut self, checkpoint: &Checkpoint) -> Result<(), String> {
        for flight in &checkpoint.in_flight {
            let request = flight.request;
            let index = self
                .live
                .find(RequestId::new(request))
                .filter(|index| self.live.at(*index).id.is_some())
                .ok_or_else(|| format!("request {request} computes and does not run"))?;
            if self.in_flight.iter().any(|other| other.index == index) {
                return Err(format!("request {request} computes twice"));
            }
            self.in_flight.push(InFlight {
                sequence: self.live.at(index).running_id(),
                index,
                len: flight.len,
                sample: flight.sample,
            });
        }
        Ok(())
    }
}

impl LiveCheckpoint {
    fn of(sequence: &Sequence) -> Self {
        Self {
            request: sequence.request.number(),
            priority: sequence.priority.name().to_owned(),
            arrived_step: sequence.arrived_step,
            structured: sequence.structured,
            max_tokens: sequence.max_tokens,
            num_prompt_tokens: sequence.num_prompt_tokens,
            sibling_of: sequence.sibling_of.map(RequestId::number),
            root: sequence.root,
            tokens: sequence.tokens().to_vec(),
            sequence: sequence.id.map(SequenceId::number),
            admitted_step: sequence.admitted_step,
            generated_before: sequence.generated_before(),
            blocks: sequence.blocks.clone(),
            num_computed_tokens: sequence.num_computed_tokens,
            preemptions: sequence.preemptions,
            preempted_step: sequence.preempted_step,
            cached_tokens: sequence.cached_tokens,
        }
    }

    fn priority(&self) -> RequestPriority {
        let mut all = RequestPriority::ALL.iter().copied();
        all.find(|priority| priority.name() == self.priority)
            .unwrap_or_default()
    }

    fn arrival(&self, priority: RequestPriority) -> Arrival {
        Arrival {
            request: RequestId::new(self.request),
            priority,
            prompt: Arc::from(&self.tokens[..self.num_prompt_tokens as usize]),
            max_tokens: self.max_tokens,
            structured: self.structured,
            cache_salt: None,
            sibling_of: None,
            parameters: None,
        }
    }

    /// Whether a live request can be so, after the steps before it.
    fn check(
        &self,
        scheduler: &Scheduler,
        flight: Option<&FlightCheckpoint>,
    ) -> Result<(), String> {
        let size = scheduler.config.block_size;
        let num_tokens = self.tokens.len() as u64;
        let prompt = u64::from(self.num_prompt_tokens);
        let most = prompt + u64::from(self.max_tokens);
        let computed = u64::from(self.num_computed_tokens);
        let planned = computed + flight.map_or(0, |flight| u64::from(flight.len));
        let runs = self.sequence.is_some();
        let last = scheduler.live.iter().last().map(|s| s.request.number());
        let fits = [
            ("its number", last.is_none_or(|last| last < self.request)),
            (
                "its number",
                scheduler.last_request >= Some(RequestId::new(self.request)),
            ),
            ("its class", self.priority().name() == self.priority),
            ("its prompt", prompt > 0 && prompt <= num_tokens),
            ("its length", num_tokens <= most),
            (
                "its length",
                most <= u64::from(scheduler.config.max_model_len),
            ),
            ("its arrival", self.arrived_step <= scheduler.step),
            ("its admission", self.admitted_step <= scheduler.step),
            (
                "its answer",
                u64::from(self.generated_before) <= num_tokens.saturating_sub(prompt),
            ),
            (
                "its sequence",
                self.sequence < Some(scheduler.next_sequence.number()),
            ),
            ("its blocks", runs || self.blocks.is_empty()),
            (
                "its blocks",
                self.blocks.len() as u64 == planned.div_ceil(size.into()),
            ),
            (
                "its computed tokens",
                if runs {
                    computed < num_tokens
                } else {
                    planned == 0
                },
            ),
            (
                "its chunk",
                flight.is_none_or(|f| f.len > 0 && f.sample == (planned == num_tokens)),
            ),
            ("its chunk", planned <= num_tokens),
        ];
        match fits.iter().find(|(_, fits)| !fits) {
            Some((what, _)) => Err(format!("request {}: {what} cannot be so", self.request)),
            None => Ok(()),
        }
    }
}
