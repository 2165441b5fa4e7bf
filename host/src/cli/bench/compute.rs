//! `lockstep bench`: how fast the model computes here, without an engine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::CliError;
use super::super::drive::{Driver, Stream, arbitrary_tokens};
use super::operations::{self, Demands, Line, Peaks, Steps};
use super::svg::{self, Chart, Series};
use crate::backend::Isa;
use crate::batch::Forward;
use crate::cli::machine;
use crate::clock;
use crate::config::DeviceArgs;
use crate::gguf::Gguf;
use crate::model::{KvDtype, ModelConfig, ModelOptions, Numerics, Placement};
use crate::profile::Profile;
use crate::sampler::greedy;
use crate::start::request;

/// Positions of a block.
const BLOCK: usize = 16;
/// The most rows of a step of prompt.
const ROWS: usize = 512;

/// The arguments of `lockstep bench` without a subcommand.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A path, an alias of `lockstep pull`, or a Hugging Face repository in the local cache.
    #[arg(long, env = "LOCKSTEP_MODEL", required = true)]
    model: Option<String>,
    /// Threads that compute.
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = crate::config::parse_threads, default_value_t = 2)]
    threads: usize,
    /// Vector instructions: scalar, avx2, avx512, neon or neon-dotprod; the best that the machine has if not given.
    #[arg(long, env = "LOCKSTEP_BENCH_ISA")]
    isa: Option<Isa>,
    /// How keys and values are stored: f16 or f32.
    #[arg(long, env = "LOCKSTEP_KV_CACHE_DTYPE", default_value_t = KvDtype::F16)]
    kv_cache_dtype: KvDtype,
    /// Tokens of the prompt.
    #[arg(long, env = "LOCKSTEP_BENCH_PROMPT", default_value_t = 512)]
    prompt: usize,
    /// Tokens that each stream generates.
    #[arg(long, env = "LOCKSTEP_BENCH_GENERATE", default_value_t = 128)]
    generate: usize,
    /// Numbers of streams that decode together.
    #[arg(long, env = "LOCKSTEP_BENCH_STREAMS", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    streams: Vec<usize>,
    /// Tokens before those that each stream generates.
    #[arg(long, env = "LOCKSTEP_BENCH_CONTEXTS", value_delimiter = ',', default_values_t = [128])]
    contexts: Vec<usize>,
    /// How often each measurement is made, in rounds over all of them; medians are reported.
    #[arg(long, env = "LOCKSTEP_BENCH_REPEATS", default_value_t = 3)]
    repeats: usize,
    /// Tells the time of each operation as well, and the least that the machine would need for it.
    #[arg(long, env = "LOCKSTEP_BENCH_PROFILE")]
    profile: bool,
    /// Multiply-adds of bytes that the threads do at most, in G/s, for `--profile`.
    #[arg(long, env = "LOCKSTEP_BENCH_PEAK_INT8", default_value_t = 0.0)]
    peak_int8: f64,
    /// Multiply-adds of f32 that the threads do at most, in G/s, for `--profile`.
    #[arg(long, env = "LOCKSTEP_BENCH_PEAK_F32", default_value_t = 0.0)]
    peak_f32: f64,
    /// The numerics: `portable`, or `fast`, by the tensor cores of a GPU.
    #[arg(long, env = "LOCKSTEP_NUMERICS", default_value_t = Numerics::Portable)]
    numerics: Numerics,
    #[command(flatten)]
    device: DeviceArgs,
    /// Prints JSON instead of a table.
    #[arg(long, env = "LOCKSTEP_BENCH_JSON")]
    json: bool,
    /// Draws a picture into this file.
    #[arg(long, env = "LOCKSTEP_BENCH_SVG")]
    svg: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// A prompt, up to the logits of its last token.
    Prompt,
    /// So many streams that generate after a context of so many tokens.
    Decode { streams: usize, context: usize },
}

