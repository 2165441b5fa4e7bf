//! The promise, on the real model: a request's tokens and logits are the same bits, whatever
//! happens around it.

use std::sync::OnceLock;

use lockstep::journal::{AccountEvent, explain};
use lockstep::model::Isa;
use lockstep::request::RequestId;
use lockstep_tests::{Answer, Rig, RigOptions, Stream, Want};
use policy_core::RequestPriority;

const PROMPT: &str = "The lighthouse keeper climbed the stairs every evening, and every evening \
    she counted them aloud, because once, many years ago, there had been one step more.";
const TOKENS: u32 = 20;

/// The two requests under test: greedy, and drawn with a seed; both report logprobs.
fn targets() -> [Want; 2] {
    let wants = [
        Want::greedy(PROMPT, TOKENS),
        Want::drawn(PROMPT, TOKENS, 20_261_130),
    ];
    wants.map(|want| Want {
        logprobs: Some(2),
        ..want
    })
}

/// Each target alone in an engine of its own kind.
fn alone(options: &RigOptions) -> Vec<Answer> {
    let mut rig = Rig::new(options);
    let one = |want: &Want| {
        let mut stream = rig.submit(want);
        rig.finish();
        let (answer, usage) = rig.answer(&mut stream);
        assert_eq!(usage.preemptions, 0);
        answer
    };
    targets().iter().map(one).collect()
}

fn undisturbed() -> Vec<Answer> {
    static ANSWERS: OnceLock<Vec<Answer>> = OnceLock::new();
    ANSWERS.get_or_init(undisturbed_anew).clone()
}

fn undisturbed_anew() -> Vec<Answer> {
    let mut options = RigOptions::default();
    options.scheduler.enable_prefix_caching = false;
    let answers = alone(&options);
    assert_eq!(answers[0].tokens.len(), TOKENS as usize);
    for answer in &answers {
        let reported: Vec<_> = answer.logprobs.iter().map(|entries| entries[0].0).collect();
        assert_eq!(
            reported, answer.tokens,
            "one report per token, of that token"
        );
        assert!(answer.logprobs.iter().all(|entries| entries.len() == 3));
    }
    assert_ne!(
        answers[0].tokens, answers[1].tokens,
        "the seed draws another answer"
    );
    answers
}

/// A generator of its own, so that arrivals are random and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A request that has nothing to do with the targets.
fn stranger(random: &mut Random) -> Want {
    let words = [
        "river", "seven", "copper", "under", "the", "engine", "slowly", "blue", "and", "of",
    ];
    let count = 3 + random.below(40);
    let text: Vec<&str> = (0..count)
        .map(|_| words[random.below(10) as usize])
        .collect();
    Want::drawn(
        &text.join(" "),
        4 + random.below(24) as u32,
        random.below(1 << 40),
    )
}

/// Both targets among 16 strangers that arrive at random steps; the answers and the preemptions.
fn among_strangers(options: &RigOptions, seed: u64) -> (Vec<Answer>, u32) {
    let mut random = Random(seed);
    let mut rig = Rig::new(options);
    let mut strangers = Vec::new();
    let mut streams = Vec::new();
    for arrival in 0..16 {
        strangers.push(rig.submit(&stranger(&mut random)));
        if arrival == 4 || arrival == 9 {
            streams.push(rig.submit(&targets()[streams.len()]));
        }
        rig.turns(random.below(4) as usize);
    }
    rig.finish();
    for stream in &mut strangers {
        rig.answer(stream);
    }
    collected(&rig, &mut streams)
}

/// The answers, and the fewest preemptions that any of them went through.
fn collected(rig: &Rig, streams: &mut [Stream]) -> (Vec<Answer>, u32) {
    let (answers, usages): (Vec<_>, Vec<_>) =
        streams.iter_mut().map(|stream| rig.answer(stream)).unzip();
    let fewest = usages.iter().map(|usage| usage.preemptions).min();
    (answers, fewest.unwrap_or(0))
}

