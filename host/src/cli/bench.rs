//! `lockstep bench`: how fast the model runs here.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::CliError;
use super::drive::{Driver, Stream, arbitrary_tokens};
use crate::backend::Isa;
use crate::batch::Forward;
use crate::clock;
use crate::config::DeviceArgs;
use crate::gguf::Gguf;
use crate::model::{KvDtype, ModelOptions, Placement};
use crate::sampler::greedy;
use crate::start::request;

/// The arguments of `lockstep bench`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A path, an alias of `lockstep pull`, or a Hugging Face repository in the local cache.
    #[arg(long, env = "LOCKSTEP_MODEL")]
    model: String,
    /// Threads that compute.
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = crate::config::parse_threads, default_value_t = 2)]
    threads: usize,
    /// Vector instructions: scalar, avx2 or avx512; the best that the machine has if not given.
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
    #[arg(long, env = "LOCKSTEP_BENCH_STREAMS", value_delimiter = ',', default_values_t = [1, 8, 32])]
    streams: Vec<usize>,
    /// How often each measurement is made; the median is reported.
    #[arg(long, env = "LOCKSTEP_BENCH_REPEATS", default_value_t = 3)]
    repeats: usize,
    #[command(flatten)]
    device: DeviceArgs,
    /// Prints JSON instead of a table.
    #[arg(long, env = "LOCKSTEP_BENCH_JSON")]
    json: bool,
}

/// Positions of a KV block.
const BLOCK_SIZE: u32 = 16;

/// One measurement.
struct Measured {
    name: String,
    tokens: usize,
    /// Shortest, median and longest.
    seconds: [f64; 3],
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let path = crate::hub::resolve(&args.model)?;
    let begun = clock::now();
    let (model, device) = load(&args, &path)?;
    let loading = begun.elapsed();
    let mut driver = Driver::new(model, BLOCK_SIZE);
    let mut measured = vec![measure(&args, "prompt", args.prompt, || {
        prompt(&args, &mut driver)
    })?];
    for &count in &args.streams {
        let name = format!("decode, {count} at once");
        let tokens = count * args.generate;
        measured.push(measure(&args, &name, tokens, || {
            decode(&args, &mut driver, count)
        })?);
    }
    report(&args, &device, loading, &measured);
    Ok(ExitCode::SUCCESS)
}

/// Loads the model where it is to compute, which has that name.
fn load(args: &Args, path: &std::path::Path) -> Result<(Box<dyn Forward>, String), CliError> {
    let most = args.streams.iter().copied().max().unwrap_or(1).max(1);
    let blocks = most * blocks(args) as usize;
    let options = ModelOptions {
        threads: args.threads,
        isa: args.isa,
        kv_dtype: args.kv_cache_dtype,
        num_blocks: u32::try_from(blocks)?,
        max_rows: args.prompt.max(most),
        block_size: BLOCK_SIZE,
        enforce_eager: args.device.enforce_eager,
        ..ModelOptions::default()
    };
    let file = Gguf::open(path)?;
    let placement = Placement::choose(&file, &options, &request(&args.device, true))?;
    let device = match placement.is_cuda() {
        true => placement.name(),
        false => format!("cpu ({})", args.isa.unwrap_or_else(Isa::best)),
    };
    Ok((placement.load(&file, options)?, device))
}

/// Blocks of one stream.
fn blocks(args: &Args) -> u32 {
    (args.prompt + args.generate + 1).div_ceil(BLOCK_SIZE as usize) as u32
}

fn measure(
    args: &Args,
    name: &str,
    tokens: usize,
    mut work: impl FnMut() -> Result<Duration, CliError>,
) -> Result<Measured, CliError> {
    let mut seconds = Vec::new();
    for _ in 0..args.repeats.max(1) {
        seconds.push(work()?.as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let [first, last] = [seconds[0], seconds[seconds.len() - 1]];
    Ok(Measured {
        name: name.into(),
        tokens,
        seconds: [first, seconds[seconds.len() / 2], last],
    })
}

/// The time of one prompt, up to the logits of its last token.
fn prompt(args: &Args, driver: &mut Driver) -> Result<Duration, CliError> {
    let vocab = driver.model.vocab_size();
    let tokens = arbitrary_tokens(1, args.prompt, vocab);
    let mut stream = Stream::new(tokens, 0, blocks(args));
    let begun = clock::now();
    driver.finish(&mut stream, args.prompt)?;
    Ok(begun.elapsed())
}

/// The time in which `count` streams generate, each after a prompt of its own.
fn decode(args: &Args, driver: &mut Driver, count: usize) -> Result<Duration, CliError> {
    let vocab = driver.model.vocab_size();
    let prompt = args.prompt.min(128);
    let stream = |i: usize| {
        let tokens = arbitrary_tokens(i as u32 + 1, prompt, vocab);
        Stream::new(tokens, i as u32 * blocks(args), blocks(args))
    };
    let mut streams: Vec<Stream> = (0..count).map(stream).collect();
    for stream in &mut streams {
        let logits = driver.finish(stream, prompt)?;
        let next = greedy(logits).unwrap_or(0);
        stream.tokens.push(next);
    }
    let begun = clock::now();
    for _ in 0..args.generate {
        let logits = driver.step(&mut streams, 1)?;
        for (stream, logits) in streams.iter_mut().zip(logits.chunks_exact(vocab)) {
            stream.tokens.push(greedy(logits).unwrap_or(0));
        }
    }
    Ok(begun.elapsed())
}

fn report(args: &Args, device: &str, loading: Duration, measured: &[Measured]) {
    if args.json {
        let rows = measured.iter().map(|m| {
            let rate = |seconds: f64| m.tokens as f64 / seconds;
            let [best, median, worst] = m.seconds.map(rate);
            json!({"name": m.name, "tokens": m.tokens, "tokens_per_second":
                {"median": median, "best": best, "worst": worst}})
        });
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "model": args.model,
            "device": device,
            "threads": args.threads,
            "kv_cache_dtype": args.kv_cache_dtype.name(),
            "load_seconds": loading.as_secs_f64(),
            "measurements": rows.collect::<Vec<_>>(),
        });
        say!("{report}");
        return;
    }
    say!(
        "{} on {device}, {} threads, {} KV; loaded in {:.2} s",
        args.model,
        args.threads,
        args.kv_cache_dtype,
        loading.as_secs_f64()
    );
    say!(
        "{:24} {:>8} {:>12} {:>12}",
        "",
        "tokens",
        "tokens/s",
        "best"
    );
    for m in measured {
        let rate = |seconds: f64| m.tokens as f64 / seconds;
        let (median, best) = (rate(m.seconds[1]), rate(m.seconds[0]));
        say!("{:24} {:8} {median:12.1} {best:12.1}", m.name, m.tokens);
    }
}
