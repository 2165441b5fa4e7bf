//! Rendezvous routing: balanced, minimal in what it moves, and the same everywhere.

#![expect(
    deprecated,
    reason = "the standard library's SipHash-2-4 is the independent reference"
)]

use std::hash::{Hasher, SipHasher};

use policy_core::{WorkerId, routing::score, select_worker};

use crate::cases::{Shuffle, law};

const REQUESTS: u64 = 20_000;

fn worker(request: u64, workers: &[WorkerId]) -> WorkerId {
    let choice = select_worker(&request.to_le_bytes(), workers.iter().copied());
    choice.expect("distinct ids").expect("a worker").winner
}

fn workers(n: u64) -> Vec<WorkerId> {
    (0..n).map(WorkerId::new).collect()
}

#[test]
fn the_score_is_siphash_2_4_of_the_key_and_the_worker() {
    fn same(key: Vec<u8>, worker: u64) -> bool {
        let [k0, k1] = [*b"lockstep", *b"/routing"].map(u64::from_le_bytes);
        let mut reference = SipHasher::new_with_keys(k0, k1);
        reference.write(&key);
        reference.write(&worker.to_le_bytes());
        score(&key, WorkerId::new(worker)) == reference.finish()
    }
    law(same as fn(Vec<u8>, u64) -> bool);
    // Keys whose lengths go past the byte that the hash keeps of them.
    for length in [0, 1, 7, 8, 9, 247, 248, 255, 256, 257, 1000] {
        assert!(same(vec![0xa5; length], 3));
    }
}

#[test]
fn the_scores_of_the_contract() {
    let scores = [
        (&b""[..], 0, 0xad6a_5be4_124f_f347),
        (b"", 1, 0x51b8_6139_2e14_9169),
        (b"session 42", 3, 0x160a_7201_18b7_2a5f),
        (b"session 42", u64::MAX, 0xe14b_8420_8c79_58f9),
    ];
    for (key, worker, expected) in scores {
        let score = score(key, WorkerId::new(worker));
        assert_eq!(score, expected, "{key:?} {worker}: {score:#018x}");
    }
}

#[test]
fn requests_spread_evenly_over_workers() {
    for n in [2, 3, 7, 16] {
        let workers = workers(n);
        let mut load = vec![0_u64; n as usize];
        for request in 0..REQUESTS {
            load[worker(request, &workers).number() as usize] += 1;
        }
        let fair = REQUESTS / n;
        for load in &load {
            // Five standard deviations of a fair draw: sqrt(fair) is one, at most.
            assert!(
                load.abs_diff(fair).pow(2) <= 25 * fair,
                "{n} workers: {load} of {fair}"
            );
        }
    }
}

#[test]
fn a_worker_that_goes_moves_its_own_requests_to_their_runners_up_and_no_others() {
    let all = workers(8);
    let gone = WorkerId::new(5);
    let rest: Vec<_> = all.iter().copied().filter(|&id| id != gone).collect();
    let mut moved_to = [0_u64; 8];
    for request in 0..REQUESTS {
        let before = select_worker(&request.to_le_bytes(), all.iter().copied())
            .unwrap()
            .unwrap();
        let after = worker(request, &rest);
        if before.winner == gone {
            assert_eq!(Some(after), before.runner_up);
            moved_to[after.number() as usize] += 1;
        } else {
            assert_eq!(after, before.winner);
        }
    }
    // They spread over all that are left, rather than fall on one neighbour.
    let expected = REQUESTS / 8 / 7;
    let others = moved_to.iter().enumerate().filter(|(id, _)| *id != 5);
    for (id, moved) in others {
        assert!(
            moved.abs_diff(expected).pow(2) <= 25 * expected,
            "worker {id}: {moved}"
        );
    }
}

#[test]
fn a_worker_that_comes_takes_its_share_and_moves_nothing_else() {
    let (before, after) = (workers(4), workers(5));
    let moved = (0..REQUESTS).filter(|&request| {
        let (old, new) = (worker(request, &before), worker(request, &after));
        assert!(old == new || new == WorkerId::new(4));
        old != new
    });
    let (moved, fair) = (moved.count() as u64, REQUESTS / 5);
    assert!(
        moved.abs_diff(fair).pow(2) <= 25 * fair,
        "{moved} of {fair}"
    );
}

#[test]
fn routers_that_list_the_workers_in_another_order_agree() {
    fn agree(request: u64, shuffle: Shuffle) -> bool {
        let listed = workers(9);
        let mut other = listed.clone();
        shuffle.apply(&mut other);
        worker(request, &listed) == worker(request, &other)
    }
    law(agree as fn(u64, Shuffle) -> bool);
}

#[test]
fn no_workers_give_none() {
    assert_eq!(select_worker::<WorkerId>(b"key", []), Ok(None));
}
