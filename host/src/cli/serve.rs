//! `lockstep serve`.

use std::process::ExitCode;

use super::CliError;

/// The arguments of `lockstep serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

/// Runs it.
pub(super) fn run(_args: Args) -> Result<ExitCode, CliError> {
    Err("not built yet".into())
}