#[test]
fn company_changes_no_bit() {
    let expected = undisturbed();
    for seed in 1..=2 {
        let (answers, _) = among_strangers(&RigOptions::default(), seed);
        assert_eq!(answers, expected, "seed {seed}");
    }
}

#[test]
fn chunks_change_no_bit() {
    let expected = undisturbed();
    for max_chunk_tokens in [1, 7, 64] {
        let mut options = RigOptions::default();
        options.scheduler.max_chunk_tokens = max_chunk_tokens;
        assert_eq!(alone(&options), expected, "chunks of {max_chunk_tokens}");
    }
}

#[test]
fn a_prefix_hit_changes_no_bit() {
    let expected = undisturbed();
    let mut rig = Rig::new(&RigOptions::default());
    for round in 0..3 {
        for (want, expected) in targets().iter().zip(&expected) {
            let mut stream = rig.submit(want);
            rig.finish();
            let (answer, usage) = rig.answer(&mut stream);
            assert_eq!(&answer, expected, "round {round}");
            assert_eq!(
                usage.cached_tokens > 0,
                rig_is_warm(round, want),
                "round {round}"
            );
        }
    }
}

/// Everything but the very first request finds the prompt's full blocks in the cache.
fn rig_is_warm(round: usize, want: &Want) -> bool {
    round > 0 || want.sampling.temperature > 0.0
}

#[test]
fn block_size_and_threads_change_no_bit() {
    let expected = undisturbed();
    for (threads, block_size) in [(1, 16), (2, 48), (3, 128)] {
        let mut options = RigOptions {
            threads,
            ..RigOptions::default()
        };
        options.scheduler.block_size = block_size;
        options.scheduler.num_blocks = 64;
        assert_eq!(
            alone(&options),
            expected,
            "{threads} threads, blocks of {block_size}"
        );
    }
}

#[test]
fn the_vector_path_changes_no_bit() {
    let expected = undisturbed();
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        let options = RigOptions {
            isa: Some(isa),
            ..RigOptions::default()
        };
        assert_eq!(alone(&options), expected, "{isa}");
    }
}

#[test]
fn preemption_changes_no_bit_and_repeats_no_token() {
    let expected = undisturbed();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("starved.journal");
    let mut options = RigOptions {
        journal: Some(path.clone()),
        ..RigOptions::default()
    };
    options.scheduler.max_num_seqs = 6;
    options.scheduler.num_blocks = 16;
    let rig = Rig::new(&options);
    let (answers, preemptions) = pressed(rig);
    assert_eq!(answers, expected);
    assert!(
        preemptions >= 2,
        "each target was preempted {preemptions} times"
    );
    let report = lockstep::journal::replay(&path).unwrap();
    assert!(report.difference.is_none(), "{report:?}");
    for target in [0, 1] {
        let account = explain(&path, RequestId::new(target)).unwrap();
        let preempted = |event: &&AccountEvent| matches!(event, AccountEvent::Preempted(_));
        let recorded = account.events.iter().filter(preempted).count();
        assert!(
            recorded >= 2,
            "the journal has {recorded} preemptions of target {target}"
        );
    }
}

/// Low targets that waves of six Highs displace again and again, in a pool too small for them all.
fn pressed(mut rig: Rig) -> (Vec<Answer>, u32) {
    let mut random = Random(3);
    let low = |want: &Want| want.clone().priority(RequestPriority::Low);
    let mut streams: Vec<_> = targets()
        .iter()
        .map(|want| rig.submit(&low(want)))
        .collect();
    let mut others = Vec::new();
    for _ in 0..6 {
        rig.turns(8);
        for _ in 0..6 {
            let high = stranger(&mut random).priority(RequestPriority::High);
            others.push(rig.submit(&Want {
                max_tokens: 3,
                ..high
            }));
        }
    }
    rig.finish();
    for stream in &mut others {
        rig.answer(stream);
    }
    let collected = collected(&rig, &mut streams);
    rig.close();
    collected
}
