//! Where the time of forward passes goes, by operation.

use std::time::Duration;

use crate::clock::{self, Moment};

/// A part of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Embeddings, and what is done once a step: cutting, checking.
    Embed,
    /// Norms, and rows quantised for linear layers.
    Normalise,
    /// The linear layers of queries, keys and values, with rotation and the writes to the pool.
    QueriesKeysValues,
    /// Attention.
    Attention,
    /// The linear layer after attention, and the addition.
    AttentionOutput,
    /// The linear layers of gate and up, and the gating.
    GateUp,
    /// The linear layer after the gating, and the addition.
    Down,
    /// The output projection of sampling rows.
    Output,
}

impl Operation {
    /// All of them, in the order of a forward pass.
    pub const ALL: [Self; 8] = [
        Self::Embed,
        Self::Normalise,
        Self::QueriesKeysValues,
        Self::Attention,
        Self::AttentionOutput,
        Self::GateUp,
        Self::Down,
        Self::Output,
    ];

    /// What people read.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::Normalise => "norm, quantise",
            Self::QueriesKeysValues => "q, k, v",
            Self::Attention => "attention",
            Self::AttentionOutput => "attention output",
            Self::GateUp => "gate, up",
            Self::Down => "down",
            Self::Output => "output projection",
        }
    }
}

/// The time spent in each operation since the profile began.
#[derive(Clone, Debug)]
pub struct Profile {
    spent: [Duration; Operation::ALL.len()],
    last: Moment,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            spent: Default::default(),
            last: clock::now(),
        }
    }
}

impl Profile {
    /// The time spent in an operation.
    pub fn spent(&self, operation: Operation) -> Duration {
        self.spent[operation as usize]
    }

    /// Begins a forward pass: what went before is nobody's.
    pub(crate) fn begin(profile: &mut Option<Self>) {
        if let Some(profile) = profile {
            profile.last = clock::now();
        }
    }

    /// Counts the time since the last mark as spent in `operation`; nothing where none is kept.
    pub(crate) fn mark(profile: &mut Option<Self>, operation: Operation) {
        if let Some(profile) = profile {
            let now = clock::now();
            profile.spent[operation as usize] += now.since(profile.last);
            profile.last = now;
        }
    }
}
