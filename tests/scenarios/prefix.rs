//! The prefix cache, and the choices of an `n > 1`.

use std::sync::Arc;

use lockstep::scheduler::{Finish, ReleaseCause, SchedulerConfig, Wait};
use lockstep::simulation::SimulatedRequest;

use super::{config, id, request, run};

fn caching() -> SchedulerConfig {
    SchedulerConfig {
        enable_prefix_caching: true,
        ..config()
    }
}

fn twins(step: u64, prompt: u32) -> Vec<SimulatedRequest> {
    let mut load = vec![request(1, prompt, 6), request(step, prompt, 6)];
    for request in &mut load {
        request.shared_tokens = prompt;
    }
    load
}

#[test]
fn a_warm_request_has_the_answer_of_a_cold_one() {
    for prompt in [15, 16, 17, 31, 32, 33, 100] {
        let run = run(caching(), twins(20, prompt));
        let outcomes = &run.simulation.outcomes;
        assert_eq!(outcomes[0].tokens, outcomes[1].tokens);
        run.assert_answer(1);
        // At least one token is computed: its logits are wanted.
        assert_eq!(run.release(0).cached_tokens, 0);
        assert_eq!(run.release(1).cached_tokens, (prompt - 1) / 16 * 16);
    }
}

#[test]
fn a_block_is_found_only_after_the_step_that_wrote_it() {
    // Both arrive in one step: the second finds nothing, since nothing is written yet.
    let together = run(caching(), twins(1, 32));
    assert_eq!(together.release(1).cached_tokens, 0);
    let next = run(caching(), twins(2, 40));
    assert_eq!(
        next.release(1).cached_tokens,
        32,
        "one step later it is there"
    );
}

#[test]
fn the_answer_of_one_turn_is_found_by_the_next() {
    // Computed: 20 prompt tokens and 43 of the answer; the last token has no key and value.
    let first = request(1, 20, 44);
    let answer = run(caching(), vec![first]);
    let pool = answer.simulation.scheduler.pool();
    assert_eq!(pool.num_cached(), 63 / 16);
}

#[test]
fn requests_with_different_salts_share_nothing() {
    let salted = |first: Option<&str>, second: Option<&str>| {
        let mut load = twins(20, 64);
        load[0].cache_salt = first.map(Arc::from);
        load[1].cache_salt = second.map(Arc::from);
        let run = run(caching(), load);
        run.release(1).cached_tokens
    };
    assert_eq!(salted(Some("a"), Some("a")), 48);
    assert_eq!(salted(Some("a"), Some("b")), 0);
    assert_eq!(salted(None, Some("")), 0);
}

#[test]
fn a_block_is_found_only_behind_the_same_beginning() {
    // A block of its own tokens, behind another beginning, and then at the beginning itself.
    let block = |number: u32| number * 16..(number + 1) * 16;
    let prompt = |blocks: [u32; 3]| -> Arc<[u32]> { blocks.into_iter().flat_map(block).collect() };
    for (second, cached) in [([1, 2, 4], 32), ([9, 2, 3], 0), ([2, 3, 4], 0)] {
        let mut load = vec![request(1, 48, 6), request(20, 48, 6)];
        load[0].prompt = Some(prompt([1, 2, 3]));
        load[1].prompt = Some(prompt(second));
        let run = run(caching(), load);
        assert_eq!(run.release(1).cached_tokens, cached, "{second:?}");
        run.assert_answer(1);
    }
}

#[test]
fn without_the_flag_nothing_is_kept() {
    let run = run(config(), twins(20, 64));
    assert_eq!(run.release(1).cached_tokens, 0);
    assert_eq!(run.simulation.scheduler.pool().num_cached(), 0);
}

#[test]
fn a_block_that_was_not_finite_is_never_found() {
    let mut load = twins(20, 64);
    load[0].non_finite_at = Some(0);
    let run = run(caching(), load);
    assert_eq!(run.cause(0), ReleaseCause::Finished(Finish::NonFinite));
    assert_eq!(run.release(1).cached_tokens, 0);
    run.assert_answer(1);
}

#[test]
fn a_full_pool_evicts_in_a_stated_order_and_fails_nobody() {
    let limits = SchedulerConfig {
        num_blocks: 8,
        max_model_len: 128,
        max_num_seqs: 1,
        ..caching()
    };
    let load = (0..10).map(|n| request(1 + n * 5, 40, 10)).collect();
    let run = run(limits, load);
    let evicted: Vec<u32> = run
        .plans
        .iter()
        .flat_map(|plan| plan.evictions.clone())
        .collect();
    assert!(evicted.len() > 10);
    // Each request leaves three full blocks, and the deepest goes first.
    assert_eq!(evicted[..2], [2, 1], "{evicted:?}");
    (0..10).for_each(|number| run.assert_answer(number));
}

/// A request with further choices.
fn choices(prompt: u32, n: usize) -> Vec<SimulatedRequest> {
    let mut load = vec![request(1, prompt, 10); n];
    for (at, choice) in load.iter_mut().enumerate().skip(1) {
        choice.sibling_of = Some(0);
        choice.output_tokens = 10 - at as u32;
        choice.max_tokens = Some(10);
    }
    load
}

#[test]
fn choices_share_the_prompts_blocks_and_copy_the_partial_one() {
    for caching in [false, true] {
        for (prompt, shared, copies) in [(40, 2, 1), (48, 2, 1), (33, 2, 0), (8, 0, 1), (1, 0, 0)] {
            let limits = SchedulerConfig {
                enable_prefix_caching: caching,
                ..config()
            };
            let run = run(limits, choices(prompt, 3));
            for number in 1..3 {
                let cached = run.release(number).cached_tokens;
                assert_eq!(
                    cached,
                    prompt - 1,
                    "all but the token whose logits are wanted"
                );
                run.assert_answer(number);
            }
            let copied: usize = run.plans.iter().map(|plan| plan.copies.len()).sum();
            assert_eq!(copied, 2 * copies, "prompt {prompt}");
            let second = &run.plans[1];
            assert_eq!(second.admissions.len(), 2);
            let tables: Vec<_> = second
                .chunks
                .iter()
                .map(|c| second.block_table(c))
                .collect();
            assert_eq!(tables[0][..shared], tables[1][..shared]);
            assert_eq!(tables[1][..shared], tables[2][..shared]);
        }
    }
}

#[test]
fn choices_are_admitted_once_the_first_has_computed_the_prompt() {
    let limits = SchedulerConfig {
        max_chunk_tokens: 16,
        ..config()
    };
    let run = run(limits, choices(60, 4));
    let blocked = run.plans[0].blocked.unwrap();
    assert_eq!((blocked.request, blocked.wait), (id(1), Wait::Sibling));
    assert_eq!(run.admitted(1), 5, "after four chunks");
    let computed: u64 = run
        .simulation
        .outcomes
        .iter()
        .map(|o| o.computed_tokens)
        .sum();
    assert!(
        computed < 2 * 60 + 40,
        "the prompt is computed once: {computed}"
    );
}

#[test]
fn choices_survive_preemption_one_by_one() {
    let limits = SchedulerConfig {
        num_blocks: 6,
        max_model_len: 96,
        ..config()
    };
    let mut load = choices(40, 4);
    for choice in &mut load {
        choice.output_tokens = 50;
        choice.max_tokens = Some(50);
    }
    let run = run(limits, load);
    assert!(!run.victims().is_empty());
    (0..4).for_each(|number| run.assert_answer(number));
}
