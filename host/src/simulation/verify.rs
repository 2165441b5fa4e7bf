//! One seed, in full: safety at every step, liveness, twice, and each request alone.

use std::fmt;

use policy_core::RequestPriority;

use super::check::{Checker, Violation};
use super::drive::{Outcome, Simulation};
use super::swarm::swarm;
use super::workload::Workload;
use crate::journal::{Chain, Header, Recorder};
use crate::scheduler::{Plan, SchedulerConfig};

/// What a verified run did: how much of what can happen did happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Steps taken.
    pub steps: u64,
    /// Sequences preempted for a seat.
    pub seat_preemptions: u64,
    /// Sequences preempted for blocks.
    pub block_preemptions: u64,
    /// Victims that freed nothing by themselves.
    pub sharing_victims: u64,
    /// Sequences admitted again after a preemption.
    pub resumes: u64,
    /// Resumes that found computed tokens.
    pub cached_resumes: u64,
    /// First admissions that found computed tokens.
    pub hits: u64,
    /// Blocks evicted.
    pub evictions: u64,
    /// Blocks copied.
    pub copies: u64,
    /// Requests that ended otherwise than whole.
    pub broken_off: u64,
}

impl Coverage {
    fn count(&mut self, plan: &Plan) {
        self.steps += u64::from(plan.step > 0);
        for preemption in &plan.preemptions {
            match preemption.need {
                policy_core::Need::Seat => self.seat_preemptions += 1,
                policy_core::Need::Blocks => self.block_preemptions += 1,
            }
            self.sharing_victims += u64::from(preemption.blocks_before == preemption.blocks_after);
        }
        for admission in &plan.admissions {
            let cached = u64::from(admission.cached_tokens > 0);
            if admission.preemptions > 0 {
                self.resumes += 1;
                self.cached_resumes += cached;
            } else {
                self.hits += cached;
            }
        }
        self.evictions += plan.evictions.len() as u64;
        self.copies += plan.copies.len() as u64;
    }

    /// The sum of two.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.seat_preemptions += other.seat_preemptions;
        self.block_preemptions += other.block_preemptions;
        self.sharing_victims += other.sharing_victims;
        self.resumes += other.resumes;
        self.cached_resumes += other.cached_resumes;
        self.hits += other.hits;
        self.evictions += other.evictions;
        self.copies += other.copies;
        self.broken_off += other.broken_off;
    }
}

/// A seed that broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What broke.
    pub violation: Violation,
    /// The step's inputs and plan.
    pub detail: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\n{}", self.seed, self.violation, self.detail)
    }
}

impl std::error::Error for Failure {}

/// Verifies the swarm of one seed.
///
/// # Errors
/// The first promise that does not hold.
pub fn verify_seed(seed: u64, requests: u32) -> Result<Coverage, Failure> {
    let (config, workload) = swarm(seed, requests);
    verify(&config, &workload).map_err(|(violation, detail)| Failure {
        seed,
        violation,
        detail,
    })
}

/// Verifies one load under one configuration.
///
/// # Errors
/// The first promise that does not hold, and the step in which it did not.
pub fn verify(
    config: &SchedulerConfig,
    workload: &Workload,
) -> Result<Coverage, (Violation, String)> {
    let (coverage, outcomes, chain) = run_checked(config, workload)?;
    let plain = |what: String| {
        let step = coverage.steps;
        (Violation { step, what }, String::new())
    };
    if run_again(config, workload) != chain {
        return Err(plain(
            "the same load gave another chain of records".to_owned(),
        ));
    }
    for (place, outcome) in outcomes.iter().enumerate() {
        let alone = alone(config, workload, place);
        let same = if outcome.is_whole() {
            alone.tokens == outcome.tokens
        } else {
            alone.tokens.starts_with(&outcome.tokens)
        };
        if !same {
            return Err(plain(format!(
                "request {place} has other tokens than it has alone"
            )));
        }
    }
    Ok(coverage)
}

type Run = (Coverage, Vec<Outcome>, Chain);

