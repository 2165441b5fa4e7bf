//! From logits to tokens, events, and the advances of the next step.

use crate::batch::BatchSequence;
use crate::request::{Failure, FinishReason, RequestId};
use crate::sampler::{Draw, History};
use crate::scheduler::{Advance, Chunk, Finish};

use super::live::Live;
use super::{Engine, EngineError};

impl Engine {
    /// Asks for the logits of every row of a prompt whose logprobs are wanted.
    pub(super) fn want_prompt_logits(&mut self) {
        let wants = |chunk: &Chunk| {
            self.live
                .get(&chunk.request)
                .is_some_and(|live| live.request.prompt_logprobs.is_some())
        };
        if !self.plan.chunks.iter().any(wants) {
            return;
        }
        let mut rows = Vec::new();
        for (chunk, sequence) in self.plan.chunks.iter().zip(&self.batch.sequences) {
            let last = sequence.first_row + sequence.rows - 1;
            if wants(chunk) {
                rows.extend(sequence.first_row..=last);
            } else if chunk.sample {
                rows.push(last);
            }
        }
        self.batch.sampling_rows = rows;
    }

    /// Draws a token for every sampling chunk, in the plan's order. `bad` lists the sequences of
    /// the batch whose activations were not finite, ascending.
    ///
    /// # Errors
    /// The device failed.
    pub(super) fn draw_tokens(&mut self, bad: &[u32]) -> Result<(), EngineError> {
        let (mut logits_row, mut ranked_row) = (0, 0);
        for index in 0..self.plan.chunks.len() {
            let chunk = self.plan.chunks[index];
            let sequence = self.batch.sequences[index];
            let rows = self.logits_rows(logits_row, &sequence);
            let bad = bad.contains(&(index as u32));
            if !bad {
                self.score_prompt(&chunk, logits_row, rows);
            }
            logits_row += rows;
            let is_ranked = self.is_ranked(ranked_row, &sequence);
            ranked_row += usize::from(is_ranked);
            let advance = if bad {
                Some(Advance {
                    sequence: chunk.sequence,
                    token: None,
                    finished: Some(Finish::NonFinite),
                })
            } else if chunk.sample {
                Some(match is_ranked {
                    true => self.draw_ranked(&chunk, ranked_row - 1)?,
                    false => self.draw(&chunk, logits_row - 1),
                })
            } else {
                None
            };
            self.inputs.advances.extend(advance);
        }
        Ok(())
    }

    /// How many rows of logits, from row `first` of them on, belong to `sequence`.
    fn logits_rows(&self, first: usize, sequence: &BatchSequence) -> usize {
        let end = sequence.first_row + sequence.rows;
        self.batch.sampling_rows[first..]
            .iter()
            .take_while(|&&row| row < end)
            .count()
    }

    /// Notes the logprobs of the prompt tokens that follow the rows of this chunk.
    fn score_prompt(&mut self, chunk: &Chunk, logits_row: usize, rows: usize) {
        let vocab_size = self.parts.model.vocab_size();
        let drawable = self.parts.tokenizer.len().min(vocab_size);
        let Some(live) = self.live.get_mut(&chunk.request) else {
            return;
        };
        let Some(top) = live.request.prompt_logprobs else {
            return;
        };
        for row in 0..rows {
            let next = chunk.start as usize + row + 1;
            let Some(&token) = live.request.prompt.get(next) else {
                break;
            };
            // What a preemption made the model compute again has been noted already.
            if live.prompt_logprobs.len() + 1 == next {
                let logits = &self.logits[(logits_row + row) * vocab_size..][..drawable];
                live.prompt_logprobs
                    .push(self.sampler.logprobs(logits, token, top));
            }
        }
    }

    /// Draws from a row of logits.
    pub(super) fn draw(&mut self, chunk: &Chunk, logits_row: usize) -> Advance {
        let vocab_size = self.parts.model.vocab_size();
        let tokenizer = &self.parts.tokenizer;
        // Rows of the embedding matrix past the vocabulary have no text and are never drawn.
        let drawable = tokenizer.len().min(vocab_size);
        let logits = &mut self.logits[logits_row * vocab_size..][..drawable];
        let live = expect_live(self.live.get_mut(&chunk.request), chunk.request);
        let tokens = self
            .parts
            .scheduler
            .tokens(chunk.request)
            .unwrap_or_default();
        let (prompt, output) = tokens.split_at(live.request.prompt.len());
        live.start();
        if let Some(probe) = &mut self.parts.probe {
            probe.logits(chunk.request, tokens.len(), logits);
        }
        let raw = live.request.logprobs.map(|_| logits.to_vec());
        if live.request.stop.max_tokens == 0 {
            let finished = Some(live.end(FinishReason::Length, None));
            return Advance {
                sequence: chunk.sequence,
                token: None,
                finished,
            };
        }
        let ending = live.ruled_out(tokenizer);
        // A token that is ruled out before the penalties stays so: they change no infinity.
        let token = live.constrain(logits).and_then(|()| {
            let draw = Draw {
                params: &live.request.sampling,
                history: History { prompt, output },
                ending: &ending,
            };
            let token = self.sampler.sample(logits, draw);
            token.ok_or_else(|| Failure::Constraint("no token may follow".to_owned()))
        });
        let finished = match &token {
            Err(failure) => Some(live.give_up(failure.clone())),
            Ok(token) => {
                let top = live.request.logprobs.unwrap_or(0);
                let logprobs = raw.map(|raw| self.sampler.logprobs(&raw, *token, top));
                live.timing.token(&self.parts.metrics);
                live.commit(*token);
                live.push(tokenizer, *token, logprobs)
            }
        };
        Advance {
            sequence: chunk.sequence,
            token: token.ok(),
            finished,
        }
    }
}

/// The plan names only live requests: anything else is a bug of the scheduler.
pub(super) fn expect_live(live: Option<&mut Live>, request: RequestId) -> &mut Live {
    live.unwrap_or_else(|| panic!("the plan computes request {request}, which is not live"))
}
