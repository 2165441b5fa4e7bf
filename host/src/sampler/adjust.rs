//! What changes logits before temperature: penalties, bias, and tokens that may not be drawn.

use crate::batch::TokenId;
use crate::request::SamplingParams;

/// What a sequence has read and written so far, as penalties and bad words see it.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// Tokens of the prompt.
    pub prompt: &'a [TokenId],
    /// Tokens generated.
    pub output: &'a [TokenId],
}

/// Reused memory for the penalties: zero between calls.
#[derive(Debug, Default)]
pub(super) struct Occurrences {
    counts: Vec<u32>,
}

impl Occurrences {
    /// Applies repetition, then frequency and presence penalties.
    ///
    /// Repetition counts prompt and output, the other two the output alone, as vLLM has it.
    /// O(prompt + output) when any is set.
    pub(super) fn penalise(
        &mut self,
        logits: &mut [f32],
        params: &SamplingParams,
        history: History<'_>,
    ) {
        if params.repetition_penalty != 1.0 {
            self.each_once(
                logits.len(),
                [history.prompt, history.output],
                |token, _| {
                    let logit = &mut logits[token];
                    *logit = if *logit > 0.0 {
                        *logit / params.repetition_penalty
                    } else {
                        *logit * params.repetition_penalty
                    };
                },
            );
        }
        if params.frequency_penalty != 0.0 || params.presence_penalty != 0.0 {
            self.each_once(logits.len(), [&[], history.output], |token, count| {
                let logit = &mut logits[token];
                *logit -= params.frequency_penalty * count as f32;
                *logit -= params.presence_penalty;
            });
        }
    }

    /// Calls `visit` once per distinct token with how often it occurs.
    fn each_once(
        &mut self,
        vocab_size: usize,
        parts: [&[TokenId]; 2],
        mut visit: impl FnMut(usize, u32),
    ) {
        self.counts.resize(vocab_size, 0);
        for &token in parts.into_iter().flatten() {
            self.counts[token as usize] += 1;
        }
        for &token in parts.into_iter().flatten() {
            let count = std::mem::take(&mut self.counts[token as usize]);
            if count > 0 {
                visit(token as usize, count);
            }
        }
    }
}

/// Adds the bias and rules out what may not be drawn: by the allowed list, by bad words, and the
/// `ending` tokens where the answer may not end yet.
pub(super) fn constrain(
    logits: &mut [f32],
    params: &SamplingParams,
    history: History<'_>,
    ending: &[TokenId],
) {
    for &(token, bias) in &params.logit_bias {
        logits[token as usize] += bias;
    }
    if let Some(allowed) = &params.allowed_token_ids {
        keep_only(logits, allowed);
    }
    for word in params.bad_words.iter() {
        if let Some((&last, before)) = word.split_last()
            && history.output.ends_with(before)
        {
            logits[last as usize] = f32::NEG_INFINITY;
        }
    }
    for &token in ending {
        logits[token as usize] = f32::NEG_INFINITY;
    }
}

/// Rules out every token that is not in `allowed`, which ascends.
fn keep_only(logits: &mut [f32], allowed: &[TokenId]) {
    let mut from = 0;
    for &token in allowed {
        logits[from..token as usize].fill(f32::NEG_INFINITY);
        from = token as usize + 1;
    }
    logits[from..].fill(f32::NEG_INFINITY);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f32 = f32::NEG_INFINITY;

    fn history<'a>(prompt: &'a [u32], output: &'a [u32]) -> History<'a> {
        History { prompt, output }
    }

    #[test]
    fn penalties_count_what_vllm_counts() {
        let params = SamplingParams {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            ..SamplingParams::default()
        };
        let mut logits = [4.0, -4.0, 4.0, 4.0];
        let mut occurrences = Occurrences::default();
        occurrences.penalise(&mut logits, &params, history(&[0, 0, 1], &[2, 2]));
        assert_eq!(logits, [2.0, -8.0, 0.75, 4.0]);
        assert!(occurrences.counts.iter().all(|&count| count == 0));
    }

    #[test]
    fn only_allowed_tokens_stay() {
        let params = SamplingParams {
            allowed_token_ids: Some([1, 3].into()),
            logit_bias: vec![(3, 1.5)],
            ..SamplingParams::default()
        };
        let mut logits = [1.0; 5];
        constrain(&mut logits, &params, history(&[0], &[]), &[1]);
        assert_eq!(logits, [NONE, NONE, NONE, 2.5, NONE]);
    }

    #[test]
    fn a_bad_word_is_ruled_out_only_after_its_beginning() {
        let params = SamplingParams {
            bad_words: [vec![1, 2], vec![4]].into(),
            ..SamplingParams::default()
        };
        let mut logits = [0.0; 5];
        constrain(&mut logits, &params, history(&[1], &[]), &[]);
        assert_eq!(logits, [0.0, 0.0, 0.0, 0.0, NONE]);
        constrain(&mut logits, &params, history(&[0], &[3, 1]), &[]);
        assert_eq!(logits, [0.0, 0.0, NONE, 0.0, NONE]);
    }
}
