//! Choosing by a key that is made total by the id of what is chosen.

/// Something that has an id, unique among whatever it is compared with.
pub trait Identified {
    /// The type of the id.
    type Id: Copy + Ord;

    /// This item's id.
    fn id(&self) -> Self::Id;
}

/// A policy's key with the id appended: the least rank wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranked<K: Ord, I: Ord> {
    key: K,
    id: I,
}

/// Two items under one id: a bug of the caller, reported rather than decided by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateId<I>(pub I);

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

/// Chooses the item of least `(key, id)`; the order of `items` does not matter. One pass, no allocation.
///
/// # Errors
/// [`DuplicateId`] where the winner or the runner-up shares its id with another item.
pub fn select_least<T, K, F>(
    items: impl IntoIterator<Item = T>,
    key: F,
) -> Result<Option<Choice<T>>, DuplicateId<T::Id>>
where
    T: Identified,
    K: Ord,
    F: Fn(&T) -> K,
{
    let mut considered = 0;
    let mut first: Option<(Ranked<K, T::Id>, T)> = None;
    let mut second: Option<(Ranked<K, T::Id>, T)> = None;
    for item in items {
        considered += 1;
        let rank = Ranked {
            key: key(&item),
            id: item.id(),
        };
        for held in [&first, &second].into_iter().flatten() {
            if held.0.id == rank.id {
                return Err(DuplicateId(rank.id));
            }
        }
        match &first {
            Some(best) if rank > best.0 => {
                if second.as_ref().is_none_or(|next| rank < next.0) {
                    second = Some((rank, item));
                }
            }
            _ => second = first.replace((rank, item)),
        }
    }
    Ok(first.map(|(_, winner)| Choice {
        winner,
        runner_up: second.map(|(_, item)| item),
        considered,
    }))
}
