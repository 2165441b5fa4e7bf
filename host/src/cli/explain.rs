//! `lockstep explain`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::CliError;
use crate::journal;
use crate::request::RequestId;

/// The arguments of `lockstep explain`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The journal.
    #[arg(env = "LOCKSTEP_EXPLAIN_FILE", value_name = "FILE")]
    file: PathBuf,
    /// The request's number, as its stream and the log name it.
    #[arg(env = "LOCKSTEP_EXPLAIN_REQUEST", value_name = "REQUEST")]
    request: u64,
    /// Prints the account as JSON.
    #[arg(long, env = "LOCKSTEP_EXPLAIN_JSON")]
    json: bool,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let account = journal::explain(&args.file, RequestId::new(args.request))?;
    if args.json {
        say!("{}", serde_json::to_string(&account)?);
    } else {
        for sentence in account.sentences() {
            say!("{sentence}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
