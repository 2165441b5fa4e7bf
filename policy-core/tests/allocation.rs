//! No selector allocates: counted, in a test binary of its own.

use std::fmt::Write;

use policy_core::heapless::String;
use policy_core::{
    Aging, Arrival, CachedBlock, Candidate, Need, PreemptionPolicy, RequestPriority, SequenceId,
    WorkerId, first_duplicate, select_block, select_least, select_least_n, select_victim,
    select_victims, select_worker,
};

#[path = "support/counting.rs"]
mod counting;

use counting::allocations;

fn candidate(number: u64) -> Candidate {
    Candidate {
        id: SequenceId::new(number),
        priority: RequestPriority::from(number as i64 % 3 - 1),
        generated_tokens: number as u32 % 5,
        exempt: number.is_multiple_of(7),
        worn: number.is_multiple_of(4),
    }
}

fn choose_victims() {
    for &policy in PreemptionPolicy::ALL {
        for &need in Need::ALL {
            let offered = || (0..500).map(candidate);
            assert!(select_victim(policy, need, offered()).is_ok_and(|chosen| chosen.is_some()));
            let victims = select_victims::<64>(policy, need, offered()).expect("distinct ids");
            assert_eq!(victims.ranked.len(), 64);
            let twice = offered().chain(offered());
            assert!(select_victim(policy, need, twice).is_err());
        }
    }
}

fn choose_the_rest() {
    let aging = Aging::from_steps(5);
    let arrival = |number| Arrival {
        priority: RequestPriority::Low,
        step: number / 3,
        number,
    };
    let waiting = (0..500).map(|number| aging.importance(arrival(number)));
    assert!(select_least(waiting, |importance| *importance).is_ok());
    let block = |id| CachedBlock {
        id,
        last_used_step: 3,
        depth: id % 9,
    };
    assert!(select_block((0..500).map(block)).is_ok());
    assert!(select_worker(b"session", (0..50).map(WorkerId::new)).is_ok());
    assert!(select_least_n::<9, _, _, _>((0..50).map(SequenceId::new), |_| ()).is_ok());
    assert!(first_duplicate((0..50).map(SequenceId::new)).is_none());
}

fn parse_and_print() {
    let error = "urgent"
        .parse::<RequestPriority>()
        .expect_err("no such class");
    let mut text = String::<128>::new();
    write!(text, "{error}").expect("room");
    write!(text, "{}", PreemptionPolicy::default()).expect("room");
}

#[test]
fn nothing_allocates() {
    assert_eq!(allocations(choose_victims), 0);
    assert_eq!(allocations(choose_the_rest), 0);
    assert_eq!(allocations(parse_and_print), 0);
    // The control: the counter counts.
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 1);
}
