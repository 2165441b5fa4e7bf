//! Accounts of requests, kept while the steps go by; bounded, so that an engine can keep them live.

use std::collections::{BTreeMap, VecDeque};

use policy_core::PreemptionPolicy;

use super::account::{Account, AccountEvent, CandidateAccount, PreemptionAccount};
use super::encode::{cause_name, wait_name};
use crate::request::RequestId;
use crate::scheduler::{Blocked, Inputs, Plan, Preemption, Wait};

/// Events that an account holds at most; its end always has a place.
const EVENTS: usize = 64;

/// Keeps the accounts of all live requests, of the last that ended, and of the last preemptions.
///
/// Costs a step what happened in it (arrivals, admissions, preemptions, ends), not what ran.
#[derive(Clone, Debug)]
pub struct Chronicle {
    policy: PreemptionPolicy,
    kept: usize,
    live: BTreeMap<RequestId, Account>,
    ended: VecDeque<Account>,
    preemptions: VecDeque<PreemptionAccount>,
    /// The requests of running sequences.
    running: BTreeMap<u64, u64>,
}

impl Chronicle {
    /// A chronicle that keeps so many ended requests, and as many preemptions.
    pub fn new(policy: PreemptionPolicy, kept: usize) -> Self {
        Self {
            policy,
            kept,
            live: BTreeMap::new(),
            ended: VecDeque::new(),
            preemptions: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// Takes in a step.
    pub fn record(&mut self, inputs: &Inputs, plan: &Plan) {
        for arrival in &inputs.arrivals {
            let account = Account {
                request: arrival.request.number(),
                priority: arrival.priority.name(),
                arrived_step: plan.step,
                prompt_tokens: arrival.prompt.len() as u32,
                max_tokens: arrival.max_tokens,
                events: Vec::new(),
                events_left_out: 0,
            };
            self.live.insert(arrival.request, account);
        }
        for release in &plan.releases {
            self.release(release, plan.step);
        }
        for preemption in &plan.preemptions {
            self.preempt(preemption, plan);
        }
        for admission in &plan.admissions {
            let sequence = admission.sequence.number();
            self.running.insert(sequence, admission.request.number());
            let event = AccountEvent::Admitted {
                step: plan.step,
                sequence,
                cached_tokens: admission.cached_tokens,
                preemptions: admission.preemptions,
            };
            self.note(admission.request, event);
        }
        if let Some(blocked) = &plan.blocked {
            self.block(blocked, plan.step);
        }
    }

    /// The account of a request that is live or ended lately.
    pub fn account(&self, request: RequestId) -> Option<&Account> {
        self.live.get(&request).or_else(|| self.ended(request))
    }

    /// The account of a request that ended lately. O(requests kept).
    pub fn ended(&self, request: RequestId) -> Option<&Account> {
        let number = request.number();
        self.ended.iter().rev().find(|a| a.request == number)
    }

    /// The last preemptions, the latest first.
    pub fn preemptions(&self) -> impl Iterator<Item = &PreemptionAccount> {
        self.preemptions.iter().rev()
    }

    fn note(&mut self, request: RequestId, event: AccountEvent) {
        if let Some(account) = self.live.get_mut(&request) {
            if account.events.len() < EVENTS {
                account.events.push(event);
            } else {
                account.events_left_out += 1;
            }
        }
    }

    fn release(&mut self, release: &crate::scheduler::Release, step: u64) {
        let number = release.request.number();
        self.running.retain(|_, request| *request != number);
        if let Some(mut account) = self.live.remove(&release.request) {
            account.events.push(AccountEvent::Released {
                step,
                cause: cause_name(release.cause),
                generated_tokens: release.generated_tokens,
                preemptions: release.preemptions,
            });
            push_bounded(&mut self.ended, account, self.kept);
        }
    }

    fn preempt(&mut self, preemption: &Preemption, plan: &Plan) {
        let name = |candidate: &policy_core::Candidate| {
            let request = self.running.get(&candidate.id.number()).copied();
            CandidateAccount::new(candidate, request)
        };
        let account = PreemptionAccount {
            step: plan.step,
            victim: name(&preemption.victim),
            beneficiary: preemption.beneficiary.number(),
            beneficiary_priority: preemption.beneficiary_priority.name(),
            need: preemption.need.name(),
            policy: self.policy.name(),
            candidates: preemption.candidates(plan).iter().map(name).collect(),
            exempt: preemption.exempt,
            runner_up: preemption.runner_up.as_ref().map(name),
            separator: preemption.separator.map(|separator| separator.name()),
            blocks_before: preemption.blocks_before,
            blocks_after: preemption.blocks_after,
            computed_tokens: preemption.computed_tokens,
            recompute_tokens: preemption.recompute_tokens,
        };
        self.running.remove(&preemption.victim.id.number());
        let boxed = Box::new(account.clone());
        self.note(preemption.request, AccountEvent::Preempted(boxed.clone()));
        self.note(preemption.beneficiary, AccountEvent::Displaced(boxed));
        push_bounded(&mut self.preemptions, account, self.kept);
    }

    /// Steps in which a request waits for the same thing are one event.
    fn block(&mut self, blocked: &Blocked, step: u64) {
        let (needed, available) = match blocked.wait {
            Wait::Blocks { needed, available } => (Some(needed), Some(available)),
            _ => (None, None),
        };
        let name = wait_name(blocked.wait);
        let last = self
            .live
            .get_mut(&blocked.request)
            .and_then(|account| account.events.last_mut());
        if let Some(AccountEvent::Blocked {
            to_step,
            wait,
            needed_blocks,
            available_blocks,
            ..
        }) = last
            && *wait == name
            && *to_step + 1 == step
        {
            *to_step = step;
            (*needed_blocks, *available_blocks) = (needed, available);
            return;
        }
        let event = AccountEvent::Blocked {
            from_step: step,
            to_step: step,
            wait: name,
            needed_blocks: needed,
            available_blocks: available,
        };
        self.note(blocked.request, event);
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, bound: usize) {
    queue.push_back(item);
    if queue.len() > bound {
        queue.pop_front();
    }
}