fn run_checked(config: &SchedulerConfig, workload: &Workload) -> Result<Run, (Violation, String)> {
    let mut simulation = Simulation::new(config.clone(), workload.clone())
        .map_err(|error| (violation(0, error.to_string()), String::new()))?;
    let mut checker = Checker::new(config.clone());
    let mut recorder = recorder(config);
    let mut coverage = Coverage::default();
    let mut left = None;
    while !simulation.is_done() {
        simulation.step();
        let Simulation {
            inputs,
            plan,
            scheduler,
            ..
        } = &simulation;
        checker
            .check(&simulation)
            .map_err(|violation| (violation, format!("{inputs:?}\n{plan:?}")))?;
        recorder.append(inputs, plan, scheduler);
        coverage.count(plan);
        if simulation.has_arrived() {
            let bound = *left.get_or_insert_with(|| drain_bound(&simulation));
            left = Some(bound.saturating_sub(1));
            if bound == 0 {
                let what = "the load did not drain within its bound".to_owned();
                return Err((violation(plan.step, what), String::new()));
            }
        }
    }
    checker
        .check_end(workload.requests.len())
        .and_then(|()| check_waits(config, workload, &simulation.outcomes))
        .map_err(|violation| (violation, String::new()))?;
    coverage.broken_off = simulation.outcomes.iter().filter(|o| !o.is_whole()).count() as u64;
    Ok((coverage, simulation.outcomes, recorder.chain()))
}

fn violation(step: u64, what: String) -> Violation {
    Violation { step, what }
}

fn recorder(config: &SchedulerConfig) -> Recorder {
    Recorder::new(&Header::new(config.clone(), "", ""))
}

fn run_again(config: &SchedulerConfig, workload: &Workload) -> Chain {
    let mut recorder = recorder(config);
    if let Ok(mut simulation) = Simulation::new(config.clone(), workload.clone()) {
        while !simulation.is_done() {
            simulation.step();
            recorder.append(&simulation.inputs, &simulation.plan, &simulation.scheduler);
        }
    }
    recorder.chain()
}

/// Steps within which what is live ends once nothing more arrives.
///
/// The most important live request is admitted at the latest when those that run have drained: each
/// of them is in turn the most important that runs, which advances in every step, and so ends within
/// as many steps as it may have tokens. Then it runs, is nobody's victim, and ends in as many.
fn drain_bound(simulation: &Simulation) -> u64 {
    let config = simulation.scheduler.config();
    let live = simulation.scheduler.num_waiting() + simulation.scheduler.num_running();
    let turns = u64::from(config.max_num_seqs) + 1;
    (live as u64 + 1) * turns * u64::from(config.max_model_len)
}

/// With ageing on, a request is overtaken only by what arrives in a stated number of steps; behind
/// those ahead of it by then, it is admitted when they and what runs have ended.
fn check_waits(
    config: &SchedulerConfig,
    workload: &Workload,
    outcomes: &[Outcome],
) -> Result<(), Violation> {
    let aging = u64::from(config.priority_aging_steps);
    if aging == 0 {
        return Ok(());
    }
    let longest = u64::from(config.max_model_len);
    for (place, outcome) in outcomes.iter().enumerate() {
        let Some((arrived, admitted)) = outcome.arrived_step.zip(outcome.first_admitted_step)
        else {
            continue;
        };
        let overtaken = aging
            * match workload.requests[place].priority {
                RequestPriority::High => 0,
                RequestPriority::Normal => 1,
                RequestPriority::Low => 2,
            };
        let ahead = outcomes
            .iter()
            .filter(|other| {
                other
                    .arrived_step
                    .is_some_and(|step| step <= arrived + overtaken)
                    && other.released.is_none_or(|(step, _)| step >= arrived)
            })
            .count() as u64;
        let turns = u64::from(config.max_num_seqs) + 1;
        let bound = overtaken + (ahead + 1) * turns * longest;
        if admitted - arrived > bound {
            let waited = admitted - arrived;
            let what =
                format!("request {place} waited {waited} steps, and at most {bound} are promised");
            return Err(violation(admitted, what));
        }
    }
    Ok(())
}

/// What becomes of one request when it is the only one.
fn alone(config: &SchedulerConfig, workload: &Workload, place: usize) -> Outcome {
    let mut request = workload.requests[place].clone();
    request.cancel_step = None;
    request.expire_step = None;
    request.step = 1;
    // A prompt is made from a place, or from that of the first choice: so it keeps its own here.
    request.sibling_of.get_or_insert(place as u32);
    let requests = vec![request];
    let Ok(mut simulation) = Simulation::new(config.clone(), Workload { requests }) else {
        return Outcome::default();
    };
    while !simulation.is_done() {
        simulation.step();
    }
    simulation.outcomes.pop().unwrap_or_default()
}
