//! What a step uploads, put together in memory of the host while the device computes the step before.
//!
//! There are two halves: the device copies from one while the other is filled. As soon as a decode
//! step is launched, the other half gets the inputs that the next one is likely to have: the same
//! sequences one position further, with the same blocks. The next step then writes what differs, its
//! token ids at least; whatever a half held before, it ends up with the same words.

use std::ops::Range;

use super::super::{ModelConfig, ModelOptions};
use super::buffers::{Buffers, block_table_entries};
use super::step::Step;
use crate::backend::device::{Device, HostMemory};
use crate::batch::{Batch, BatchSequence};

/// Arrays begin at multiples of so many words, as buffers that are allocated together do.
const ALIGNMENT: usize = 64;

/// Words that are compared, and written, at a time.
const PIECE: usize = 64;

/// Words of each array: ids, positions, slots, where each row's block table begins, rows that are
/// sampled, block tables.
pub(super) fn sizes(config: &ModelConfig, options: &ModelOptions) -> [usize; 6] {
    let rows = options.max_rows;
    let entries = block_table_entries(config, options);
    [rows, rows, rows, rows, rows, entries]
}

/// Where the arrays are in a half.
#[derive(Clone, Copy, Debug)]
struct Layout {
    starts: [usize; 6],
    sizes: [usize; 6],
    /// The KV block of the first padding row.
    padding_block: u32,
    block_size: u32,
}

/// One array while it is filled.
struct Array<'a> {
    words: &'a mut [u32],
    filled: usize,
    rewritten: usize,
}

impl Array<'_> {
    /// Puts these behind what was put before, and writes only where something else is.
    fn put(&mut self, values: &[u32]) {
        let end = self.filled + values.len();
        let words = &mut self.words[self.filled..end];
        for (words, values) in words.chunks_mut(PIECE).zip(values.chunks(PIECE)) {
            if words != values {
                let pairs = words.iter().zip(values);
                self.rewritten += pairs.filter(|(word, value)| word != value).count();
                words.copy_from_slice(values);
            }
        }
        self.filled = end;
    }
}

/// How much of a half a step uploads, and how much of that was not there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Filled {
    lengths: [usize; 6],
    rewritten: usize,
}

impl Layout {
    fn new(config: &ModelConfig, options: &ModelOptions) -> Self {
        let sizes = sizes(config, options);
        let mut end = 0_usize;
        let starts = sizes.map(|size| {
            let start = end.next_multiple_of(ALIGNMENT);
            end = start + size;
            start
        });
        Self {
            starts,
            sizes,
            padding_block: options.num_blocks,
            block_size: options.block_size,
        }
    }

    fn words(&self) -> usize {
        self.starts[5] + self.sizes[5]
    }

    fn arrays<'a>(&self, words: &'a mut [u32]) -> Result<[Array<'a>; 6], String> {
        let ranges: [Range<usize>; 6] =
            std::array::from_fn(|i| self.starts[i]..self.starts[i] + self.sizes[i]);
        let parts = words.get_disjoint_mut(ranges);
        let parts = parts.map_err(|error| format!("the staged inputs have no room: {error}"))?;
        Ok(parts.map(|words| Array {
            words,
            filled: 0,
            rewritten: 0,
        }))
    }

    /// Whether there is room for a batch that is padded to the step's size.
    fn has_room(&self, batch: &Batch, step: &Step) -> bool {
        let padding = (step.rows as usize).saturating_sub(batch.rows());
        step.rows as usize <= self.sizes[0] && batch.block_tables.len() + padding <= self.sizes[5]
    }

    /// Makes `words` what `batch` uploads. A padding row is the first token of a sequence of its own,
    /// in a block that no sequence of the engine can have.
    fn fill(&self, words: &mut [u32], batch: &Batch, step: &Step) -> Result<Filled, String> {
        if !self.has_room(batch, step) {
            return Err(format!(
                "block tables of {} entries; there is room for {}",
                batch.block_tables.len(),
                self.sizes[5]
            ));
        }
        let mut arrays = self.arrays(words)?;
        let [tokens, positions, slots, tables, sampled, block_tables] = &mut arrays;
        tokens.put(&batch.token_ids);
        positions.put(&batch.positions);
        slots.put(&batch.slots);
        for sequence in &batch.sequences {
            (0..sequence.rows).for_each(|_| tables.put(&[sequence.first_block]));
        }
        sampled.put(&batch.sampling_rows);
        sampled.put(&batch.ranked_rows);
        block_tables.put(&batch.block_tables);
        let padding = step.rows - batch.rows() as u32;
        for block in self.padding_block..self.padding_block + padding {
            sampled.put(&[tokens.filled as u32]);
            tokens.put(&[0]);
            positions.put(&[0]);
            slots.put(&[block * self.block_size]);
            tables.put(&[block_tables.filled as u32]);
            block_tables.put(&[block]);
        }
        Ok(Filled {
            lengths: arrays.each_ref().map(|array| array.filled),
            rewritten: arrays.iter().map(|array| array.rewritten).sum(),
        })
    }
}

