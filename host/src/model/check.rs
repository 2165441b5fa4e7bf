//! Checks before memory is touched: of the options, and of every index in a batch.

use super::{ModelError, ModelOptions};
use crate::batch::{Batch, BatchSequence};

/// Refuses options outside their ranges.
pub(super) fn options(options: &ModelOptions) -> Result<(), ModelError> {
    let bad = |option, found, expected| ModelError::BadOption {
        option,
        found,
        expected,
    };
    if !(1..=256).contains(&options.threads) {
        return Err(bad("threads", options.threads as u64, "1 to 256"));
    }
    if options.num_blocks == 0 {
        return Err(bad("num_blocks", 0, "at least 1"));
    }
    let size = options.block_size;
    if size == 0 || !size.is_multiple_of(16) || size > 1 << 12 {
        return Err(bad(
            "block_size",
            size.into(),
            "a multiple of 16 up to 4096",
        ));
    }
    if !(1..=1 << 16).contains(&options.max_rows) {
        return Err(bad("max_rows", options.max_rows as u64, "1 to 65536"));
    }
    match options.max_positions {
        0 => Err(bad("max_positions", 0, "at least 1")),
        _ => Ok(()),
    }
}

/// What a batch's indices are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) rows: usize,
    pub(super) positions: usize,
    pub(super) vocab_size: usize,
    pub(super) blocks: usize,
    pub(super) block_size: usize,
    pub(super) ranks: u32,
}

/// Says what is wrong with a batch, if anything is: kernels trust its indices.
pub(super) fn batch(batch: &Batch, logits: usize, limits: &Limits) -> Result<(), String> {
    let rows = batch.rows();
    let require = |holds: bool, what: &str| match holds {
        true => Ok(()),
        false => Err(format!("a batch of {rows} rows {what}")),
    };
    require(rows <= limits.rows, "is larger than what was configured")?;
    let equal = batch.positions.len() == rows && batch.slots.len() == rows;
    require(equal, "has arrays of other lengths")?;
    let known = |token: &u32| (*token as usize) < limits.vocab_size;
    require(batch.token_ids.iter().all(known), "has an unknown token")?;
    let ascending = batch.sampling_rows.is_sorted_by(|a, b| a < b);
    let last = batch
        .sampling_rows
        .last()
        .map_or(0, |row| *row as usize + 1);
    require(ascending && last <= rows, "has wrong sampling rows")?;
    ranked(batch, limits, require)?;
    let sampled = batch.sampling_rows.len().checked_mul(limits.vocab_size);
    require(sampled == Some(logits), "has no fitting room for logits")?;
    let mut next = 0;
    for sequence in &batch.sequences {
        let right = sequence.first_row as usize == next && self::sequence(batch, sequence, limits);
        require(
            right,
            "has a sequence whose rows, blocks or slots are wrong",
        )?;
        next += sequence.rows as usize;
    }
    require(next == rows, "has rows of no sequence")
}

/// Rows whose highest logits are enough: as many, and as many ranks, as there is room for.
fn ranked(
    batch: &Batch,
    limits: &Limits,
    require: impl Fn(bool, &str) -> Result<(), String>,
) -> Result<(), String> {
    let ranked = &batch.ranked_rows;
    let Some(last) = ranked.last() else {
        return Ok(());
    };
    let inside = ranked.is_sorted_by(|a, b| a < b) && (*last as usize) < batch.rows();
    let apart = ranked.len() + batch.sampling_rows.len() <= batch.rows();
    require(inside && apart, "has wrong ranked rows")?;
    let few = (1..=limits.ranks).contains(&batch.ranks);
    require(few, "wants ranks that are not found")
}

fn sequence(batch: &Batch, sequence: &BatchSequence, limits: &Limits) -> bool {
    let (first, count) = (sequence.first_row as usize, sequence.rows as usize);
    let Some(positions) = batch.positions.get(first..first + count) else {
        return false;
    };
    let table_first = sequence.first_block as usize;
    let table_end = table_first + sequence.blocks as usize;
    let (Some(table), Some(start)) = (
        batch.block_tables.get(table_first..table_end),
        positions.first(),
    ) else {
        return false;
    };
    let size = limits.block_size;
    let slots = &batch.slots[first..first + count];
    let in_table = |position: usize, slot: u32| {
        table.get(position / size).is_some_and(|block| {
            u64::from(*block) * size as u64 + (position % size) as u64 == u64::from(slot)
        })
    };
    let mut rows = positions.iter().zip(slots).enumerate();
    let rows_right = rows.all(|(i, (position, slot))| {
        let expected = *start as usize + i;
        *position as usize == expected && expected < limits.positions && in_table(expected, *slot)
    });
    rows_right && table.iter().all(|block| (*block as usize) < limits.blocks)
}
