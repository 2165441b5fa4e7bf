//! `lockstep simulate`.

use std::path::PathBuf;
use std::process::ExitCode;

use policy_core::PreemptionPolicy;

use super::CliError;
use crate::journal::JournalReader;
use crate::scheduler::SchedulerConfig;
use crate::simulation::{
    Coverage, Summary, Workload, load, recorded_load, summarize, table, verify, verify_seed,
};

/// The arguments of `lockstep simulate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to run: `light`, `heavy`, `adversarial`, `sustained`, a journal, or a file of requests, one JSON
    /// object a line (`{"step":1,"prompt_tokens":40,"output_tokens":20,"priority":"high"}`).
    #[arg(
        env = "LOCKSTEP_SIMULATE_LOAD",
        value_name = "LOAD",
        required_unless_present = "explore"
    )]
    load: Option<String>,
    /// The preemption policies to compare; all of them by default.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_POLICIES",
        value_name = "POLICY",
        value_delimiter = ','
    )]
    policies: Vec<PreemptionPolicy>,
    /// The ageing to compare, in steps; that of the load's limits by default.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_AGING",
        value_name = "STEPS",
        value_delimiter = ','
    )]
    aging: Vec<u32>,
    /// The admission headrooms to compare, in blocks for each running sequence.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_HEADROOM",
        value_name = "BLOCKS",
        value_delimiter = ','
    )]
    headroom: Vec<u32>,
    /// Seats.
    #[arg(long, env = "LOCKSTEP_SIMULATE_MAX_NUM_SEQS", value_name = "SEATS")]
    max_num_seqs: Option<u32>,
    /// The most tokens of one step.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_MAX_NUM_BATCHED_TOKENS",
        value_name = "TOKENS"
    )]
    max_num_batched_tokens: Option<u32>,
    /// The most tokens of prompt and answer together.
    #[arg(long, env = "LOCKSTEP_SIMULATE_MAX_MODEL_LEN", value_name = "TOKENS")]
    max_model_len: Option<u32>,
    /// KV blocks of the pool.
    #[arg(long, env = "LOCKSTEP_SIMULATE_NUM_BLOCKS", value_name = "BLOCKS")]
    num_blocks: Option<u32>,
    /// Finds nothing by content.
    #[arg(long, env = "LOCKSTEP_SIMULATE_NO_ENABLE_PREFIX_CACHING")]
    no_enable_prefix_caching: bool,
    /// Checks every step, runs everything twice, and each request alone.
    #[arg(long, env = "LOCKSTEP_SIMULATE_VERIFY")]
    verify: bool,
    /// Verifies so many random loads instead, each made from a seed.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_EXPLORE",
        value_name = "SEEDS",
        conflicts_with = "load"
    )]
    explore: Option<u64>,
    /// The first of these seeds.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_SEED",
        default_value_t = 0,
        value_name = "SEED"
    )]
    seed: u64,
    /// Requests of each of these loads.
    #[arg(
        long,
        env = "LOCKSTEP_SIMULATE_REQUESTS",
        default_value_t = 60,
        value_name = "REQUESTS"
    )]
    requests: u32,
    /// Prints the figures as JSON.
    #[arg(long, env = "LOCKSTEP_SIMULATE_JSON")]
    json: bool,
}

/// Runs it.
pub(super) fn run(args: Args) -> Result<ExitCode, CliError> {
    if let Some(seeds) = args.explore {
        return explore(&args, seeds);
    }
    let name = args.load.as_deref().unwrap_or_default();
    let (mut config, workload) = find_load(name)?;
    args.apply(&mut config);
    let mut summaries = Vec::new();
    for (name, config) in args.variants(&config) {
        config.validate()?;
        if args.verify {
            verify(&config, &workload)
                .map_err(|(violation, detail)| format!("{name}: {violation}\n{detail}"))?;
        }
        summaries.push(summarize(&name, &config, &workload)?);
    }
    print(&summaries, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints figures as a table, or as JSON.
pub(super) fn print(summaries: &[Summary], json: bool) -> Result<(), CliError> {
    if json {
        say!("{}", serde_json::to_string(summaries)?);
    } else {
        tell!("{}", table(summaries));
    }
    Ok(())
}

fn explore(args: &Args, seeds: u64) -> Result<ExitCode, CliError> {
    let mut total = Coverage::default();
    let end = args.seed.saturating_add(seeds);
    for seed in args.seed..end {
        total.add(&verify_seed(seed, args.requests)?);
    }
    say!(
        "seeds {}..{end}: every promise holds\n{total:#?}",
        args.seed
    );
    Ok(ExitCode::SUCCESS)
}

/// A built-in load by its name, or else a file: a journal, or a list of requests.
fn find_load(name: &str) -> Result<(SchedulerConfig, Workload), CliError> {
    if let Some(found) = load(name) {
        return Ok(found);
    }
    let path = PathBuf::from(name);
    if JournalReader::open(&path).is_ok() {
        let recorded = recorded_load(&path)?;
        if let Some(difference) = recorded.report.difference {
            return Err(format!("the journal does not replay: {difference}").into());
        }
        return Ok((recorded.config, recorded.workload));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
    let workload = Workload::parse(&text).map_err(|error| format!("{name}: {error}"))?;
    Ok((SchedulerConfig::default(), workload))
}

impl Args {
    fn apply(&self, config: &mut SchedulerConfig) {
        for (limit, value) in [
            (&mut config.max_num_seqs, self.max_num_seqs),
            (
                &mut config.max_num_batched_tokens,
                self.max_num_batched_tokens,
            ),
            (&mut config.max_model_len, self.max_model_len),
            (&mut config.num_blocks, self.num_blocks),
        ] {
            *limit = value.unwrap_or(*limit);
        }
        config.enable_prefix_caching &= !self.no_enable_prefix_caching;
    }

    /// Every combination of what is compared, by name.
    fn variants(&self, config: &SchedulerConfig) -> Vec<(String, SchedulerConfig)> {
        let or = |given: &[u32], own: u32| match given {
            [] => vec![own],
            given => given.to_vec(),
        };
        let policies = match &self.policies[..] {
            [] => PreemptionPolicy::ALL,
            given => given,
        };
        let mut variants = Vec::new();
        for aging in or(&self.aging, config.priority_aging_steps) {
            for headroom in or(&self.headroom, config.admission_headroom_blocks) {
                for policy in policies {
                    let name = format!("{policy}, ageing {aging}, headroom {headroom}");
                    let variant = SchedulerConfig {
                        preemption_policy: *policy,
                        priority_aging_steps: aging,
                        admission_headroom_blocks: headroom,
                        ..config.clone()
                    };
                    variants.push((name, variant));
                }
            }
        }
        variants
    }
}
