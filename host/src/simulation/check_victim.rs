//! What must hold of every preemption: a victim that may give way, the policy's own, not in vain.

use policy_core::{Need, PreemptionPolicy};

use super::check::{Checker, Mirror, Violation, promise};
use crate::request::RequestId;
use crate::scheduler::{Plan, Preemption};

impl Checker {
    pub(super) fn check_victim(
        &self,
        preemption: &Preemption,
        plan: &Plan,
    ) -> Result<(), Violation> {
        let victim = preemption.victim.id;
        let request = preemption.request;
        let beneficiary = preemption.beneficiary;
        let pair = self.live.get(&request).zip(self.live.get(&beneficiary));
        let Some((mirror, other)) = pair else {
            promise!(
                self,
                false,
                "{request} gave way to {beneficiary}: both live"
            );
            return Ok(());
        };
        promise!(
            self,
            mirror.sequence == Some(victim),
            "victim {victim} runs as request {request}"
        );
        promise!(
            self,
            other.key < mirror.key,
            "victim {victim} is behind request {beneficiary} in importance"
        );
        let waited = other.sequence.is_none();
        promise!(
            self,
            !waited || mirror.class < other.class,
            "request {request} gave way to {beneficiary}, which waited and is no higher"
        );
        promise!(
            self,
            waited || preemption.need == Need::Blocks,
            "request {beneficiary} has a seat"
        );
        let granted = plan.chunks.iter().any(|chunk| chunk.request == beneficiary);
        promise!(
            self,
            granted,
            "request {request} gave way in vain: {beneficiary} computes nothing"
        );
        if preemption.need == Need::Seat {
            let seated = self.in_order(|mirror| mirror.sequence.is_some()).len();
            let admitted = plan
                .admissions
                .iter()
                .filter(|a| self.is_before(a.request, other.key))
                .count();
            promise!(
                self,
                seated + admitted == self.config.max_num_seqs as usize,
                "request {request} lost its seat while another was free"
            );
            promise!(
                self,
                !self.is_exempt(mirror),
                "victim {victim} is exempt and lost its seat"
            );
        }
        self.check_choice(preemption, other, waited, plan)
    }

    fn is_before(&self, request: RequestId, key: (u64, u64)) -> bool {
        self.live.get(&request).is_some_and(|m| m.key < key)
    }

    fn is_exempt(&self, mirror: &Mirror) -> bool {
        let fresh = mirror.generated == mirror.generated_before
            && self.step < mirror.admitted_step + u64::from(self.config.seat_lease_steps);
        mirror.structured || fresh
    }

    /// The victim is the one that sorting everybody gives.
    fn check_choice(
        &self,
        preemption: &Preemption,
        other: &Mirror,
        waited: bool,
        plan: &Plan,
    ) -> Result<(), Violation> {
        let mut allowed: Vec<&Mirror> = self
            .live
            .values()
            .filter(|m| m.sequence.is_some() && m.key > other.key)
            .filter(|m| !waited || m.class < other.class)
            .filter(|m| preemption.need == Need::Blocks || !self.is_exempt(m))
            .collect();
        let lowest = allowed.iter().map(|m| m.class).min();
        allowed.retain(|m| Some(m.class) == lowest);
        let worn = |m: &Mirror| m.preemptions >= self.config.worn_after_preemptions;
        let by_policy = |m: &&Mirror| {
            let length = u64::MAX - u64::from(m.generated - m.generated_before);
            let class = match self.config.preemption_policy {
                PreemptionPolicy::LowestPriority => m.class as u64,
                _ => 0,
            };
            // The sequence id makes it total.
            let flags = (self.is_exempt(m), class, worn(m));
            (flags, length, m.sequence)
        };
        allowed.sort_by_key(by_policy);
        let chosen = allowed.first().and_then(|m| m.sequence);
        let victim = preemption.victim.id;
        promise!(
            self,
            chosen == Some(victim),
            "{victim} was preempted, and {chosen:?} is first in the policy's order"
        );
        let runner_up = allowed.get(1).and_then(|m| m.sequence);
        promise!(
            self,
            preemption.runner_up.map(|c| c.id) == runner_up,
            "the runner-up to {victim} is {runner_up:?}"
        );
        let listed = preemption.candidates(plan).len();
        promise!(
            self,
            listed >= allowed.len() && listed == preemption.considered as usize,
            "all {} candidates are listed, not {listed}",
            allowed.len()
        );
        Ok(())
    }
}
