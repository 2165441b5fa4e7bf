//! Ties among the scheduler's own candidates: the same victim from every map, and from every run.

#![expect(
    clippy::disallowed_types,
    reason = "the hazard itself: requests and candidates come out of hash maps that are built anew"
)]

use std::collections::HashMap;
use std::sync::Arc;

use lockstep::request::RequestId;
use lockstep::scheduler::{Advance, Arrival, Inputs, Plan, Scheduler, SchedulerConfig};
use policy_core::{
    Candidate, Need, PreemptionPolicy, RequestPriority, Separator, SequenceId, select_victim,
};

#[path = "../policy-core/tests/selectors/naive.rs"]
mod naive;

const RUNS: usize = 64;
const SEATS: u64 = 20;
/// The first requests are structured, so exempt: they would win every tie.
const STRUCTURED: u64 = 4;
const STEPS: usize = 6;

/// A request; those that fill the seats are alike in all that a key looks at.
fn arrival(number: u64, priority: RequestPriority) -> Arrival {
    Arrival {
        request: RequestId::new(number),
        priority,
        prompt: Arc::from([number as u32; 5]),
        max_tokens: 40,
        structured: number < STRUCTURED,
        cache_salt: None,
        sibling_of: None,
        parameters: None,
    }
}

/// The outcome of a plan: a token for each chunk that samples.
fn advances(plan: &Plan) -> Vec<Advance> {
    let sampling = plan.chunks.iter().filter(|chunk| chunk.sample);
    let advance = |sequence| Advance {
        sequence,
        token: Some(7),
        finished: None,
    };
    sampling.map(|chunk| advance(chunk.sequence)).collect()
}

/// Fills every seat in one step, decodes in lockstep, and lets a High arrive: the plan that preempts.
fn plan_with_a_tie(policy: PreemptionPolicy) -> Plan {
    let mut scheduler = Scheduler::new(SchedulerConfig {
        max_num_seqs: SEATS as u32,
        preemption_policy: policy,
        ..SchedulerConfig::default()
    })
    .expect("limits that fit");
    let requests: HashMap<u64, Arrival> = (0..SEATS)
        .map(|number| (number, arrival(number, RequestPriority::Normal)))
        .collect();
    let mut inputs = Inputs::default();
    inputs.arrivals.extend(requests.into_values());
    // The door numbers requests in the order in which they pass, so their numbers rise.
    inputs.arrivals.sort_by_key(|arrival| arrival.request);
    let mut plan = Plan::default();
    for _ in 0..STEPS {
        scheduler.step(&inputs, &mut plan);
        assert_eq!(plan.preemptions, []);
        inputs.clear();
        inputs.advances = advances(&plan);
    }
    inputs.arrivals.push(arrival(SEATS, RequestPriority::High));
    scheduler.step(&inputs, &mut plan);
    plan
}

/// The victim of a plan's one preemption, which was decided by the id among real ties.
fn victim(plan: &Plan) -> SequenceId {
    let [preemption] = plan.preemptions.as_slice() else {
        panic!("one preemption, not {:?}", plan.preemptions);
    };
    assert_eq!(preemption.need, Need::Seat);
    assert_eq!(preemption.separator, Some(Separator::Id));
    assert_eq!(preemption.considered, SEATS as u32);
    assert_eq!(preemption.exempt, STRUCTURED as u32);
    preemption.victim.id
}

fn rebuilt(plan: &Plan) -> HashMap<SequenceId, Candidate> {
    plan.candidates.iter().map(|c| (c.id, *c)).collect()
}

fn assert_one_victim(policy: PreemptionPolicy) {
    let first = plan_with_a_tie(policy);
    let smallest = SequenceId::new(STRUCTURED);
    let tied = first
        .candidates
        .iter()
        .filter(|candidate| !candidate.exempt);
    assert!(
        tied.clone().all(|c| c.generated_tokens == STEPS as u32),
        "{first:?}"
    );
    assert!(tied.clone().all(|c| c.priority == RequestPriority::Normal));
    for _ in 0..RUNS {
        let plan = plan_with_a_tie(policy);
        assert_eq!(victim(&plan), smallest);
        assert_eq!(plan, first);
        let chosen = select_victim(policy, Need::Seat, rebuilt(&plan).into_values());
        let chosen = chosen.expect("distinct ids").expect("a victim");
        assert_eq!(chosen.victim, plan.preemptions[0].victim);
        assert_eq!(chosen.runner_up, plan.preemptions[0].runner_up);
    }
}

#[test]
fn eviction_takes_one_of_equal_lengths_in_64_runs_of_the_scheduler() {
    assert_one_victim(PreemptionPolicy::LongestFirst);
}

#[test]
fn eviction_takes_one_of_equal_classes_and_lengths_in_64_runs_of_the_scheduler() {
    assert_one_victim(PreemptionPolicy::LowestPriority);
}

#[test]
fn eviction_by_the_naive_expressions_varies_over_the_schedulers_candidates() {
    for &policy in PreemptionPolicy::ALL {
        let plan = plan_with_a_tie(policy);
        let naive = || naive::select_victim(policy, rebuilt(&plan).values()).expect("a victim");
        let victims: Vec<SequenceId> = (0..RUNS).map(|_| naive().id).collect();
        let differ = victims.iter().filter(|id| **id != victims[0]).count();
        println!("naive {policy}: {differ} of {RUNS} maps give another victim than the first");
        assert!(differ > 0, "the hazard is not reproduced under {policy}");
    }
    let sorted = plan_with_a_tie(PreemptionPolicy::LongestFirst);
    let naive = || naive::select_victim_by_sort(rebuilt(&sorted).values()).expect("a victim");
    let first = naive();
    assert!((0..RUNS).any(|_| naive().id != first.id));
}
