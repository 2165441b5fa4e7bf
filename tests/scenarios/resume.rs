//! Resume: nothing lost, nothing twice, nothing another's.

use lockstep::scheduler::{Finish, ReleaseCause, SchedulerConfig};
use lockstep::simulation::SimulatedRequest;
use policy_core::RequestPriority::{High, Low};

use super::{Run, config, of, request, run};

fn starved() -> SchedulerConfig {
    SchedulerConfig {
        num_blocks: 10,
        max_model_len: 160,
        ..config()
    }
}

fn load() -> Vec<SimulatedRequest> {
    vec![request(1, 30, 70); 4]
}

#[test]
fn starved_and_ample_pools_give_the_same_answers() {
    let ample = run(config(), load());
    assert!(ample.victims().is_empty());
    for caching in [false, true] {
        let limits = SchedulerConfig {
            enable_prefix_caching: caching,
            ..starved()
        };
        let starved = run(limits, load());
        let twice = (0..4).any(|number| starved.release(number).preemptions >= 2);
        assert!(twice, "{:?}", starved.victims());
        for number in 0..4 {
            starved.assert_answer(number);
            let tokens = |run: &Run| run.simulation.outcomes[number as usize].tokens.clone();
            assert_eq!(tokens(&starved), tokens(&ample));
        }
    }
}

#[test]
fn chunks_of_one_seven_and_sixty_four_tokens_give_the_same_answers() {
    for max_chunk_tokens in [1, 7, 64] {
        let limits = SchedulerConfig {
            max_chunk_tokens,
            ..starved()
        };
        let run = run(limits, load());
        (0..4).for_each(|number| run.assert_answer(number));
    }
}

#[test]
fn a_preempted_request_keeps_its_place_before_later_arrivals() {
    let limits = SchedulerConfig {
        max_num_seqs: 1,
        ..config()
    };
    let load = vec![
        of(Low, 1, 5, 30),
        of(Low, 2, 5, 5),
        of(High, 10, 5, 5),
        of(Low, 11, 5, 5),
    ];
    let run = run(limits, load);
    assert_eq!(run.admissions(), [0, 2, 0, 1, 3]);
    run.assert_answer(0);
}

#[test]
fn a_preempted_request_is_queued_however_many_wait() {
    let limits = SchedulerConfig {
        max_num_seqs: 1,
        ..config()
    };
    let mut load = vec![of(Low, 1, 5, 30)];
    load.extend(vec![of(Low, 2, 5, 1); 5000]);
    load.push(of(High, 3, 5, 1));
    let run = run(limits, load);
    assert_eq!(run.release(0).preemptions, 1);
    assert_eq!(run.cause(0), ReleaseCause::Finished(Finish::Length));
}

#[test]
fn a_resume_computes_prompt_and_output_again_and_goes_on_with_the_next_token() {
    let limits = SchedulerConfig {
        max_num_seqs: 1,
        ..config()
    };
    let run = run(limits, vec![of(Low, 1, 10, 30), of(High, 8, 5, 2)]);
    // Steps 1 to 7 sampled seven tokens; the last of them came as an advance of step 8.
    let resumed = run.plans.iter().find(|plan| {
        plan.admissions
            .iter()
            .any(|admission| admission.preemptions == 1)
    });
    let chunk = resumed.unwrap().chunks[0];
    assert_eq!((chunk.start, chunk.len, chunk.sample), (0, 17, true));
    let preemption = run.plans[7].preemptions[0];
    assert_eq!(
        (preemption.computed_tokens, preemption.recompute_tokens),
        (16, 16)
    );
    run.assert_answer(0);
}

#[test]
fn with_the_prefix_cache_a_resume_is_nearly_free() {
    let limits = SchedulerConfig {
        max_num_seqs: 1,
        enable_prefix_caching: true,
        ..config()
    };
    let run = run(limits, vec![of(Low, 1, 100, 30), of(High, 8, 5, 2)]);
    let resume = run
        .plans
        .iter()
        .flat_map(|p| &p.admissions)
        .find(|a| a.preemptions == 1);
    assert_eq!(resume.unwrap().cached_tokens, 96);
    run.assert_answer(0);
}
