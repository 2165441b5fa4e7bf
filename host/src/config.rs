//! The engine's configuration: flags and environment variables, parsed and checked in one step.

use std::path::PathBuf;

use policy_core::PreemptionPolicy;

use crate::backend::DeviceChoice;
use crate::journal::{JournalContent, JournalSync};
use crate::model::{KvDtype, Numerics};
use crate::scheduler::SchedulerConfig;

/// The context that is used where neither `--max-model-len` nor the model asks for less, in tokens.
pub const DEFAULT_MAX_MODEL_LEN: u32 = 8192;

/// The KV memory that `--num-blocks` is derived from where it is not given, in bytes.
pub const DEFAULT_KV_CACHE_BYTES: u64 = 1 << 30;

/// The most tokens of a step: the rows that a model computes at once.
const MAX_STEP_TOKENS: i64 = 1 << 16;

/// A number of threads that compute, from 1 to 256.
///
/// # Errors
/// A sentence with what was given instead.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    let threads = text
        .parse()
        .ok()
        .filter(|threads| (1..=256).contains(threads));
    threads.ok_or_else(|| format!("{text} threads are not between 1 and 256"))
}

/// A share of a device's memory, above 0 and at most 1.
///
/// # Errors
/// A sentence with what was given instead.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok();
    let share = share.filter(|share: &f64| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("{text} is not above 0 and at most 1"))
}

/// The flags of every command that runs a model: where.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct DeviceArgs {
    /// Where the model computes: `auto`, `cpu`, `cuda` or `cuda:N`
    #[arg(long, env = "LOCKSTEP_DEVICE", default_value_t)]
    pub device: DeviceChoice,
    /// The share of the device's memory that may be used; what the model leaves of it is the KV pool
    #[arg(long, env = "LOCKSTEP_GPU_MEMORY_UTILIZATION", value_parser = parse_share, default_value_t = 0.9)]
    pub gpu_memory_utilization: f64,
    /// Launches a decode step's kernels one by one instead of as a CUDA graph
    #[arg(long, env = "LOCKSTEP_ENFORCE_EAGER")]
    pub enforce_eager: bool,
}

