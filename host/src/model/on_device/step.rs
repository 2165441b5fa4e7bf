//! The size of a step, and what a decode step is padded to so that a graph fits it.

use super::super::footprint::positions;
use super::super::{ModelConfig, ModelOptions};
use super::ranks::ranks_found;
use crate::backend::reference::SPLIT;
use crate::batch::Batch;

/// Rows of the largest step that is launched as a graph.
const MAX_GRAPH_ROWS: u32 = 256;

/// The most rows that a step is padded by, and so the KV blocks that padding rows need: one each.
pub(super) const MAX_PADDING: u32 = 7;

/// The size of a step: that of its launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Step {
    /// Rows that are computed, padding included.
    pub(super) rows: u32,
    /// Rows whose logits are computed, padding included.
    pub(super) sampling_rows: u32,
    /// The greatest position plus one, or more.
    pub(super) positions: u32,
    /// How many of the highest logits of those rows are found; 0 if all are read.
    pub(super) ranks: u32,
}

/// Rows that a decode step of so many is padded to: 1, 2, 4, then multiples of 8.
fn bucket(rows: u32) -> u32 {
    match rows {
        0..=2 => rows.max(1),
        3..=4 => 4,
        _ => rows.next_multiple_of(8),
    }
}

/// Rows whose logits are computed.
fn sampling_rows(batch: &Batch) -> u32 {
    (batch.sampling_rows.len() + batch.ranked_rows.len()) as u32
}

impl Step {
    /// The size of `batch` as it is.
    pub(super) fn of(batch: &Batch) -> Self {
        let greatest = batch.positions.iter().max();
        Self {
            rows: batch.rows() as u32,
            sampling_rows: sampling_rows(batch),
            ranks: match batch.ranked_rows.is_empty() {
                true => 0,
                false => ranks_found(batch.ranks),
            },
            positions: greatest.map_or(0, |position| position + 1),
        }
    }

    /// The size of the graph that `batch` is launched as: every sequence has one row, and every row
    /// is sampled. `None` for any other batch, and for one too large.
    pub(super) fn padded(
        batch: &Batch,
        config: &ModelConfig,
        options: &ModelOptions,
    ) -> Option<Self> {
        let step = Self::of(batch);
        let rows = bucket(step.rows).min(options.max_rows as u32);
        if !Self::decodes(batch) || rows > MAX_GRAPH_ROWS {
            return None;
        }
        // Launches of attention are sized by splits: those of the longest row, to a power of two.
        let splits = step.positions.div_ceil(SPLIT as u32).next_power_of_two();
        let longest = positions(config, options) as u32;
        Some(Self {
            rows,
            sampling_rows: rows,
            positions: longest.min(splits * SPLIT as u32),
            ..step
        })
    }

    /// Whether every sequence has one row, and every row is sampled.
    pub(super) fn decodes(batch: &Batch) -> bool {
        batch.sequences.len() == batch.rows() && sampling_rows(batch) as usize == batch.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_rows_and_little_more() {
        for rows in 1..=MAX_GRAPH_ROWS {
            let bucket = bucket(rows);
            assert!(
                bucket >= rows && bucket - rows <= MAX_PADDING,
                "{rows}: {bucket}"
            );
        }
        assert_eq!([1, 2, 3, 5, 8, 9, 64].map(bucket), [1, 2, 4, 8, 8, 16, 64]);
    }
}
