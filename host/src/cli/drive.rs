//! Driving a model without the engine, for the commands that measure and prove it.

use crate::batch::{Batch, BatchSequence, Forward, ForwardError, TokenId};
use crate::sampler::greedy;

/// A sequence with blocks of its own.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// Its tokens so far.
    pub(super) tokens: Vec<TokenId>,
    /// How many of them have been computed.
    pub(super) computed: usize,
    /// Its blocks.
    pub(super) table: Vec<u32>,
}

impl Stream {
    /// A stream whose `blocks` blocks begin at `first`.
    pub(super) fn new(tokens: Vec<TokenId>, first: u32, blocks: u32) -> Self {
        Self {
            tokens,
            computed: 0,
            table: (first..first + blocks).collect(),
        }
    }

    /// Appends its next rows, at most `chunk` of them, to a batch; the last one is sampled if it is
    /// the last of its tokens.
    pub(super) fn append(&mut self, batch: &mut Batch, chunk: usize, block_size: usize) {
        let end = self.tokens.len().min(self.computed + chunk);
        batch.sequences.push(BatchSequence {
            first_row: batch.rows() as u32,
            rows: (end - self.computed) as u32,
            first_block: batch.block_tables.len() as u32,
            blocks: self.table.len() as u32,
        });
        batch.block_tables.extend(&self.table);
        for position in self.computed..end {
            let slot = self.table[position / block_size] as usize * block_size;
            batch.token_ids.push(self.tokens[position]);
            batch.positions.push(position as u32);
            batch.slots.push((slot + position % block_size) as u32);
        }
        self.computed = end;
        if end == self.tokens.len() {
            batch.sampling_rows.push(batch.rows() as u32 - 1);
        }
    }
}

/// A model with room for a batch and its logits.
pub(super) struct Driver {
    pub(super) model: Box<dyn Forward>,
    block_size: usize,
    batch: Batch,
    logits: Vec<f32>,
}

impl Driver {
    /// Drives a model whose KV blocks have so many positions.
    pub(super) fn new(model: Box<dyn Forward>, block_size: u32) -> Self {
        Self {
            model,
            block_size: block_size as usize,
            batch: Batch::default(),
            logits: Vec::new(),
        }
    }

    /// Computes at most `chunk` rows of each stream that lacks any; the logits of those that have
    /// none left, in order.
    pub(super) fn step(
        &mut self,
        streams: &mut [Stream],
        chunk: usize,
    ) -> Result<&[f32], ForwardError> {
        self.fill(streams, chunk);
        self.forward()
    }

    /// Computes the last row of each stream, none of which lacks more: the tokens of the highest logits,
    /// found as the engine has them found.
    pub(super) fn step_greedily(
        &mut self,
        streams: &mut [Stream],
    ) -> Result<Vec<TokenId>, ForwardError> {
        self.fill(streams, 1);
        if self.model.max_ranks() == 0 {
            let vocab = self.model.vocab_size();
            let rows = self.forward()?.chunks_exact(vocab);
            return Ok(rows.map(|row| greedy(row).unwrap_or(0)).collect());
        }
        self.batch.ranked_rows = std::mem::take(&mut self.batch.sampling_rows);
        self.batch.ranks = 1;
        self.forward()?;
        let first = |i| self.model.ranked(i).first().map_or(0, |best| best.token);
        Ok((0..self.batch.ranked_rows.len()).map(first).collect())
    }

    fn fill(&mut self, streams: &mut [Stream], chunk: usize) {
        self.batch.clear();
        for stream in streams.iter_mut().filter(|s| s.computed < s.tokens.len()) {
            stream.append(&mut self.batch, chunk, self.block_size);
        }
    }

    fn forward(&mut self) -> Result<&[f32], ForwardError> {
        let len = self.batch.sampling_rows.len() * self.model.vocab_size();
        if self.logits.len() < len {
            self.logits.resize(len, 0.0);
        }
        self.model.forward(&self.batch, &mut self.logits[..len])?;
        Ok(&self.logits[..len])
    }

    /// Computes one stream to its end in chunks: its last token's logits.
    pub(super) fn finish(
        &mut self,
        stream: &mut Stream,
        chunk: usize,
    ) -> Result<&[f32], ForwardError> {
        while stream.computed + chunk < stream.tokens.len() {
            self.step(std::slice::from_mut(stream), chunk)?;
        }
        self.step(std::slice::from_mut(stream), chunk)
    }
}

/// So many tokens that look arbitrary, each below `vocab_size`; equal seeds give equal tokens.
pub(super) fn arbitrary_tokens(seed: u32, count: usize, vocab_size: usize) -> Vec<TokenId> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) ^ 0x5bd1_e995;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % vocab_size.max(1) as u32
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_in_the_vocabulary_and_depend_on_the_seed() {
        let tokens = arbitrary_tokens(1, 500, 10);
        assert!(tokens.iter().all(|token| *token < 10));
        assert_eq!(tokens, arbitrary_tokens(1, 500, 10));
        assert_ne!(tokens, arbitrary_tokens(2, 500, 10));
    }
}
