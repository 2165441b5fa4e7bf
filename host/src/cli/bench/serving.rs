//! `lockstep bench serve`: a server under load, and its latencies.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::runtime::Runtime;

use super::super::CliError;
use super::client::HttpClient;
use super::load::{self, Arrivals};
use super::prompts::{PromptForm, PromptSource};
use super::server::LocalServer;
use super::statistics::{Durations, Summary};
use super::svg::{self, Chart, Series};
use super::target::{Target, Work};
use crate::config::EngineArgs;

/// Which server a load is for.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// The model of a server that is started here; every flag of the engine counts as its variable says
    #[arg(long, env = "LOCKSTEP_MODEL", required_unless_present = "url")]
    model: Option<String>,
    /// A server that runs already: `http://host:port`, with OpenAI's API
    #[arg(long, env = "LOCKSTEP_BENCH_URL")]
    pub(super) url: Option<String>,
    /// Threads that compute, of a server that is started here [default: the processors that this process may use]
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = crate::config::parse_threads)]
    threads: Option<usize>,
    /// What requests call the model [default: the first name that the server lists]
    #[arg(long, env = "LOCKSTEP_BENCH_SERVED_MODEL_NAME")]
    served_model_name: Option<String>,
    /// Where requests go: `/v1/completions` or `/v1/chat/completions`
    #[arg(
        long,
        env = "LOCKSTEP_BENCH_ENDPOINT",
        default_value = "/v1/completions"
    )]
    endpoint: String,
    /// Further fields of every request, as a JSON object: `{"cache_prompt": false}`
    #[arg(long, env = "LOCKSTEP_BENCH_EXTRA_BODY", value_parser = parse_object)]
    extra_body: Option<Map<String, Value>>,
    /// The API key of the server
    #[arg(long, env = "LOCKSTEP_BENCH_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
}

/// How prompts are written.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct PromptArgs {
    /// How prompts are written: as text, so that the tokenizer is measured too, or as ids
    #[arg(
        long,
        env = "LOCKSTEP_BENCH_PROMPTS",
        value_enum,
        default_value = "text"
    )]
    prompts: PromptForm,
    /// Ids of prompts are below this
    #[arg(long, env = "LOCKSTEP_BENCH_VOCAB_SIZE", default_value_t = 30_000)]
    vocab_size: u32,
    /// What every prompt depends on
    #[arg(long, env = "LOCKSTEP_BENCH_SEED", default_value_t = 0)]
    seed: u32,
}

