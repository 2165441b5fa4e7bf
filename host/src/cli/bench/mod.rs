//! `lockstep bench`: how fast the model runs here, alone and behind its server.

mod client;
mod compute;
mod events;
mod load;
mod mixed;
mod operations;
mod overhead;
mod prompts;
mod server;
mod serving;
mod statistics;
mod svg;
mod target;

use std::process::ExitCode;

use super::CliError;

/// The arguments of `lockstep bench`: those of the model alone, or a subcommand.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    compute: compute::Args,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Drives a server over HTTP: this one, started here, or any with OpenAI's API.
    Serve(serving::Args),
    /// Compares the same load over HTTP and at the engine's door.
    Overhead(overhead::Args),
    /// Measures how far prompts that arrive hold up the streams that run.
    Mixed(mixed::Args),
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    match args.what {
        None => compute::run(args.compute),
        Some(What::Serve(args)) => serving::run(args),
        Some(What::Overhead(args)) => overhead::run(args),
        Some(What::Mixed(args)) => mixed::run(args),
    }
}
