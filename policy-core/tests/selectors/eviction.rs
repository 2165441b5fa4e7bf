//! What each policy takes, by name: `cargo test eviction` runs the family.

use policy_core::RequestPriority::{High, Low, Normal};
use policy_core::{
    CachedBlock, Candidate, Need, PreemptionPolicy, Reach, Selection, Separator, select_block,
    select_victim, select_victims,
};

use crate::cases::{exempt, plain, questions};

fn selection(policy: PreemptionPolicy, need: Need, offered: &[Candidate]) -> Option<Selection> {
    select_victim(policy, need, offered.iter().copied()).expect("distinct ids")
}

fn victim(policy: PreemptionPolicy, need: Need, offered: &[Candidate]) -> u64 {
    selection(policy, need, offered)
        .expect("a victim")
        .victim
        .id
        .number()
}

#[test]
fn eviction_selects_longest_first_by_default() {
    let policy = PreemptionPolicy::default();
    let offered = [
        plain(11, Low, 3),
        exempt(2, Low, 90),
        plain(7, High, 8),
        plain(5, Normal, 8),
        exempt(1, Normal, 8),
        plain(9, Normal, 2),
    ];
    // Longest among those that are not exempt, whatever its class; 5 and 7 tie, 5 is smaller.
    let chosen = selection(policy, Need::Seat, &offered).expect("a victim");
    assert_eq!(chosen.victim, offered[3]);
    assert_eq!(chosen.runner_up, Some(offered[2]));
    assert_eq!(chosen.separator, Some(Separator::Id));
    assert_eq!((chosen.considered, chosen.exempt), (6, 2));
}

#[test]
fn eviction_selects_lowest_priority_then_longest() {
    let policy = PreemptionPolicy::LowestPriority;
    let offered = [
        plain(4, Normal, 70),
        exempt(2, Low, 90),
        plain(8, Low, 6),
        plain(6, Low, 9),
        exempt(1, Low, 9),
        plain(3, High, 99),
    ];
    let chosen = selection(policy, Need::Seat, &offered).expect("a victim");
    assert_eq!(chosen.victim, offered[3]);
    assert_eq!(chosen.runner_up, Some(offered[2]));
    assert_eq!(chosen.separator, Some(Separator::GeneratedTokens));
    assert_eq!((chosen.considered, chosen.exempt), (6, 2));
}

#[test]
fn eviction_takes_the_smallest_id_of_those_that_tie() {
    for (policy, need) in questions() {
        let offered = [6, 3, 9, 4].map(|id| plain(id, Normal, 17));
        assert_eq!(victim(policy, need, &offered), 3, "{policy} for {need}");
    }
}

#[test]
fn eviction_leaves_the_exempt_out_for_a_seat_and_takes_them_last_for_blocks() {
    let offered = [exempt(1, Low, 50), plain(2, High, 1), exempt(3, Low, 60)];
    for &policy in PreemptionPolicy::ALL {
        assert_eq!(victim(policy, Need::Seat, &offered), 2);
        let victims = select_victims::<3>(policy, Need::Blocks, offered).expect("distinct ids");
        assert_eq!(victims.ranked, [offered[1], offered[2], offered[0]]);
        let separator = selection(policy, Need::Blocks, &offered).and_then(|s| s.separator);
        assert_eq!(separator, Some(Separator::Exempt));
    }
}

#[test]
fn eviction_takes_nobody_where_nobody_is_or_all_are_exempt_for_a_seat() {
    let all_exempt = [exempt(1, Low, 50), exempt(3, Low, 60)];
    for &policy in PreemptionPolicy::ALL {
        assert_eq!(selection(policy, Need::Seat, &[]), None);
        assert_eq!(selection(policy, Need::Blocks, &[]), None);
        assert_eq!(selection(policy, Need::Seat, &all_exempt), None);
        assert_eq!(victim(policy, Need::Blocks, &all_exempt), 3);
    }
}

#[test]
fn eviction_takes_the_worn_last_among_their_equals_and_never_spares_them() {
    let worn = |candidate| Candidate {
        worn: true,
        ..candidate
    };
    let offered = [worn(plain(1, Low, 90)), plain(2, Low, 1), plain(3, High, 5)];
    let (longest, lowest) = (
        PreemptionPolicy::LongestFirst,
        PreemptionPolicy::LowestPriority,
    );
    let ids = |policy| {
        let victims = select_victims::<3>(policy, Need::Seat, offered).expect("distinct ids");
        victims
            .ranked
            .iter()
            .map(|c| c.id.number())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(longest), [3, 2, 1]);
    assert_eq!(ids(lowest), [2, 1, 3]);
    assert_eq!(victim(longest, Need::Seat, &offered[..1]), 1);
    let separator = |policy| selection(policy, Need::Seat, &offered[..2]).and_then(|s| s.separator);
    assert_eq!(separator(longest), Some(Separator::Worn));
    assert_eq!(separator(lowest), Some(Separator::Worn));
}

