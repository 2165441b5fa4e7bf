//! Small scopes, all of them: three requests, four blocks, every moment of arrival, end and cancel.

use lockstep::scheduler::SchedulerConfig;
use lockstep::simulation::{Checker, SimulatedRequest, Simulation, Workload};
use policy_core::RequestPriority::{self, High, Low, Normal};

const STEPS: u64 = 6;

fn config(max_num_seqs: u32, chunk: u32, caching: bool) -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs,
        max_num_batched_tokens: max_num_seqs + chunk,
        max_chunk_tokens: chunk,
        max_model_len: 64,
        block_size: 16,
        num_blocks: 4,
        enable_prefix_caching: caching,
        seat_lease_steps: 1,
        worn_after_preemptions: 1,
        admission_headroom_blocks: 0,
        ..SchedulerConfig::default()
    }
}

/// Every life of one request: when it arrives, and when it ends or its caller leaves.
fn lives(prompt: u32, priority: RequestPriority) -> Vec<SimulatedRequest> {
    let mut lives = Vec::new();
    for step in 1..=STEPS {
        let request = |output| SimulatedRequest::new(step, prompt, output).priority(priority);
        for output in [1, 2, 3, 20] {
            lives.push(request(output));
        }
        for cancel in step..=STEPS {
            let mut cancelled = request(20);
            cancelled.cancel_step = Some(cancel);
            lives.push(cancelled);
        }
    }
    lives
}

fn verify_all(config: &SchedulerConfig, prompts: [u32; 3], classes: [RequestPriority; 3]) -> u32 {
    let [first, second, third] = [0, 1, 2].map(|at| lives(prompts[at], classes[at]));
    let mut runs = 0;
    for a in &first {
        for b in second.iter().filter(|b| b.step >= a.step) {
            for c in third.iter().filter(|c| c.step >= b.step) {
                let requests = vec![a.clone(), b.clone(), c.clone()];
                run(config, &Workload { requests });
                runs += 1;
            }
        }
    }
    runs
}

fn run(config: &SchedulerConfig, workload: &Workload) {
    let mut simulation = Simulation::new(config.clone(), workload.clone()).unwrap();
    let mut checker = Checker::new(config.clone());
    while !simulation.is_done() {
        assert!(simulation.now() < 1000, "it drains: {workload:?}");
        simulation.step();
        simulation.scheduler.pool().check();
        if let Err(violation) = checker.check(&simulation) {
            panic!(
                "{violation}\n{config:?}\n{workload:?}\n{:?}",
                simulation.plan
            );
        }
    }
    checker.check_end(3).unwrap();
}

#[test]
fn three_requests_on_four_blocks_in_every_interleaving() {
    let mut runs = 0;
    for (config, prompts, classes) in [
        (config(3, 64, true), [15, 16, 17], [Normal; 3]),
        (config(2, 64, true), [15, 31, 16], [Low, Normal, High]),
        (config(2, 7, false), [14, 30, 15], [Low, Low, High]),
        (config(1, 16, true), [16, 16, 40], [Low, Normal, High]),
        (config(3, 9, false), [31, 15, 15], [High, Low, Normal]),
    ] {
        runs += verify_all(&config, prompts, classes);
    }
    assert!(runs > 50_000, "{runs}");
}
