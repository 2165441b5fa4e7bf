//! Preemption, thrash and live-lock.

use lockstep::scheduler::{RejectReason, ReleaseCause, SchedulerConfig, Wait};
use lockstep::simulation::SimulatedRequest;
use policy_core::Need;
use policy_core::RequestPriority::{High, Low, Normal};

use super::{config, id, of, request, run};

#[test]
fn a_waiting_high_displaces_a_running_low_at_the_seat_limit() {
    let limits = SchedulerConfig {
        max_num_seqs: 2,
        ..config()
    };
    let run = run(
        limits,
        vec![of(Low, 1, 5, 50), of(Low, 1, 5, 50), of(High, 10, 5, 5)],
    );
    assert_eq!(run.admitted(2), 10, "in the step in which it arrives");
    assert_eq!(run.victims(), [0]);
    let plan = &run.plans[9];
    assert_eq!(plan.preemptions[0].need, Need::Seat);
    assert_eq!(plan.preemptions[0].beneficiary, id(2));
    assert!(plan.chunks.iter().any(|chunk| chunk.request == id(2)));
}

#[test]
fn equals_never_take_a_seat_from_each_other() {
    for class in [Low, Normal, High] {
        let limits = SchedulerConfig {
            max_num_seqs: 1,
            ..config()
        };
        let run = run(limits, vec![of(class, 1, 5, 40), of(class, 2, 5, 5)]);
        assert!(run.victims().is_empty());
        assert!(run.admitted(1) > 40);
    }
}

#[test]
fn a_higher_class_never_gives_way_to_a_lower_one() {
    let limits = SchedulerConfig {
        max_num_seqs: 1,
        ..config()
    };
    let run = run(
        limits,
        vec![of(High, 1, 5, 40), of(Low, 2, 5, 5), of(Normal, 3, 5, 5)],
    );
    assert!(run.victims().is_empty());
    assert_eq!(run.admissions(), [0, 2, 1]);
}

#[test]
fn the_victim_is_of_the_lowest_class_there_is() {
    let limits = SchedulerConfig {
        max_num_seqs: 3,
        ..config()
    };
    let load = vec![
        of(Normal, 1, 5, 90),
        of(Low, 40, 5, 60),
        of(Normal, 1, 5, 90),
        of(High, 60, 5, 5),
    ];
    let mut load = load;
    load.sort_by_key(|request| request.step);
    let run = run(limits, load);
    // The Low is the third to arrive and has generated least.
    assert_eq!(run.victims(), [2]);
}

#[test]
fn nobody_is_preempted_for_something_that_then_does_not_fit() {
    // The Low holds one block; the High needs eight, and a Normal that it cannot starve holds five.
    let limits = SchedulerConfig {
        num_blocks: 16,
        max_model_len: 240,
        ..config()
    };
    let load = vec![
        of(High, 1, 150, 60),
        of(Low, 2, 10, 20),
        of(High, 3, 140, 5),
    ];
    let run = run(limits, load);
    assert!(run.victims().is_empty(), "the Low's one block would not do");
    let blocked = run.plans[2].blocked.unwrap();
    assert_eq!(blocked.request, id(2));
    assert!(matches!(blocked.wait, Wait::Blocks { .. }));
    assert!(run.end(1) < run.admitted(2), "the Low was left alone");
}

#[test]
fn a_running_sequence_that_grows_takes_blocks_from_later_equals_and_high_from_high() {
    for class in [Low, Normal, High] {
        let limits = SchedulerConfig {
            num_blocks: 8,
            max_model_len: 128,
            ..config()
        };
        let run = run(limits, vec![of(class, 1, 40, 60), of(class, 1, 40, 60)]);
        assert_eq!(run.victims(), [1], "the later of two equals");
        let preemption = run
            .plans
            .iter()
            .find_map(|p| p.preemptions.first())
            .unwrap();
        assert_eq!(preemption.need, Need::Blocks);
        run.assert_answer(0);
        run.assert_answer(1);
    }
}

#[test]
fn a_victim_is_never_in_the_plan_and_never_admitted_in_its_step() {
    let limits = SchedulerConfig {
        num_blocks: 12,
        ..config()
    };
    let run = run(
        SchedulerConfig {
            max_model_len: 192,
            ..limits
        },
        vec![request(1, 20, 100); 6],
    );
    assert!(run.victims().len() > 3);
    for plan in &run.plans {
        for preemption in &plan.preemptions {
            let victim = preemption.request;
            assert!(plan.chunks.iter().all(|chunk| chunk.request != victim));
            assert!(
                plan.admissions
                    .iter()
                    .all(|admission| admission.request != victim)
            );
        }
    }
}

#[test]
fn a_prompt_that_can_never_fit_is_rejected_and_nobody_waits_for_it() {
    let run = run(config(), vec![request(1, 200, 57), request(1, 10, 5)]);
    assert_eq!(run.cause(0), ReleaseCause::Rejected(RejectReason::TooLong));
    assert_eq!(run.end(0), 1);
    run.assert_answer(1);
}

