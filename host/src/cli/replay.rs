//! `lockstep replay`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use policy_core::PreemptionPolicy;

use super::{CliError, simulate};
use crate::journal::{self, ReplayReport};
use crate::scheduler::SchedulerConfig;
use crate::simulation::{recorded_load, summarize};

/// The arguments of `lockstep replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The journal.
    #[arg(env = "LOCKSTEP_REPLAY_FILE", value_name = "FILE")]
    file: PathBuf,
    /// Asks what another preemption policy would have made of the same requests.
    #[arg(long, env = "LOCKSTEP_REPLAY_POLICY", value_name = "POLICY")]
    policy: Option<PreemptionPolicy>,
    /// Prints the result as JSON.
    #[arg(long, env = "LOCKSTEP_REPLAY_JSON")]
    json: bool,
}

/// Runs it: success where every plan is equal.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    if let Some(policy) = args.policy {
        return what_if(&args.file, policy, args.json);
    }
    let report = journal::replay(&args.file)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", describe(&report));
    }
    Ok(match report.difference {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

/// Runs the journal's requests again, as it was and under another policy: the answers have the same
/// lengths, and whoever went away does so in the same step.
fn what_if(file: &Path, policy: PreemptionPolicy, json: bool) -> Result<ExitCode, CliError> {
    let (config, workload, report) = recorded_load(file)?;
    if let Some(difference) = report.difference {
        return Err(format!("the journal does not replay: {difference}").into());
    }
    let other = SchedulerConfig {
        preemption_policy: policy,
        ..config.clone()
    };
    let recorded = format!("recorded: {}", config.preemption_policy);
    let summaries = [
        summarize(&recorded, &config, &workload)?,
        summarize(&format!("what if: {policy}"), &other, &workload)?,
    ];
    simulate::print(&summaries, json)?;
    Ok(ExitCode::SUCCESS)
}

fn describe(report: &ReplayReport) -> String {
    let mut text = match &report.difference {
        None => format!("replayed {} steps: every plan is equal\n", report.steps),
        Some(difference) => format!(
            "replayed {} steps, and then found a difference\n{difference}\n",
            report.steps
        ),
    };
    if let Some(bytes) = report.torn_bytes {
        text.push_str(&format!(
            "the last line was cut short ({bytes} bytes, ignored): the process ended while writing it\n"
        ));
    }
    text
}
