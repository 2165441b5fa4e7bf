//! Logarithms of probabilities, from the logits as the model gave them.

use crate::batch::TokenId;
use crate::request::{PositionLogprobs, TokenLogprob};

use super::rank::{self, Ranks};
use super::{lane_sum, weigh};

/// The logarithm of `token`'s probability, its rank, and the same of the `top` most likely tokens.
///
/// `(logit - highest) - ln(sum)`: the sum by rule 5, its logarithm in f64 by `libm`, rounded once.
/// One value per token, so a token that is both chosen and on top has equal bits in both places.
pub(super) fn logprobs(
    ranks: &mut Ranks,
    weights: &mut Vec<f32>,
    logits: &[f32],
    token: TokenId,
    top: u32,
) -> PositionLogprobs {
    let highest = rank::greedy(logits).map_or(0.0, |best| logits[best as usize]);
    weigh(weights, logits, highest);
    let log_sum = libm::log(f64::from(lane_sum(weights))) as f32;
    let entry = |token: TokenId, rank: usize| TokenLogprob {
        token,
        logprob: (logits[token as usize] - highest) - log_sum,
        rank: rank as u32 + 1,
    };
    let mut alternatives = Vec::with_capacity(top as usize);
    if top > 0 {
        ranks.load(logits);
        let best = (0..top as usize).map_while(|rank| Some((ranks.token(rank)?, rank)));
        alternatives.extend(best.map(|(token, rank)| entry(token, rank)));
    }
    PositionLogprobs {
        chosen: entry(token, rank_of(logits, token)),
        top: alternatives,
    }
}

/// How many tokens come before `token` by (logit descending, id ascending).
fn rank_of(logits: &[f32], token: TokenId) -> usize {
    let own = logits[token as usize];
    let before = |(id, &logit): (usize, &f32)| logit > own || (logit == own && id < token as usize);
    logits
        .iter()
        .enumerate()
        .filter(|&entry| before(entry))
        .count()
}
