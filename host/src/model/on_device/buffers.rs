//! A device's room for the rows of a step, and what comes out of it.

use super::super::footprint::{max_inputs, positions};
use super::super::{ModelConfig, ModelOptions};
use super::ranks::Ranks;
use super::step::MAX_PADDING;
use super::{inputs, ranks};
use crate::backend::device::Device;
use crate::backend::reference::SPLIT;
use crate::batch::Batch;

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
    pub(super) sampling_rows: B,
    pub(super) block_tables: B,
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
    pub(super) ranks: Ranks<B>,
}

/// Words of each buffer: the inputs, which one transfer writes; the flags, which another does; the
/// rest.
struct Sizes {
    inputs: [usize; 6],
    flags: [usize; 2],
    rest: [usize; 21],
    ranks: [usize; 2],
}

impl Sizes {
    fn of(config: &ModelConfig, options: &ModelOptions) -> Self {
        let rows = options.max_rows;
        let parts = rows * config.heads * positions(config, options).div_ceil(SPLIT);
        let inputs = rows * max_inputs(config).next_multiple_of(256);
        let (embedding, inner) = (rows * config.embedding, rows * config.feed_forward);
        let (query, kv) = (rows * config.query_width(), rows * config.kv_width());
        let logits = rows * config.vocab_size;
        let [q, of_32, of_256, sums] = [4, 32, 256, 16].map(|each| inputs / each);
        let head = config.head_dim;
        Self {
            inputs: inputs::sizes(config, options),
            ranks: ranks::sizes(config, options),
            flags: [rows, rows],
            rest: [
                embedding,
                embedding,
                embedding,
                embedding,
                query,
                kv,
                kv,
                query,
                inner,
                inner,
                inner,
                q,
                of_32,
                of_32,
                q,
                of_256,
                sums,
                parts,
                parts,
                parts * head,
                logits,
            ],
        }
    }
}

/// A row's table covers its positions; a batch has at most as many sequences as rows.
pub(super) fn block_table_entries(config: &ModelConfig, options: &ModelOptions) -> usize {
    let blocks = positions(config, options).div_ceil(options.block_size as usize);
    let entries = options.max_rows.saturating_mul(blocks.max(1));
    entries.min(1 << 24) + MAX_PADDING as usize
}

/// Bytes of all buffers.
pub(super) fn bytes(config: &ModelConfig, options: &ModelOptions) -> u64 {
    let Sizes {
        inputs,
        flags,
        rest,
        ranks,
    } = Sizes::of(config, options);
    let words = inputs.iter().chain(&flags).chain(&rest).chain(&ranks);
    words.map(|words| *words as u64 * 4).sum()
}

impl<B> Buffers<B> {
    pub(super) fn new<D: Device<Buffer = B>>(
        config: &ModelConfig,
        options: &ModelOptions,
        device: &mut D,
    ) -> Result<Self, String> {
        let Sizes {
            inputs,
            flags,
            rest,
            ranks,
        } = Sizes::of(config, options);
        let bytes = |words: usize| words * 4;
        let mut all = device.allocate_together(&inputs.map(bytes))?;
        all.extend(device.allocate_together(&flags.map(bytes))?);
        for words in rest.into_iter().chain(ranks) {
            all.push(device.allocate(bytes(words))?);
        }
        let mut all = all.into_iter();
        let mut next = || {
            all.next()
                .ok_or("the device gave fewer buffers than it was asked for")
        };
        Ok(Self {
            tokens: next()?,
            positions: next()?,
            slots: next()?,
            tables: next()?,
            sampling_rows: next()?,
            block_tables: next()?,
            flags: next()?,
            sampling_flags: next()?,
            residual: next()?,
            next_residual: next()?,
            normed: next()?,
            projected: next()?,
            queries: next()?,
            keys: next()?,
            values: next()?,
            attended: next()?,
            gate: next()?,
            up: next()?,
            gated: next()?,
            quantised: Quantised {
                of_32: Form {
                    q: next()?,
                    d: next()?,
                    sums: next()?,
                },
                of_256: Form {
                    q: next()?,
                    d: next()?,
                    sums: next()?,
                },
            },
            partial_m: next()?,
            partial_l: next()?,
            partial_o: next()?,
            logits: next()?,
            ranks: Ranks::new([next()?, next()?]),
        })
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
        let count = batch.sampling_rows.len() + batch.ranked_rows.len();
        let mut sampled = vec![0_u32; count];
        device.read(&self.sampling_flags, bytemuck::cast_slice_mut(&mut sampled))?;
        let rows = batch.sampling_rows.iter().chain(&batch.ranked_rows);
        for (row, flag) in rows.zip(sampled) {
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
