//! The id of one admission.

use core::fmt;

/// The number of one admission: monotonic, never reused.
///
/// A preempted request is readmitted under a fresh, higher id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u64);

impl SequenceId {
    /// The id with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this id.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
