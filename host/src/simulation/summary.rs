//! What a load took under a configuration, in one line of a table.

use std::fmt::Write as _;

use policy_core::RequestPriority;
use serde::Serialize;

use super::drive::Simulation;
use super::workload::Workload;
use crate::scheduler::{ConfigError, ReleaseCause, SchedulerConfig};

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What the run is called.
    pub name: String,
    /// Requests of the load.
    pub requests: usize,
    /// Requests whose answer is whole.
    pub finished: usize,
    /// Steps until all had ended, idle ones left out.
    pub steps: u64,
    /// Tokens computed.
    pub computed_tokens: u64,
    /// Of these, tokens that had been computed before.
    pub recomputed_tokens: u64,
    /// Tokens that the prefix cache or a sibling gave at first admissions.
    pub cached_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// The most preemptions of one request.
    pub most_preemptions: u32,
    /// The longest wait for a first seat, in steps: of High, Normal and Low requests.
    pub longest_wait: [u64; 3],
    /// The mean time from arrival to end, in steps: of High, Normal and Low requests that finished.
    pub mean_turnaround: [f64; 3],
    /// Jain's index over the stretch (time from arrival to end, by the tokens generated) of the
    /// requests that finished: 1 where all are stretched alike.
    pub fairness: f64,
}

/// Runs a load to its end, and sums it up.
///
/// # Errors
/// Where the limits do not hold.
pub fn summarize(
    name: &str,
    config: &SchedulerConfig,
    workload: &Workload,
) -> Result<Summary, ConfigError> {
    let mut simulation = Simulation::new(config.clone(), workload.clone())?;
    while !simulation.is_done() {
        simulation.step();
    }
    Ok(Summary::new(name, &simulation))
}

impl Summary {
    /// The figures of a run that is done.
    pub fn new(name: &str, simulation: &Simulation) -> Self {
        let outcomes = &simulation.outcomes;
        let releases = || outcomes.iter().filter_map(|outcome| outcome.released);
        let sum = |of: fn(&super::Outcome) -> u64| outcomes.iter().map(of).sum();
        let mut summary = Self {
            name: name.to_owned(),
            requests: outcomes.len(),
            finished: outcomes.iter().filter(|outcome| outcome.is_whole()).count(),
            steps: simulation.scheduler.num_steps(),
            computed_tokens: sum(|outcome| outcome.computed_tokens),
            recomputed_tokens: sum(|outcome| outcome.recomputed_tokens),
            cached_tokens: releases().map(|(_, r)| u64::from(r.cached_tokens)).sum(),
            preemptions: releases().map(|(_, r)| u64::from(r.preemptions)).sum(),
            most_preemptions: releases().map(|(_, r)| r.preemptions).max().unwrap_or(0),
            longest_wait: [0; 3],
            mean_turnaround: [0.0; 3],
            fairness: 1.0,
        };
        summary.add_times(simulation);
        summary
    }

    fn add_times(&mut self, simulation: &Simulation) {
        let mut turnarounds = [(0_u64, 0_u64); 3];
        let mut stretches = Vec::new();
        let requests = &simulation.workload().requests;
        for (request, outcome) in requests.iter().zip(&simulation.outcomes) {
            let Some((arrived, (ended, release))) = outcome.arrived_step.zip(outcome.released)
            else {
                continue;
            };
            let class = class(request.priority);
            if let ReleaseCause::Rejected(_) = release.cause {
                continue;
            }
            let waited = outcome.first_admitted_step.unwrap_or(ended) - arrived;
            self.longest_wait[class] = self.longest_wait[class].max(waited);
            if outcome.is_whole() {
                let (sum, count) = &mut turnarounds[class];
                *sum += ended - arrived;
                *count += 1;
                let tokens = f64::from(release.generated_tokens.max(1));
                stretches.push((ended - arrived) as f64 / tokens);
            }
        }
        for (mean, (sum, count)) in self.mean_turnaround.iter_mut().zip(turnarounds) {
            *mean = sum as f64 / count.max(1) as f64;
        }
        self.fairness = jain(&stretches);
    }
}

fn class(priority: RequestPriority) -> usize {
    match priority {
        RequestPriority::High => 0,
        RequestPriority::Normal => 1,
        RequestPriority::Low => 2,
    }
}

/// Jain's fairness index (Jain, Chiu and Hawe, 1984): (sum x)^2 / (n x sum x^2).
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (values.len() as f64 * squares)
    }
}

/// The table of several runs, one line each.
pub fn table(summaries: &[Summary]) -> String {
    let longest = summaries.iter().map(|s| s.name.len()).max().unwrap_or(0);
    let width = longest.max("run".len());
    let mut table = format!(
        "{:width$}  {:>9} {:>6} {:>9} {:>9} {:>8} {:>9} {:>5}  {:>20}  {:>23}  {:>8}\n",
        "run",
        "finished",
        "steps",
        "computed",
        "again",
        "cached",
        "preempted",
        "most",
        "longest wait H/N/L",
        "mean turnaround H/N/L",
        "fairness"
    );
    for summary in summaries {
        let finished = format!("{}/{}", summary.finished, summary.requests);
        let waits = summary.longest_wait.map(|wait| wait.to_string()).join("/");
        let turnarounds = summary
            .mean_turnaround
            .map(|mean| format!("{mean:.1}"))
            .join("/");
        let _ = writeln!(
            table,
            "{:width$}  {:>9} {:>6} {:>9} {:>9} {:>8} {:>9} {:>5}  {:>20}  {:>23}  {:>8.3}",
            summary.name,
            finished,
            summary.steps,
            summary.computed_tokens,
            summary.recomputed_tokens,
            summary.cached_tokens,
            summary.preemptions,
            summary.most_preemptions,
            waits,
            turnarounds,
            summary.fairness,
        );
    }
    table
}
