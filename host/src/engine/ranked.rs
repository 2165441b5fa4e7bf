//! Rows for which a model hands up their highest logits instead of all of them.

use crate::batch::BatchSequence;
use crate::sampler::ranks_needed;
use crate::scheduler::{Advance, Chunk};
use crate::tokenizer::Tokenizer;

use super::live::Live;
use super::outcome::expect_live;
use super::{Engine, EngineError, device};

/// The highest logits that the next draw of a request is made from, if those are enough.
fn ranks(live: &Live, tokenizer: &Tokenizer) -> Option<u32> {
    let request = &live.request;
    let only_token = request.logprobs.is_none()
        && request.prompt_logprobs.is_none()
        && request.matcher.is_none()
        && request.stop.max_tokens > 0;
    let free = only_token && live.ruled_out(tokenizer).is_empty();
    ranks_needed(&request.sampling).filter(|_| free)
}

impl Engine {
    /// Asks for ranks instead of logits wherever they are enough for the next token, and the model finds
    /// as many.
    pub(super) fn want_ranks(&mut self) {
        let (model, tokenizer) = (&self.parts.model, &self.parts.tokenizer);
        let most = model.max_ranks();
        // Ranks are of the whole row: one that has more entries than there are tokens could rank those.
        if most == 0 || self.parts.probe.is_some() || tokenizer.len() < model.vocab_size() {
            return;
        }
        let batch = &mut self.batch;
        for (chunk, sequence) in self.plan.chunks.iter().zip(&batch.sequences) {
            let live = self.live.get(&chunk.request).filter(|_| chunk.sample);
            let found = live.and_then(|live| ranks(live, tokenizer));
            if let Some(found) = found.filter(|ranks| *ranks <= most) {
                batch
                    .ranked_rows
                    .push(sequence.first_row + sequence.rows - 1);
                batch.ranks = batch.ranks.max(found);
            }
        }
        let ranked = &batch.ranked_rows;
        batch
            .sampling_rows
            .retain(|row| ranked.binary_search(row).is_err());
    }

    /// Whether the ranked row of that index is this sequence's.
    pub(super) fn is_ranked(&self, index: usize, sequence: &BatchSequence) -> bool {
        let last = sequence.first_row + sequence.rows - 1;
        self.batch.ranked_rows.get(index) == Some(&last)
    }

    /// Draws from a row's highest logits; from all of them where those turn out to be too few.
    pub(super) fn draw_ranked(
        &mut self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<Advance, EngineError> {
        let vocab_size = self.parts.model.vocab_size();
        let live = expect_live(self.live.get_mut(&chunk.request), chunk.request);
        let tokens = self.parts.scheduler.tokens(chunk.request);
        let position = tokens.unwrap_or_default().len() as u64;
        let (params, ranked) = (&live.request.sampling, self.parts.model.ranked(index));
        let token = self
            .sampler
            .sample_ranked(ranked, vocab_size, params, position);
        let Some(token) = token else {
            return self.draw_from_all(chunk, index);
        };
        live.start();
        live.timing.token(&self.parts.metrics);
        Ok(Advance {
            sequence: chunk.sequence,
            token: Some(token),
            finished: live.push(&self.parts.tokenizer, token, None),
        })
    }

    fn draw_from_all(&mut self, chunk: &Chunk, index: usize) -> Result<Advance, EngineError> {
        let vocab_size = self.parts.model.vocab_size();
        let row = self.batch.sampling_rows.len();
        let end = (row + 1) * vocab_size;
        if self.logits.len() < end {
            self.logits.resize(end, 0.0);
        }
        let logits = &mut self.logits[row * vocab_size..end];
        let model = &mut self.parts.model;
        model.ranked_logits(index, logits).map_err(device)?;
        Ok(self.draw(chunk, row))
    }
}
