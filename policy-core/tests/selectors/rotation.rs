//! The tie-break rotates: among sequences that tie throughout, none is hit twice before all are once.

use policy_core::{
    Candidate, Need, PreemptionPolicy, RequestPriority, SequenceId, select_least, select_victim,
};

use crate::cases::{plain, questions};

const REQUESTS: usize = 7;
const ROUNDS: usize = 4;

/// Who is preempted in each of many rounds: each victim is readmitted under the next id at once.
fn victims(choose: impl Fn(&[Candidate]) -> SequenceId, grow: bool) -> Vec<usize> {
    let candidate = |id| plain(id, RequestPriority::Normal, 5);
    let mut running: Vec<_> = (0..REQUESTS as u64).map(candidate).collect();
    let mut hit = Vec::new();
    let mut next = SequenceId::new(REQUESTS as u64);
    for _ in 0..ROUNDS * REQUESTS {
        let victim = choose(&running);
        let request = running
            .iter()
            .position(|c| c.id == victim)
            .expect("a candidate");
        hit.push(request);
        running[request].id = next;
        next = next.successor().expect("an id");
        if grow {
            running[request].generated_tokens = 0;
            running.iter_mut().for_each(|c| c.generated_tokens += 1);
        }
    }
    hit
}

fn assert_rotates(hit: &[usize]) {
    for round in hit.chunks(REQUESTS) {
        let mut visited = round.to_vec();
        visited.sort_unstable();
        assert_eq!(visited, (0..REQUESTS).collect::<Vec<_>>(), "in {hit:?}");
    }
}

#[test]
fn preemption_visits_all_that_tie_before_it_hits_one_twice() {
    for (policy, need) in questions() {
        let choose = |running: &[Candidate]| {
            let chosen = select_victim(policy, need, running.iter().copied());
            chosen.unwrap().unwrap().victim.id
        };
        // Tied throughout; and in lockstep, where who was readmitted starts again from nothing.
        assert_rotates(&victims(choose, false));
        assert_rotates(&victims(choose, true));
    }
}

#[test]
fn with_the_largest_id_one_request_would_be_hit_for_ever() {
    let largest = |running: &[Candidate]| {
        let ids = running.iter().map(|candidate| candidate.id);
        select_least(ids, |id| core::cmp::Reverse(*id))
            .unwrap()
            .unwrap()
            .winner
    };
    let hit = victims(largest, false);
    assert_eq!(hit, [REQUESTS - 1; ROUNDS * REQUESTS]);
}

#[test]
fn an_id_that_survived_preemption_would_be_hit_for_ever() {
    // As a creation time would: the request keeps what breaks its ties.
    let candidates = || (0..REQUESTS as u64).map(|id| plain(id, RequestPriority::Normal, 5));
    for _ in 0..ROUNDS {
        let chosen = select_victim(PreemptionPolicy::LongestFirst, Need::Seat, candidates());
        assert_eq!(chosen.unwrap().unwrap().victim.id, SequenceId::FIRST);
    }
}
