//! A device's room for the rows of a step, and what goes in and out of it.

use super::super::footprint::{max_inputs, positions};
use super::super::{ModelConfig, ModelOptions};
use super::step::{MAX_PADDING, Step};
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
    host: HostInputs,
}

/// What a step uploads, as it is put together.
#[derive(Debug)]
struct HostInputs {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    tables: Vec<u32>,
    sampling_rows: Vec<u32>,
    block_tables: Vec<u32>,
    zeros: Vec<u32>,
    /// Entries that `block_tables` has room for.
    block_table_entries: usize,
    /// The KV block of the first padding row, and the positions of a block.
    padding: (u32, u32),
}

/// Words of each buffer: the inputs, which one transfer writes; the flags, which another does; the
/// rest.
struct Sizes {
    inputs: [usize; 6],
    flags: [usize; 2],
    rest: [usize; 21],
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
            inputs: [
                rows,
                rows,
                rows,
                rows,
                rows,
                block_table_entries(config, options),
            ],
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
fn block_table_entries(config: &ModelConfig, options: &ModelOptions) -> usize {
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
    } = Sizes::of(config, options);
    let words = inputs.iter().chain(&flags).chain(&rest);
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
        } = Sizes::of(config, options);
        let bytes = |words: usize| words * 4;
        let mut all = device.allocate_together(&inputs.map(bytes))?;
        all.extend(device.allocate_together(&flags.map(bytes))?);
        for words in rest {
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
            host: HostInputs::new(config, options),
        })
    }

    /// Uploads what the kernels read of a batch, padded to the step's size, and clears the flags.
    pub(super) fn begin<D: Device<Buffer = B>>(
        &mut self,
        batch: &Batch,
        step: &Step,
        device: &mut D,
    ) -> Result<(), String> {
        self.host.fill(batch, step)?;
        let host = &self.host;
        let cast = bytemuck::cast_slice::<u32, u8>;
        device.write_all(&[
            (&self.tokens, cast(&host.tokens)),
            (&self.positions, cast(&host.positions)),
            (&self.slots, cast(&host.slots)),
            (&self.tables, cast(&host.tables)),
            (&self.sampling_rows, cast(&host.sampling_rows)),
            (&self.block_tables, cast(&host.block_tables)),
        ])?;
        device.write_all(&[
            (&self.flags, cast(&host.zeros)),
            (&self.sampling_flags, cast(&host.zeros)),
        ])
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

impl HostInputs {
    fn new(config: &ModelConfig, options: &ModelOptions) -> Self {
        let rows = || Vec::with_capacity(options.max_rows);
        let block_table_entries = block_table_entries(config, options);
        Self {
            tokens: rows(),
            positions: rows(),
            slots: rows(),
            tables: rows(),
            sampling_rows: rows(),
            zeros: rows(),
            block_tables: Vec::new(),
            block_table_entries,
            padding: (options.num_blocks, options.block_size),
        }
    }

    /// Puts together what `batch` uploads. A padding row is the first token of a sequence of its
    /// own, in a block that no sequence of the engine can have.
    fn fill(&mut self, batch: &Batch, step: &Step) -> Result<(), String> {
        let padding = step.rows - batch.rows() as u32;
        let (found, room) = (batch.block_tables.len(), self.block_table_entries);
        if found + padding as usize > room {
            return Err(format!(
                "block tables of {found} entries; there is room for {room}"
            ));
        }
        for (to, from) in [
            (&mut self.tokens, &batch.token_ids),
            (&mut self.positions, &batch.positions),
            (&mut self.slots, &batch.slots),
            (&mut self.sampling_rows, &batch.sampling_rows),
            (&mut self.block_tables, &batch.block_tables),
        ] {
            to.clear();
            to.extend(from);
        }
        let sequences = batch.sequences.iter();
        let tables = sequences.flat_map(|s| (0..s.rows).map(|_| s.first_block));
        self.tables.clear();
        self.tables.extend(tables);
        let (first_block, block_size) = self.padding;
        for block in first_block..first_block + padding {
            self.sampling_rows.push(self.tokens.len() as u32);
            self.tokens.push(0);
            self.positions.push(0);
            self.slots.push(block * block_size);
            self.tables.push(self.block_tables.len() as u32);
            self.block_tables.push(block);
        }
        self.zeros.resize(step.rows as usize, 0);
        Ok(())
    }
}
