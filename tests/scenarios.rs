//! What users of other engines ran into, each as a small recorded run with the right end.

mod fairness;
mod order;
mod preemption;
mod prefix;
mod resume;

use lockstep::request::RequestId;
use lockstep::scheduler::{Plan, Release, ReleaseCause, SchedulerConfig};
use lockstep::simulation::{Checker, SimulatedRequest, Simulation, Workload, expected_token};
use policy_core::RequestPriority;

/// Limits under which each test changes what it is about.
fn config() -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs: 8,
        max_num_batched_tokens: 256,
        max_chunk_tokens: 64,
        max_model_len: 256,
        block_size: 16,
        num_blocks: 64,
        enable_prefix_caching: false,
        priority_aging_steps: 0,
        seat_lease_steps: 0,
        worn_after_preemptions: 3,
        admission_headroom_blocks: 0,
        ..SchedulerConfig::default()
    }
}

fn request(step: u64, prompt_tokens: u32, output_tokens: u32) -> SimulatedRequest {
    SimulatedRequest::new(step, prompt_tokens, output_tokens)
}

fn of(
    priority: RequestPriority,
    step: u64,
    prompt_tokens: u32,
    output_tokens: u32,
) -> SimulatedRequest {
    request(step, prompt_tokens, output_tokens).priority(priority)
}

fn id(number: u64) -> RequestId {
    RequestId::new(number)
}

/// A run that every step of which was checked, and its plans.
struct Run {
    simulation: Simulation,
    plans: Vec<Plan>,
}

fn run(config: SchedulerConfig, requests: Vec<SimulatedRequest>) -> Run {
    let mut simulation = Simulation::new(config.clone(), Workload { requests }).unwrap();
    let mut checker = Checker::new(config);
    let mut plans = Vec::new();
    while !simulation.is_done() {
        assert!(plans.len() < 100_000, "it drains");
        simulation.step();
        if let Err(violation) = checker.check(&simulation) {
            panic!("{violation}\n{:?}", simulation.plan);
        }
        simulation.scheduler.pool().check();
        plans.push(simulation.plan.clone());
    }
    checker
        .check_end(simulation.workload().requests.len())
        .unwrap();
    Run { simulation, plans }
}

impl Run {
    fn release(&self, number: u64) -> Release {
        self.simulation.outcomes[number as usize]
            .released
            .unwrap()
            .1
    }

    fn cause(&self, number: u64) -> ReleaseCause {
        self.release(number).cause
    }

    /// The step in which a request ended.
    fn end(&self, number: u64) -> u64 {
        self.simulation.outcomes[number as usize]
            .released
            .unwrap()
            .0
    }

    fn admitted(&self, number: u64) -> u64 {
        self.simulation.outcomes[number as usize]
            .first_admitted_step
            .unwrap()
    }

    /// Who was preempted, in order.
    fn victims(&self) -> Vec<u64> {
        let preemptions = self.plans.iter().flat_map(|plan| &plan.preemptions);
        preemptions.map(|p| p.request.number()).collect()
    }

    /// Requests in the order of their admissions, resumes included.
    fn admissions(&self) -> Vec<u64> {
        let admissions = self.plans.iter().flat_map(|plan| &plan.admissions);
        admissions.map(|a| a.request.number()).collect()
    }

    /// The answer of a request is the one that its prompt has alone: no token lost, repeated or
    /// out of order.
    fn assert_answer(&self, number: u64) {
        let place = number as usize;
        let request = &self.simulation.workload().requests[place];
        let mut tokens = request.prompt(place as u32);
        let answer = &self.simulation.outcomes[place].tokens;
        assert_eq!(
            answer.len() as u32,
            request.output_tokens,
            "request {number}"
        );
        for token in answer {
            assert_eq!(*token, expected_token(&tokens), "request {number}");
            tokens.push(*token);
        }
    }
}
