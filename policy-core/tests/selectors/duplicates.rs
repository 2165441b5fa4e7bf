//! Two items of one id: reported or harmless, and never decided by the order they come in.

use policy_core::{
    DuplicateId, Identified, Need, PreemptionPolicy, RequestPriority, SequenceId, WorkerId,
    first_duplicate, select_block, select_least, select_least_n, select_victim, select_victims,
    select_worker,
};

use crate::cases::{exempt, permutations, plain};

/// An item that tells apart what its id and key do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    id: u8,
    key: u8,
    payload: usize,
}

impl Identified for Item {
    type Id = u8;

    fn id(&self) -> u8 {
        self.id
    }
}

/// The rule in words: the id that the first of the `n + 1` least ranks shares with another of them.
fn reported(n: usize, items: &[Item]) -> Option<u8> {
    let mut ranks: Vec<_> = items.iter().map(|item| (item.key, item.id)).collect();
    ranks.sort_unstable();
    ranks.truncate(n + 1);
    let shared = |id| ranks.iter().filter(|(_, other)| *other == id).count() > 1;
    ranks.iter().map(|&(_, id)| id).find(|&id| shared(id))
}

/// Calls `visit` with every list of `n` items over three ids and two keys.
fn lists(n: u32, visit: &mut impl FnMut(&mut [Item])) {
    for code in 0..6_usize.pow(n) {
        let digit = |payload| (code / 6_usize.pow(payload)) % 6;
        let item = |payload| Item {
            id: (digit(payload) % 3) as u8,
            key: (digit(payload) / 3) as u8,
            payload: payload as usize,
        };
        visit(&mut (0..n).map(item).collect::<Vec<_>>());
    }
}

fn check<const N: usize>(items: &mut [Item]) {
    let report = reported(N, items);
    let mut first = None;
    permutations(items, &mut |order| {
        let answer = select_least_n::<N, _, _, _>(order.iter().copied(), |item| item.key);
        assert_eq!(
            answer.as_ref().err(),
            report.map(DuplicateId).as_ref(),
            "{order:?}"
        );
        // The payloads too: of two items of one rank, chance has chosen neither.
        let same = first.get_or_insert_with(|| answer.clone());
        assert_eq!(*same, answer, "{order:?}");
    });
}

#[test]
fn what_is_reported_does_not_depend_on_the_order_of_the_iterator() {
    for n in 0..=5 {
        lists(n, &mut |items| {
            check::<0>(items);
            check::<1>(items);
            check::<2>(items);
            check::<3>(items);
        });
    }
}

#[test]
fn a_choice_reports_by_the_rule_for_two() {
    for n in 0..=4 {
        lists(n, &mut |items| {
            let report = reported(2, items).map(DuplicateId);
            permutations(items, &mut |order| {
                let choice = select_least(order.iter().copied(), |item| item.key);
                assert_eq!(choice.err(), report, "{order:?}");
            });
        });
    }
}

#[test]
fn a_second_item_of_one_id_behind_the_leaders_changes_nothing() {
    let item = |id, key| Item {
        id,
        key,
        payload: 0,
    };
    let mut items = [item(1, 0), item(2, 1), item(3, 2), item(1, 3), item(3, 4)];
    permutations(&mut items, &mut |order| {
        let choice = select_least(order, |item| item.key).unwrap().unwrap();
        assert_eq!((choice.winner.id, choice.winner.key), (1, 0));
        assert_eq!(choice.runner_up.map(|item| item.id), Some(2));
        assert_eq!(first_duplicate(order), Some(DuplicateId(1)));
    });
}

#[test]
fn every_selector_reports_them() {
    let twice = [
        plain(7, RequestPriority::Low, 3),
        plain(7, RequestPriority::Low, 3),
    ];
    let id = DuplicateId(SequenceId::new(7));
    for &policy in PreemptionPolicy::ALL {
        assert_eq!(select_victim(policy, Need::Seat, twice), Err(id));
        assert_eq!(
            select_victims::<1>(policy, Need::Blocks, twice).err(),
            Some(id)
        );
    }
    let block = policy_core::CachedBlock {
        id: 4,
        last_used_step: 1,
        depth: 0,
    };
    assert_eq!(select_block([block, block]), Err(DuplicateId(4)));
    let worker = WorkerId::new(2);
    assert_eq!(
        select_worker(b"key", [worker, worker]),
        Err(DuplicateId(worker))
    );
}

#[test]
fn of_two_states_of_one_sequence_neither_is_chosen() {
    // The same sequence twice, before and after it went on: the caller's bug, however it is ordered.
    let low = RequestPriority::Low;
    for offered in [
        [plain(7, low, 3), plain(7, low, 4)],
        [plain(7, low, 4), plain(7, low, 3)],
    ] {
        let chosen = select_victim(PreemptionPolicy::LongestFirst, Need::Seat, offered);
        assert_eq!(chosen, Err(DuplicateId(SequenceId::new(7))));
    }
}

#[test]
fn those_who_cannot_be_chosen_are_not_looked_at() {
    let low = RequestPriority::Low;
    let offered = [exempt(7, low, 3), plain(1, low, 1), exempt(7, low, 3)];
    let policy = PreemptionPolicy::LongestFirst;
    let chosen = select_victim(policy, Need::Seat, offered).unwrap().unwrap();
    assert_eq!(chosen.victim, offered[1]);
    let id = DuplicateId(SequenceId::new(7));
    assert_eq!(select_victim(policy, Need::Blocks, offered), Err(id));
}

#[test]
fn the_report_names_the_id() {
    let error = DuplicateId(SequenceId::new(7));
    assert_eq!(error.to_string(), "two items to choose from have the id 7");
}

#[test]
fn the_first_duplicate_is_the_least_id_of_all_that_occur_twice() {
    let mut ids = [9, 4, 4, 2, 9].map(SequenceId::new);
    permutations(&mut ids, &mut |order| {
        assert_eq!(
            first_duplicate(order),
            Some(DuplicateId(SequenceId::new(4)))
        );
    });
    assert_eq!(first_duplicate([1, 2, 3].map(SequenceId::new)), None);
}
