//! What must hold after every step, checked against a state of its own.

use std::collections::BTreeMap;
use std::fmt;

use policy_core::{RequestPriority, SequenceId};

use super::drive::{Simulation, place};
use super::model::Oracle;
use crate::batch::TokenId;
use crate::request::RequestId;
use crate::scheduler::{Advance, Chunk, Plan, Release, ReleaseCause, SchedulerConfig, Wait};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The step in which it was.
    pub step: u64,
    /// What was promised, and what was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}

impl std::error::Error for Violation {}

/// Ends the check with a violation unless a promise holds.
macro_rules! promise {
    ($self:ident, $holds:expr, $($what:tt)+) => {
        if !$holds {
            return Err(Violation { step: $self.step, what: format!($($what)+) });
        }
    };
}

pub(super) use promise;

/// A second account of everything live, kept from inputs and plans alone.
#[derive(Clone, Debug)]
pub struct Checker {
    pub(super) config: SchedulerConfig,
    pub(super) step: u64,
    pub(super) live: BTreeMap<RequestId, Mirror>,
    /// Requests that ended.
    pub(super) ended: Vec<RequestId>,
    pub(super) last_sequence: Option<SequenceId>,
}

#[derive(Clone, Debug)]
pub(super) struct Mirror {
    /// The least is the most important.
    pub(super) key: (u64, u64),
    pub(super) class: RequestPriority,
    pub(super) structured: bool,
    pub(super) num_tokens: u32,
    pub(super) generated: u32,
    pub(super) computed: u32,
    pub(super) in_flight: u32,
    pub(super) blocks: Vec<u32>,
    pub(super) sequence: Option<SequenceId>,
    pub(super) admitted_step: u64,
    pub(super) generated_before: u32,
    pub(super) preemptions: u32,
    pub(super) preempted_step: u64,
    pub(super) oracle: Oracle,
    pub(super) expected: TokenId,
}

