//! Tests that need the inside of the scheduler: the choice of a victim out of hash order.

use std::sync::Arc;

use policy_core::{Need, PreemptionPolicy, RequestPriority, SequenceId};

use super::pass::Pass;
use super::preempt::Demand;
use super::sequence::Place;
use super::*;

/// Runs `requests` equal requests of one class side by side for a while.
fn tied(policy: PreemptionPolicy, requests: u64) -> Scheduler {
    let config = SchedulerConfig {
        preemption_policy: policy,
        enable_prefix_caching: false,
        ..SchedulerConfig::default()
    };
    let mut scheduler = Scheduler::new(config).unwrap();
    let (mut inputs, mut plan) = (Inputs::default(), Plan::default());
    inputs.arrivals.extend((0..requests).map(|number| Arrival {
        request: RequestId::new(number),
        priority: RequestPriority::Normal,
        prompt: Arc::from([1, 2, 3]),
        max_tokens: 100,
        structured: false,
        cache_salt: None,
        sibling_of: None,
        parameters: None,
    }));
    for _ in 0..12 {
        scheduler.step(&inputs, &mut plan);
        inputs.clear();
        inputs
            .advances
            .extend(plan.chunks.iter().map(|chunk| Advance {
                sequence: chunk.sequence,
                token: Some(7),
                finished: None,
            }));
    }
    assert_eq!(scheduler.num_running() as u64, requests);
    scheduler
}

fn victim(scheduler: &Scheduler, need: Need) -> SequenceId {
    let demand = Demand {
        request: RequestId::new(999),
        priority: RequestPriority::High,
        running: false,
        blocks: 1,
    };
    let pass = Pass::at_start(scheduler);
    let mut plan = Plan::default();
    let trial = scheduler.choose(&demand, need, &pass, &mut plan).unwrap();
    trial.victim()
}

/// The mistake that this project exists to make impossible, kept as the counter-example: the last
/// of the longest, in the order in which the running sequences are met.
fn naive_victim(scheduler: &Scheduler) -> SequenceId {
    scheduler
        .running
        .iter()
        .map(|place| scheduler.live.at(place.index))
        .max_by_key(|sequence| sequence.generated_tokens())
        .unwrap()
        .running_id()
}

#[test]
#[expect(
    clippy::disallowed_types,
    reason = "hash order is what the choice is tested against"
)]
fn the_victim_among_ties_is_one_whatever_the_order_of_the_batch() {
    use std::collections::HashMap;
    for policy in PreemptionPolicy::ALL {
        let mut scheduler = tied(*policy, 12);
        let places = scheduler.running.clone();
        let mut naive = Vec::new();
        for _ in 0..64 {
            // A map made anew has another hash seed, and so another order.
            let map: HashMap<SequenceId, Place> = places
                .iter()
                .map(|place| (scheduler.live.at(place.index).running_id(), *place))
                .collect();
            scheduler.running = map.into_values().collect();
            for need in [Need::Seat, Need::Blocks] {
                assert_eq!(victim(&scheduler, need), SequenceId::FIRST, "{policy}");
            }
            naive.push(naive_victim(&scheduler));
        }
        naive.sort_unstable();
        naive.dedup();
        assert!(naive.len() > 1, "the counter-example contradicts itself");
    }
}