#[test]
fn eviction_says_which_component_separated_victim_and_runner_up() {
    let (longest, lowest) = (
        PreemptionPolicy::LongestFirst,
        PreemptionPolicy::LowestPriority,
    );
    let separator = |policy, a, b| {
        selection(policy, Need::Blocks, &[a, b]).and_then(|selection| selection.separator)
    };
    let by = Some;
    // The class separates nobody under a policy that does not look at it.
    assert_eq!(
        separator(longest, plain(1, Low, 5), plain(2, High, 5)),
        by(Separator::Id)
    );
    assert_eq!(
        separator(lowest, plain(1, Low, 5), plain(2, High, 9)),
        by(Separator::Priority)
    );
    for policy in [longest, lowest] {
        let one = plain(1, Low, 5);
        assert_eq!(
            separator(policy, one, plain(2, Low, 6)),
            by(Separator::GeneratedTokens)
        );
        assert_eq!(
            separator(policy, one, exempt(2, Low, 6)),
            by(Separator::Exempt)
        );
        assert_eq!(
            selection(policy, Need::Blocks, &[one]).and_then(|s| s.separator),
            None
        );
    }
}

#[test]
fn eviction_of_several_says_whether_the_bound_or_the_candidates_ran_out() {
    fn reach<const N: usize>(wanted: usize) -> (Reach, Vec<u64>) {
        let offered = (1..=5).map(|id| plain(id, Normal, 4));
        let victims = select_victims::<N>(PreemptionPolicy::LongestFirst, Need::Seat, offered);
        let mut taken = Vec::new();
        let reach = victims.expect("distinct ids").take_until(|victim| {
            taken.push(victim.id.number());
            taken.len() >= wanted
        });
        (reach, taken)
    }
    // Enough, even with the last place of the bound, and nobody is taken beyond that.
    assert_eq!(reach::<3>(2), (Reach::Enough { taken: 2 }, vec![1, 2]));
    assert_eq!(reach::<3>(3), (Reach::Enough { taken: 3 }, vec![1, 2, 3]));
    assert_eq!(
        reach::<3>(4),
        (Reach::BoundTooSmall { left_out: 2 }, vec![1, 2, 3])
    );
    assert_eq!(
        reach::<5>(6),
        (Reach::TooFewCandidates, vec![1, 2, 3, 4, 5])
    );
    assert_eq!(
        reach::<9>(6),
        (Reach::TooFewCandidates, vec![1, 2, 3, 4, 5])
    );
    assert_eq!(
        reach::<0>(1),
        (Reach::BoundTooSmall { left_out: 5 }, vec![])
    );
}

#[test]
fn eviction_counts_what_was_offered_however_many_are_kept() {
    let offered = [
        exempt(1, Low, 1),
        plain(2, Low, 1),
        plain(3, Low, 1),
        plain(4, Low, 1),
    ];
    let policy = PreemptionPolicy::LongestFirst;
    let seat = select_victims::<2>(policy, Need::Seat, offered).expect("distinct ids");
    assert_eq!((seat.considered, seat.exempt, seat.left_out), (4, 1, 1));
    let blocks = select_victims::<2>(policy, Need::Blocks, offered).expect("distinct ids");
    assert_eq!(
        (blocks.considered, blocks.exempt, blocks.left_out),
        (4, 1, 2)
    );
}

#[test]
fn eviction_of_blocks_goes_by_last_use_then_depth_then_id() {
    let block = |id, last_used_step, depth| CachedBlock {
        id,
        last_used_step,
        depth,
    };
    let mut cached = vec![
        block(0, 9, 3),
        block(1, 4, 0),
        block(5, 4, 1),
        block(3, 4, 1),
        block(9, 2, 0),
    ];
    let mut order = Vec::new();
    while let Some(choice) = select_block(cached.iter().copied()).expect("distinct ids") {
        order.push(choice.winner.id);
        cached.retain(|block| block.id != choice.winner.id);
    }
    assert_eq!(order, [9, 3, 5, 1, 0]);
}
