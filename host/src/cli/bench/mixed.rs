//! `lockstep bench mixed`: how far long prompts that arrive hold up the streams that run.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::CliError;
use super::load::arrival_times;
use super::prompts::PromptSource;
use super::serving::{PromptArgs, ServerArgs, Session, parse_rate};
use super::statistics::{Durations, gaps};
use super::svg::{self, Chart, Series};
use super::target::{Target, Timeline, Work};
use crate::clock::{self, Moment};

/// Tokens of a stream's own prompt.
const STREAM_PROMPT: usize = 16;
/// Tokens that an arriving prompt is answered with.
const ANSWER: u32 = 8;

/// The arguments of `lockstep bench mixed`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    prompts: PromptArgs,
    /// Streams that generate all the time
    #[arg(long, env = "LOCKSTEP_BENCH_MIXED_STREAMS", default_value_t = 8)]
    streams: usize,
    /// Tokens of each of a stream's answers; the next one begins when it ends
    #[arg(long, env = "LOCKSTEP_BENCH_OUTPUT_TOKENS", default_value_t = 512)]
    output_tokens: u32,
    /// Tokens of each prompt that arrives
    #[arg(long, env = "LOCKSTEP_BENCH_INPUT_TOKENS", default_value_t = 512)]
    input_tokens: usize,
    /// Prompts that arrive a second (a Poisson process)
    #[arg(long, env = "LOCKSTEP_BENCH_REQUEST_RATE", value_parser = parse_rate, default_value = "0.4")]
    request_rate: f64,
    /// How long each measurement takes, in seconds
    #[arg(long, env = "LOCKSTEP_BENCH_SECONDS", default_value_t = 20)]
    seconds: u32,
    /// Chunk sizes to compare: a server is started here for each [default: what `serve` has]
    #[arg(
        long,
        env = "LOCKSTEP_BENCH_MIXED_MAX_CHUNK_TOKENS",
        value_delimiter = ',',
        conflicts_with = "url"
    )]
    max_chunk_tokens: Vec<u32>,
    /// Prints JSON instead of a table
    #[arg(long, env = "LOCKSTEP_BENCH_JSON")]
    json: bool,
    /// Draws a picture into this file
    #[arg(long, env = "LOCKSTEP_BENCH_SVG")]
    svg: Option<PathBuf>,
}

