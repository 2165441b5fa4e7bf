//! Which running sequence is preempted.

use core::cmp::Reverse;

use crate::order::{DuplicateId, Identified, select_least};
use crate::{RequestPriority, SequenceId};

/// A running sequence, as the choice of a victim sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The id of this admission.
    pub id: SequenceId,
    /// The class of its request.
    pub priority: RequestPriority,
    /// Tokens generated since this admission.
    pub generated_tokens: u32,
    /// Never chosen for a seat, last for blocks: structured output, or a lease that still runs.
    pub exempt: bool,
    /// Preempted so often that it comes last among its equals; never exempt for that.
    pub worn: bool,
}

impl Identified for Candidate {
    type Id = SequenceId;

    fn id(&self) -> SequenceId {
        self.id
    }
}

/// What the preemption is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A place in the running batch.
    Seat,
    /// KV blocks.
    Blocks,
}

/// How the victim is chosen among the candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// The most tokens generated since admission, then the smallest id.
    #[default]
    LongestFirst,
    /// The lowest class, then the most tokens generated, then the smallest id.
    LowestPriority,
}

/// The component of the key that separated the victim from the runner-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// One of the two was exempt.
    Exempt,
    /// One of the two was worn.
    Worn,
    /// Their classes differed.
    Priority,
    /// Their generated tokens differed.
    GeneratedTokens,
    /// They tied throughout; the smaller id was taken.
    Id,
}

/// The victim and the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Who is preempted.
    pub victim: Candidate,
    /// Who would have been next.
    pub runner_up: Option<Candidate>,
    /// How many candidates were offered, the exempt ones included.
    pub considered: usize,
    /// How many of them were exempt.
    pub exempt: usize,
    /// What separated the victim from the runner-up; `None` where there is no runner-up.
    pub separator: Option<Separator>,
}

/// Chooses a victim; the order of `candidates` does not matter. O(n), no allocation.
///
/// # Errors
/// [`DuplicateId`] where two candidates that reached the top share an id.
pub fn select_victim(
    policy: PreemptionPolicy,
    need: Need,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Result<Option<Selection>, DuplicateId<SequenceId>> {
    let (mut considered, mut exempt) = (0, 0);
    let eligible = candidates.into_iter().filter(|candidate| {
        considered += 1;
        exempt += usize::from(candidate.exempt);
        need == Need::Blocks || !candidate.exempt
    });
    // `select_least` appends the id to each key: it is what makes both orders total.
    let choice = match policy {
        PreemptionPolicy::LongestFirst => select_least(eligible, |c| {
            (c.exempt, c.worn, Reverse(c.generated_tokens))
        })?
        .map(|c| (c.winner, c.runner_up)),
        PreemptionPolicy::LowestPriority => select_least(eligible, |c| {
            (c.exempt, c.worn, c.priority, Reverse(c.generated_tokens))
        })?
        .map(|c| (c.winner, c.runner_up)),
    };
    Ok(choice.map(|(victim, runner_up)| Selection {
        victim,
        runner_up,
        considered,
        exempt,
        separator: runner_up.map(|other| separator(policy, &victim, &other)),
    }))
}

fn separator(policy: PreemptionPolicy, a: &Candidate, b: &Candidate) -> Separator {
    if a.exempt != b.exempt {
        Separator::Exempt
    } else if a.worn != b.worn {
        Separator::Worn
    } else if policy == PreemptionPolicy::LowestPriority && a.priority != b.priority {
        Separator::Priority
    } else if a.generated_tokens != b.generated_tokens {
        Separator::GeneratedTokens
    } else {
        Separator::Id
    }
}
