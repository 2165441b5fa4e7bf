//! A plan flattened into the arrays that one forward pass reads, and the trait of what runs it.

use std::fmt;

use crate::profile::Profile;

/// A token's id in the vocabulary.
pub type TokenId = u32;

/// The rows of one step. A row is one token to be computed.
///
/// Rows of one sequence are adjacent and ascend in position; sequences stand in the plan's order.
/// Row `r` reads token `token_ids[r]` at `positions[r]`, stores its key and value in KV slot
/// `slots[r]` (`block * block_size + offset`), and attends to positions `0..=positions[r]` of its
/// sequence through that sequence's block table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, one per row.
    pub token_ids: Vec<TokenId>,
    /// Absolute positions, one per row.
    pub positions: Vec<u32>,
    /// Where each row's key and value are stored.
    pub slots: Vec<u32>,
    /// The sequences that the rows belong to, in order.
    pub sequences: Vec<BatchSequence>,
    /// All block tables, one after the other.
    pub block_tables: Vec<u32>,
    /// The rows whose logits are wanted, ascending.
    pub sampling_rows: Vec<u32>,
    /// The rows of which the highest logits are enough, ascending, and none of them a sampling row.
    /// Empty where the model finds no ranks ([`Forward::max_ranks`]).
    pub ranked_rows: Vec<u32>,
    /// How many of the highest logits each of those wants.
    pub ranks: u32,
}

/// A token among the highest of its row. Ranks descend by logit, and ascend by id where logits are
/// equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// The token.
    pub token: TokenId,
    /// Its logit; of the two zeros the positive one.
    pub logit: f32,
}

/// One sequence's share of a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSequence {
    /// The first of its rows.
    pub first_row: u32,
    /// How many rows it has, at least one.
    pub rows: u32,
    /// Where its block table starts in [`Batch::block_tables`].
    pub first_block: u32,
    /// How many blocks its table has: they cover every position up to its last row's.
    pub blocks: u32,
}

impl Batch {
    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.token_ids.clear();
        self.positions.clear();
        self.slots.clear();
        self.sequences.clear();
        self.block_tables.clear();
        self.sampling_rows.clear();
        self.ranked_rows.clear();
        self.ranks = 0;
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.token_ids.len()
    }

    /// The block table of one of its sequences.
    pub fn block_table(&self, sequence: &BatchSequence) -> &[u32] {
        let first = sequence.first_block as usize;
        &self.block_tables[first..first + sequence.blocks as usize]
    }
}

/// A model on a backend: runs batches against a KV pool of its own.
///
/// Logits of a row are a pure function of the model file, the KV dtype and the token ids up to its
/// position (the numerics contract), whatever else the batch holds.
pub trait Forward: Send {
    /// Entries of one row of logits.
    fn vocab_size(&self) -> usize;

    /// Computes every row of `batch`, stores its keys and values, and writes the logits of row
    /// `batch.sampling_rows[i]` into `logits[i * vocab_size..][..vocab_size]`.
    ///
    /// # Errors
    /// [`ForwardError::NonFinite`] names the sequences whose activations are not finite: the
    /// others' rows are valid. [`ForwardError::Device`] is fatal.
    fn forward(&mut self, batch: &Batch, logits: &mut [f32]) -> Result<(), ForwardError>;

    /// The most ranks that the model finds of a row by itself; 0 if it finds none.
    fn max_ranks(&self) -> u32 {
        0
    }

    /// What the last pass found of row `batch.ranked_rows[index]`: its first tokens by rank, at least
    /// `batch.ranks` of them, or all.
    fn ranked(&self, _index: usize) -> &[Ranked] {
        &[]
    }

    /// Writes all logits of that row, where its ranks turn out to be too few.
    ///
    /// # Errors
    /// [`ForwardError::Device`] is fatal.
    fn ranked_logits(&mut self, _index: usize, _logits: &mut [f32]) -> Result<(), ForwardError> {
        Err(ForwardError::Device("this model finds no ranks".to_owned()))
    }

    /// Copies whole KV blocks, in order, each `(from, to)`.
    ///
    /// # Errors
    /// [`ForwardError::Device`] is fatal.
    fn copy_blocks(&mut self, copies: &[(u32, u32)]) -> Result<(), ForwardError>;

    /// Begins a profile of the forward passes that follow, or ends it; the last one, if there was
    /// one. Without one, a forward pass reads no clock. A model that keeps none answers `None`.
    fn set_profile(&mut self, _profile: Option<Profile>) -> Option<Profile> {
        None
    }
}

/// Why a forward pass gave no logits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardError {
    /// These sequences of the batch (indices into [`Batch::sequences`], ascending) met a value
    /// that is not finite; every other sequence's rows are valid.
    NonFinite {
        /// Indices into [`Batch::sequences`].
        sequences: Vec<u32>,
    },
    /// The device failed; nothing of this step is valid.
    Device(String),
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonFinite { sequences } => {
                write!(
                    f,
                    "activations of {} sequence(s) are not finite",
                    sequences.len()
                )
            }
            Self::Device(message) => write!(f, "device failure: {message}"),
        }
    }
}

impl std::error::Error for ForwardError {}
