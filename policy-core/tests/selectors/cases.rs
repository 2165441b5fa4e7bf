//! Candidates to choose from, and the orders to offer them in.

use policy_core::{Candidate, Need, PreemptionPolicy, RequestPriority, SequenceId};
use quickcheck::{Arbitrary, Gen, QuickCheck, Testable};

/// Every policy with every need.
pub(crate) fn questions() -> impl Iterator<Item = (PreemptionPolicy, Need)> {
    let needs = |&policy| Need::ALL.iter().map(move |&need| (policy, need));
    PreemptionPolicy::ALL.iter().flat_map(needs)
}

/// A candidate that is neither exempt nor worn.
pub(crate) const fn plain(id: u64, priority: RequestPriority, generated_tokens: u32) -> Candidate {
    Candidate::new(SequenceId::new(id), priority, generated_tokens)
}

/// The same, exempt.
pub(crate) const fn exempt(id: u64, priority: RequestPriority, generated_tokens: u32) -> Candidate {
    Candidate {
        exempt: true,
        ..plain(id, priority, generated_tokens)
    }
}

/// Checks a law on 2,000 cases from one fixed seed.
pub(crate) fn law(law: impl Testable) {
    const SEED: u64 = 0x010c_57e9;
    QuickCheck::new()
        .rng(Gen::from_size_and_seed(40, SEED))
        .tests(2_000)
        .quickcheck(law);
}

/// Candidates of distinct ids over a grid so small that ties abound.
#[derive(Clone, Debug)]
pub(crate) struct Offered(pub(crate) Vec<Candidate>);

impl Arbitrary for Offered {
    fn arbitrary(g: &mut Gen) -> Self {
        let values = Vec::<(u8, u8, bool, bool)>::arbitrary(g);
        let candidates = values.into_iter().zip(1..);
        let mut candidates: Vec<_> = candidates
            .map(|((priority, tokens, exempt, worn), id)| Candidate {
                id: SequenceId::new(id),
                priority: RequestPriority::from(i64::from(priority % 3) - 1),
                generated_tokens: u32::from(tokens % 4),
                exempt: exempt && worn,
                worn,
            })
            .collect();
        Shuffle::arbitrary(g).apply(&mut candidates);
        Self(candidates)
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let candidates = self.0.clone();
        let without = move |i: usize| {
            let mut fewer = candidates.clone();
            fewer.remove(i);
            Self(fewer)
        };
        Box::new((0..self.0.len()).map(without))
    }
}

/// A shuffle, from its seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle(u64);

impl Arbitrary for Shuffle {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(u64::arbitrary(g))
    }
}

impl Shuffle {
    /// Fisher and Yates, drawing from SplitMix64.
    pub(crate) fn apply<T>(self, items: &mut [T]) {
        let mut state = self.0;
        for end in (1..items.len()).rev() {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut drawn = state;
            drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            drawn ^= drawn >> 31;
            items.swap(end, (drawn % (end as u64 + 1)) as usize);
        }
    }
}

/// Calls `visit` with every order of `items` (Heap's algorithm).
pub(crate) fn permutations<T>(items: &mut [T], visit: &mut impl FnMut(&[T])) {
    fn permute<T>(k: usize, items: &mut [T], visit: &mut impl FnMut(&[T])) {
        if k <= 1 {
            return visit(items);
        }
        for i in 0..k {
            permute(k - 1, items, visit);
            if i + 1 < k {
                items.swap(if k.is_multiple_of(2) { i } else { 0 }, k - 1);
            }
        }
    }
    permute(items.len(), items, visit);
}

#[test]
fn permutations_are_all_and_distinct() {
    for n in 0..=6_usize {
        let mut seen = std::collections::BTreeSet::new();
        permutations(&mut (0..n).collect::<Vec<_>>(), &mut |order| {
            assert!(seen.insert(order.to_vec()));
        });
        assert_eq!(seen.len(), (1..=n).product::<usize>());
    }
}
