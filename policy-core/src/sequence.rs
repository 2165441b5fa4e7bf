//! The id of one admission.

use core::fmt;

use crate::order::Identified;

/// The number of one admission: monotonic, never reused.
///
/// A preempted sequence is readmitted under a fresh, higher id. That is what lets the smallest id
/// break ties without picking on anyone: the sequence that was just taken back has the largest.
///
/// ```
/// use policy_core::SequenceId;
/// let preempted = SequenceId::FIRST;
/// let readmitted = preempted.successor().unwrap();
/// assert!(preempted < readmitted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u64);

impl SequenceId {
    /// The id of the first admission.
    pub const FIRST: Self = Self(0);

    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this id.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The id of the admission after this one; `None` after 2^64 of them, rather than a number that
    /// was used before.
    pub const fn successor(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Identified for SequenceId {
    type Id = Self;

    fn id(&self) -> Self {
        *self
    }
}
