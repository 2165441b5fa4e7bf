//! `lockstep pull`.

use std::process::ExitCode;

use super::CliError;
use crate::hub::{self, Environment};

/// The arguments of `lockstep pull`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An alias (such as smollm2-135m) or a repository of the Hugging Face hub, org/name[:quant|file].
    #[arg(env = "LOCKSTEP_MODEL")]
    model: String,
}

/// Fetches the model unless it is there, and prints its path.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let path = hub::pull(&Environment::of_process(), &args.model)?;
    say!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}
