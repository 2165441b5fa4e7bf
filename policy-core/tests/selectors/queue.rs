//! The waiting queue: importance is fixed at arrival, and ageing bounds what overtakes.

use policy_core::RequestPriority::{High, Low, Normal};
use policy_core::{Aging, Arrival, Identified, Importance, RequestPriority, select_least};

use crate::cases::law;

const fn arrival(priority: RequestPriority, step: u64, number: u64) -> Arrival {
    Arrival {
        priority,
        step,
        number,
    }
}

/// Arrival numbers in the order in which the queue would be admitted.
fn admitted(aging: Aging, mut waiting: Vec<Arrival>) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some(head) =
        select_least(waiting.iter().copied(), |a| aging.importance(*a)).expect("distinct numbers")
    {
        order.push(head.winner.number);
        waiting.retain(|arrival| arrival.number != head.winner.number);
    }
    order
}

#[test]
fn without_ageing_class_comes_first_and_then_arrival() {
    let waiting = vec![
        arrival(Low, 0, 0),
        arrival(Normal, 0, 1),
        arrival(Normal, 0, 2),
        arrival(High, 900, 3),
        arrival(Normal, 1, 4),
    ];
    assert_eq!(admitted(Aging::OFF, waiting), [3, 1, 2, 4, 0]);
}

#[test]
fn with_ageing_a_class_is_worth_a_number_of_steps() {
    let waiting = vec![
        arrival(Low, 0, 0),
        arrival(Normal, 9, 1),
        arrival(Normal, 10, 2),
        arrival(High, 19, 3),
        arrival(High, 20, 4),
    ];
    // Low pays 20 steps, Normal 10: 20, 19, 20, 19, 20; the number decides among equals.
    assert_eq!(admitted(Aging::from_steps(10), waiting), [1, 3, 0, 2, 4]);
}

#[test]
fn a_request_that_is_queued_again_keeps_its_place() {
    let aging = Aging::from_steps(10);
    let importance: Vec<Importance> = (0..5)
        .map(|n| aging.importance(arrival(Normal, n, n)))
        .collect();
    // Number 1 is admitted and preempted: back in the queue it is ahead of all but number 0.
    let mut waiting = vec![importance[4], importance[0], importance[3], importance[2]];
    waiting.push(importance[1]);
    waiting.sort_unstable();
    assert_eq!(waiting, importance);
    let head = select_least(&waiting[1..], |importance| **importance)
        .unwrap()
        .unwrap();
    assert_eq!(head.winner.id(), 1);
}

#[test]
fn nothing_that_arrives_after_the_bound_is_more_important_and_the_bound_is_tight() {
    fn bounded(step: u32, steps: u16, mine: i64, theirs: i64, later: u16) -> bool {
        let aging = Aging::from_steps(u32::from(steps) + 1);
        let (mine, theirs) = (
            RequestPriority::from(mine % 2),
            RequestPriority::from(theirs % 2),
        );
        let bound = aging.overtaken_for(mine).unwrap();
        let step = u64::from(step);
        let me = aging.importance(arrival(mine, step, 1));
        let after = aging.importance(arrival(theirs, step + bound + u64::from(later), 2));
        let just_in_time = aging.importance(arrival(High, step + bound.saturating_sub(1), 2));
        me < after && (mine == High || just_in_time < me)
    }
    law(bounded as fn(u32, u16, i64, i64, u16) -> bool);
}

#[test]
fn without_ageing_only_the_highest_class_has_a_bound() {
    assert_eq!(Aging::OFF.overtaken_for(High), Some(0));
    assert_eq!(Aging::OFF.overtaken_for(Normal), None);
    assert_eq!(Aging::OFF.overtaken_for(Low), None);
    assert_eq!(Aging::default(), Aging::OFF);
    assert_eq!(Aging::from_steps(0), Aging::OFF);
    assert_eq!((Aging::OFF.steps(), Aging::from_steps(7).steps()), (0, 7));
}

#[test]
fn at_the_end_of_the_step_count_the_arrival_number_decides() {
    let aging = Aging::from_steps(u32::MAX);
    let late = [
        arrival(Low, u64::MAX, 4),
        arrival(High, u64::MAX, 5),
        arrival(Low, u64::MAX - 1, 6),
    ];
    assert_eq!(admitted(aging, late.to_vec()), [4, 5, 6]);
    // The last step of which the sum is exact.
    let exact = u64::MAX - 2 * u64::from(u32::MAX);
    assert_eq!(
        admitted(
            aging,
            vec![arrival(Low, exact, 4), arrival(High, u64::MAX - 1, 5)]
        ),
        [5, 4]
    );
}