/// What was measured with one chunk size.
struct Measured {
    /// The chunk size, where it is known.
    chunk: Option<u32>,
    /// Between the tokens of the streams.
    itl: Durations,
    /// Of the prompts that arrived.
    ttft: Durations,
    /// Of the streams.
    tokens_per_second: f64,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let sizes: Vec<Option<u32>> = match args.max_chunk_tokens.is_empty() {
        true => vec![None],
        false => args.max_chunk_tokens.iter().copied().map(Some).collect(),
    };
    let mut measured = Vec::new();
    for chunk in sizes {
        let session = Session::open_with(&args.server, |engine| {
            engine.max_chunk_tokens = chunk.unwrap_or(engine.max_chunk_tokens);
        })?;
        let found = args.measure(&session)?;
        let config = session.server.as_ref().map(|server| &server.running.config);
        measured.push(Measured {
            chunk: config.map(|config| config.max_chunk_tokens),
            ..found
        });
        session.close()?;
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, picture(&measured))?;
    }
    args.report(&measured);
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn measure(&self, session: &Session) -> Result<Measured, CliError> {
        let window = Duration::from_secs(self.seconds.into());
        let (streams, prompts) = session.block_on(self.drive(&session.target, window));
        let all = || streams.iter().chain(&prompts);
        if let Some(error) = all().find_map(|timeline| timeline.error.as_ref()) {
            return Err(format!("a request failed: {error}").into());
        }
        let inside = |timeline: &Timeline| Timeline {
            tokens: timeline
                .tokens
                .iter()
                .copied()
                .filter(|at| *at < window)
                .collect(),
            ..Timeline::default()
        };
        let streams: Vec<Timeline> = streams.iter().map(inside).collect();
        let tokens: usize = streams.iter().map(|stream| stream.tokens.len()).sum();
        let first = |t: &Timeline| t.tokens.first().map(|first| *first - t.sent);
        Ok(Measured {
            chunk: None,
            itl: streams.iter().flat_map(gaps).collect(),
            ttft: prompts.iter().filter_map(first).collect(),
            tokens_per_second: tokens as f64 / window.as_secs_f64(),
        })
    }

    /// The timelines of the streams' answers and of the prompts.
    async fn drive(
        &self,
        target: &Arc<Target>,
        window: Duration,
    ) -> (Vec<Timeline>, Vec<Timeline>) {
        let (source, begun) = (self.prompts.source(), clock::now());
        let mut streams = JoinSet::new();
        for stream in 0..self.streams {
            let ask = Ask {
                target: Arc::clone(target),
                source,
                begun,
            };
            let output_tokens = self.output_tokens;
            streams.spawn(async move {
                let mut answers = Vec::new();
                while begun.elapsed() < window {
                    let number = answers.len() << 16 | stream;
                    answers.push(ask.send(number, STREAM_PROMPT, output_tokens).await);
                }
                answers
            });
        }
        let mut prompts = JoinSet::new();
        let count = (self.request_rate * window.as_secs_f64()).ceil() as usize;
        let due = arrival_times(count, self.request_rate)
            .into_iter()
            .enumerate();
        for (number, due) in due.filter(|(_, due)| *due < window) {
            let ask = Ask {
                target: Arc::clone(target),
                source,
                begun,
            };
            let tokens = self.input_tokens;
            prompts.spawn(async move {
                tokio::time::sleep(due.saturating_sub(begun.elapsed())).await;
                ask.send(number | 1 << 15, tokens, ANSWER).await
            });
        }
        let prompts = prompts.join_all().await;
        let streams = streams.join_all().await;
        (streams.into_iter().flatten().collect(), prompts)
    }

    fn report(&self, measured: &[Measured]) {
        if self.json {
            let all: Vec<Value> = measured.iter().map(Measured::json).collect();
            say!("{}", Value::from(all));
            return;
        }
        say!(
            "{} streams; prompts of {} tokens, {} a second, for {} s; ms",
            self.streams,
            self.input_tokens,
            self.request_rate,
            self.seconds
        );
        let head = [
            "ITL p50", "ITL p90", "ITL p99", "p99.9", "max", "TTFT p50", "max",
        ];
        let head = head.map(|name| format!("{name:>10}")).concat();
        say!("{:>8}{head}{:>10}", "chunk", "tokens/s");
        for m in measured {
            let chunk = m.chunk.map_or("?".to_owned(), |chunk| chunk.to_string());
            let itl = [50.0, 90.0, 99.0, 99.9, 100.0].map(|p| m.itl.percentile(p));
            let ttft = [50.0, 100.0].map(|p| m.ttft.percentile(p));
            let cells = itl.iter().chain(&ttft).map(|ms| format!("{ms:10.1}"));
            let cells: String = cells.collect();
            say!("{chunk:>8}{cells}{:10.1}", m.tokens_per_second);
        }
    }
}

impl Measured {
    fn json(&self) -> Value {
        json!({
            "max_chunk_tokens": self.chunk,
            "median_itl_ms": self.itl.percentile(50.0),
            "p90_itl_ms": self.itl.percentile(90.0),
            "p99_itl_ms": self.itl.percentile(99.0),
            "p99.9_itl_ms": self.itl.percentile(99.9),
            "max_itl_ms": self.itl.percentile(100.0),
            "median_ttft_ms": self.ttft.percentile(50.0),
            "max_ttft_ms": self.ttft.percentile(100.0),
            "output_throughput": self.tokens_per_second,
        })
    }
}

/// How a task asks.
struct Ask {
    target: Arc<Target>,
    source: PromptSource,
    begun: Moment,
}

impl Ask {
    async fn send(&self, number: usize, tokens: usize, output_tokens: u32) -> Timeline {
        let prompt = self.source.prompt(number, tokens);
        let work = Work {
            prompt,
            output_tokens,
        };
        self.target.send(work, self.begun).await
    }
}

fn picture(measured: &[Measured]) -> String {
    let series = |name: &str, value: &dyn Fn(&Measured) -> f64| Series {
        name: name.to_owned(),
        points: measured
            .iter()
            .filter_map(|m| Some((f64::from(m.chunk?), value(m))))
            .collect(),
    };
    svg::document(&[Chart {
        title: "Between tokens while prompts arrive".to_owned(),
        x: "max-chunk-tokens",
        y: "ms",
        series: vec![
            series("p50", &|m| m.itl.percentile(50.0)),
            series("p99", &|m| m.itl.percentile(99.0)),
            series("p99.9", &|m| m.itl.percentile(99.9)),
        ],
    }])
}
