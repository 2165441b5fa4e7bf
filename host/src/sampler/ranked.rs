//! Draws for which the first tokens of a row are enough: no other logit can change them.

use super::{Sampler, is_greedy, philox, weigh};
use crate::batch::{Ranked, TokenId};
use crate::request::SamplingParams;

/// How many of the highest logits a draw with these parameters is made from; `None` where it reads
/// all of them, or changes single ones.
///
/// With `top_k` one more than that many: it tells whether the tokens behind it could tie.
pub fn ranks_needed(params: &SamplingParams) -> Option<u32> {
    let unchanged = params.repetition_penalty == 1.0
        && params.presence_penalty == 0.0
        && params.frequency_penalty == 0.0
        && params.logit_bias.is_empty()
        && params.allowed_token_ids.is_none()
        && params.bad_words.is_empty()
        && params.constraint.is_none();
    match params.top_k {
        _ if !unchanged => None,
        _ if is_greedy(params) => Some(1),
        0 => None,
        top_k => top_k.checked_add(1),
    }
}

impl Sampler {
    /// The token that [`sample`](Self::sample) gives for a row of `vocab_size` logits of which `first`
    /// are the highest, in the order of their ranks, and whose parameters need no others. `position` is
    /// the absolute position of the token.
    ///
    /// `None` where these logits are not enough: a temperature can make equal what was not, and then a
    /// token that is not among them could come before one that is. O(r log r) in their number.
    pub fn sample_ranked(
        &mut self,
        first: &[Ranked],
        vocab_size: usize,
        params: &SamplingParams,
        position: u64,
    ) -> Option<TokenId> {
        let best = first.first()?;
        if is_greedy(params) {
            return Some(best.token);
        }
        let top_k = params.top_k as usize;
        let scaled = |ranked: &Ranked| ranked.logit / params.temperature;
        let within = top_k.checked_sub(1).and_then(|rank| first.get(rank));
        // What is not among them has at most the last one's logit; where that is no number, all
        // logits are weighed in another order.
        let last = scaled(first.last()?);
        if first.len() <= top_k || !last.is_finite() || scaled(within?) <= last {
            return None;
        }
        self.weigh_ranked(first, vocab_size, scaled);
        let survivors = self.survivors(params)?;
        let total = self.cumulative(survivors);
        let u = philox::uniform(params.seed, position);
        self.first_above(u * total, survivors)
    }