/// The arguments of `lockstep bench serve`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    prompts: PromptArgs,
    /// Requests that are answered at a time
    #[arg(
        long,
        alias = "max-concurrency",
        env = "LOCKSTEP_BENCH_CONCURRENCY",
        default_value_t = 8
    )]
    concurrency: usize,
    /// Requests that arrive a second (a Poisson process), however many are being answered
    #[arg(long, env = "LOCKSTEP_BENCH_REQUEST_RATE", value_parser = parse_rate)]
    request_rate: Option<f64>,
    /// Tokens of each prompt; of text, words
    #[arg(
        long,
        alias = "random-input-len",
        env = "LOCKSTEP_BENCH_INPUT_TOKENS",
        default_value_t = 64
    )]
    input_tokens: usize,
    /// Tokens of each answer
    #[arg(
        long,
        alias = "random-output-len",
        env = "LOCKSTEP_BENCH_OUTPUT_TOKENS",
        default_value_t = 64
    )]
    output_tokens: u32,
    /// Requests that are measured
    #[arg(
        long,
        alias = "num-prompts",
        env = "LOCKSTEP_BENCH_REQUESTS",
        default_value_t = 96
    )]
    requests: usize,
    /// Requests that are sent before, and not measured
    #[arg(
        long,
        alias = "num-warmups",
        env = "LOCKSTEP_BENCH_WARMUPS",
        default_value_t = 8
    )]
    warmups: usize,
    /// Prints JSON instead of a table
    #[arg(long, env = "LOCKSTEP_BENCH_JSON")]
    json: bool,
    /// Draws the distribution of the latencies into this file
    #[arg(long, env = "LOCKSTEP_BENCH_SVG")]
    svg: Option<PathBuf>,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let session = Session::open(&args.server)?;
    let summary = session.measure(&args);
    if let Some(path) = &args.svg {
        std::fs::write(path, picture(&args, &summary))?;
    }
    report(&args, &session, &summary);
    session.close()?;
    Ok(match summary.failures.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A server to drive, and a runtime to drive it from.
pub(super) struct Session {
    runtime: Runtime,
    /// The server, over HTTP.
    pub(super) target: Arc<Target>,
    /// The server, if it was started here.
    pub(super) server: Option<LocalServer>,
}

impl Session {
    /// Starts the server, or finds the one that runs.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn open(args: &ServerArgs) -> Result<Self, CliError> {
        Self::open_with(args, |_| {})
    }

    /// The same, with a server whose arguments `change` may change.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn open_with(
        args: &ServerArgs,
        change: impl FnOnce(&mut EngineArgs),
    ) -> Result<Self, CliError> {
        let server = match (&args.url, &args.model) {
            (None, Some(model)) => {
                let mut engine = EngineArgs::for_model(model);
                engine.threads = args.threads.or(engine.threads);
                change(&mut engine);
                Some(LocalServer::start(&engine)?)
            }
            _ => None,
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let url = server.as_ref().map(|server| server.url.clone());
        let url = url.or_else(|| args.url.clone()).unwrap_or_default();
        let extra = args.extra_body.clone().unwrap_or_default();
        let mut client = HttpClient::new(&url, &args.endpoint, extra, args.api_key.clone())?;
        client.model = match &args.served_model_name {
            Some(name) => name.clone(),
            None => runtime.block_on(client.first_model())?,
        };
        Ok(Self {
            runtime,
            target: Arc::new(Target::Http(client)),
            server,
        })
    }

    /// Ends the server if it was started here.
    ///
    /// # Errors
    /// Why it failed.
    pub(super) fn close(self) -> Result<(), CliError> {
        self.runtime
            .shutdown_timeout(std::time::Duration::from_secs(1));
        drop(self.target);
        self.server.map_or(Ok(()), LocalServer::stop)
    }

    fn measure(&self, args: &Args) -> Summary {
        let source = args.prompts.source();
        let work = |numbers: std::ops::Range<usize>| -> Vec<Work> {
            let prompts = numbers.map(|number| source.prompt(number, args.input_tokens));
            let output_tokens = args.output_tokens;
            prompts
                .map(|prompt| Work {
                    prompt,
                    output_tokens,
                })
                .collect()
        };
        let concurrency = Arrivals::Concurrency(args.concurrency);
        let arrivals = args.request_rate.map_or(concurrency, Arrivals::Rate);
        let warmups = work(args.requests..args.requests + args.warmups);
        self.run(&self.target, warmups, concurrency);
        self.run(&self.target, work(0..args.requests), arrivals)
    }

    /// Runs a future to its end.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Runs a load against a target.
    pub(super) fn run(&self, target: &Arc<Target>, work: Vec<Work>, arrivals: Arrivals) -> Summary {
        let (timelines, elapsed) = self.runtime.block_on(load::run(target, work, arrivals));
        Summary::new(&timelines, elapsed)
    }
}

impl PromptArgs {
    /// Where prompts come from.
    pub(super) fn source(&self) -> PromptSource {
        PromptSource {
            form: self.prompts,
            vocab_size: self.vocab_size,
            seed: self.seed,
        }
    }
}

/// Points of a distribution's line.
const POINTS: u32 = 100;

fn picture(args: &Args, summary: &Summary) -> String {
    let series = |(name, durations): (&str, &Durations)| {
        let percents = (0..=POINTS).map(|i| f64::from(i * 100 / POINTS));
        let point = |percent| (durations.percentile(percent).max(0.1), percent);
        Series {
            name: name.to_owned(),
            points: percents.map(point).collect(),
        }
    };
    svg::document(&[Chart {
        title: match args.request_rate {
            Some(rate) => format!("Latencies, {rate} requests a second"),
            None => format!("Latencies, {} requests at a time", args.concurrency),
        },
        x: "ms",
        y: "% of requests (ITL: of tokens) within",
        series: summary.latencies().map(series).into(),
    }])
}

fn report(args: &Args, session: &Session, summary: &Summary) {
    if let Some(error) = summary.failures.first() {
        let count = summary.failures.len();
        eprintln!("lockstep: {count} requests failed, the first with: {error}");
    }
    if args.json {
        let mut json = summary.json();
        json["max_concurrency"] = json!(args.request_rate.is_none().then_some(args.concurrency));
        json["request_rate"] = json!(args.request_rate);
        json["num_prompts"] = json!(args.requests);
        if let Some(server) = &session.server {
            json["start_seconds"] = json!(server.started_in.as_secs_f64());
        }
        say!("{json}");
        return;
    }
    match args.request_rate {
        Some(rate) => say!("{} requests, {rate} a second", args.requests),
        None => say!("{} requests, {} at a time", args.requests, args.concurrency),
    }
    say!("{}", summary.table());
}

fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("not a JSON object: {error}"))
}

pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    rate.filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| format!("{text} is no number above 0"))
}
