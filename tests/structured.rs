//! Constrained and stopped answers of the real engine on the real model, through real preemptions.

use std::sync::{Arc, OnceLock};

use lockstep::gguf::Gguf;
use lockstep::structured::{Constraint, Grammars};
use lockstep::tokenizer::Tokenizer;
use lockstep_tests::{Answer, Rig, RigOptions, Want, real_model};
use policy_core::RequestPriority;
use serde_json::json;

const PROMPT: &str = "The lighthouse keeper wrote down, line by line and in plain words, what she \
    had seen that night from the gallery of the tower:";

fn grammars() -> &'static Grammars {
    static GRAMMARS: OnceLock<Grammars> = OnceLock::new();
    GRAMMARS.get_or_init(|| {
        let file = Gguf::open(&real_model()).unwrap();
        Grammars::new(&Tokenizer::from_gguf(&file).unwrap()).unwrap()
    })
}

fn constraints() -> [Constraint; 3] {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["seen", "count", "calm"],
        "properties": {
            "seen": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 4, "maxItems": 4},
            "count": {"type": "integer", "minimum": 10, "maximum": 99999},
            "calm": {"type": "boolean"}
        }
    });
    [
        Constraint::JsonSchema(schema),
        Constraint::Regex("([a-z]{2,6} ){14}[a-z]{3}\\.".into()),
        Constraint::Choice(vec![
            "nothing but the sea, and the sea, and a small boat with a red sail on the sea".into(),
            "nothing but the fog, and the fog, and a small light moving slowly in the fog".into(),
        ]),
    ]
}

/// One greedy request and one drawn with a seed for each constraint.
fn targets() -> Vec<Want> {
    let held = |(number, constraint): (u64, Constraint)| {
        let matcher = grammars().compile(&constraint).unwrap();
        let constraint = Some(Arc::new(constraint));
        [Want::greedy(PROMPT, 100), Want::drawn(PROMPT, 100, number)].map(|mut want| {
            want.sampling.constraint = constraint.clone();
            Want {
                matcher: Some(matcher.clone()),
                ignore_eos: false,
                logprobs: Some(1),
                ..want
            }
        })
    };
    (100..).zip(constraints()).flat_map(held).collect()
}

fn alone(want: &Want) -> Answer {
    let mut rig = Rig::new(&RigOptions::default());
    let mut stream = rig.submit(want);
    rig.finish();
    let (answer, usage) = rig.answer(&mut stream);
    assert_eq!(usage.preemptions, 0);
    answer
}

/// The masks along an answer, from a matcher that is given its tokens anew.
fn masks(constraint: &Constraint, tokens: &[u32]) -> Vec<Vec<u32>> {
    let mut matcher = grammars().compile(constraint).unwrap();
    let step = |&token: &u32| {
        let mask = matcher.mask().unwrap().to_vec();
        assert!(
            mask[token as usize / 32] >> (token % 32) & 1 == 1,
            "no mask allows {token}"
        );
        matcher.commit(token).unwrap();
        mask
    };
    tokens.iter().map(step).collect()
}

/// Low targets that waves of Highs displace for blocks, again and again.
fn pressed(targets: &[Want]) -> Vec<(Answer, u32)> {
    let mut options = RigOptions::default();
    options.scheduler.max_num_seqs = 12;
    options.scheduler.num_blocks = 24;
    let mut rig = Rig::new(&options);
    let low = |want: &Want| want.clone().priority(RequestPriority::Low);
    let mut streams: Vec<_> = targets.iter().map(|want| rig.submit(&low(want))).collect();
    let mut others = Vec::new();
    for wave in 0..8 {
        rig.turns(6);
        for number in 0..4 {
            let other = Want::drawn(&PROMPT[number..], 12, wave).priority(RequestPriority::High);
            others.push(rig.submit(&other));
        }
    }
    rig.finish();
    for stream in &mut others {
        rig.answer(stream);
    }
    let ended = |stream| {
        let (answer, usage) = rig.answer(stream);
        (answer, usage.preemptions)
    };
    streams.iter_mut().map(ended).collect()
}

#[test]
fn a_preemption_changes_no_mask_and_no_bit() {
    let targets = targets();
    let mut preempted = 0;
    for (want, (answer, preemptions)) in targets.iter().zip(pressed(&targets)) {
        let expected = alone(want);
        assert_eq!(answer, expected, "{}", expected.text);
        let constraint = want.sampling.constraint.as_ref().unwrap();
        let masks = masks(constraint, &answer.tokens);
        assert!(masks.len() > 10, "{}", answer.text);
        preempted += u32::from(preemptions > 0);
    }
    assert!(preempted >= 3, "only {preempted} of them were preempted");
}

/// The middle of a text: it ends within one token and begins within another.
fn stop_across_tokens(answer: &Answer, want: &Want) -> String {
    let characters: Vec<char> = answer.text.chars().collect();
    let half = characters.len() / 2;
    let stop: String = characters[half - 4..half + 4].iter().collect();
    assert!(stop.len() > 4, "{want:?}");
    stop
}

#[test]
fn a_stop_text_across_tokens_is_cut_the_same_after_a_preemption() {
    let free = [
        Want::greedy(PROMPT, 40),
        Want::drawn(PROMPT, 40, 5),
        Want::drawn(PROMPT, 40, 6),
    ];
    let stopped = |want: &Want| {
        let whole = alone(want);
        let stop = stop_across_tokens(&whole, want);
        let cut = whole.text.split(&stop).next().unwrap().to_owned();
        let want = Want {
            stop: vec![stop],
            ..want.clone()
        };
        (want, cut)
    };
    let (wants, cuts): (Vec<Want>, Vec<String>) = free.iter().map(stopped).unzip();
    let mut preempted = 0;
    for ((want, cut), (answer, preemptions)) in wants.iter().zip(cuts).zip(pressed(&wants)) {
        assert_eq!(answer.text, cut);
        assert_eq!(answer, alone(want));
        preempted += preemptions;
    }
    assert!(preempted > 0, "nothing was preempted");
}

#[test]
fn every_choice_goes_its_own_way_under_one_constraint() {
    // The regular expression, drawn with a seed.
    let want = &targets()[3];
    let seeds = [1, 2, 3];
    let drawn = |seed: &u64| {
        let mut want = want.clone();
        want.sampling.seed = *seed;
        want
    };
    let wants: Vec<Want> = seeds.iter().map(drawn).collect();
    // Clones of one matcher, side by side.
    let mut rig = Rig::new(&RigOptions::default());
    let mut streams: Vec<_> = wants.iter().map(|want| rig.submit(want)).collect();
    rig.finish();
    let answers: Vec<_> = streams
        .iter_mut()
        .map(|stream| rig.answer(stream).0)
        .collect();
    for (want, answer) in wants.iter().zip(&answers) {
        assert_eq!(answer, &alone(want));
        let words = answer.text.split(' ').count();
        assert!(words == 15 && answer.text.ends_with('.'), "{}", answer.text);
    }
    assert_ne!(answers[0].text, answers[1].text);
}
