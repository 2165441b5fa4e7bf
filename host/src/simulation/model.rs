//! A fake model that checks: its next token depends on the position and on every KV slot it reads.

use super::random::mix;
use crate::batch::{Batch, TokenId};

/// What a slot holds before anything is written to it.
const POISON: u64 = 0xdead_beef_dead_beef;
/// Its tokens are below this.
pub(super) const VOCAB_SIZE: u32 = 50_000;

/// A model without weights over a pool of KV slots.
///
/// The key and value of a token are one number, made from the token, its position and the number
/// at the position before, read through the block table. The next token is made from all of them.
/// A repeated, lost or reordered token, or a slot that was never written, changes what follows.
#[derive(Clone, Debug)]
pub struct FakeModel {
    block_size: usize,
    slots: Vec<u64>,
}

impl FakeModel {
    /// A model with so many blocks, all of them unwritten.
    pub fn new(num_blocks: u32, block_size: u32) -> Self {
        Self {
            block_size: block_size as usize,
            slots: vec![POISON; num_blocks as usize * block_size as usize],
        }
    }

    /// Makes a block as good as never written.
    pub fn poison(&mut self, block: u32) {
        self.block_mut(block).fill(POISON);
    }

    /// Copies blocks, in order.
    pub fn copy_blocks(&mut self, copies: &[(u32, u32)]) {
        for &(from, to) in copies {
            let start = from as usize * self.block_size;
            let to = to as usize * self.block_size;
            self.slots.copy_within(start..start + self.block_size, to);
        }
    }

    /// Computes a batch: the next token of each sampling row, in order.
    pub fn forward(&mut self, batch: &Batch, tokens: &mut Vec<TokenId>) {
        tokens.clear();
        let mut sampling = batch.sampling_rows.iter().peekable();
        for sequence in &batch.sequences {
            let table = batch.block_table(sequence);
            for row in sequence.first_row..sequence.first_row + sequence.rows {
                let at = row as usize;
                let position = batch.positions[at];
                let before = match position.checked_sub(1) {
                    Some(before) => self.read(table, before),
                    None => 0,
                };
                self.slots[batch.slots[at] as usize] = entry(before, batch.token_ids[at], position);
                if sampling.next_if(|&&sampling| sampling == row).is_some() {
                    let read = (0..=position).map(|position| self.read(table, position));
                    tokens.push(next_token(read));
                }
            }
        }
    }

    fn read(&self, table: &[u32], position: u32) -> u64 {
        let (block, offset) = (
            position as usize / self.block_size,
            position as usize % self.block_size,
        );
        self.slots[table[block] as usize * self.block_size + offset]
    }

    fn block_mut(&mut self, block: u32) -> &mut [u64] {
        let start = block as usize * self.block_size;
        &mut self.slots[start..start + self.block_size]
    }
}

/// What follows these tokens, computed without a pool, a batch or a scheduler.
pub fn expected_token(tokens: &[TokenId]) -> TokenId {
    let mut before = 0;
    next_token(tokens.iter().zip(0..).map(|(token, position)| {
        before = entry(before, *token, position);
        before
    }))
}

/// What follows a growing list of tokens: as [`expected_token`], one token at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Oracle {
    before: u64,
    sum: u64,
    position: u32,
}

impl Oracle {
    /// Takes in a token; says what follows.
    pub fn push(&mut self, token: TokenId) -> TokenId {
        self.before = entry(self.before, token, self.position);
        self.position += 1;
        self.sum = fold(self.sum, self.before);
        (self.sum % u64::from(VOCAB_SIZE)) as TokenId
    }
}

fn entry(before: u64, token: TokenId, position: u32) -> u64 {
    mix(before ^ (u64::from(token) << 32 | u64::from(position)).wrapping_add(1))
}

fn next_token(slots: impl Iterator<Item = u64>) -> TokenId {
    (slots.fold(0, fold) % u64::from(VOCAB_SIZE)) as TokenId
}

fn fold(sum: u64, slot: u64) -> u64 {
    sum.rotate_left(5).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ slot
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchSequence;

    fn batch(tokens: &[TokenId], start: u32, table: &[u32], sample: bool) -> Batch {
        let rows = tokens.len() as u32;
        Batch {
            token_ids: tokens.to_vec(),
            positions: (start..start + rows).collect(),
            slots: (start..start + rows)
                .map(|p| table[p as usize / 16] * 16 + p % 16)
                .collect(),
            sequences: vec![BatchSequence {
                first_row: 0,
                rows,
                first_block: 0,
                blocks: table.len() as u32,
            }],
            block_tables: table.to_vec(),
            sampling_rows: if sample { vec![rows - 1] } else { Vec::new() },
            ..Batch::default()
        }
    }

    #[test]
    fn the_next_token_is_the_expected_one_however_it_is_computed() {
        let tokens: Vec<TokenId> = (100..140).collect();
        let (mut model, mut out) = (FakeModel::new(8, 16), Vec::new());
        model.forward(&batch(&tokens[..7], 0, &[5, 2, 7], false), &mut out);
        model.forward(&batch(&tokens[7..], 7, &[5, 2, 7], true), &mut out);
        assert_eq!(out, [expected_token(&tokens)]);
        let mut oracle = Oracle::default();
        let last = tokens.iter().map(|token| oracle.push(*token)).last();
        assert_eq!(last, Some(out[0]));
    }

    #[test]
    fn a_lost_a_repeated_and_an_unwritten_token_show() {
        let tokens: Vec<TokenId> = (100..120).collect();
        let (mut model, mut out) = (FakeModel::new(4, 16), Vec::new());
        model.forward(&batch(&tokens[..16], 0, &[0, 1], false), &mut out);
        model.poison(0);
        model.forward(&batch(&tokens[16..], 16, &[0, 1], true), &mut out);
        assert_ne!(out, [expected_token(&tokens)], "an unwritten block is read");
        assert_ne!(expected_token(&tokens), expected_token(&tokens[1..]));
        assert_ne!(expected_token(&[1, 1]), expected_token(&[1]));
        assert_ne!(expected_token(&[1, 2]), expected_token(&[2, 1]));
    }
}
