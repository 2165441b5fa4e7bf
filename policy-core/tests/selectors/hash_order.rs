//! The determinism test: real ties, from a hash map that is rebuilt every time.

#![expect(
    clippy::disallowed_types,
    reason = "the hazard itself: the selectors must not care, the naive expressions beside them do"
)]

use std::collections::{BTreeSet, HashMap};

use policy_core::{Candidate, Need, PreemptionPolicy, RequestPriority, select_victim};

use crate::cases::{exempt, plain};
use crate::naive;

const MAPS: usize = 64;

/// Sixteen candidates that tie under `policy`, and four exempt ones that would beat them.
fn tied(policy: PreemptionPolicy) -> Vec<Candidate> {
    use RequestPriority::{High, Low, Normal};
    let classes = match policy {
        // Equal length is a tie here, whatever the class.
        PreemptionPolicy::LongestFirst => [Low, Normal, High],
        _ => [Normal; 3],
    };
    let tied = (100..116).map(|id| plain(id, classes[id as usize % 3], 12));
    let spared = (0..4).map(|id| exempt(id, Low, 90));
    tied.chain(spared).collect()
}

/// The map of a batch, built anew: each instance has hash keys of its own.
fn rebuilt(candidates: &[Candidate]) -> HashMap<u64, Candidate> {
    candidates.iter().map(|c| (c.id.number(), *c)).collect()
}

/// The answers over 64 maps of the same candidates.
fn answers(
    policy: PreemptionPolicy,
    choose: impl Fn(&HashMap<u64, Candidate>) -> Option<Candidate>,
) -> Vec<u64> {
    let candidates = tied(policy);
    let choose = |_| choose(&rebuilt(&candidates)).expect("a victim").id.number();
    (0..MAPS).map(choose).collect()
}

fn assert_always_the_smallest_id(policy: PreemptionPolicy) {
    let production = answers(policy, |map| {
        let chosen = select_victim(policy, Need::Seat, map.values().copied());
        chosen.expect("distinct ids").map(|chosen| chosen.victim)
    });
    assert_eq!(production, [100; MAPS]);
}

/// How many of the 64 answers differ from the first, and how many victims there are.
fn assert_disagrees_with_itself(what: &str, answers: &[u64]) {
    let differ = answers
        .iter()
        .filter(|&&answer| answer != answers[0])
        .count();
    let victims = answers.iter().collect::<BTreeSet<_>>().len();
    println!(
        "{what}: {differ} of {MAPS} maps give another victim than the first; {victims} victims"
    );
    assert!(
        differ > 0,
        "{what} agreed with itself over {MAPS} maps: the hazard is not reproduced"
    );
}

#[test]
fn longest_first_takes_one_victim_of_equal_lengths_over_64_rebuilt_maps() {
    assert_always_the_smallest_id(PreemptionPolicy::LongestFirst);
}

#[test]
fn lowest_priority_takes_one_victim_of_equal_classes_and_lengths_over_64_rebuilt_maps() {
    assert_always_the_smallest_id(PreemptionPolicy::LowestPriority);
}

#[test]
fn the_naive_expressions_disagree_with_themselves_over_the_same_maps() {
    for &policy in PreemptionPolicy::ALL {
        let answers = answers(policy, |map| naive::select_victim(policy, map.values()));
        assert_disagrees_with_itself(&format!("naive {policy}"), &answers);
    }
    let answers = answers(PreemptionPolicy::LongestFirst, |map| {
        naive::select_victim_by_sort(map.values())
    });
    assert_disagrees_with_itself("stable sort", &answers);
}

#[test]
fn the_naive_expressions_face_two_ways_over_one_order() {
    // Even over an ordered list: the last of equal maxima, the first of equal minima.
    let candidates = [3, 5, 8].map(|id| plain(id, RequestPriority::Normal, 12));
    let naive = |policy| naive::select_victim(policy, candidates.iter()).map(|c| c.id.number());
    assert_eq!(naive(PreemptionPolicy::LongestFirst), Some(8));
    assert_eq!(naive(PreemptionPolicy::LowestPriority), Some(3));
}
