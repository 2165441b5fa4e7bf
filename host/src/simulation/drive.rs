//! The loop of a simulation: the production scheduler under a fake engine.

use std::sync::Arc;

use super::model::FakeModel;
use super::workload::Workload;
use crate::batch::{Batch, TokenId};
use crate::request::RequestId;
use crate::scheduler::{
    Advance, Arrival, ConfigError, Finish, Inputs, Plan, Release, ReleaseCause, Scheduler,
    SchedulerConfig,
};

/// What became of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its answer, token by token.
    pub tokens: Vec<TokenId>,
    /// The step in which it arrived.
    pub arrived_step: Option<u64>,
    /// The step of its first admission.
    pub first_admitted_step: Option<u64>,
    /// The step that released it, and how.
    pub released: Option<(u64, Release)>,
    /// Tokens computed for it, over all its chunks.
    pub computed_tokens: u64,
    /// Of these, tokens that had been computed for it before.
    pub recomputed_tokens: u64,
    /// How far it has ever been computed.
    reached: u32,
}

/// A simulation under way: inputs, scheduler and model, step by step.
#[derive(Debug)]
pub struct Simulation {
    /// The production scheduler.
    pub scheduler: Scheduler,
    /// The inputs of the last step.
    pub inputs: Inputs,
    /// The plan of the last step.
    pub plan: Plan,
    /// What became of each request so far.
    pub outcomes: Vec<Outcome>,
    workload: Workload,
    model: FakeModel,
    batch: Batch,
    next: Vec<TokenId>,
    arrived: usize,
    step: u64,
    advances: Vec<Advance>,
    /// Cancels and expiries of live requests, per kind ascending by step.
    cancels: Vec<(u64, RequestId)>,
    expiries: Vec<(u64, RequestId)>,
}

