//! Which running sequence is preempted.
//!
//! [`select_victim`] chooses one and says why; [`select_victims`] ranks as many as there is room
//! for, in the order in which they would be taken. Both read [`VictimKey`], the only place in which
//! a policy is written down.

use core::cell::Cell;
use core::cmp::Reverse;

use crate::names::named_enum;
use crate::order::{DuplicateId, Identified, Ranked, Ranking, select_least, select_least_n};
use crate::priority::RequestPriority;
use crate::sequence::SequenceId;

/// A running sequence, as the choice of a victim sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Candidate {
    /// A candidate that is neither exempt nor worn.
    pub const fn new(id: SequenceId, priority: RequestPriority, generated_tokens: u32) -> Self {
        Self {
            id,
            priority,
            generated_tokens,
            exempt: false,
            worn: false,
        }
    }
}

impl Identified for Candidate {
    type Id = SequenceId;

    fn id(&self) -> SequenceId {
        self.id
    }
}

/// What the preemption is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    /// A place in the running batch: exempt candidates are left out.
    Seat,
    /// KV blocks: exempt candidates come last.
    Blocks,
}

named_enum!(Need, "need", Seat = "seat", Blocks = "blocks");

impl Need {
    const fn admits(self, candidate: &Candidate) -> bool {
        matches!(self, Self::Blocks) || !candidate.exempt
    }
}

/// How the victim is chosen among the candidates.
///
/// Among candidates of one class the two agree. Both put exempt candidates behind all others, and
/// worn ones behind their equals: behind all that are not worn under `longest-first`, behind those
/// of the same class under `lowest-priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PreemptionPolicy {
    /// The most tokens generated since admission, then the smallest id.
    #[default]
    LongestFirst,
    /// The lowest class, then the most tokens generated since admission, then the smallest id.
    LowestPriority,
}

named_enum!(
    PreemptionPolicy,
    "preemption policy",
    LongestFirst = "longest-first",
    LowestPriority = "lowest-priority",
);

/// What a policy makes of a candidate, least first. The id is not in it: [`Ranked`] appends that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VictimKey {
    exempt: bool,
    /// `None` under a policy that does not look at the class.
    priority: Option<RequestPriority>,
    worn: bool,
    longest: Reverse<u32>,
}

/// A candidate's place in the order of preemption: the least is taken first.
pub type VictimRank = Ranked<VictimKey, SequenceId>;

impl PreemptionPolicy {
    /// The candidate's place in the order of preemption.
    pub fn rank(self, candidate: &Candidate) -> VictimRank {
        Ranked::new(self.key(candidate), candidate)
    }

    /// The first component of the key on which two candidates differ.
    pub fn separator(self, a: &Candidate, b: &Candidate) -> Separator {
        let (a, b) = (self.key(a), self.key(b));
        if a.exempt != b.exempt {
            Separator::Exempt
        } else if a.priority != b.priority {
            Separator::Priority
        } else if a.worn != b.worn {
            Separator::Worn
        } else if a.longest != b.longest {
            Separator::GeneratedTokens
        } else {
            Separator::Id
        }
    }

    fn key(self, candidate: &Candidate) -> VictimKey {
        let priority = match self {
            // Candidates of one length tie here; the id that `Ranked` appends makes it total.
            Self::LongestFirst => None,
            // Candidates of one class and length tie here; the id that `Ranked` appends makes it total.
            Self::LowestPriority => Some(candidate.priority),
        };
        VictimKey {
            exempt: candidate.exempt,
            priority,
            worn: candidate.worn,
            longest: Reverse(candidate.generated_tokens),
        }
    }
}

/// The component of the key that separated the victim from the runner-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Separator {
    /// One of the two was exempt.
    Exempt,
    /// Their classes differed.
    Priority,
    /// One of the two was worn.
    Worn,
    /// Their generated tokens differed.
    GeneratedTokens,
    /// They tied throughout; the smaller id was taken.
    Id,
}

named_enum!(
    Separator,
    "separator",
    Exempt = "exempt",
    Priority = "priority",
    Worn = "worn",
    GeneratedTokens = "generated-tokens",
    Id = "id",
);

