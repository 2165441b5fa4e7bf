//! Every order is total: of two different items exactly one comes first, and precedence carries over.

use core::cmp::Ordering;

use policy_core::RequestPriority::{High, Low, Normal};
use policy_core::{
    Aging, Arrival, CachedBlock, Candidate, PreemptionPolicy, Ranked, RequestPriority, SequenceId,
    WorkerId, routing,
};

use crate::cases::{exempt, law, plain};

/// Checks totality, antisymmetry and transitivity on all pairs and triples of distinct items.
fn assert_total<R: Ord + Copy + core::fmt::Debug>(ranks: &[R]) {
    for (i, a) in ranks.iter().enumerate() {
        for (j, b) in ranks.iter().enumerate() {
            assert_eq!(a.cmp(b) == Ordering::Equal, i == j, "{a:?} and {b:?}");
            assert_eq!(a.cmp(b), b.cmp(a).reverse(), "{a:?} and {b:?}");
            assert_eq!(a.partial_cmp(b), Some(a.cmp(b)));
            for c in ranks.iter().filter(|_| a < b) {
                assert!(b >= c || a < c, "{a:?}, {b:?}, {c:?}");
            }
        }
    }
}

/// Three candidates for every value of the grid.
fn candidates() -> Vec<Candidate> {
    let mut all = Vec::new();
    for &priority in RequestPriority::ALL {
        for tokens in [0, 7] {
            for worn in [false, true] {
                for make in [plain, exempt, plain] {
                    let id = (all.len() as u64 * 31) % 97;
                    let candidate = make(id, priority, tokens);
                    all.push(Candidate { worn, ..candidate });
                }
            }
        }
    }
    all
}

#[test]
fn the_order_of_preemption_is_total_under_every_policy() {
    for policy in PreemptionPolicy::ALL {
        let ranks: Vec<_> = candidates().iter().map(|c| policy.rank(c)).collect();
        assert_total(&ranks);
    }
}

#[test]
fn the_order_of_importance_is_total_with_ageing_and_without() {
    let edges = [0, 1, 5, u64::MAX - 1, u64::MAX];
    for aging in [
        Aging::OFF,
        Aging::from_steps(3),
        Aging::from_steps(u32::MAX),
    ] {
        let mut ranks = Vec::new();
        for &priority in RequestPriority::ALL {
            for step in edges {
                let number = (ranks.len() as u64 * 31) % 97;
                ranks.push(aging.importance(Arrival {
                    priority,
                    step,
                    number,
                }));
            }
        }
        assert_total(&ranks);
    }
}

#[test]
fn the_order_of_eviction_is_total() {
    let block = |i: u32| CachedBlock {
        id: (i * 31) % 97,
        last_used_step: u64::from(i % 3),
        depth: i % 4,
    };
    assert_total(&(0..48).map(|i| block(i).rank()).collect::<Vec<_>>());
}

#[test]
fn the_order_of_workers_is_total_even_where_scores_are_equal() {
    let ids = (0..40).map(WorkerId::new);
    let scored = ids
        .clone()
        .map(|id| Ranked::new(routing::score(b"key", id), &id));
    assert_total(&scored.collect::<Vec<_>>());
    assert_total(&ids.map(|id| Ranked::new(0, &id)).collect::<Vec<_>>());
}

/// Any three items of full range: the grids above are full of ties, these of distances.
#[test]
fn every_order_is_total_over_the_whole_range_of_its_values() {
    type Values = (u64, u32, i64, bool, bool);

    fn candidate(id: u64, (_, tokens, priority, exempt, worn): Values) -> Candidate {
        Candidate {
            id: SequenceId::new(id),
            priority: RequestPriority::from(priority),
            generated_tokens: tokens,
            exempt,
            worn,
        }
    }

    fn total(a: Values, b: Values, c: Values, steps: u32) -> bool {
        let items = [(3, a), (1, b), (2, c)];
        for policy in PreemptionPolicy::ALL {
            assert_total(&items.map(|(id, values)| policy.rank(&candidate(id, values))));
        }
        assert_total(&items.map(|(number, (step, _, priority, ..))| {
            let priority = RequestPriority::from(priority);
            let arrival = Arrival {
                priority,
                step,
                number,
            };
            Aging::from_steps(steps).importance(arrival)
        }));
        assert_total(&items.map(|(id, (last_used_step, depth, ..))| {
            let id = id as u32;
            CachedBlock {
                id,
                last_used_step,
                depth,
            }
            .rank()
        }));
        assert_total(&items.map(|(id, (key, ..))| {
            let id = WorkerId::new(id);
            Ranked::new(routing::score(&key.to_le_bytes(), id), &id)
        }));
        true
    }
    law(total as fn(Values, Values, Values, u32) -> bool);
}

#[test]
fn each_component_outweighs_all_that_follow_it() {
    let worn = |candidate| Candidate {
        worn: true,
        ..candidate
    };
    // Each row is taken before the next: the deciding component says why, and every component after
    // it argues for the other side.
    let longest = [
        plain(9, High, 8),
        plain(1, Low, 7),       // fewer tokens
        plain(2, Low, 7),       // larger id
        worn(plain(0, Low, 9)), // worn
        exempt(3, Low, 9),      // exempt
        worn(exempt(0, Low, 10)),
    ];
    let lowest = [
        plain(9, Low, 1),
        plain(10, Low, 1),      // larger id
        worn(plain(8, Low, 9)), // worn
        plain(1, Normal, 10),   // class
        plain(0, Normal, 9),    // fewer tokens
        plain(2, High, 90),     // class
        exempt(0, Low, 99),     // exempt
    ];
    let ascending = |policy: PreemptionPolicy, rows: &[Candidate]| {
        for pair in rows.windows(2) {
            assert!(
                policy.rank(&pair[0]) < policy.rank(&pair[1]),
                "{policy}: {pair:?}"
            );
        }
    };
    ascending(PreemptionPolicy::LongestFirst, &longest);
    ascending(PreemptionPolicy::LowestPriority, &lowest);
}

#[test]
fn classes_rise_from_low_to_high_and_normal_is_the_default() {
    assert!(Low < Normal && Normal < High);
    assert_eq!([Low as u8, Normal as u8, High as u8], [0, 1, 2]);
    assert_eq!(RequestPriority::default(), Normal);
    assert_eq!(PreemptionPolicy::default(), PreemptionPolicy::LongestFirst);
}

#[test]
fn the_key_and_the_id_of_a_rank_are_those_it_was_made_of() {
    let rank = Ranked::new("key", &SequenceId::new(4));
    assert_eq!((*rank.key(), rank.id()), ("key", SequenceId::new(4)));
}
