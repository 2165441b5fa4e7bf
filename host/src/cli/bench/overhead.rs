//! `lockstep bench overhead`: what HTTP and the tokenizer cost, against the bare engine.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;

use super::super::CliError;
use super::load::Arrivals;
use super::prompts::Prompt;
use super::serving::{PromptArgs, ServerArgs, Session};
use super::statistics::Summary;
use super::target::{Target, Work};
use crate::tokenizer::{Encoding, Tokenizer};

/// The arguments of `lockstep bench overhead`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    prompts: PromptArgs,
    /// Requests that are answered at a time
    #[arg(long, env = "LOCKSTEP_BENCH_CONCURRENCY", default_value_t = 8)]
    concurrency: usize,
    /// Words of each prompt
    #[arg(long, env = "LOCKSTEP_BENCH_INPUT_TOKENS", default_value_t = 64)]
    input_tokens: usize,
    /// Tokens of each answer
    #[arg(long, env = "LOCKSTEP_BENCH_OUTPUT_TOKENS", default_value_t = 64)]
    output_tokens: u32,
    /// Requests of each load
    #[arg(long, env = "LOCKSTEP_BENCH_REQUESTS", default_value_t = 48)]
    requests: usize,
    /// How often each load is run, by turns; medians are reported
    #[arg(long, env = "LOCKSTEP_BENCH_REPEATS", default_value_t = 5)]
    repeats: usize,
    /// Prints JSON instead of a table
    #[arg(long, env = "LOCKSTEP_BENCH_JSON")]
    json: bool,
}

/// The seconds that one load took, over the engine's door and over HTTP.
#[derive(Debug, Default)]
struct Took {
    inside: Vec<f64>,
    http: Vec<f64>,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let session = Session::open(&args.server)?;
    let server = session.server.as_ref();
    let server = server.ok_or("the bare engine of a server elsewhere is out of reach: --model")?;
    let inside = Arc::new(Target::Intake(server.running.intake.clone()));
    let tokenizer = Arc::clone(&server.running.text.tokenizer);
    let (mut long, mut short) = (Took::default(), Took::default());
    let mut first = 0;
    let mut once = |target: &Arc<Target>, output_tokens: u32| -> Result<f64, CliError> {
        // No two loads share a prompt: the prefix cache would know it.
        let ids = Arc::ptr_eq(target, &inside).then_some(&*tokenizer);
        let work = args.work(first, output_tokens, ids)?;
        first += args.requests;
        seconds(session.run(target, work, Arrivals::Concurrency(args.concurrency)))
    };
    once(&inside, args.output_tokens)?;
    once(&session.target, args.output_tokens)?;
    for _ in 0..args.repeats.max(1) {
        for (took, tokens) in [(&mut long, args.output_tokens), (&mut short, 1)] {
            took.inside.push(once(&inside, tokens)?);
            took.http.push(once(&session.target, tokens)?);
        }
    }
    drop(inside);
    session.close()?;
    args.report(long.medians(), short.medians());
    Ok(ExitCode::SUCCESS)
}

fn seconds(summary: Summary) -> Result<f64, CliError> {
    match summary.failures.first() {
        Some(error) => Err(format!("a request failed: {error}").into()),
        None => Ok(summary.elapsed.as_secs_f64()),
    }
}

impl Args {
    /// The requests of a load, as text, or as the ids that the tokenizer makes of it.
    fn work(
        &self,
        first: usize,
        output_tokens: u32,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Vec<Work>, CliError> {
        let source = self.prompts.source();
        let mut work = Vec::with_capacity(self.requests);
        for number in first..first + self.requests {
            let prompt = match (source.prompt(number, self.input_tokens), tokenizer) {
                (Prompt::Text(text), Some(tokenizer)) => {
                    Prompt::Ids(tokenizer.encode(&text, Encoding::default())?)
                }
                (prompt, _) => prompt,
            };
            work.push(Work {
                prompt,
                output_tokens,
            });
        }
        Ok(work)
    }

    fn report(&self, long: [f64; 2], short: [f64; 2]) {
        let requests = self.requests as f64;
        let gaps = requests * f64::from(self.output_tokens.saturating_sub(1).max(1));
        let per_request = (short[1] - short[0]) / requests * 1e6;
        let per_token = ((long[1] - long[0]) - (short[1] - short[0])) / gaps * 1e6;
        let share = 100.0 * (1.0 - long[0] / long[1]);
        let tokens = requests * f64::from(self.output_tokens);
        let rates = long.map(|seconds| tokens / seconds);
        if self.json {
            say!(
                "{}",
                json!({
                    "engine_tokens_per_second": rates[0],
                    "http_tokens_per_second": rates[1],
                    "overhead_percent": share,
                    "overhead_per_request_us": per_request,
                    "overhead_per_token_us": per_token,
                })
            );
            return;
        }
        say!("bare engine                {:10.1} tokens/s", rates[0]);
        say!("over HTTP, prompts as text {:10.1} tokens/s", rates[1]);
        say!("overhead                   {share:10.2} % of throughput");
        say!("  per request              {per_request:10.1} us");
        say!("  per token                {per_token:10.1} us");
    }
}

impl Took {
    fn medians(self) -> [f64; 2] {
        [self.inside, self.http].map(|mut all| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        })
    }
}
