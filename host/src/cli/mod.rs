//! The command line: one file per subcommand.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Prints a line; a reader that has gone, or a full disk, ends the command with a sentence.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::cli::write_out(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Prints without a line's end.
macro_rules! tell {
    ($($argument:tt)*) => {
        $crate::cli::write_out(format_args!($($argument)*))
    };
}

mod bench;
mod doctor;
mod drive;
mod explain;
mod inspect;
mod machine;
mod pull;
mod replay;
mod run;
mod serve;
mod simulate;

/// Why a command failed, in one sentence for its user.
pub type CliError = Box<dyn std::error::Error + Send + Sync>;

/// An LLM serving engine whose every answer and every decision can be reproduced.
#[derive(Debug, Parser)]
#[command(name = "lockstep", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serves a model over HTTP, with OpenAI's API.
    Serve(Box<serve::Args>),
    /// Answers one prompt, or chats, in the terminal.
    Run(run::Args),
    /// Fetches a model into the cache.
    Pull(pull::Args),
    /// Recomputes every plan of a journal and names the first difference.
    Replay(replay::Args),
    /// Tells the life of a request from a journal.
    Explain(explain::Args),
    /// Runs a workload through the scheduler, without a model.
    Simulate(simulate::Args),
    /// Says what a model file holds and the memory it will need.
    Inspect(inspect::Args),
    /// Measures how fast a model runs here.
    Bench(Box<bench::Args>),
    /// Proves here, with a model, that its logits depend on nothing but its tokens.
    Doctor(doctor::Args),
}

fn write_out(text: std::fmt::Arguments<'_>) {
    if let Err(error) = std::io::stdout().write_fmt(text) {
        eprintln!("lockstep: cannot write to standard output: {error}");
        std::process::exit(1);
    }
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = if matches!(cli.command, Command::Serve(_)) {
        "info"
    } else {
        "warn"
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    let result = match cli.command {
        Command::Serve(args) => serve::run(*args),
        Command::Run(args) => run::run(args),
        Command::Pull(args) => pull::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Bench(args) => bench::run(*args),
        Command::Doctor(args) => doctor::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("lockstep: {error}");
        ExitCode::FAILURE
    })
}