impl Checker {
    /// A checker of a simulation that has not begun.
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            step: 0,
            live: BTreeMap::new(),
            ended: Vec::new(),
            last_sequence: None,
        }
    }

    /// Checks the step that a simulation has just taken.
    ///
    /// # Errors
    /// The first promise that it broke.
    pub fn check(&mut self, simulation: &Simulation) -> Result<(), Violation> {
        let plan = &simulation.plan;
        if plan.step == 0 {
            return Ok(());
        }
        self.step += 1;
        promise!(self, plan.step == self.step, "steps count up by one");
        let finished = self.take_advances(&simulation.inputs.advances)?;
        self.take_arrivals(simulation)?;
        self.take_releases(simulation, &finished)?;
        let before = self.in_order(|mirror| mirror.sequence.is_some());
        self.take_preemptions(plan)?;
        self.take_admissions(plan, before.is_empty())?;
        self.take_chunks(plan)?;
        self.check_progress(plan, &before, simulation)?;
        self.check_blocks(simulation)
    }

    pub(super) fn in_order(&self, which: impl Fn(&Mirror) -> bool) -> Vec<RequestId> {
        let mut requests: Vec<_> = self
            .live
            .iter()
            .filter(|(_, mirror)| which(mirror))
            .map(|(request, mirror)| (mirror.key, *request))
            .collect();
        requests.sort_unstable();
        requests.into_iter().map(|(_, request)| request).collect()
    }

    fn running_as(&self, sequence: SequenceId) -> Option<RequestId> {
        self.live
            .iter()
            .find(|(_, mirror)| mirror.sequence == Some(sequence))
            .map(|(request, _)| *request)
    }

    /// Every token is the next one of its request: none is lost, repeated or out of order.
    fn take_advances(&mut self, advances: &[Advance]) -> Result<Vec<RequestId>, Violation> {
        for mirror in self.live.values_mut() {
            mirror.computed += std::mem::take(&mut mirror.in_flight);
        }
        let mut finished = Vec::new();
        for advance in advances {
            let sequence = advance.sequence;
            let request = self.running_as(sequence);
            promise!(self, request.is_some(), "sequence {sequence} runs");
            let Some(mirror) = request.and_then(|request| self.live.get_mut(&request)) else {
                continue;
            };
            if let Some(token) = advance.token {
                let expected = mirror.expected;
                promise!(
                    self,
                    token == expected,
                    "sequence {sequence} goes on with {expected}, as alone, and not {token}"
                );
                mirror.expected = mirror.oracle.push(token);
                mirror.num_tokens += 1;
                mirror.generated += 1;
            }
            if advance.finished.is_some() {
                finished.extend(request);
            }
        }
        Ok(finished)
    }

    fn take_arrivals(&mut self, simulation: &Simulation) -> Result<(), Violation> {
        for arrival in &simulation.inputs.arrivals {
            let weight = match arrival.priority {
                RequestPriority::High => 0,
                RequestPriority::Normal => 1,
                RequestPriority::Low => 2,
            };
            let aging = u64::from(self.config.priority_aging_steps);
            let first = if aging == 0 {
                weight
            } else {
                self.step + weight * aging
            };
            let mut oracle = Oracle::default();
            let expected = arrival.prompt.iter().map(|t| oracle.push(*t)).last();
            let mirror = Mirror {
                key: (first, arrival.request.number()),
                class: arrival.priority,
                structured: arrival.structured,
                num_tokens: arrival.prompt.len() as u32,
                generated: 0,
                computed: 0,
                in_flight: 0,
                blocks: Vec::new(),
                sequence: None,
                admitted_step: 0,
                generated_before: 0,
                preemptions: 0,
                preempted_step: 0,
                oracle,
                expected: expected.unwrap_or_default(),
            };
            let known = self.live.insert(arrival.request, mirror).is_some();
            promise!(self, !known, "request {} arrives once", arrival.request);
        }
        Ok(())
    }

    /// Each request ends once, for a cause that the inputs name, and every such cause ends it.
    fn take_releases(
        &mut self,
        simulation: &Simulation,
        finished: &[RequestId],
    ) -> Result<(), Violation> {
        let inputs = &simulation.inputs;
        for release in &simulation.plan.releases {
            let Release { request, cause, .. } = *release;
            let caused = match cause {
                ReleaseCause::Finished(_) => finished.contains(&request),
                ReleaseCause::Cancelled => inputs.cancels.contains(&request),
                ReleaseCause::Expired => inputs.expiries.contains(&request),
                ReleaseCause::Rejected(_) => inputs.arrivals.iter().any(|a| a.request == request),
            };
            promise!(self, caused, "request {request} ended without {cause:?}");
            let mirror = self.live.remove(&request);
            promise!(self, mirror.is_some(), "request {request} ends once");
            let counted = mirror.is_none_or(|mirror| {
                mirror.generated == release.generated_tokens
                    && mirror.preemptions == release.preemptions
            });
            promise!(self, counted, "request {request} is accounted for");
            self.ended.push(request);
        }
        let left = finished
            .iter()
            .chain(&inputs.cancels)
            .chain(&inputs.expiries)
            .find(|request| self.live.contains_key(request));
        promise!(self, left.is_none(), "{left:?} ended and is live");
        Ok(())
    }

    fn take_preemptions(&mut self, plan: &Plan) -> Result<(), Violation> {
        for preemption in &plan.preemptions {
            self.check_victim(preemption, plan)?;
            if let Some(mirror) = self.live.get_mut(&preemption.request) {
                mirror.sequence = None;
                mirror.computed = 0;
                mirror.blocks.clear();
                mirror.preemptions += 1;
                mirror.preempted_step = self.step;
            }
        }
        Ok(())
    }

    /// In order of importance, nobody past another, under fresh ids, and the head of the queue at
    /// the latest when nothing runs.
    fn take_admissions(&mut self, plan: &Plan, drained: bool) -> Result<(), Violation> {
        let waited = self.in_order(|mirror| mirror.sequence.is_none());
        promise!(
            self,
            !drained || waited.is_empty() || !plan.admissions.is_empty(),
            "nothing ran and nobody was admitted"
        );
        for (admission, head) in plan.admissions.iter().zip(&waited) {
            let request = admission.request;
            promise!(
                self,
                request == *head,
                "request {request} was admitted past request {head}"
            );
            promise!(
                self,
                self.last_sequence
                    .is_none_or(|last| last < admission.sequence),
                "sequence {} is fresh",
                admission.sequence
            );
            self.last_sequence = Some(admission.sequence);
            let step = self.step;
            let Some(mirror) = self.live.get_mut(&request) else {
                continue;
            };
            let again = mirror.preempted_step == step;
            mirror.sequence = Some(admission.sequence);
            mirror.admitted_step = step;
            mirror.generated_before = mirror.generated;
            mirror.computed = admission.cached_tokens;
            let lacks = mirror.computed < mirror.num_tokens;
            promise!(
                self,
                !again,
                "{request} was preempted and admitted in one step"
            );
            promise!(self, lacks, "request {request} has a token to compute");
        }
        let left = waited.len() >= plan.admissions.len();
        promise!(self, left, "only who waits is admitted");
        let blocked = plan.blocked.map(|blocked| blocked.request);
        let head = waited.get(plan.admissions.len()).copied();
        promise!(
            self,
            blocked == head,
            "the plan says why {head:?} waits, not {blocked:?}"
        );
        Ok(())
    }

    /// Within the budgets, in order, each from where it stands, on blocks of its own.
    fn take_chunks(&mut self, plan: &Plan) -> Result<(), Violation> {
        let total = plan.num_tokens();
        promise!(
            self,
            total <= self.config.max_num_batched_tokens as usize,
            "{total} tokens exceed the step's budget"
        );
        let mut last = None;
        for chunk in &plan.chunks {
            let key = self.take_chunk(chunk, plan.block_table(chunk))?;
            promise!(
                self,
                last.is_none_or(|last| last < key),
                "sequence {} is in order of importance, and once",
                chunk.sequence
            );
            last = Some(key);
        }
        let seated = self.in_order(|mirror| mirror.sequence.is_some()).len();
        promise!(
            self,
            seated <= self.config.max_num_seqs as usize,
            "{seated} sequences exceed the seats"
        );
        Ok(())
    }

    fn take_chunk(&mut self, chunk: &Chunk, table: &[u32]) -> Result<(u64, u64), Violation> {
        let Chunk {
            sequence,
            request,
            start,
            len,
            sample,
            ..
        } = *chunk;
        let size = self.config.block_size;
        let most = self.config.max_chunk_tokens;
        let runs = self
            .live
            .get(&request)
            .is_some_and(|m| m.sequence == Some(sequence));
        promise!(self, runs, "sequence {sequence} of the plan runs");
        let Some(mirror) = self.live.get_mut(&request) else {
            return Ok((0, 0));
        };
        let kept = mirror.blocks.len().min(table.len());
        let same = mirror.blocks[..kept] == table[..kept] && table.len() >= mirror.blocks.len();
        mirror.blocks = table.to_vec();
        mirror.in_flight = len;
        let (computed, num_tokens, key) = (mirror.computed, mirror.num_tokens, mirror.key);
        promise!(self, same, "the table of sequence {sequence} only grows");
        promise!(
            self,
            start == computed && len > 0 && len <= most && start + len <= num_tokens,
            "sequence {sequence} computes {start}+{len} of {num_tokens}, from {computed}"
        );
        promise!(
            self,
            sample == (start + len == num_tokens),
            "sequence {sequence} samples at its last token, and only there"
        );
        promise!(
            self,
            table.len() as u32 == (start + len).div_ceil(size),
            "the table of sequence {sequence} covers what it computes"
        );
        Ok(key)
    }

    /// The most important running sequence advances, a decoding one waits for blocks alone, and
    /// nobody waits where nothing is in the way.
    fn check_progress(
        &self,
        plan: &Plan,
        before: &[RequestId],
        simulation: &Simulation,
    ) -> Result<(), Violation> {
        let planned = |request: &RequestId| plan.chunks.iter().any(|c| c.request == *request);
        let running = self.in_order(|mirror| mirror.sequence.is_some());
        if let Some(first) = running.first() {
            promise!(
                self,
                planned(first),
                "request {first}, the most important that runs, advances"
            );
        }
        promise!(
            self,
            self.live.is_empty() || !plan.chunks.is_empty(),
            "something is live and nothing is computed"
        );
        let available = simulation.scheduler.pool().num_available();
        for request in before {
            let Some(mirror) = self.live.get(request) else {
                continue;
            };
            let decodes = mirror.sequence.is_some() && mirror.computed + 1 == mirror.num_tokens;
            let full = mirror.computed == mirror.blocks.len() as u32 * self.config.block_size;
            promise!(
                self,
                !decodes || planned(request) || (full && available == 0),
                "request {request} decodes and was given no token"
            );
        }
        if let Some(blocked) = plan.blocked
            && blocked.wait == Wait::Seat
        {
            let seated = self.in_order(|mirror| mirror.sequence.is_some()).len();
            // A preemption for blocks, later in the same pass, may have freed one.
            promise!(
                self,
                seated + plan.preemptions.len() >= self.config.max_num_seqs as usize,
                "request {} waits for a seat and one is free",
                blocked.request
            );
        }
        Ok(())
    }

    /// Every block is free, cached, or referenced as often as tables name it; what is written is
    /// referenced once.
    fn check_blocks(&self, simulation: &Simulation) -> Result<(), Violation> {
        let pool = simulation.scheduler.pool();
        let mut named = vec![0; pool.num_blocks()];
        for mirror in self.live.values() {
            for &block in &mirror.blocks {
                named[block as usize] += 1;
            }
        }
        for (block, named) in (0..).zip(&named) {
            let references = pool.references(block);
            promise!(
                self,
                references == *named,
                "block {block} is named by {named} tables and referenced {references} times"
            );
        }
        let in_use = named.iter().filter(|named| **named > 0).count();
        promise!(
            self,
            in_use + pool.num_free() + pool.num_cached() == pool.num_blocks(),
            "blocks are conserved"
        );
        let size = self.config.block_size;
        for mirror in self.live.values() {
            let written = mirror.computed..mirror.computed + mirror.in_flight;
            for position in written {
                let block = mirror.blocks[(position / size) as usize];
                promise!(
                    self,
                    pool.references(block) == 1,
                    "block {block} is written and shared"
                );
            }
        }
        Ok(())
    }

    /// Checks that each of so many requests ended, once.
    ///
    /// # Errors
    /// The request that did not.
    pub fn check_end(&self, requests: usize) -> Result<(), Violation> {
        let mut ended = self.ended.clone();
        ended.sort_unstable();
        for (request, expected) in ended.iter().zip(0..) {
            promise!(
                self,
                place(*request) == expected,
                "request {expected} ends once"
            );
        }
        promise!(
            self,
            ended.len() == requests,
            "{} of {requests} requests ended",
            ended.len()
        );
        Ok(())
    }
}
