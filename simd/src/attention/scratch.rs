//! The room that an item of attention is computed in.

use super::ROWS;
use crate::contract::SPLIT;
use crate::lanes::WIDTH;

/// f32 elements of the room that an item of a shape needs.
pub const fn scratch_len(group: usize, head_dim: usize) -> usize {
    ROWS * group * (3 * head_dim + STRIDE + 4)
}

/// From a query's scores to the next one's: a vector more than there are in a split, so that a
/// whole one can be stored after the last, and that the same position of several queries is not in
/// the same few sets of the cache.
pub(super) const STRIDE: usize = SPLIT + WIDTH;
/// f32 elements of an item's partial: each query's weighted sums, its maximum and its denominator.
pub const fn partial_len(queries: usize, head_dim: usize) -> usize {
    queries * (head_dim + 2)
}

/// The room for one item, parted.
pub(super) struct Scratch<'a> {
    /// The queries: the first 16 dimensions of each, then the next 16 of each, and so on.
    pub(super) queries: &'a mut [f32],
    /// Scores, then their exponentials: [`STRIDE`] for every query.
    pub(super) scores: &'a mut [f32],
    /// A split's weighted sums.
    pub(super) split: &'a mut [f32],
    /// The merged sums.
    pub(super) merged: &'a mut [f32],
    /// The merged maximum and denominator of each query.
    pub(super) state: &'a mut [[f32; 2]],
    /// What a split gave of the same.
    pub(super) split_state: &'a mut [[f32; 2]],
}

impl<'a> Scratch<'a> {
    /// Parts the room for so many queries.
    pub(super) fn new(room: &'a mut [f32], queries: usize, head_dim: usize) -> Self {
        let sums = queries * head_dim;
        let (gathered, room) = room.split_at_mut(sums);
        let (scores, room) = room.split_at_mut(queries * STRIDE);
        let (split, room) = room.split_at_mut(sums);
        let (merged, room) = room.split_at_mut(sums);
        let (state, room) = room.split_at_mut(2 * queries);
        Self {
            queries: gathered,
            scores,
            split,
            merged,
            state: state.as_chunks_mut().0,
            split_state: room[..2 * queries].as_chunks_mut().0,
        }
    }
}
