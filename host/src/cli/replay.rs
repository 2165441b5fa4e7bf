//! `lockstep replay`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::CliError;
use crate::journal::{self, ReplayReport};

/// The arguments of `lockstep replay`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The journal.
    #[arg(env = "LOCKSTEP_REPLAY_FILE", value_name = "FILE")]
    file: PathBuf,
    /// Prints the result as JSON.
    #[arg(long, env = "LOCKSTEP_REPLAY_JSON")]
    json: bool,
}

/// Runs it: success where every plan is equal.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
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
