//! Choosing by a key that is made total by the id of what is chosen.
//!
//! [`select_least`] answers "which one, and who was next?", [`select_least_n`] "which ones, in which
//! order?". Both take any iterator of anything that is [`Identified`], and any [`Ord`] key. Both
//! compare [`Ranked`] values, which nobody can build without an id, so two different items never
//! tie, and the answer is a function of *what* is offered, not of the order in which it comes.
//!
//! # One direction
//! The least rank wins, always. To prefer the greatest of a component, wrap that component in
//! [`core::cmp::Reverse`]. There is no `select_greatest`: [`Iterator::min_by_key`] keeps the first
//! of several equal minima and [`Iterator::max_by_key`] the last of several equal maxima, and a
//! policy that uses both faces two ways at once.
//!
//! # Two items of one id
//! Distinct ids are the caller's duty, and a breach is reported, never decided by chance:
//!
//! > [`DuplicateId`] is returned if and only if two of the `N + 1` items of least rank share an id,
//! > `N` being how many items the answer holds (two for [`select_least`]: winner and runner-up).
//!
//! The `N + 1` least ranks do not depend on the order of the iterator, so neither does the report,
//! nor the id in it. Any two items between which an order of the iterator could have decided have
//! one rank, hence one id, and at least one of them would have been in the answer: both are among
//! those `N + 1`. So an `Ok` is never a coin toss. A second item of one id *behind* them cannot
//! change the answer, and one pass in constant memory cannot see it; [`first_duplicate`] looks at
//! everything, in quadratic time, for a caller that wants to know.

use core::fmt;
use core::mem;

/// Something that has an id, unique among whatever it is compared with.
pub trait Identified {
    /// The type of the id.
    type Id: Copy + Ord;

    /// This item's id.
    fn id(&self) -> Self::Id;
}

impl<T: Identified + ?Sized> Identified for &T {
    type Id = T::Id;

    fn id(&self) -> T::Id {
        (**self).id()
    }
}

/// A policy's key with an id appended: the least rank wins.
///
/// Only an item that has an id gives one, so a key without an id cannot be compared. The fields are
/// compared in this order, the id last: it is what makes the order total.
///
/// ```
/// use policy_core::{Ranked, SequenceId};
/// let (older, younger) = (SequenceId::new(3), SequenceId::new(4));
/// assert!(Ranked::new(7, &older) < Ranked::new(7, &younger));
/// ```
///
/// It is not built from its parts, so that the id is the item's own:
///
/// ```compile_fail,E0451
/// use policy_core::{Ranked, SequenceId};
/// let rank = Ranked { key: 7, id: SequenceId::new(0) };
/// ```
///
/// A float is no key, since it has no total order:
///
/// ```compile_fail,E0277
/// use policy_core::{Ranked, SequenceId};
/// let rank = Ranked::new(0.5_f32, &SequenceId::new(3));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranked<K: Ord, I: Ord> {
    key: K,
    id: I,
}

impl<K: Ord, I: Ord + Copy> Ranked<K, I> {
    /// The rank of `item` under `key`.
    pub fn new(key: K, item: &impl Identified<Id = I>) -> Self {
        Self { key, id: item.id() }
    }

    /// The key, without the id.
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// The id that makes the rank unique.
    pub const fn id(&self) -> I {
        self.id
    }
}

/// Two items under one id: a bug of the caller, reported rather than decided by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DuplicateId<I>(pub I);

impl<I: fmt::Display> fmt::Display for DuplicateId<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "two items to choose from have the id {}", self.0)
    }
}

impl<I: fmt::Debug + fmt::Display> core::error::Error for DuplicateId<I> {}

/// The least item and the one that came second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<T> {
    /// The item of least rank.
    pub winner: T,
    /// The item of second least rank, if there were two.
    pub runner_up: Option<T>,
    /// How many items were compared.
    pub considered: usize,
}

/// The `N` items of least rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking<T, const N: usize> {
    /// The items, least rank first.
    pub items: heapless::Vec<T, N>,
    /// How many items were compared, those that found no place included.
    pub considered: usize,
}

impl<T, const N: usize> Ranking<T, N> {
    /// How many items found no place: 0 where the ranking is complete.
    pub fn left_out(&self) -> usize {
        self.considered.saturating_sub(self.items.len())
    }
}