/// Makes `next` the decode step that is likely to follow `batch`: its sequences one position further.
/// A block that a sequence will need has its place in the table, and no number yet.
fn predict(batch: &Batch, next: &mut Batch, block_size: u32) {
    next.clear();
    next.token_ids.extend(&batch.token_ids);
    next.sampling_rows.extend(&batch.sampling_rows);
    next.ranked_rows.extend(&batch.ranked_rows);
    for (sequence, position) in batch.sequences.iter().zip(&batch.positions) {
        let position = position + 1;
        let index = (position / block_size) as usize;
        let first_block = next.block_tables.len() as u32;
        let table = batch.block_table(sequence);
        next.block_tables.extend(table);
        if index >= table.len() {
            next.block_tables.push(0);
        }
        let block = table.get(index).copied().unwrap_or(0);
        next.positions.push(position);
        next.slots.push(block * block_size + position % block_size);
        next.sequences.push(BatchSequence {
            first_block,
            blocks: next.block_tables.len() as u32 - first_block,
            ..*sequence
        });
    }
}

/// Where the zeros of the sampling rows' flags begin: as the two buffers lie on a device.
const fn flags_start(max_rows: usize) -> usize {
    max_rows.next_multiple_of(ALIGNMENT)
}

/// The two halves, and what clears the flags of a step.
#[derive(Debug)]
pub(super) struct Inputs<S> {
    layout: Layout,
    halves: [S; 2],
    /// The half that the next step is sent from.
    turn: usize,
    zeros: S,
    max_rows: usize,
    predicted: Batch,
}

impl<S: HostMemory> Inputs<S> {
    pub(super) fn new<D: Device<Staging = S>>(
        config: &ModelConfig,
        options: &ModelOptions,
        device: &mut D,
    ) -> Result<Self, String> {
        let layout = Layout::new(config, options);
        let words = layout.words();
        Ok(Self {
            layout,
            halves: [device.staging(words)?, device.staging(words)?],
            turn: 0,
            zeros: device.staging(flags_start(options.max_rows) + options.max_rows)?,
            max_rows: options.max_rows,
            predicted: Batch::default(),
        })
    }

    /// Sends what the kernels read of a batch, padded to the step's size, and clears the flags.
    pub(super) fn send<D: Device<Staging = S>>(
        &mut self,
        batch: &Batch,
        step: &Step,
        b: &Buffers<D::Buffer>,
        device: &mut D,
    ) -> Result<(), String> {
        let half = &mut self.halves[self.turn];
        self.turn = 1 - self.turn;
        let Filled { lengths, rewritten } = self.layout.fill(half.words()?, batch, step)?;
        log::trace!(
            "{rewritten} of {} words of a step's inputs had not been prepared",
            lengths.iter().sum::<usize>()
        );
        let buffers = [
            &b.tokens,
            &b.positions,
            &b.slots,
            &b.tables,
            &b.sampling_rows,
            &b.block_tables,
        ];
        let range = |i: usize| self.layout.starts[i]..self.layout.starts[i] + lengths[i];
        let writes: [_; 6] = std::array::from_fn(|i| (buffers[i], range(i)));
        device.send(half, &writes)?;
        let (rows, second) = (step.rows as usize, flags_start(self.max_rows));
        let flags = [
            (&b.flags, 0..rows),
            (&b.sampling_flags, second..second + rows),
        ];
        device.send(&mut self.zeros, &flags)
    }