/// The victim and the evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// Chooses a victim; the order of `candidates` does not matter.
///
/// `None` where there are no candidates, or where a seat is needed and all are exempt. One pass:
/// O(n) time, constant memory, no allocation.
///
/// # Errors
/// [`DuplicateId`] where two of the three eligible candidates that would be taken first have one id
/// (see [`crate::order`]).
///
/// # Examples
/// ```
/// use policy_core::{
///     Candidate, Need, PreemptionPolicy, RequestPriority, Separator, SequenceId, select_victim,
/// };
/// let candidate = |id, generated_tokens| {
///     Candidate::new(SequenceId::new(id), RequestPriority::Normal, generated_tokens)
/// };
/// // Admitted together, decoded in lockstep: 8 and 5 tie on everything but the id.
/// let running = [candidate(8, 40), candidate(5, 40), candidate(9, 12)];
/// let chosen = select_victim(PreemptionPolicy::LongestFirst, Need::Seat, running)?.unwrap();
/// assert_eq!(chosen.victim.id, SequenceId::new(5));
/// assert_eq!(chosen.runner_up.unwrap().id, SequenceId::new(8));
/// assert_eq!(chosen.separator, Some(Separator::Id));
/// # Ok::<(), policy_core::DuplicateId<SequenceId>>(())
/// ```
pub fn select_victim(
    policy: PreemptionPolicy,
    need: Need,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Result<Option<Selection>, DuplicateId<SequenceId>> {
    let counts = Counts::default();
    let eligible = counts.eligible(need, candidates);
    let Some(choice) = select_least(eligible, |candidate| policy.key(candidate))? else {
        return Ok(None);
    };
    let separator = |other| policy.separator(&choice.winner, other);
    Ok(Some(Selection {
        victim: choice.winner,
        runner_up: choice.runner_up,
        considered: counts.considered.get(),
        exempt: counts.exempt.get(),
        separator: choice.runner_up.as_ref().map(separator),
    }))
}

/// Up to `N` victims, in the order in which they would be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims<const N: usize> {
    /// The victims, first to be taken first.
    pub ranked: heapless::Vec<Candidate, N>,
    /// How many more candidates could be taken but found no place.
    pub left_out: usize,
    /// How many candidates were offered, the exempt ones included.
    pub considered: usize,
    /// How many of them were exempt.
    pub exempt: usize,
}

/// How far a [`Victims`] ranking reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Enough was freed by the first `taken` victims; the rest were left alone.
    Enough {
        /// How many were taken.
        taken: usize,
    },
    /// All `N` were taken and it was not enough; `left_out` more candidates wait behind the bound,
    /// and a fresh ranking would begin with them.
    BoundTooSmall {
        /// How many candidates found no place.
        left_out: usize,
    },
    /// All there were have been taken and it was not enough: nothing is left to preempt.
    TooFewCandidates,
}

impl<const N: usize> Victims<N> {
    /// Takes victims one at a time until `release` says that it is enough, and says whether the
    /// bound or the candidates ran out first.
    ///
    /// `release` preempts one victim, counts afresh what is free, and returns whether that
    /// suffices. It counts, not this crate: of two sequences that share blocks the first frees
    /// nothing, so what each one frees is known only after it has gone. At least one is taken, if
    /// there is one; whoever needs nothing does not ask.
    pub fn take_until(&self, mut release: impl FnMut(&Candidate) -> bool) -> Reach {
        let mut taken = 0_usize;
        for victim in &self.ranked {
            taken = taken.saturating_add(1);
            if release(victim) {
                return Reach::Enough { taken };
            }
        }
        match self.left_out {
            0 => Reach::TooFewCandidates,
            left_out => Reach::BoundTooSmall { left_out },
        }
    }
}

/// Ranks up to `N` victims, in the order in which repeated calls of [`select_victim`] would take
/// them; the order of `candidates` does not matter.
///
/// One pass: O(n·N) time at worst, memory for `N` candidates, no allocation.
///
/// # Errors
/// [`DuplicateId`] where two of the `N + 1` eligible candidates that would be taken first have one
/// id (see [`crate::order`]).
///
/// # Examples
/// ```
/// use policy_core::{Candidate, Need, PreemptionPolicy, Reach, SequenceId, select_victims};
/// let candidate = |id, generated_tokens| {
///     Candidate::new(SequenceId::new(id), Default::default(), generated_tokens)
/// };
/// let running = [candidate(1, 3), candidate(2, 9), candidate(3, 9)];
/// let victims = select_victims::<2>(PreemptionPolicy::LongestFirst, Need::Blocks, running)?;
///
/// // Sequences 2 and 3 share their blocks: the first frees nothing, both free four.
/// let mut free = 0;
/// let reach = victims.take_until(|victim| {
///     free += if victim.id == SequenceId::new(2) { 0 } else { 4 };
///     free >= 6
/// });
/// assert_eq!(reach, Reach::BoundTooSmall { left_out: 1 });
/// # Ok::<(), policy_core::DuplicateId<SequenceId>>(())
/// ```
pub fn select_victims<const N: usize>(
    policy: PreemptionPolicy,
    need: Need,
    candidates: impl IntoIterator<Item = Candidate>,
) -> Result<Victims<N>, DuplicateId<SequenceId>> {
    let counts = Counts::default();
    let eligible = counts.eligible(need, candidates);
    let ranking: Ranking<_, N> = select_least_n(eligible, |candidate| policy.key(candidate))?;
    Ok(Victims {
        left_out: ranking.left_out(),
        ranked: ranking.items,
        considered: counts.considered.get(),
        exempt: counts.exempt.get(),
    })
}

/// What passes by on the way to a choice.
#[derive(Default)]
struct Counts {
    considered: Cell<usize>,
    exempt: Cell<usize>,
}

impl Counts {
    fn eligible(
        &self,
        need: Need,
        candidates: impl IntoIterator<Item = Candidate>,
    ) -> impl Iterator<Item = Candidate> {
        candidates.into_iter().filter(move |candidate| {
            self.considered.update(|n| n.saturating_add(1));
            self.exempt
                .update(|n| n.saturating_add(usize::from(candidate.exempt)));
            need.admits(candidate)
        })
    }
}
