//! Small scopes in full: every set of up to six candidates over a grid, in every order.

use policy_core::RequestPriority::{High, Low, Normal};
use policy_core::{Candidate, Need, select_victim, select_victims};

use crate::cases::{exempt, permutations, plain, questions};

/// Every way to give `n` candidates, of ids 1 to `n`, values from `grid`.
fn assignments(n: usize, grid: &[Candidate], visit: &mut impl FnMut(&mut [Candidate])) {
    fn assign(
        left: usize,
        grid: &[Candidate],
        chosen: &mut Vec<Candidate>,
        visit: &mut impl FnMut(&mut [Candidate]),
    ) {
        if left == 0 {
            return visit(&mut chosen.clone());
        }
        for value in grid {
            let id = plain(chosen.len() as u64 + 1, Low, 0).id;
            chosen.push(Candidate { id, ..*value });
            assign(left - 1, grid, chosen, visit);
            chosen.pop();
        }
    }
    assign(n, grid, &mut Vec::new(), visit);
}

/// The answer to every question is the least by the policy's order, whatever order it comes in.
fn check(offered: &mut [Candidate]) {
    let least = questions().map(|(policy, need)| {
        let eligible = offered.iter().filter(|c| need == Need::Blocks || !c.exempt);
        let mut eligible: Vec<_> = eligible.copied().collect();
        eligible.sort_by_key(|candidate| policy.rank(candidate));
        (policy, need, eligible)
    });
    let expected: Vec<_> = least.collect();
    permutations(offered, &mut |order| {
        for (policy, need, sorted) in &expected {
            let one = select_victim(*policy, *need, order.iter().copied()).unwrap();
            assert_eq!(
                one.map(|one| one.victim),
                sorted.first().copied(),
                "{order:?}"
            );
            let second = one.and_then(|one| one.runner_up);
            assert_eq!(second, sorted.get(1).copied(), "{order:?}");
            if order.len() <= 4 {
                let some = select_victims::<3>(*policy, *need, order.iter().copied()).unwrap();
                assert_eq!(some.ranked, sorted[..sorted.len().min(3)], "{order:?}");
            }
        }
    });
}

#[test]
fn up_to_three_candidates_over_the_whole_grid_in_every_order() {
    let mut grid = Vec::new();
    for priority in [Low, Normal, High] {
        for tokens in [0, 1] {
            for worn in [false, true] {
                let one = plain(0, priority, tokens);
                let other = exempt(0, priority, tokens);
                grid.extend([one, other].map(|c| Candidate { worn, ..c }));
            }
        }
    }
    for n in 0..=3 {
        assignments(n, &grid, &mut check);
    }
}

#[test]
fn four_and_five_candidates_over_a_smaller_grid_in_every_order() {
    let grid = [
        plain(0, Low, 1),
        plain(0, Normal, 1),
        plain(0, Normal, 2),
        plain(0, High, 2),
    ];
    let spared = [exempt(0, Low, 1), exempt(0, Normal, 2)];
    assignments(4, &[&grid[..], &spared].concat(), &mut check);
    assignments(5, &[&grid[..], &spared].concat(), &mut check);
}

#[test]
fn six_candidates_over_the_smallest_grid_in_every_order() {
    let grid = [
        plain(0, Normal, 1),
        plain(0, Normal, 2),
        plain(0, Low, 1),
        exempt(0, Normal, 2),
    ];
    assignments(6, &grid, &mut check);
}