impl Simulation {
    /// A simulation of a workload, before its first step.
    ///
    /// # Errors
    /// Where the limits do not hold.
    pub fn new(config: SchedulerConfig, workload: Workload) -> Result<Self, ConfigError> {
        let model = FakeModel::new(config.num_blocks, config.block_size);
        let requests = || {
            workload
                .requests
                .iter()
                .zip(0..)
                .map(|(request, number)| (request, RequestId::new(number)))
        };
        let mut cancels: Vec<_> = requests()
            .filter_map(|(request, id)| Some((request.cancel_step?, id)))
            .collect();
        let mut expiries: Vec<_> = requests()
            .filter_map(|(request, id)| Some((request.expire_step?, id)))
            .collect();
        // The request's number makes both orders total. The next one is the last: it is popped.
        cancels.sort_unstable_by(|a, b| b.cmp(a));
        expiries.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self {
            scheduler: Scheduler::new(config)?,
            inputs: Inputs::default(),
            plan: Plan::default(),
            outcomes: vec![Outcome::default(); workload.requests.len()],
            workload,
            model,
            batch: Batch::default(),
            next: Vec::new(),
            arrived: 0,
            step: 0,
            advances: Vec::new(),
            cancels,
            expiries,
        })
    }

    /// The requests.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The number of the last step, idle ones counted.
    pub fn now(&self) -> u64 {
        self.step
    }

    /// Whether every request has arrived.
    pub fn has_arrived(&self) -> bool {
        self.arrived == self.workload.requests.len()
    }

    /// Whether every request has arrived and ended.
    pub fn is_done(&self) -> bool {
        self.has_arrived() && self.scheduler.is_idle()
    }

    /// Steps until the next arrival, cancel or expiry, where nothing is live, are left out.
    fn advance_time(&mut self) {
        self.step += 1;
        if self.scheduler.is_idle()
            && let Some(request) = self.workload.requests.get(self.arrived)
        {
            self.step = self.step.max(request.step);
        }
    }

    /// Takes one step: makes the inputs, plans, carries the plan out.
    pub fn step(&mut self) {
        self.advance_time();
        self.inputs.clear();
        self.inputs.advances.append(&mut self.advances);
        self.arrive();
        let due = |list: &mut Vec<(u64, RequestId)>, step, out: &mut Vec<RequestId>| {
            while let Some((_, request)) = list.pop_if(|(at, _)| *at <= step) {
                out.push(request);
            }
        };
        due(&mut self.cancels, self.step, &mut self.inputs.cancels);
        due(&mut self.expiries, self.step, &mut self.inputs.expiries);
        self.scheduler.step(&self.inputs, &mut self.plan);
        self.carry_out();
    }

    /// Runs until every request has ended, or for so many steps.
    pub fn run(&mut self, most_steps: u64) -> bool {
        for _ in 0..most_steps {
            if self.is_done() {
                return true;
            }
            self.step();
        }
        self.is_done()
    }

    fn arrive(&mut self) {
        while let Some(request) = self.workload.requests.get(self.arrived)
            && request.step <= self.step
        {
            let place = self.arrived as u32;
            self.inputs.arrivals.push(Arrival {
                request: RequestId::new(place.into()),
                priority: request.priority,
                prompt: Arc::from(request.prompt(place)),
                max_tokens: request.max_tokens(),
                structured: request.structured,
                cache_salt: request.cache_salt.clone(),
                sibling_of: request.sibling_of.map(|first| RequestId::new(first.into())),
                parameters: None,
            });
            self.arrived += 1;
        }
    }

    fn carry_out(&mut self) {
        let step = self.plan.step;
        for arrival in &self.inputs.arrivals {
            self.outcomes[place(arrival.request)].arrived_step = Some(step);
        }
        for release in &self.plan.releases {
            self.outcomes[place(release.request)].released = Some((step, *release));
        }
        for admission in &self.plan.admissions {
            let outcome = &mut self.outcomes[place(admission.request)];
            outcome.first_admitted_step.get_or_insert(step);
        }
        if step == 0 {
            return;
        }
        self.model.copy_blocks(&self.plan.copies);
        for chunk in &self.plan.chunks {
            for &block in self.plan.new_blocks(chunk) {
                if self.plan.copies.iter().all(|(_, to)| *to != block) {
                    self.model.poison(block);
                }
            }
        }
        self.scheduler.fill_batch(&self.plan, &mut self.batch);
        self.model.forward(&self.batch, &mut self.next);
        let mut sampled = 0;
        for at in 0..self.plan.chunks.len() {
            let chunk = self.plan.chunks[at];
            let place = place(chunk.request);
            self.outcomes[place].compute(chunk.start, chunk.len);
            if chunk.sample {
                let advance = self.outcome(place, chunk.sequence, self.next[sampled]);
                sampled += 1;
                self.advances.push(advance);
            }
        }
    }

    /// What a sampled token means for its request.
    fn outcome(
        &mut self,
        place: usize,
        sequence: policy_core::SequenceId,
        token: TokenId,
    ) -> Advance {
        let request = &self.workload.requests[place];
        let tokens = &mut self.outcomes[place].tokens;
        if request.non_finite_at == Some(tokens.len() as u32) {
            return Advance {
                sequence,
                token: None,
                finished: Some(Finish::NonFinite),
            };
        }
        if request.output_tokens == 0 {
            return Advance {
                sequence,
                token: None,
                finished: Some(Finish::Length),
            };
        }
        tokens.push(token);
        let ends = tokens.len() as u32 == request.output_tokens;
        let finish = if request.output_tokens == request.max_tokens() {
            Finish::Length
        } else {
            Finish::Stop
        };
        Advance {
            sequence,
            token: Some(token),
            finished: ends.then_some(finish),
        }
    }
}

/// A request's place in its workload.
pub(super) fn place(request: RequestId) -> usize {
    request.number() as usize
}

impl Outcome {
    fn compute(&mut self, start: u32, len: u32) {
        let end = start + len;
        self.computed_tokens += u64::from(len);
        self.recomputed_tokens += u64::from(self.reached.min(end).saturating_sub(start));
        self.reached = self.reached.max(end);
    }

    /// Whether its answer is whole.
    pub fn is_whole(&self) -> bool {
        matches!(
            self.released,
            Some((_, release)) if matches!(
                release.cause,
                ReleaseCause::Finished(Finish::Stop | Finish::Length)
            )
        )
    }
}
