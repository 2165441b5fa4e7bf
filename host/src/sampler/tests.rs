//! The sampler against a plain transcription of rule 9, and against what users expect of each field.

use super::*;
use crate::backend::exp::exp;
use quickcheck::{Arbitrary, Gen, quickcheck};

fn draw(logits: &[f32], params: &SamplingParams, output: &[u32]) -> Option<TokenId> {
    let history = History {
        prompt: &[0],
        output,
    };
    let mut logits = logits.to_vec();
    Sampler::default().sample(
        &mut logits,
        Draw {
            params,
            history,
            ending: &[],
        },
    )
}

/// Rule 9 with every step spelt out and the whole vocabulary sorted.
fn transcription(logits: &[f32], params: &SamplingParams, position: u64) -> TokenId {
    let scaled: Vec<f32> = logits.iter().map(|l| l / params.temperature).collect();
    let mut order: Vec<usize> = (0..scaled.len()).collect();
    order.sort_by(|&a, &b| scaled[b].partial_cmp(&scaled[a]).unwrap().then(a.cmp(&b)));
    let weights: Vec<f32> = scaled.iter().map(|l| exp(l - scaled[order[0]])).collect();
    let masked = |kept: &[usize]| {
        let mut all = vec![0.0; weights.len()];
        kept.iter().for_each(|&id| all[id] = weights[id]);
        lane_sum(&all)
    };
    let whole = order.len();
    if params.top_k > 0 {
        order.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let mass = params.top_p * masked(&order);
        let mut sum = 0.0;
        let reached = order.iter().position(|&id| {
            sum += weights[id];
            sum >= mass
        });
        order.truncate(reached.map_or(order.len(), |at| at + 1));
    }
    if params.min_p > 0.0 {
        let first = order[0];
        order.retain(|&id| id == first || weights[id] >= params.min_p);
    }
    let untouched = order.len() == whole && params.top_p >= 1.0 && params.min_p == 0.0;
    let total = if untouched {
        masked(&order)
    } else {
        order.iter().fold(0.0, |s, &id| s + weights[id])
    };
    let threshold = philox::uniform(params.seed, position) * total;
    let mut sum = 0.0;
    for &id in &order {
        sum += weights[id];
        if sum > threshold {
            return id as TokenId;
        }
    }
    *order.iter().rfind(|&&id| weights[id] > 0.0).unwrap() as TokenId
}

#[derive(Clone, Debug)]
struct Case {
    logits: Vec<f32>,
    params: SamplingParams,
}

impl Arbitrary for Case {
    fn arbitrary(g: &mut Gen) -> Self {
        let count = 2 + usize::arbitrary(g) % 300;
        let logits = (0..count)
            .map(|_| f32::from(i8::arbitrary(g)) * 0.125)
            .collect();
        let params = SamplingParams {
            temperature: *g.choose(&[0.25, 0.7, 1.0, 2.0]).unwrap(),
            top_k: *g.choose(&[0, 2, 5, 40, 1000]).unwrap(),
            top_p: *g.choose(&[1.0, 0.95, 0.5, 0.01]).unwrap(),
            min_p: *g.choose(&[0.0, 0.05, 0.5, 1.0]).unwrap(),
            seed: u64::arbitrary(g),
            ..SamplingParams::default()
        };
        Self { logits, params }
    }
}

quickcheck! {
    fn the_lazy_draw_equals_the_transcription(case: Case) -> bool {
        (0..20).all(|n| {
            let output = vec![0; n];
            let expected = transcription(&case.logits, &case.params, 1 + n as u64);
            draw(&case.logits, &case.params, &output) == Some(expected)
        })
    }
}

#[test]
fn temperature_zero_takes_the_smallest_id_among_equals() {
    let params = SamplingParams {
        temperature: 0.0,
        ..SamplingParams::default()
    };
    assert_eq!(draw(&[1.0, 3.0, 3.0, 2.0], &params, &[]), Some(1));
}

#[test]
fn draws_follow_the_distribution() {
    let logits = [0.0, 1.0, 2.0, f32::NEG_INFINITY];
    let mut counts = [0u32; 4];
    for seed in 0..4000 {
        let params = SamplingParams {
            seed,
            ..SamplingParams::default()
        };
        counts[draw(&logits, &params, &[]).unwrap() as usize] += 1;
    }
    let share = |n: u32| f64::from(n) / 4000.0;
    assert!((share(counts[0]) - 0.090).abs() < 0.02, "{counts:?}");
    assert!((share(counts[1]) - 0.245).abs() < 0.03, "{counts:?}");
    assert!((share(counts[2]) - 0.665).abs() < 0.03, "{counts:?}");
    assert_eq!(counts[3], 0);
}

#[test]
fn a_draw_depends_on_seed_and_position_alone() {
    let logits: Vec<f32> = (0..50).map(|i| (i % 7) as f32 * 0.1).collect();
    let params = |seed| SamplingParams {
        seed,
        ..SamplingParams::default()
    };
    let mut reused = Sampler::default();
    for (seed, n) in [(1, 0), (2, 3), (1, 3), (1, 0)] {
        let output = vec![5; n];
        let history = History {
            prompt: &[0],
            output: &output,
        };
        let first = reused.sample(
            &mut logits.clone(),
            Draw {
                params: &params(seed),
                history,
                ending: &[],
            },
        );
        assert_eq!(first, draw(&logits, &params(seed), &output));
    }
    let draws: Vec<_> = (0..20)
        .map(|seed| draw(&logits, &params(seed), &[]))
        .collect();
    assert!(
        draws.iter().any(|d| *d != draws[0]),
        "twenty seeds gave one token"
    );
}

#[test]
fn nothing_to_draw_is_none() {
    assert_eq!(
        draw(&[f32::NEG_INFINITY; 3], &SamplingParams::default(), &[]),
        None
    );
}

#[test]
fn logprobs_of_the_chosen_and_the_top_have_equal_bits() {
    let logits = [0.5, 2.0, 2.0, -1.0];
    let report = Sampler::default().logprobs(&logits, 1, 3);
    assert_eq!(
        report.chosen.logprob.to_bits(),
        report.top[0].logprob.to_bits()
    );
    assert_eq!(
        report.top.iter().map(|t| t.token).collect::<Vec<_>>(),
        [1, 2, 0]
    );
    assert_eq!(report.chosen.rank, 1);
    assert_eq!(Sampler::default().logprobs(&logits, 2, 0).chosen.rank, 2);
    let sum: f32 = Sampler::default()
        .logprobs(&logits, 0, 4)
        .top
        .iter()
        .map(|t| t.logprob.exp())
        .sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
}