/// One measurement.
struct Measured {
    case: Case,
    tokens: usize,
    /// In seconds.
    took: Vec<f64>,
    lines: Vec<Line>,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let path = crate::hub::resolve(args.model())?;
    let begun = clock::now();
    let file = Gguf::open(&path)?;
    let (model, device) = args.load(&file)?;
    let loading = begun.elapsed();
    let config = ModelConfig::from_gguf(&file)?;
    let demands = Demands::of(&file, &config, args.kv_cache_dtype.bytes());
    let mut driver = Driver::new(model, BLOCK as u32);
    let mut measured: Vec<Measured> = args.cases().map(|case| args.empty(case)).collect();
    for _ in 0..args.repeats.max(1) {
        for measurement in &mut measured {
            let took = match measurement.case {
                Case::Prompt => args.prompt(&mut driver)?,
                Case::Decode { streams, context } => args.decode(&mut driver, streams, context)?,
            };
            measurement.took.push(took.as_secs_f64());
        }
    }
    if args.profile {
        // Once more with clocks: what was measured above had none.
        let peaks = args.peaks()?;
        if !args.json {
            say!(
                "memory: {:.1} GB/s read by {} threads",
                peaks.bandwidth,
                args.threads
            );
        }
        for measurement in &mut measured {
            measurement.lines = args.profile(&mut driver, measurement.case, &demands, &peaks)?;
        }
    }
    for measurement in &mut measured {
        measurement.took.sort_by(f64::total_cmp);
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, args.picture(&measured))?;
    }
    args.report(&device, loading, &measured);
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// The model: the parser insists on one.
    fn model(&self) -> &str {
        self.model.as_deref().unwrap_or_default()
    }

    fn cases(&self) -> impl Iterator<Item = Case> + '_ {
        let pairs = self.contexts.iter().flat_map(|&context| {
            let decode = move |&streams: &usize| Case::Decode { streams, context };
            self.streams.iter().map(decode)
        });
        (self.prompt > 0)
            .then_some(Case::Prompt)
            .into_iter()
            .chain(pairs)
    }

    fn empty(&self, case: Case) -> Measured {
        Measured {
            case,
            tokens: match case {
                Case::Prompt => self.prompt,
                Case::Decode { streams, .. } => streams * self.generate,
            },
            took: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The model where it is to compute, which has that name.
    fn load(&self, file: &Gguf) -> Result<(Box<dyn Forward>, String), CliError> {
        let most = self.streams.iter().copied().max().unwrap_or(1).max(1);
        let options = ModelOptions {
            threads: self.threads,
            isa: self.isa,
            kv_dtype: self.kv_cache_dtype,
            num_blocks: u32::try_from(most * self.blocks() as usize)?,
            max_rows: self.prompt.max(most).max(ROWS),
            block_size: BLOCK as u32,
            enforce_eager: self.device.enforce_eager,
            numerics: self.numerics,
            ..ModelOptions::default()
        };
        let placement = Placement::choose(file, &options, &request(&self.device, true))?;
        let device = match placement.is_cuda() {
            true => placement.name(),
            false => format!("cpu ({})", self.isa.unwrap_or_else(Isa::best)),
        };
        Ok((placement.load(file, options)?, device))
    }

    /// Blocks of one stream.
    fn blocks(&self) -> u32 {
        let context = self.contexts.iter().copied().max().unwrap_or(0).max(1);
        let decoded = context + self.generate + 1;
        decoded.max(self.prompt + 1).div_ceil(BLOCK) as u32
    }

    /// The time of one prompt, up to the logits of its last token.
    fn prompt(&self, driver: &mut Driver) -> Result<Duration, CliError> {
        let vocab = driver.model.vocab_size();
        let tokens = arbitrary_tokens(1, self.prompt, vocab);
        let mut stream = Stream::new(tokens, 0, self.blocks());
        let begun = clock::now();
        driver.finish(&mut stream, self.prompt)?;
        Ok(begun.elapsed())
    }

    /// The time in which `count` streams generate after a context.
    fn decode(
        &self,
        driver: &mut Driver,
        count: usize,
        context: usize,
    ) -> Result<Duration, CliError> {
        let mut streams = self.streams_at(driver, count, context)?;
        let begun = clock::now();
        for _ in 0..self.generate {
            let tokens = driver.step_greedily(&mut streams)?;
            for (stream, token) in streams.iter_mut().zip(tokens) {
                stream.tokens.push(token);
            }
        }
        Ok(begun.elapsed())
    }

    /// Streams that have computed a context, each in blocks of its own. The tokens are the same:
    /// only their number tells in the time of a step.
    fn streams_at(
        &self,
        driver: &mut Driver,
        count: usize,
        context: usize,
    ) -> Result<Vec<Stream>, CliError> {
        let (vocab, blocks) = (driver.model.vocab_size(), self.blocks());
        let tokens = arbitrary_tokens(1, context.max(1), vocab);
        let mut first = Stream::new(tokens, 0, blocks);
        let next = greedy(driver.finish(&mut first, ROWS)?).unwrap_or(0);
        first.tokens.push(next);
        let filled = context.div_ceil(BLOCK) as u32;
        let stream = |i: u32| Stream {
            table: (i * blocks..(i + 1) * blocks).collect(),
            ..first.clone()
        };
        let streams: Vec<Stream> = (0..count as u32).map(stream).collect();
        let to_stream = |i| (0..filled).map(move |block| (block, i * blocks + block));
        let copies: Vec<(u32, u32)> = (1..count as u32).flat_map(to_stream).collect();
        driver.model.copy_blocks(&copies)?;
        Ok(streams)
    }

    fn peaks(&self) -> std::io::Result<Peaks> {
        Ok(Peaks {
            bandwidth: machine::bandwidth(self.threads)?,
            int8: self.peak_int8,
            f32: self.peak_f32,
        })
    }

    fn profile(
        &self,
        driver: &mut Driver,
        case: Case,
        demands: &Demands,
        peaks: &Peaks,
    ) -> Result<Vec<Line>, CliError> {
        let steps = match case {
            Case::Prompt => {
                driver.model.set_profile(Some(Profile::default()));
                self.prompt(driver)?;
                let rows = self.prompt as u64;
                Steps {
                    count: 1,
                    rows,
                    sampled: 1,
                    context: rows / 2,
                    positions: rows,
                }
            }
            Case::Decode { streams, context } => {
                let mut streams = self.streams_at(driver, streams, context)?;
                driver.model.set_profile(Some(Profile::default()));
                for _ in 0..self.generate {
                    driver.step(&mut streams, 1)?;
                    streams.iter_mut().for_each(|stream| stream.tokens.push(0));
                }
                let rows = streams.len() as u64;
                let context = (context + self.generate / 2) as u64;
                let positions = rows * context;
                Steps {
                    count: self.generate as u64,
                    rows,
                    sampled: rows,
                    context,
                    positions,
                }
            }
        };
        let profile = driver.model.set_profile(None).unwrap_or_default();
        Ok(operations::lines(&profile, demands, &steps, peaks))
    }

    /// Throughput by whichever there are more of, streams or contexts.
    fn picture(&self, measured: &[Measured]) -> String {
        let decoded = |wanted: &dyn Fn(usize, usize) -> Option<f64>| -> Vec<(f64, f64)> {
            let point = |m: &Measured| match m.case {
                Case::Decode { streams, context } => Some((wanted(streams, context)?, m.rate())),
                Case::Prompt => None,
            };
            measured.iter().filter_map(point).collect()
        };
        let chart = |title, x, series| Chart {
            title: format!("{title}, {} threads", self.threads),
            x,
            y: "tokens/s, all streams",
            series,
        };
        let by_streams = self.contexts.iter().map(|&of| Series {
            name: format!("context {of}"),
            points: decoded(&|streams, context| (context == of).then_some(streams as f64)),
        });
        let by_context = self.streams.iter().map(|&of| Series {
            name: format!("{of} at once"),
            points: decoded(&|streams, context| (streams == of).then_some(context.max(1) as f64)),
        });
        let drawn = match self.streams.len() >= self.contexts.len() {
            true => chart("Decode by streams", "streams", by_streams.collect()),
            false => chart(
                "Decode by context",
                "tokens of context",
                by_context.collect(),
            ),
        };
        svg::document(&[drawn])
    }

    fn report(&self, device: &str, loading: Duration, measured: &[Measured]) {
        if self.json {
            let report = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "model": self.model(),
                "device": device,
                "threads": self.threads,
                "kv_cache_dtype": self.kv_cache_dtype.name(),
                "load_seconds": loading.as_secs_f64(),
                "measurements": measured.iter().map(Measured::json).collect::<Vec<_>>(),
            });
            say!("{report}");
            return;
        }
        say!(
            "{} on {device}, {} threads, {} KV; loaded in {:.2} s",
            self.model(),
            self.threads,
            self.kv_cache_dtype,
            loading.as_secs_f64()
        );
        say!(
            "{:32}{:>8}{:>12}{:>12}{:>12}",
            "",
            "tokens",
            "tokens/s",
            "best",
            "ms a step"
        );
        for m in measured {
            let best = m.tokens as f64 / m.took[0];
            let steps = match m.case {
                Case::Prompt => 1,
                Case::Decode { .. } => self.generate.max(1),
            };
            let step = m.median() * 1e3 / steps as f64;
            say!(
                "{:32}{:8}{:12.1}{best:12.1}{step:12.2}",
                m.name(),
                m.tokens,
                m.rate()
            );
        }
        for m in measured.iter().filter(|m| !m.lines.is_empty()) {
            say!("\n{}\n{}", m.name(), operations::table(&m.lines));
        }
    }
}

impl Measured {
    fn name(&self) -> String {
        match self.case {
            Case::Prompt => format!("prompt of {}", self.tokens),
            Case::Decode { streams, context } => {
                format!("decode, {streams} at once, from {context}")
            }
        }
    }

    fn median(&self) -> f64 {
        self.took[self.took.len() / 2]
    }

    /// The median, in tokens a second.
    fn rate(&self) -> f64 {
        self.tokens as f64 / self.median()
    }

    fn json(&self) -> Value {
        let rate = |seconds: f64| self.tokens as f64 / seconds;
        let (best, worst) = (rate(self.took[0]), rate(self.took[self.took.len() - 1]));
        let mut json = json!({
            "name": self.name(),
            "tokens": self.tokens,
            "tokens_per_second": {"median": self.rate(), "best": best, "worst": worst},
        });
        if let Case::Decode { streams, context } = self.case {
            json["streams"] = json!(streams);
            json["context"] = json!(context);
        }
        if !self.lines.is_empty() {
            json["operations"] = operations::json(&self.lines);
        }
        json
    }
}
