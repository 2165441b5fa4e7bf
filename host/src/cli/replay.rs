//! `lockstep replay`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use policy_core::PreemptionPolicy;

use super::{CliError, simulate};
use crate::config::DeviceArgs;
use crate::engine;
use crate::journal::{self, JournalReader, ReplayReport};
use crate::scheduler::SchedulerConfig;
use crate::simulation::{recorded_load, summarize};
use crate::start::engine_for;

/// The arguments of `lockstep replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The journal; of one that was rotated, several of its files may be given, the oldest first.
    #[arg(
        env = "LOCKSTEP_REPLAY_FILE",
        value_name = "FILE",
        required = true,
        value_delimiter = ','
    )]
    files: Vec<PathBuf>,
    /// Asks what another preemption policy would have made of the same requests.
    #[arg(long, env = "LOCKSTEP_REPLAY_POLICY", value_name = "POLICY")]
    policy: Option<PreemptionPolicy>,
    /// Runs the model too and compares every token; needs `--model`.
    #[arg(
        long,
        env = "LOCKSTEP_REPLAY_TOKENS",
        requires = "model",
        conflicts_with = "policy"
    )]
    tokens: bool,
    /// The model that the journal was written with.
    #[arg(long, env = "LOCKSTEP_MODEL")]
    model: Option<String>,
    /// Threads that compute [default: the processors that this process may use]
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = crate::config::parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Prints the result as JSON.
    #[arg(long, env = "LOCKSTEP_REPLAY_JSON")]
    json: bool,
}

/// Runs it: success where every plan is equal.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    if let Some(policy) = args.policy {
        return what_if(whole(&args.files)?, policy, args.json);
    }
    if let Some(model) = args.model.as_ref().filter(|_| args.tokens) {
        return replay_tokens(&args, model);
    }
    let report = journal::replay_files(&args.files, |_, _| {})?;
    if args.json {
        say!("{}", serde_json::to_string(&report)?);
    } else {
        tell!("{}", describe(&report));
    }
    Ok(match report.difference {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

/// The one file, if it begins with the first step: what was live before it is not in it.
fn whole(files: &[PathBuf]) -> Result<&Path, CliError> {
    let [file] = files else {
        return Err("this takes one file".into());
    };
    if JournalReader::open(file)?.header().previous.is_some() {
        let file = file.display();
        return Err(format!("{file} continues an earlier file: this takes a first one").into());
    }
    Ok(file)
}

/// Draws every token again, and says which is the first that differs.
fn replay_tokens(args: &Args, model: &str) -> Result<ExitCode, CliError> {
    let file = whole(&args.files)?;
    let engine = engine_for(file, model, args.threads, &args.device)?;
    let report = engine::replay_tokens(file, engine)?;
    let equal = report.difference.is_none() && report.plans.difference.is_none();
    if args.json {
        say!("{}", serde_json::to_string(&report)?);
    } else {
        tell!("{}", describe(&report.plans));
        match &report.difference {
            None => say!("drew {} tokens again: every one is equal", report.tokens),
            Some(difference) => {
                say!(
                    "drew {} tokens again, and then: {difference}",
                    report.tokens
                );
            }
        }
    }
    Ok(if equal {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the journal's requests again, as it was and under another policy: the answers have the same
/// lengths, and whoever went away does so in the same step.
fn what_if(file: &Path, policy: PreemptionPolicy, json: bool) -> Result<ExitCode, CliError> {
    let load = recorded_load(file)?;
    if let Some(difference) = load.report.difference {
        return Err(format!("the journal does not replay: {difference}").into());
    }
    let (config, workload) = (load.config, load.workload);
    let other = SchedulerConfig {
        preemption_policy: policy,
        ..config.clone()
    };
    let recorded = name_recorded(config.preemption_policy, load.unended);
    if load.unended > 0 {
        eprintln!(
            "{} of {} requests had not ended where the journal ends: from there on both lines are simulated",
            load.unended,
            workload.requests.len()
        );
    }
    let summaries = [
        summarize(&recorded, &config, &workload)?,
        summarize(&format!("what if: {policy}"), &other, &workload)?,
    ];
    simulate::print(&summaries, json)?;
    Ok(ExitCode::SUCCESS)
}

/// What a journal holds only in part was not recorded to its end.
fn name_recorded(policy: PreemptionPolicy, unended: usize) -> String {
    match unended {
        0 => format!("recorded: {policy}"),
        _ => format!("recorded, then simulated: {policy}"),
    }
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
