//! A device's room for the rows of a step, and what goes in and out of it.

use super::super::footprint::{max_inputs, positions};
use super::super::{ModelConfig, ModelOptions};
use crate::backend::device::Device;
use crate::backend::reference::SPLIT;
use crate::batch::Batch;

/// The size of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) rows: u32,
    pub(super) sampling_rows: u32,
    /// The greatest position plus one.
    pub(super) positions: u32,
}

impl Step {
    pub(super) fn of(batch: &Batch) -> Self {
        Self {
            rows: batch.rows() as u32,
            sampling_rows: batch.sampling_rows.len() as u32,
            positions: batch
                .positions
                .iter()
                .max()
                .map_or(0, |position| position + 1),
        }
    }
}

/// Activations quantised in blocks of one length.
#[derive(Debug)]
pub(super) struct Form<B> {
    pub(super) q: B,
    pub(super) d: B,
    pub(super) sums: B,
}

/// Activations quantised in blocks of 32 and of 256.
#[derive(Debug)]
pub(super) struct Quantised<B> {
    of_32: Form<B>,
    of_256: Form<B>,
}

impl<B> Quantised<B> {
    pub(super) const fn form(&self, block: u32) -> &Form<B> {
        if block == 256 {
            &self.of_256
        } else {
            &self.of_32
        }
    }
}

/// Room for the rows of a step.
#[derive(Debug)]
pub(super) struct Buffers<B> {
    pub(super) tokens: B,
    pub(super) positions: B,
    pub(super) slots: B,
    /// Where each row's block table begins.
    pub(super) tables: B,
    pub(super) block_tables: B,
    block_table_entries: usize,
    pub(super) sampling_rows: B,
    pub(super) flags: B,
    pub(super) sampling_flags: B,
    pub(super) residual: B,
    pub(super) next_residual: B,
    pub(super) normed: B,
    pub(super) projected: B,
    pub(super) queries: B,
    pub(super) keys: B,
    pub(super) values: B,
    pub(super) attended: B,
    pub(super) gate: B,
    pub(super) up: B,
    pub(super) gated: B,
    pub(super) quantised: Quantised<B>,
    pub(super) partial_m: B,
    pub(super) partial_l: B,
    pub(super) partial_o: B,
    pub(super) logits: B,
}

impl<B> Buffers<B> {
    pub(super) fn new<D: Device<Buffer = B>>(
        config: &ModelConfig,
        options: &ModelOptions,
        device: &mut D,
    ) -> Result<Self, String> {
        let rows = options.max_rows;
        let parts = rows * config.heads * positions(config, options).div_ceil(SPLIT);
        // A row's table covers its positions; a batch has at most as many sequences as rows.
        let blocks = positions(config, options).div_ceil(options.block_size as usize);
        let block_table_entries = rows.saturating_mul(blocks.max(1)).min(1 << 24);
        let inputs = rows * max_inputs(config).next_multiple_of(256);
        let mut words = |count: usize| device.allocate(count * 4);
        Ok(Self {
            tokens: words(rows)?,
            positions: words(rows)?,
            slots: words(rows)?,
            tables: words(rows)?,
            block_tables: words(block_table_entries)?,
            block_table_entries,
            sampling_rows: words(rows)?,
            flags: words(rows)?,
            sampling_flags: words(rows)?,
            residual: words(rows * config.embedding)?,
            next_residual: words(rows * config.embedding)?,
            normed: words(rows * config.embedding)?,
            projected: words(rows * config.embedding)?,
            queries: words(rows * config.query_width())?,
            keys: words(rows * config.kv_width())?,
            values: words(rows * config.kv_width())?,
            attended: words(rows * config.query_width())?,
            gate: words(rows * config.feed_forward)?,
            up: words(rows * config.feed_forward)?,
            gated: words(rows * config.feed_forward)?,
            quantised: Quantised {
                of_32: Form {
                    q: words(inputs / 4)?,
                    d: words(inputs / 32)?,
                    sums: words(inputs / 32)?,
                },
                of_256: Form {
                    q: words(inputs / 4)?,
                    d: words(inputs / 256)?,
                    sums: words(inputs / 16)?,
                },
            },
            partial_m: words(parts)?,
            partial_l: words(parts)?,
            partial_o: words(parts * config.head_dim)?,
            logits: words(rows * config.vocab_size)?,
        })
    }

    /// Uploads what the kernels read of a batch, and clears the flags.
    pub(super) fn begin<D: Device<Buffer = B>>(
        &self,
        batch: &Batch,
        device: &mut D,
    ) -> Result<(), String> {
        if batch.block_tables.len() > self.block_table_entries {
            let (found, room) = (batch.block_tables.len(), self.block_table_entries);
            return Err(format!(
                "block tables of {found} entries; there is room for {room}"
            ));
        }
        let sequences = batch.sequences.iter();
        let tables: Vec<u32> = sequences
            .flat_map(|s| (0..s.rows).map(|_| s.first_block))
            .collect();
        let zeros = vec![0_u32; batch.rows()];
        for (buffer, words) in [
            (&self.tokens, &batch.token_ids),
            (&self.positions, &batch.positions),
            (&self.slots, &batch.slots),
            (&self.tables, &tables),
            (&self.block_tables, &batch.block_tables),
            (&self.sampling_rows, &batch.sampling_rows),
            (&self.flags, &zeros),
            (&self.sampling_flags, &zeros),
        ] {
            device.write(buffer, bytemuck::cast_slice(words))?;
        }
        Ok(())
    }

    /// Reads the logits, and which sequences (indices into the batch's) met a value that is not
    /// finite.
    pub(super) fn end<D: Device<Buffer = B>>(
        &self,
        batch: &Batch,
        logits: &mut [f32],
        device: &mut D,
    ) -> Result<Vec<u32>, String> {
        device.read(&self.logits, bytemuck::cast_slice_mut(logits))?;
        let mut flags = vec![0_u32; batch.rows()];
        device.read(&self.flags, bytemuck::cast_slice_mut(&mut flags))?;
        let mut sampled = vec![0_u32; batch.sampling_rows.len()];
        device.read(&self.sampling_flags, bytemuck::cast_slice_mut(&mut sampled))?;
        for (row, flag) in batch.sampling_rows.iter().zip(sampled) {
            flags[*row as usize] |= flag;
        }
        let flagged = |i: &u32| {
            let sequence = &batch.sequences[*i as usize];
            let rows = sequence.first_row as usize..(sequence.first_row + sequence.rows) as usize;
            flags[rows].iter().any(|flag| *flag != 0)
        };
        Ok((0..batch.sequences.len() as u32).filter(flagged).collect())
    }
}