    /// Loads ranks and weights of these tokens; the weights of all others are left as they are.
    fn weigh_ranked(
        &mut self,
        first: &[Ranked],
        vocab_size: usize,
        scaled: impl Fn(&Ranked) -> f32,
    ) {
        let tokens = first.iter().map(|ranked| Ranked {
            token: ranked.token,
            logit: scaled(ranked),
        });
        self.ranks.load_ranked(tokens);
        let [logits, weights] = &mut self.few;
        logits.clear();
        logits.extend(first.iter().map(&scaled));
        weigh(weights, logits, logits[0]);
        self.weights.resize(vocab_size, 0.0);
        for (ranked, weight) in first.iter().zip(weights) {
            if let Some(place) = self.weights.get_mut(ranked.token as usize) {
                *place = *weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Draw, History};
    use quickcheck::quickcheck;
    use std::cell::Cell;

    /// The first `count` tokens of a row, by a full sort.
    fn first(logits: &[f32], count: usize) -> Vec<Ranked> {
        let entry = |(token, logit): (usize, &f32)| Ranked {
            token: token as TokenId,
            logit: logit + 0.0,
        };
        let mut all: Vec<Ranked> = logits.iter().enumerate().map(entry).collect();
        all.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token)));
        all.truncate(count);
        all
    }

    fn whole(logits: &[f32], params: &SamplingParams, position: u64) -> Option<TokenId> {
        let prompt = vec![0; position as usize];
        let history = History {
            prompt: &prompt,
            output: &[],
        };
        let draw = Draw {
            params,
            history,
            ending: &[],
        };
        Sampler::default().sample(&mut logits.to_vec(), draw)
    }

    fn params(choice: u32) -> SamplingParams {
        let of = |values: &[f32], by: u32| values[(choice / by) as usize % values.len()];
        SamplingParams {
            temperature: of(&[0.7, 1.0, 2.0, 0.0, 1.3, 33.0], 1),
            top_k: [2, 5, 1, 40, 17][(choice / 6) as usize % 5],
            top_p: of(&[1.0, 0.9, 0.3], 30),
            min_p: of(&[0.0, 0.05, 0.5], 90),
            seed: u64::from(choice),
            ..SamplingParams::default()
        }
    }

    thread_local! {
        static FOUND: Cell<u32> = const { Cell::new(0) };
    }

    quickcheck! {
        fn a_draw_from_the_first_tokens_is_the_draw_from_all(values: Vec<i16>, coarse: u8, choice: u32) -> bool {
            // From few values, with ties everywhere, to ones that all differ.
            let step = [4096, 512, 1, 7][usize::from(coarse) % 4];
            let value = |v: i16| f32::from(v / step) * 0.0037 - if v % 5 == 0 { 0.0 } else { 1.0 };
            let spread = (0..100 + u32::from(coarse)).map(|i| (i * 7919 % 997) as i16);
            let logits: Vec<f32> = values.iter().copied().chain(spread).map(value).collect();
            let (params, mut sampler) = (params(choice), Sampler::default());
            let needed = ranks_needed(&params).unwrap() as usize;
            (0..20_u64).all(|position| {
                let all = whole(&logits, &params, position);
                [needed, needed + 3, 64].iter().all(|count| {
                    let first = first(&logits, *count);
                    let found = sampler.sample_ranked(&first, logits.len(), &params, position);
                    FOUND.set(FOUND.get() + u32::from(found.is_some()));
                    found.is_none() || found == all
                })
            })
        }
    }

    #[test]
    fn most_draws_need_no_more_than_the_first_tokens() {
        FOUND.set(0);
        for choice in 0..270 {
            let choice = choice * 31 + 5;
            assert!(a_draw_from_the_first_tokens_is_the_draw_from_all_of(choice));
        }
        assert!(FOUND.get() > 270 * 60 * 9 / 10, "{}", FOUND.get());
    }

    /// As above, on logits that all differ.
    fn a_draw_from_the_first_tokens_is_the_draw_from_all_of(choice: u32) -> bool {
        let logits: Vec<f32> = (0..500_u32)
            .map(|i| (i * 7919 % 9973) as f32 * 0.01)
            .collect();
        let (params, mut sampler) = (params(choice), Sampler::default());
        (0..20_u64).all(|position| {
            let all = whole(&logits, &params, position);
            [41, 50, 64].iter().all(|count| {
                let first = first(&logits, *count);
                let found = sampler.sample_ranked(&first, 500, &params, position);
                FOUND.set(FOUND.get() + u32::from(found.is_some()));
                found.is_none() || found == all
            })
        })
    }

    #[test]
    fn a_tie_that_the_temperature_makes_is_left_to_all_logits() {
        // Both become the same logit, and then the smaller id comes first.
        let temperature = 1.5;
        let mut low = 1.9_f32;
        while low / temperature != low.next_up() / temperature {
            low = low.next_up();
        }
        let high = low.next_up();
        let mut logits = vec![-5.0; 100];
        (logits[7], logits[50], logits[60]) = (low, high, high);
        let params = SamplingParams {
            temperature,
            top_k: 2,
            ..SamplingParams::default()
        };
        let mut sampler = Sampler::default();
        let of_three = sampler.sample_ranked(&first(&logits, 3), 100, &params, 4);
        assert_eq!(of_three, None);
        let of_four = sampler.sample_ranked(&first(&logits, 4), 100, &params, 4);
        assert_eq!(of_four, whole(&logits, &params, 4));
        assert!(of_four == Some(7) || of_four == Some(50));
    }

    #[test]
    fn what_changes_or_reads_every_logit_needs_all() {
        let top_k = SamplingParams {
            top_k: 40,
            ..SamplingParams::default()
        };
        assert_eq!(ranks_needed(&top_k), Some(41));
        let greedy = SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        };
        assert_eq!(ranks_needed(&greedy), Some(1));
        assert_eq!(ranks_needed(&SamplingParams::default()), None);
        let changes: [fn(&mut SamplingParams); 6] = [
            |p| p.repetition_penalty = 1.1,
            |p| p.presence_penalty = 0.5,
            |p| p.frequency_penalty = -0.5,
            |p| p.logit_bias = vec![(3, 1.0)],
            |p| p.allowed_token_ids = Some([1].into()),
            |p| p.bad_words = [vec![1]].into(),
        ];
        for change in changes {
            let mut params = greedy.clone();
            change(&mut params);
            assert_eq!(ranks_needed(&params), None, "{params:?}");
        }
    }
}