/// The flags that every command with an engine takes.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineArgs {
    /// The model: an alias that was pulled, a path, or `org/name[:quant|file]` in the Hugging Face cache
    #[arg(long, env = "LOCKSTEP_MODEL")]
    pub model: String,
    /// The most sequences that run at once (seats)
    #[arg(long, env = "LOCKSTEP_MAX_NUM_SEQS", default_value_t = SchedulerConfig::default().max_num_seqs)]
    pub max_num_seqs: u32,
    /// The most tokens of prompt and answer together [default: the model's context, at most 8192]
    #[arg(long, env = "LOCKSTEP_MAX_MODEL_LEN")]
    pub max_model_len: Option<u32>,
    /// The most tokens computed in one step
    #[arg(long, env = "LOCKSTEP_MAX_NUM_BATCHED_TOKENS",
        default_value_t = SchedulerConfig::default().max_num_batched_tokens,
        value_parser = clap::value_parser!(u32).range(1..=MAX_STEP_TOKENS))]
    pub max_num_batched_tokens: u32,
    /// The most tokens of one prompt computed in one step
    #[arg(long, env = "LOCKSTEP_MAX_CHUNK_TOKENS",
        default_value_t = SchedulerConfig::default().max_chunk_tokens,
        value_parser = clap::value_parser!(u32).range(1..=MAX_STEP_TOKENS))]
    pub max_chunk_tokens: u32,
    /// Tokens per KV block, a multiple of 16
    #[arg(long, env = "LOCKSTEP_BLOCK_SIZE", default_value_t = SchedulerConfig::default().block_size)]
    pub block_size: u32,
    /// KV blocks in the pool [default: what full seats need, at most 1 GiB; on a GPU what its memory holds]
    #[arg(long, env = "LOCKSTEP_NUM_BLOCKS")]
    pub num_blocks: Option<u32>,
    /// Computes every prompt anew instead of finding what is known of it by content
    #[arg(long, env = "LOCKSTEP_NO_ENABLE_PREFIX_CACHING")]
    pub no_enable_prefix_caching: bool,
    /// How the victim of a preemption is chosen: `longest-first` or `lowest-priority`
    #[arg(long, env = "LOCKSTEP_PREEMPTION_POLICY",
        default_value = SchedulerConfig::default().preemption_policy.name())]
    pub preemption_policy: PreemptionPolicy,
    /// Steps by which each class below High counts as arrived later; 0 orders by class alone
    #[arg(long, env = "LOCKSTEP_PRIORITY_AGING_STEPS",
        default_value_t = SchedulerConfig::default().priority_aging_steps)]
    pub priority_aging_steps: u32,
    /// Seeds the seeds of requests that bring none
    #[arg(long, env = "LOCKSTEP_SEED", default_value_t = 0)]
    pub seed: u64,
    /// Threads that compute [default: the processors that this process may use]
    #[arg(long, env = "LOCKSTEP_THREADS", value_parser = parse_threads)]
    pub threads: Option<usize>,
    /// How keys and values are stored: `f16` or `f32`
    #[arg(long, env = "LOCKSTEP_KV_CACHE_DTYPE", default_value_t)]
    pub kv_cache_dtype: KvDtype,
    /// Where it computes
    #[command(flatten)]
    pub device: DeviceArgs,
    /// The numerics: `portable`, the same bits everywhere, or `fast`, by tensor cores: the same bits on one kind of GPU
    #[arg(long, env = "LOCKSTEP_NUMERICS", default_value_t)]
    pub numerics: Numerics,
    /// Requests that may wait for their first seat
    #[arg(long, env = "LOCKSTEP_MAX_WAITING", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub max_waiting: u32,
    /// Writes every step's inputs and plan to this file
    #[arg(long, env = "LOCKSTEP_JOURNAL")]
    pub journal: Option<PathBuf>,
    /// When records reach the disk: `none`, `step`, or a number of steps
    #[arg(long, env = "LOCKSTEP_JOURNAL_SYNC", default_value = "none")]
    pub journal_sync: JournalSync,
    /// What is recorded of prompts and answers
    #[arg(long, env = "LOCKSTEP_JOURNAL_CONTENT", value_enum, default_value_t)]
    pub journal_content: JournalContent,
    /// The size in bytes at which the journal is renamed to `FILE.N` and begun anew [default: none]
    #[arg(long, env = "LOCKSTEP_JOURNAL_MAX_BYTES", requires = "journal",
        value_parser = clap::value_parser!(u64).range(4096..))]
    pub journal_max_bytes: Option<u64>,
    /// How many renamed journals are kept, the newest [default: all]
    #[arg(
        long,
        env = "LOCKSTEP_JOURNAL_MAX_FILES",
        requires = "journal_max_bytes"
    )]
    pub journal_max_files: Option<u32>,
}

impl EngineArgs {
    /// The arguments of an engine for `model` as if no flag had been given: environment variables
    /// count.
    pub fn for_model(model: &str) -> Self {
        use clap::FromArgMatches;
        let command = <Self as clap::Args>::augment_args(clap::Command::new("lockstep"));
        let matches = command.get_matches_from(["lockstep", "--model", model]);
        // The flags parse by themselves: every other argument has a default.
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn refusal(arguments: &[&str]) -> Option<String> {
        let line = ["lockstep", "--model", "m"].iter().chain(arguments);
        Command::try_parse_from(line)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn nonsense_is_refused_with_flag_value_and_limit() {
        for (flag, value) in [
            ("--max-chunk-tokens", "0"),
            ("--max-chunk-tokens", "4000000000"),
            ("--max-num-batched-tokens", "65537"),
            ("--max-waiting", "0"),
            ("--threads", "0"),
        ] {
            let told = refusal(&[flag, value]).expect(flag);
            assert!(told.contains(flag) && told.contains(value), "{told}");
        }
    }

    #[test]
    fn bounds_of_a_journal_need_one() {
        let told = refusal(&["--journal-max-bytes", "100000"]).unwrap();
        assert!(told.contains("--journal <JOURNAL>"), "{told}");
        let whole = ["--journal", "j", "--journal-max-bytes", "100000"];
        assert_eq!(refusal(&whole), None);
        assert!(refusal(&["--journal", "j", "--journal-max-bytes", "0"]).is_some());
        assert!(refusal(&["--journal", "j", "--journal-max-files", "3"]).is_some());
    }
}