/// Chooses the item of least `(key, id)`; the order of `items` does not matter.
///
/// `None` where there are no items. One pass: O(n) time, constant memory, no allocation; `key` is
/// called once per item.
///
/// # Errors
/// [`DuplicateId`] where two of the three items of least rank share an id
/// (see the [module](self#two-items-of-one-id)).
///
/// # Examples
/// ```
/// use core::cmp::Reverse;
/// use policy_core::{Identified, select_least};
///
/// struct Lane { number: u8, cars: u32, open: bool }
/// impl Identified for Lane {
///     type Id = u8;
///     fn id(&self) -> u8 { self.number }
/// }
///
/// let lanes = [
///     Lane { number: 3, cars: 4, open: true },
///     Lane { number: 1, cars: 4, open: true },
///     Lane { number: 2, cars: 0, open: false },
/// ];
/// // Open before closed, then the fewest cars; the number decides between lanes 1 and 3.
/// let choice = select_least(&lanes, |lane| (Reverse(lane.open), lane.cars))?.unwrap();
/// assert_eq!(choice.winner.number, 1);
/// assert_eq!(choice.runner_up.unwrap().number, 3);
/// # Ok::<(), policy_core::DuplicateId<u8>>(())
/// ```
///
/// A float does not compile as a key, nor as a part of one:
///
/// ```compile_fail,E0277
/// use policy_core::{SequenceId, select_least};
/// let ids = [5, 2, 9].map(SequenceId::new);
/// let choice = select_least(ids, |id| (0, id.number() as f64 / 2.0));
/// ```
pub fn select_least<T, K, F>(
    items: impl IntoIterator<Item = T>,
    key: F,
) -> Result<Option<Choice<T>>, DuplicateId<T::Id>>
where
    T: Identified,
    K: Ord,
    F: Fn(&T) -> K,
{
    let Ranking {
        mut items,
        considered,
    } = select_least_n::<2, _, _, _>(items, key)?;
    let last = items.pop();
    let (winner, runner_up) = match items.pop() {
        Some(winner) => (Some(winner), last),
        None => (last, None),
    };
    Ok(winner.map(|winner| Choice {
        winner,
        runner_up,
        considered,
    }))
}

/// The `N` items of least `(key, id)`, least first; the order of `items` does not matter.
///
/// One pass: O(n·N) time at worst and O(n + N² log n) expected over random orders, memory for `N`
/// items, no allocation; `key` is called once per item.
///
/// # Errors
/// [`DuplicateId`] where two of the `N + 1` items of least rank share an id
/// (see the [module](self#two-items-of-one-id)).
///
/// # Examples
/// ```
/// use policy_core::{SequenceId, select_least_n};
/// let ids = [5, 2, 9, 4].map(SequenceId::new);
/// // Odd ids come after even ones; the id decides inside each group.
/// let ranking = select_least_n::<3, _, _, _>(ids, |id| id.number() % 2)?;
/// assert_eq!(ranking.items, [2, 4, 5].map(SequenceId::new));
/// assert_eq!(ranking.left_out(), 1);
/// # Ok::<(), policy_core::DuplicateId<SequenceId>>(())
/// ```
pub fn select_least_n<const N: usize, T, K, F>(
    items: impl IntoIterator<Item = T>,
    key: F,
) -> Result<Ranking<T, N>, DuplicateId<T::Id>>
where
    T: Identified,
    K: Ord,
    F: Fn(&T) -> K,
{
    let mut leaders = Leaders::<T, K, N>::new();
    let mut considered = 0_usize;
    for item in items {
        considered = considered.saturating_add(1);
        let rank = Ranked::new(key(&item), &item);
        leaders.offer(rank, item);
    }
    leaders.check_ids()?;
    Ok(Ranking {
        items: leaders.items,
        considered,
    })
}

/// The least id that two of `items` share, if any.
///
/// For callers whose collection does not rule duplicates out, and for assertions: the selectors see
/// only those that could change their answer. O(n²) time, no allocation.
///
/// ```
/// use policy_core::{DuplicateId, SequenceId, first_duplicate};
/// let ids = [8, 1, 7, 8, 7].map(SequenceId::new);
/// assert_eq!(first_duplicate(&ids), Some(DuplicateId(SequenceId::new(7))));
/// ```
pub fn first_duplicate<T: Identified>(
    items: impl IntoIterator<Item = T, IntoIter: Clone>,
) -> Option<DuplicateId<T::Id>> {
    let mut least: Option<T::Id> = None;
    let mut rest = items.into_iter();
    while let Some(item) = rest.next() {
        let id = item.id();
        if least.is_none_or(|held| id < held) && rest.clone().any(|other| other.id() == id) {
            least = Some(id);
        }
    }
    least.map(DuplicateId)
}

/// The `N + 1` least ranks seen so far, ascending, with the items of the first `N`.
struct Leaders<T: Identified, K: Ord, const N: usize> {
    items: heapless::Vec<T, N>,
    ranks: heapless::Vec<Ranked<K, T::Id>, N>,
    behind: Option<Ranked<K, T::Id>>,
}

impl<T: Identified, K: Ord, const N: usize> Leaders<T, K, N> {
    const fn new() -> Self {
        Self {
            items: heapless::Vec::new(),
            ranks: heapless::Vec::new(),
            behind: None,
        }
    }

    fn offer(&mut self, mut rank: Ranked<K, T::Id>, mut item: T) {
        // What is not below the rank behind the leaders changes nothing: the common case.
        if self.behind.as_ref().is_some_and(|behind| rank >= *behind) {
            return;
        }
        for (held_rank, held) in self.ranks.iter_mut().zip(&mut self.items) {
            if rank < *held_rank {
                mem::swap(&mut rank, held_rank);
                mem::swap(&mut item, held);
            }
        }
        // Both lists have one length and one capacity: they take, or refuse, together.
        let _ = self.items.push(item);
        if let Err(rank) = self.ranks.push(rank) {
            self.behind = Some(rank);
        }
    }

    fn check_ids(&self) -> Result<(), DuplicateId<T::Id>> {
        let mut ids = self.ranks.iter().chain(&self.behind).map(Ranked::id);
        while let Some(id) = ids.next() {
            if ids.clone().any(|other| other == id) {
                return Err(DuplicateId(id));
            }
        }
        Ok(())
    }
}