    /// Prepares the step that is likely to follow `batch`, if that is a decode step: to be called while
    /// the device computes it.
    pub(super) fn prepare(&mut self, batch: &Batch, step: &Step) -> Result<(), String> {
        if !Step::decodes(batch) {
            return Ok(());
        }
        predict(batch, &mut self.predicted, self.layout.block_size);
        if !self.layout.has_room(&self.predicted, step) {
            return Ok(());
        }
        let words = self.halves[self.turn].words()?;
        self.layout.fill(words, &self.predicted, step).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    const BLOCK: u32 = 16;

    fn layout() -> Layout {
        let sizes = [24, 24, 24, 24, 24, 24 * 8 + 7];
        Layout {
            starts: [0, 64, 128, 192, 256, 320],
            sizes,
            padding_block: 100,
            block_size: BLOCK,
        }
    }

    /// A decode step of sequences with so many computed positions; sequence `i` has the blocks from
    /// `8 i` on.
    fn decode(positions: &[u32], token: u32) -> (Batch, Step) {
        let mut batch = Batch::default();
        for (i, position) in (0_u32..).zip(positions) {
            let blocks = position / BLOCK + 1;
            batch.sequences.push(BatchSequence {
                first_row: i,
                rows: 1,
                first_block: batch.block_tables.len() as u32,
                blocks,
            });
            batch.block_tables.extend(8 * i..8 * i + blocks);
            batch.token_ids.push(token + i);
            batch.positions.push(*position);
            let block = 8 * i + position / BLOCK;
            batch.slots.push(block * BLOCK + position % BLOCK);
            batch.sampling_rows.push(i);
        }
        let step = Step {
            rows: positions.len().next_multiple_of(4) as u32,
            ..Step::of(&batch)
        };
        (batch, step)
    }

    fn anew(batch: &Batch, step: &Step) -> (Vec<u32>, Filled) {
        let mut words = vec![0; layout().words()];
        let filled = layout().fill(&mut words, batch, step).unwrap();
        (words, filled)
    }

    /// The words that are sent.
    fn sent(words: &[u32], filled: &Filled) -> Vec<u32> {
        let starts = layout().starts;
        let parts = (0..6).map(|i| &words[starts[i]..starts[i] + filled.lengths[i]]);
        parts.collect::<Vec<_>>().concat()
    }

    fn positions(values: &[u8]) -> Vec<u32> {
        let count = 1 + values.len() % 20;
        let values = values.iter().chain(&[3]).cycle().take(count);
        values.map(|value| u32::from(*value) % 126).collect()
    }

    quickcheck! {
        fn a_half_ends_up_the_same_whatever_it_held(before: Vec<u32>, values: Vec<u8>) -> bool {
            let (batch, step) = decode(&positions(&values), 7);
            let (expected, lengths) = anew(&batch, &step);
            let mut words = before;
            words.resize(layout().words(), u32::MAX);
            let filled = layout().fill(&mut words, &batch, &step).unwrap();
            filled.lengths == lengths.lengths && sent(&words, &filled) == sent(&expected, &lengths)
        }

        fn a_prepared_half_lacks_only_tokens_and_new_blocks(values: Vec<u8>) -> bool {
            let before = positions(&values);
            let after: Vec<u32> = before.iter().map(|position| position + 1).collect();
            let (batch, step) = decode(&before, 7);
            let mut predicted = Batch::default();
            predict(&batch, &mut predicted, BLOCK);
            let (mut words, _) = anew(&predicted, &step);
            let (batch, step) = decode(&after, 1000);
            let filled = layout().fill(&mut words, &batch, &step).unwrap();
            let (expected, lengths) = anew(&batch, &step);
            let new = after.iter().filter(|position| position.is_multiple_of(BLOCK));
            // A new block is an entry of a table and a slot.
            let most = after.len() + 2 * new.count();
            filled.rewritten <= most
                && filled.rewritten >= after.len()
                && sent(&words, &filled) == sent(&expected, &lengths)
        }
    }

    #[test]
    fn sequences_that_join_and_leave_are_written() {
        let (batch, step) = decode(&[5, 15, 40], 1);
        let mut predicted = Batch::default();
        predict(&batch, &mut predicted, BLOCK);
        for after in [&[6_u32, 41][..], &[6, 16, 41, 3], &[0], &[100; 20]] {
            let (mut words, _) = anew(&predicted, &step);
            let (batch, step) = decode(after, 50);
            let filled = layout().fill(&mut words, &batch, &step).unwrap();
            let (expected, lengths) = anew(&batch, &step);
            assert_eq!(
                sent(&words, &filled),
                sent(&expected, &lengths),
                "{after:?}"
            );
        }
    }

    #[test]
    fn tables_without_room_are_refused() {
        let (mut batch, step) = decode(&[5], 1);
        batch.block_tables.resize(24 * 8 + 8, 0);
        let mut words = vec![0; layout().words()];
        let error = layout().fill(&mut words, &batch, &step).unwrap_err();
        assert!(error.contains("there is room for 199"), "{error}");
    }
}
