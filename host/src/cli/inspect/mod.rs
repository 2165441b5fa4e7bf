//! `lockstep inspect`.

use std::process::ExitCode;

use super::CliError;
use crate::config::{DeviceArgs, EngineArgs};
use crate::gguf::Gguf;
use crate::hub;
use crate::model::KvDtype;

mod report;

use report::Report;

/// The arguments of `lockstep inspect`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The model: an alias that was pulled, a path, or `org/name[:quant|file]` in the Hugging Face cache
    #[arg(env = "LOCKSTEP_MODEL")]
    model: String,
    /// Prints one JSON object
    #[arg(long, env = "LOCKSTEP_INSPECT_JSON")]
    json: bool,
    #[command(flatten)]
    limits: Limits,
}

/// The flags of `serve` that memory depends on; unset ones are what `serve` would take.
#[derive(Debug, clap::Args)]
struct Limits {
    /// The most sequences that run at once (seats)
    #[arg(long, env = "LOCKSTEP_MAX_NUM_SEQS")]
    max_num_seqs: Option<u32>,
    /// The most tokens of prompt and answer together
    #[arg(long, env = "LOCKSTEP_MAX_MODEL_LEN")]
    max_model_len: Option<u32>,
    /// The most tokens computed in one step
    #[arg(long, env = "LOCKSTEP_MAX_NUM_BATCHED_TOKENS")]
    max_num_batched_tokens: Option<u32>,
    /// Tokens per KV block, a multiple of 16
    #[arg(long, env = "LOCKSTEP_BLOCK_SIZE")]
    block_size: Option<u32>,
    /// KV blocks in the pool
    #[arg(long, env = "LOCKSTEP_NUM_BLOCKS")]
    num_blocks: Option<u32>,
    /// Threads that compute
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = crate::config::parse_threads)]
    threads: Option<usize>,
    /// How keys and values are stored: `f16` or `f32`
    #[arg(long, env = "LOCKSTEP_KV_CACHE_DTYPE")]
    kv_cache_dtype: Option<KvDtype>,
    #[command(flatten)]
    device: DeviceArgs,
}

impl Limits {
    /// The arguments that `serve` would be started with.
    fn engine_args(&self, model: &str) -> EngineArgs {
        let given = EngineArgs::for_model(model);
        EngineArgs {
            max_num_seqs: self.max_num_seqs.unwrap_or(given.max_num_seqs),
            max_model_len: self.max_model_len.or(given.max_model_len),
            max_num_batched_tokens: self
                .max_num_batched_tokens
                .unwrap_or(given.max_num_batched_tokens),
            block_size: self.block_size.unwrap_or(given.block_size),
            num_blocks: self.num_blocks.or(given.num_blocks),
            threads: self.threads.or(given.threads),
            kv_cache_dtype: self.kv_cache_dtype.unwrap_or(given.kv_cache_dtype),
            device: self.device,
            ..given
        }
    }
}

/// Says what a model file holds and the memory that serving it will need; loads nothing. Success where
/// it can be served so.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    let path = hub::resolve(&args.model)?;
    let file = Gguf::open(&path)?;
    let report = Report::of(&file, &path, &args.limits.engine_args(&args.model));
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        tell!("{report}");
    }
    Ok(match report.refusal() {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}
