//! Priority, fairness in time, cancels and deadlines.

use lockstep::scheduler::{Finish, RejectReason, ReleaseCause, SchedulerConfig};
use policy_core::RequestPriority::{High, Low, Normal};

use super::{config, id, of, request, run};

fn one_seat() -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 1,
        ..config()
    }
}

#[test]
fn priority_shows_in_one_small_run() {
    let load = vec![
        of(Normal, 1, 5, 20),
        of(Low, 2, 5, 5),
        of(Normal, 3, 5, 5),
        of(High, 4, 5, 5),
    ];
    let run = run(one_seat(), load);
    assert_eq!(run.admissions(), [0, 3, 0, 2, 1]);
}

#[test]
fn without_ageing_a_low_waits_behind_every_high() {
    let mut load = vec![of(Low, 1, 5, 5)];
    load.extend((0..40).map(|n| of(High, 1 + n * 4, 5, 6)));
    let run = run(one_seat(), load);
    assert!((1..41).all(|high| run.admitted(high) < run.admitted(0)));
}

#[test]
fn with_ageing_a_low_is_overtaken_for_a_stated_number_of_steps_only() {
    let mut load = vec![of(Low, 1, 5, 5)];
    load.extend((0..40).map(|n| of(High, 1 + n * 4, 5, 6)));
    let limits = SchedulerConfig {
        priority_aging_steps: 20,
        ..one_seat()
    };
    let run = run(limits, load);
    for high in 1..41 {
        let arrived = run.simulation.outcomes[high as usize].arrived_step.unwrap();
        let before = run.admitted(high) < run.admitted(0);
        assert_eq!(before, arrived < 1 + 2 * 20, "the High of step {arrived}");
    }
}

#[test]
fn a_prefix_hit_does_not_jump_the_queue() {
    let mut load: Vec<_> = (0..6).map(|n| request(2, 64, 5 + n)).collect();
    for (at, request) in load.iter_mut().enumerate() {
        // Cold and warm in turn.
        request.shared_tokens = if at % 2 == 0 { 0 } else { 64 };
    }
    load.insert(0, load[1].clone());
    load[0].step = 1;
    let limits = SchedulerConfig {
        enable_prefix_caching: true,
        ..one_seat()
    };
    let run = run(limits, load);
    assert_eq!(run.admissions(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_long_prompt_never_stalls_the_streams() {
    let limits = SchedulerConfig {
        max_num_batched_tokens: 12,
        max_chunk_tokens: 64,
        ..config()
    };
    let mut load = vec![of(Low, 1, 5, 60); 5];
    load.push(of(High, 20, 200, 5));
    let run = run(limits, load);
    for plan in &run.plans[19..40] {
        for stream in 0..5 {
            let chunk = plan.chunks.iter().find(|chunk| chunk.request == id(stream));
            assert_eq!(chunk.map(|chunk| chunk.len), Some(1), "step {}", plan.step);
        }
        assert_eq!(plan.num_tokens(), 12, "and the prompt has all the rest");
    }
}

#[test]
fn a_cancel_ends_a_request_at_every_moment_of_its_life() {
    let limits = SchedulerConfig {
        max_num_batched_tokens: 10,
        max_chunk_tokens: 10,
        ..one_seat()
    };
    // Request 0 has a prompt of three chunks and five tokens; a High displaces it in step 6.
    for (step, moment) in [
        (1, "on arrival"),
        (2, "within the prefill"),
        (4, "with its first token"),
        (5, "while it decodes"),
        (7, "while it is preempted"),
        (12, "in the step that finishes it, or after"),
    ] {
        let mut load = vec![of(Low, 1, 30, 5), of(High, 6, 3, 3)];
        load[0].cancel_step = Some(step);
        let run = run(limits.clone(), load);
        if step < 12 {
            assert_eq!(run.cause(0), ReleaseCause::Cancelled, "{moment}");
            assert_eq!(run.end(0), step, "{moment}");
        }
        assert_eq!(run.simulation.scheduler.pool().num_free(), 64, "{moment}");
        run.assert_answer(1);
    }
}

#[test]
fn an_advance_that_finishes_wins_over_a_cancel_of_the_same_step_and_a_token_counts() {
    let cancelled_in = |step| {
        let mut load = vec![request(1, 5, 3)];
        load[0].cancel_step = Some(step);
        run(config(), load).release(0)
    };
    // Sampled in steps 1, 2 and 3; the third token arrives as an advance of step 4.
    assert_eq!(
        cancelled_in(4).cause,
        ReleaseCause::Finished(Finish::Length)
    );
    let before = cancelled_in(3);
    assert_eq!(before.cause, ReleaseCause::Cancelled);
    assert_eq!(
        before.generated_tokens, 2,
        "the token of the same step counts"
    );
}

#[test]
fn an_expiry_ends_a_request_that_waits_and_one_that_runs() {
    let mut load = vec![request(1, 5, 50), request(2, 5, 5)];
    load[0].expire_step = Some(30);
    load[1].expire_step = Some(10);
    let run = run(one_seat(), load);
    for (number, step) in [(0, 30), (1, 10)] {
        assert_eq!(
            (run.cause(number), run.end(number)),
            (ReleaseCause::Expired, step)
        );
    }
}

#[test]
fn a_drain_rejects_what_arrives_later_and_finishes_what_is_live() {
    use lockstep::scheduler::{Inputs, Plan, Scheduler};
    let mut scheduler = Scheduler::new(config()).unwrap();
    let mut plan = Plan::default();
    let arrival = |number| lockstep::scheduler::Arrival {
        request: id(number),
        priority: Normal,
        prompt: vec![1, 2, 3].into(),
        max_tokens: 4,
        structured: false,
        cache_salt: None,
        sibling_of: None,
        parameters: None,
    };
    let mut inputs = Inputs::default();
    inputs.arrivals.push(arrival(1));
    inputs.drain = true;
    scheduler.step(&inputs, &mut plan);
    assert_eq!(plan.chunks.len(), 1, "what arrives with the drain is taken");
    let advance = lockstep::scheduler::Advance {
        sequence: plan.chunks[0].sequence,
        token: Some(5),
        finished: None,
    };
    inputs.clear();
    inputs.advances.push(advance);
    inputs.arrivals.push(arrival(2));
    scheduler.step(&inputs, &mut plan);
    let draining = ReleaseCause::Rejected(RejectReason::Draining);
    assert_eq!(plan.releases[0].cause, draining);
    assert_eq!(plan.chunks.len(), 1, "what is live goes on");
}