#[test]
fn the_last_request_left_always_has_the_whole_pool() {
    let limits = SchedulerConfig {
        num_blocks: 16,
        max_model_len: 256,
        ..config()
    };
    let run = run(
        limits,
        vec![
            request(1, 100, 156),
            request(1, 100, 156),
            request(2, 1, 255),
        ],
    );
    for number in 0..3 {
        run.assert_answer(number);
    }
}

#[test]
fn a_big_max_tokens_reserves_nothing() {
    let mut load = vec![request(1, 10, 5); 4];
    for request in &mut load {
        request.max_tokens = Some(240);
    }
    let limits = SchedulerConfig {
        num_blocks: 16,
        ..config()
    };
    let run = run(limits, load);
    assert_eq!(
        run.plans[0].admissions.len(),
        4,
        "all four, on sixteen blocks"
    );
    assert!(run.victims().is_empty());
}

#[test]
fn preemptions_of_one_request_are_bounded_and_a_worn_one_comes_last() {
    let limits = SchedulerConfig {
        max_num_seqs: 2,
        worn_after_preemptions: 2,
        ..config()
    };
    let mut load = vec![of(Low, 1, 5, 200), of(Low, 1, 5, 200)];
    load.extend((0..10).map(|n| of(High, 20 + n * 15, 5, 3)));
    let run = run(limits, load);
    let victims = run.victims();
    let hits = |request| victims.iter().filter(|v| **v == request).count();
    assert!(hits(0).abs_diff(hits(1)) <= 1, "{victims:?}");
    assert!(hits(0) + hits(1) <= 10, "one for each High at most");
}

#[test]
fn headroom_keeps_a_resume_from_being_preempted_again() {
    let load = || vec![request(1, 30, 90); 6];
    let count = |headroom| {
        let limits = SchedulerConfig {
            num_blocks: 20,
            max_model_len: 256,
            admission_headroom_blocks: headroom,
            ..config()
        };
        run(limits, load()).victims().len()
    };
    assert!(
        count(1) < count(0),
        "{} with, {} without",
        count(1),
        count(0)
    );
}

#[test]
fn a_fresh_sequence_keeps_its_seat_for_as_long_as_its_lease() {
    // One token of budget beyond the seats: a prompt of 30 tokens takes many steps.
    let limits = |seat_lease_steps| SchedulerConfig {
        max_num_seqs: 1,
        max_num_batched_tokens: 2,
        max_chunk_tokens: 2,
        seat_lease_steps,
        ..config()
    };
    let load = || vec![of(Low, 1, 30, 5), of(High, 4, 5, 2)];
    assert_eq!(run(limits(0), load()).admitted(1), 4);
    assert_eq!(
        run(limits(10), load()).admitted(1),
        11,
        "ten steps from step 1"
    );
    let first_token = run(limits(100), load()).admitted(1);
    assert_eq!(first_token, 16, "or once it has a token");
}

#[test]
fn a_structured_sequence_keeps_its_seat_but_not_its_blocks() {
    let structured = || {
        let mut request = of(Low, 1, 40, 60);
        request.structured = true;
        request
    };
    let seats = SchedulerConfig {
        max_num_seqs: 1,
        ..config()
    };
    let first = run(seats, vec![structured(), of(High, 5, 5, 5)]);
    assert!(first.victims().is_empty());
    let blocks = SchedulerConfig {
        num_blocks: 8,
        max_model_len: 128,
        ..config()
    };
    let second = run(blocks, vec![of(High, 1, 40, 60), structured()]);
    assert_eq!(second.victims(), [1]);
    second.assert_answer(1);
}

#[test]
fn of_two_that_share_blocks_both_give_way_for_what_neither_frees_alone() {
    // The twins share two blocks and have one each: of four, the first frees one, both free all.
    let twin = |step| SimulatedRequest {
        family: 1,
        shared_tokens: 32,
        ..of(Low, step, 40, 20)
    };
    let limits = SchedulerConfig {
        num_blocks: 4,
        max_model_len: 64,
        enable_prefix_caching: true,
        ..config()
    };
    let run = run(limits, vec![twin(1), twin(2), of(High, 5, 48, 5)]);
    let preemptions = &run.plans[4].preemptions;
    let seen: Vec<_> = preemptions
        .iter()
        .map(|p| (p.request, p.blocks_before, p.blocks_after))
        .collect();
    assert_eq!(seen, [(id(0), 0, 1), (id(1), 1, 4)]);
    assert_eq!(run.admitted(2), 5);
    (0..3).for_each(|number| run.assert_answer(number));
}

#[test]
fn a_step_is_never_empty_while_something_can_run() {
    let limits = SchedulerConfig {
        max_num_seqs: 4,
        num_blocks: 5,
        max_model_len: 80,
        ..config()
    };
    let run = run(limits, vec![request(1, 15, 60); 4]);
    for plan in &run.plans[..run.plans.len() - 1] {
        assert!(!plan.chunks.is_empty(), "step {}", plan.step);
    }
}
