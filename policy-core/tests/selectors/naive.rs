//! The counter-example: the expressions that this crate exists to replace, kept as they are met.
//!
//! Nothing but tests may call them. Each decides a tie by the order of the iterator: `max_by_key`
//! keeps the last of equal maxima, `min_by` the first of equal minima.

use core::cmp::Reverse;

use policy_core::{Candidate, PreemptionPolicy};

/// The victim for a seat by the naive expression for a policy.
pub(crate) fn select_victim<'a>(
    policy: PreemptionPolicy,
    candidates: impl Iterator<Item = &'a Candidate>,
) -> Option<Candidate> {
    let mut eligible = candidates.filter(|candidate| !candidate.exempt);
    let victim = match policy {
        PreemptionPolicy::LongestFirst => eligible.max_by_key(|c| c.generated_tokens),
        _ => eligible.by_ref().min_by(|a, b| {
            let longest = b.generated_tokens.cmp(&a.generated_tokens);
            a.priority.cmp(&b.priority).then(longest)
        }),
    };
    victim.copied()
}

/// The same with a stable sort, which keeps the iterator's order among equals.
pub(crate) fn select_victim_by_sort<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
) -> Option<Candidate> {
    let mut eligible: Vec<_> = candidates.filter(|candidate| !candidate.exempt).collect();
    eligible.sort_by_key(|candidate| Reverse(candidate.generated_tokens));
    eligible.first().copied().copied()
}
