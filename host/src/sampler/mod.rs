//! From logits to a token: a function of (logits, parameters, history, position), and nothing else.
//!
//! Rule 9 of the numerics contract: penalties, bias, temperature, `top_k`, `top_p`, `min_p`, then
//! one word of [`philox`] against the cumulative sum in rank order.

mod adjust;
mod logprobs;
pub mod philox;
mod rank;
mod ranked;

pub use adjust::History;
pub use rank::{greedy, ranked};
pub use ranked::ranks_needed;

use lockstep_simd::rows::fastest_exponentials;

use crate::backend::reference::{LANES, fold};
use crate::batch::TokenId;
use crate::request::{PositionLogprobs, SamplingParams};

use adjust::Occurrences;
use rank::Ranks;

/// The version of what is done to logits: part of every fingerprint.
pub const SAMPLER_VERSION: &str = "philox-1";

/// Draws tokens; holds only memory that is reused, nothing that a draw depends on.
#[derive(Debug, Default)]
pub struct Sampler {
    occurrences: Occurrences,
    ranks: Ranks,
    weights: Vec<f32>,
    kept: Vec<TokenId>,
    /// Logits, then weights, of the first ranks.
    few: [Vec<f32>; 2],
}

/// One row to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Draw<'a> {
    /// How.
    pub params: &'a SamplingParams,
    /// What the sequence has read and written.
    pub history: History<'a>,
    /// Tokens that end the answer, where it may not end yet; else empty.
    pub ending: &'a [TokenId],
}

impl Sampler {
    /// The token that `draw` gives for these logits, which are changed in the course of it.
    /// `None` where no token may be drawn at all.
    ///
    /// O(vocabulary), and O(r log r) in the number r of ranks that the draw reaches.
    pub fn sample(&mut self, logits: &mut [f32], draw: Draw<'_>) -> Option<TokenId> {
        let Draw {
            params,
            history,
            ending,
        } = draw;
        self.occurrences.penalise(logits, params, history);
        adjust::constrain(logits, params, history, ending);
        let best = rank::greedy(logits)?;
        if is_greedy(params) {
            return Some(best);
        }
        let position = (history.prompt.len() + history.output.len()) as u64;
        self.draw_at(logits, best, params, philox::uniform(params.seed, position))
    }

    /// The token where the cumulative weight in rank order first exceeds `u` times the total.
    fn draw_at(
        &mut self,
        logits: &mut [f32],
        best: TokenId,
        params: &SamplingParams,
        u: f32,
    ) -> Option<TokenId> {
        for logit in logits.iter_mut() {
            *logit /= params.temperature;
        }
        self.ranks.load(logits);
        let highest = logits[best as usize];
        weigh(&mut self.weights, logits, highest);
        let survivors = self.survivors(params);
        let total = match survivors {
            None => lane_sum(&self.weights),
            Some(count) => self.cumulative(count),
        };
        self.first_above(u * total, survivors.unwrap_or(self.ranks.len()))
    }

    /// How many ranks `top_k`, `top_p` and `min_p` leave, at least one; `None` where none is set.
    fn survivors(&mut self, params: &SamplingParams) -> Option<usize> {
        let top_k = params.top_k as usize;
        let mut count = self.ranks.len();
        let limited = (1..count).contains(&top_k);
        if limited {
            count = top_k;
        }
        if params.top_p < 1.0 {
            let total = if limited {
                self.denominator(count)
            } else {
                lane_sum(&self.weights)
            };
            count = self.ranks_holding(params.top_p * total, count);
        }
        if params.min_p > 0.0 {
            // The most likely token has weight 1, so the threshold is `min_p` itself.
            count = (1..count)
                .find(|&rank| self.weight(rank) < params.min_p)
                .unwrap_or(count);
        }
        (limited || params.top_p < 1.0 || params.min_p > 0.0).then_some(count)
    }

    /// The sum of the first `count` ranks by rule 5: in id order, over virtual lanes by id. A token that
    /// is left out adds +0 to its lane, which changes no bit, and so is left out here too.
    fn denominator(&mut self, count: usize) -> f32 {
        let ranks = &mut self.ranks;
        self.kept.clear();
        self.kept
            .extend((0..count).map_while(|rank| ranks.token(rank)));
        // Ids differ: the order is total.
        self.kept.sort_unstable();
        let mut lanes = [0.0; LANES];
        for token in &self.kept {
            let id = *token as usize;
            lanes[id % LANES] += self.weights[id];
        }
        fold(lanes)
    }

    /// The smallest number of ranks, at most `limit`, whose cumulative weight reaches `mass`.
    fn ranks_holding(&mut self, mass: f32, limit: usize) -> usize {
        let mut sum = 0.0;
        for rank in 0..limit {
            sum += self.weight(rank);
            if sum >= mass {
                return rank + 1;
            }
        }
        limit
    }

    fn cumulative(&mut self, count: usize) -> f32 {
        let mut sum = 0.0;
        for rank in 0..count {
            sum += self.weight(rank);
        }
        sum
    }

    /// The first of `count` ranks whose cumulative weight exceeds `threshold`, else the last that
    /// has any weight.
    fn first_above(&mut self, threshold: f32, count: usize) -> Option<TokenId> {
        let mut sum = 0.0;
        let mut last = self.ranks.token(0);
        for rank in 0..count {
            let weight = self.weight(rank);
            if weight == 0.0 {
                break;
            }
            sum += weight;
            last = self.ranks.token(rank);
            if sum > threshold {
                break;
            }
        }
        last
    }

    fn weight(&mut self, rank: usize) -> f32 {
        self.ranks
            .token(rank)
            .map_or(0.0, |token| self.weights[token as usize])
    }

    /// The logarithm of `token`'s probability by the raw `logits`, and of the `top` most likely.
    pub fn logprobs(&mut self, logits: &[f32], token: TokenId, top: u32) -> PositionLogprobs {
        logprobs::logprobs(&mut self.ranks, &mut self.weights, logits, token, top)
    }
}

/// Whether the token of rank 0 is taken, whatever else is asked for.
fn is_greedy(params: &SamplingParams) -> bool {
    params.temperature < SamplingParams::LEAST_TEMPERATURE || params.top_k == 1
}

/// `exp(logit - highest)` of every logit.
fn weigh(weights: &mut Vec<f32>, logits: &[f32], highest: f32) {
    weights.resize(logits.len(), 0.0);
    fastest_exponentials(logits, highest, weights);
}

/// The sum by rule 5: element `i` goes to lane `i % 64`, ascending; then the lanes fold.
fn lane_sum(values: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for row in values.chunks(LANES) {
        for (lane, value) in lanes.iter_mut().zip(row) {
            *lane += value;
        }
    }
    fold(lanes)
}

#[cfg(test)]
mod tests;
