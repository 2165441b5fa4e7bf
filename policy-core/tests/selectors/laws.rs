//! Laws of every selector, over candidates that tie more often than not.

use policy_core::{
    Aging, Arrival, CachedBlock, Candidate, Identified, Need, PreemptionPolicy, SequenceId,
    WorkerId, select_block, select_least, select_least_n, select_victim, select_victims,
    select_worker,
};

use crate::cases::{Offered, Shuffle, law, questions};
use crate::naive;

/// What sorting every eligible candidate by the policy's order gives: slow, and plainly right.
fn sorted(policy: PreemptionPolicy, need: Need, offered: &[Candidate]) -> Vec<Candidate> {
    let mut eligible = offered.to_vec();
    eligible.retain(|candidate| need == Need::Blocks || !candidate.exempt);
    eligible.sort_by_key(|candidate| policy.rank(candidate));
    eligible
}

#[test]
fn no_shuffle_changes_the_answer_of_a_selector() {
    fn same_answers(Offered(offered): Offered, shuffle: Shuffle) -> bool {
        let mut other = offered.clone();
        shuffle.apply(&mut other);
        let (a, b) = (|| offered.iter().copied(), || other.iter().copied());
        let block = |c: Candidate| CachedBlock {
            id: c.id.number() as u32,
            last_used_step: c.priority as u64,
            depth: c.generated_tokens,
        };
        let importance = |c: Candidate| {
            Aging::from_steps(1).importance(Arrival {
                priority: c.priority,
                step: u64::from(c.generated_tokens),
                number: c.id.number(),
            })
        };
        let worker = |c: Candidate| WorkerId::new(c.id.number());
        questions().all(|(policy, need)| {
            select_victim(policy, need, a()) == select_victim(policy, need, b())
                && select_victims::<1>(policy, need, a()) == select_victims::<1>(policy, need, b())
                && select_victims::<7>(policy, need, a()) == select_victims::<7>(policy, need, b())
        }) && select_block(a().map(block)) == select_block(b().map(block))
            && select_worker(b"key", a().map(worker)) == select_worker(b"key", b().map(worker))
            && select_least(a().map(importance), |i| *i)
                == select_least(b().map(importance), |i| *i)
            && select_least(a(), |c| c.worn) == select_least(b(), |c| c.worn)
            && select_least_n::<5, _, _, _>(a(), |_| ())
                == select_least_n::<5, _, _, _>(b(), |_| ())
    }
    law(same_answers as fn(Offered, Shuffle) -> bool);
}

#[test]
fn one_pass_agrees_with_sorting_everything() {
    fn agrees(Offered(offered): Offered) -> bool {
        questions().all(|(policy, need)| {
            let sorted = sorted(policy, need, &offered);
            let exempt = offered.iter().filter(|candidate| candidate.exempt).count();
            let one = select_victim(policy, need, offered.iter().copied()).unwrap();
            let some = select_victims::<5>(policy, need, offered.iter().copied()).unwrap();
            let evidence = one.is_none_or(|one| {
                (one.considered, one.exempt) == (offered.len(), exempt)
                    && one.runner_up == sorted.get(1).copied()
                    && one.separator.is_some() == one.runner_up.is_some()
            });
            evidence
                && one.map(|one| one.victim) == sorted.first().copied()
                && some.ranked == sorted[..sorted.len().min(5)]
                && some.left_out == sorted.len().saturating_sub(5)
        })
    }
    law(agrees as fn(Offered) -> bool);
}

#[test]
fn several_victims_are_those_taken_one_at_a_time() {
    fn same(Offered(mut offered): Offered) -> bool {
        questions().all(|(policy, need)| {
            let some = select_victims::<6>(policy, need, offered.iter().copied()).unwrap();
            let mut rest = std::mem::take(&mut offered);
            let one_by_one = some.ranked.iter().all(|victim| {
                let one = select_victim(policy, need, rest.iter().copied()).unwrap();
                rest.retain(|candidate| candidate.id != victim.id);
                one.is_some_and(|one| one.victim == *victim)
            });
            let ends = select_victim(policy, need, rest.iter().copied()).unwrap();
            offered = rest;
            offered.extend(&some.ranked);
            one_by_one && ends.is_some() == (some.left_out > 0)
        })
    }
    law(same as fn(Offered) -> bool);
}

#[test]
fn none_exactly_when_nobody_is_eligible() {
    fn exactly(Offered(offered): Offered) -> bool {
        questions().all(|(policy, need)| {
            let eligible = |c: &Candidate| need == Need::Blocks || !c.exempt;
            let chosen = select_victim(policy, need, offered.iter().copied()).unwrap();
            chosen.is_some() == offered.iter().any(eligible)
        })
    }
    law(exactly as fn(Offered) -> bool);
}

#[test]
fn where_nothing_ties_the_naive_expression_gives_the_same_answer() {
    fn unchanged(Offered(offered): Offered) -> bool {
        PreemptionPolicy::ALL.iter().all(|&policy| {
            let mut distinct: Vec<Candidate> = Vec::new();
            // One candidate a length: nothing ties, with the class looked at or not.
            for candidate in offered.iter().map(|c| Candidate { worn: false, ..*c }) {
                if distinct
                    .iter()
                    .all(|held| held.generated_tokens != candidate.generated_tokens)
                {
                    distinct.push(candidate);
                }
            }
            let chosen = select_victim(policy, Need::Seat, distinct.iter().copied()).unwrap();
            chosen.map(|chosen| chosen.victim) == naive::select_victim(policy, distinct.iter())
        })
    }
    law(unchanged as fn(Offered) -> bool);
}

#[test]
fn the_key_is_asked_once_an_item() {
    let asked = std::cell::Cell::new(0);
    let ids = (0..100).map(SequenceId::new);
    let choice = select_least(ids, |id| {
        asked.set(asked.get() + 1);
        id.number() % 7
    });
    assert_eq!(choice.unwrap().unwrap().winner.id(), SequenceId::new(0));
    assert_eq!(asked.get(), 100);
}
