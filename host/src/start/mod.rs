//! From flags to a running engine: the model is found, loaded, and put behind its door.

mod accounts;
mod error;
mod fingerprint;
mod text;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::chat::{ChatError, ChatTemplate};
use crate::config::{DEFAULT_KV_CACHE_BYTES, DEFAULT_MAX_MODEL_LEN, DeviceArgs, EngineArgs};
use crate::engine::{Engine, EngineError, Parts};
use crate::gguf::Gguf;
use crate::hub;
use crate::intake::{self, Intake, IntakeLimits};
use crate::journal::{Chronicle, Header, JournalOptions, JournalReader, JournalWriter};
use crate::metrics::{Metrics, MetricsLabels};
use crate::model::{
    Footprint, KvDtype, ModelConfig, ModelError, ModelOptions, Numerics, Placement,
    PlacementRequest,
};
use crate::scheduler::{Scheduler, SchedulerConfig};
use crate::tokenizer::Tokenizer;

pub use accounts::Accounts;
pub use error::StartError;
pub use fingerprint::derived_fingerprint;
pub use text::ServedText;

/// Ended requests, and preemptions, that `/debug` can tell of.
const KEPT_ACCOUNTS: usize = 1024;

/// An engine that runs on its own thread, and what its callers need.
#[derive(Debug)]
pub struct Running {
    /// The door.
    pub intake: Intake,
    /// Tokenizer and template.
    pub text: Arc<ServedText>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What happened to the latest requests.
    pub accounts: Accounts,
    /// The model's file.
    pub path: PathBuf,
    /// The limits that were settled on.
    pub config: SchedulerConfig,
    /// Where the model computes, by name.
    pub device: String,
    /// The version of the numerics, and how keys and values are stored.
    pub numerics: String,
    /// Digest of all that decides an answer beside its request: equal fingerprints answer equal
    /// requests with equal tokens, text and logprobs.
    pub fingerprint: String,
    engine: JoinHandle<Result<(), EngineError>>,
}

impl Running {
    /// Waits until the engine has ended: after [`Intake::drain`], or because it failed.
    ///
    /// # Errors
    /// Why it failed.
    pub fn join(self) -> Result<(), EngineError> {
        let Self { intake, engine, .. } = self;
        drop(intake);
        engine
            .join()
            .unwrap_or_else(|_| Err(EngineError::Panic("the engine's thread".to_owned())))
    }

    /// Whether the engine has ended.
    pub fn has_ended(&self) -> bool {
        self.engine.is_finished()
    }
}

/// Finds and loads the model and starts the engine's thread. `model_name` labels the metrics.
///
/// # Errors
/// A [`StartError`] that says which part of it was wrong; nothing runs then.
pub fn start(args: &EngineArgs, model_name: &str) -> Result<Running, StartError> {
    let path = hub::resolve(&args.model)?;
    let file = Gguf::open(&path)?;
    let mut config = settle(args, &ModelConfig::from_gguf(&file)?);
    let placement = place(args, &file, &config)?;
    config.num_blocks = placement.num_blocks();
    let device = placement.name();
    let numerics = numerics_name(args.numerics, &placement.kind(), args.kv_cache_dtype);
    let text = Arc::new(read_text(&file)?);
    let digest = file.digest().to_hex();
    let metrics = Arc::new(Metrics::new(labels(args, &config, model_name, &device)));
    let (intake, mut parts) = assemble(
        placement,
        &file,
        &text,
        &config,
        &model_options(args, &config),
        args.max_waiting as usize,
    )?;
    parts.journal = open_journal(args, &config, &digest, &numerics)?;
    parts.metrics = Arc::clone(&metrics);
    let accounts = Accounts(Arc::clone(&parts.chronicle));
    let thread = std::thread::Builder::new().name("engine".to_owned());
    let engine = thread
        .spawn(move || Engine::new(parts).run())
        .map_err(StartError::Thread)?;
    let fingerprint = fingerprint::fingerprint(&digest, &numerics, config.max_model_len);
    Ok(Running {
        intake,
        text,
        metrics,
        accounts,
        path,
        config,
        device,
        numerics,
        fingerprint,
        engine,
    })
}

/// An engine with the limits of a journal, to replay it on: the model file must be the journal's.
///
/// # Errors
/// A [`StartError`] that says which part of it was wrong.
pub fn engine_for(
    journal: &Path,
    model: &str,
    threads: Option<usize>,
    device: &DeviceArgs,
) -> Result<Engine, StartError> {
    let reader = JournalReader::open(journal)?;
    let header = reader.header();
    let path = hub::resolve(model)?;
    let file = Gguf::open(&path)?;
    let digest = file.digest().to_hex();
    if header.model != *digest {
        let (journal, model) = (header.model.clone(), digest.to_string());
        return Err(StartError::OtherModel { journal, model });
    }
    let (numerics, kv_dtype) = numerics_of(&header.numerics)?;
    let text = Arc::new(read_text(&file)?);
    let options = ModelOptions {
        numerics,
        enforce_eager: device.enforce_eager,
        ..options(&header.config, threads, kv_dtype)
    };
    // The journal says how many blocks there were.
    let placement = Placement::choose(&file, &options, &request(device, true))?;
    if numerics_name(numerics, &placement.kind(), kv_dtype) != header.numerics {
        return Err(StartError::OtherNumerics {
            journal: header.numerics.clone(),
            device: Some(placement.kind()),
        });
    }
    let (_, parts) = assemble(placement, &file, &text, &header.config, &options, 0)?;
    Ok(Engine::new(parts))
}

/// Whether an engine would start on `file` with these arguments; loads nothing.
///
/// # Errors
/// What [`start`] would say.
pub(crate) fn check(file: &Gguf, args: &EngineArgs) -> Result<(), StartError> {
    let model = ModelConfig::from_gguf(file)?;
    let config = settle(args, &model);
    read_text(file)?;
    check_limits(&config, &model)?;
    Footprint::of(file, &model_options(args, &config))?;
    Ok(())
}

fn check_limits(config: &SchedulerConfig, model: &ModelConfig) -> Result<(), StartError> {
    config.validate()?;
    let (max_model_len, context_length) = (config.max_model_len, model.context_length);
    if max_model_len > context_length {
        return Err(StartError::ContextTooShort {
            max_model_len,
            context_length,
        });
    }
    Ok(())
}

/// What an engine is made of, with the model where it is placed: no journal, and counters that nobody
/// reads.
fn assemble(
    placement: Placement,
    file: &Gguf,
    text: &ServedText,
    config: &SchedulerConfig,
    options: &ModelOptions,
    max_waiting: usize,
) -> Result<(Intake, Parts), StartError> {
    check_limits(config, &ModelConfig::from_gguf(file)?)?;
    let scheduler = Scheduler::new(config.clone())?;
    let model = placement.load(file, *options)?;
    let (intake, door) = intake::door(IntakeLimits {
        max_waiting,
        max_model_len: config.max_model_len,
        vocab_size: text.tokenizer.len() as u32,
    });
    let chronicle = Chronicle::new(config.preemption_policy, KEPT_ACCOUNTS);
    let parts = Parts {
        door,
        scheduler,
        model,
        tokenizer: Arc::clone(&text.tokenizer),
        journal: None,
        metrics: Arc::new(Metrics::new(MetricsLabels::default())),
        chronicle: Arc::new(Mutex::new(chronicle)),
        probe: None,
    };
    Ok((intake, parts))
}

/// The numerics that a journal names: the contract's version and how keys and values are stored.
fn numerics_name(numerics: Numerics, device: &str, kv_dtype: KvDtype) -> String {
    format!("{} kv-{kv_dtype}", numerics.version(device))
}

/// The profile and the KV dtype of a journal whose numerics this build has, on some device.
fn numerics_of(name: &str) -> Result<(Numerics, KvDtype), StartError> {
    let dtypes = [KvDtype::F16, KvDtype::F32].into_iter();
    let mut found = dtypes.filter_map(|dtype| {
        let version = name.strip_suffix(&format!(" kv-{dtype}"))?;
        let device = version.strip_prefix(&Numerics::Fast.version(""));
        match device {
            Some(_) => Some((Numerics::Fast, dtype)),
            None => {
                (version == Numerics::Portable.version("")).then_some((Numerics::Portable, dtype))
            }
        }
    });
    found.next().ok_or_else(|| StartError::OtherNumerics {
        journal: name.to_owned(),
        device: None,
    })
}

/// The limits, with every default filled in.
pub(crate) fn settle(args: &EngineArgs, model: &ModelConfig) -> SchedulerConfig {
    let max_model_len = args
        .max_model_len
        .unwrap_or(model.context_length.min(DEFAULT_MAX_MODEL_LEN));
    SchedulerConfig {
        max_num_seqs: args.max_num_seqs,
        max_num_batched_tokens: args.max_num_batched_tokens,
        max_chunk_tokens: args.max_chunk_tokens,
        max_model_len,
        block_size: args.block_size,
        num_blocks: args
            .num_blocks
            .unwrap_or_else(|| default_blocks(args, model, max_model_len)),
        enable_prefix_caching: !args.no_enable_prefix_caching,
        preemption_policy: args.preemption_policy,
        priority_aging_steps: args.priority_aging_steps,
        ..SchedulerConfig::default()
    }
}

/// As many blocks as full seats need, at most [`DEFAULT_KV_CACHE_BYTES`] of them, but always
/// enough for one sequence of the greatest length.
fn default_blocks(args: &EngineArgs, model: &ModelConfig, max_model_len: u32) -> u32 {
    let per_sequence = u64::from(max_model_len.div_ceil(args.block_size.max(1)));
    let values_per_token = 2 * model.layers as u64 * model.kv_width() as u64;
    let block_bytes =
        values_per_token * args.kv_cache_dtype.bytes() as u64 * u64::from(args.block_size.max(1));
    let affordable = DEFAULT_KV_CACHE_BYTES / block_bytes.max(1);
    let wanted = per_sequence * u64::from(args.max_num_seqs);
    u32::try_from(wanted.min(affordable.max(per_sequence))).unwrap_or(u32::MAX)
}

/// How the model is loaded for these limits.
pub(crate) fn model_options(args: &EngineArgs, config: &SchedulerConfig) -> ModelOptions {
    ModelOptions {
        numerics: args.numerics,
        enforce_eager: args.device.enforce_eager,
        ..options(config, args.threads, args.kv_cache_dtype)
    }
}

/// Where the model will compute with these flags.
pub(crate) fn place(
    args: &EngineArgs,
    file: &Gguf,
    config: &SchedulerConfig,
) -> Result<Placement, ModelError> {
    let request = request(&args.device, args.num_blocks.is_some());
    Placement::choose(file, &model_options(args, config), &request)
}

/// What the flags ask for.
pub(crate) fn request(args: &DeviceArgs, num_blocks_given: bool) -> PlacementRequest {
    PlacementRequest {
        device: args.device,
        gpu_memory_utilization: args.gpu_memory_utilization,
        num_blocks_given,
    }
}

fn options(config: &SchedulerConfig, threads: Option<usize>, kv_dtype: KvDtype) -> ModelOptions {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    ModelOptions {
        threads: threads.unwrap_or(processors),
        kv_dtype,
        num_blocks: config.num_blocks,
        block_size: config.block_size,
        max_rows: config.max_num_batched_tokens as usize,
        max_positions: config.max_model_len,
        ..ModelOptions::default()
    }
}

fn read_text(file: &Gguf) -> Result<ServedText, StartError> {
    let tokenizer = Arc::new(Tokenizer::from_gguf(file)?);
    let template = match ChatTemplate::from_gguf(file, &tokenizer) {
        Ok(template) => Some(template),
        Err(ChatError::NoTemplate) => None,
        Err(error) => return Err(error.into()),
    };
    let template_source = file.str("tokenizer.chat_template")?.map(str::to_owned);
    Ok(ServedText {
        tokenizer,
        template,
        template_source,
    })
}

fn open_journal(
    args: &EngineArgs,
    config: &SchedulerConfig,
    model_digest: &str,
    numerics: &str,
) -> Result<Option<JournalWriter>, StartError> {
    let Some(path) = &args.journal else {
        return Ok(None);
    };
    let options = JournalOptions {
        path: path.clone(),
        sync: args.journal_sync,
        content: args.journal_content,
        max_bytes: args.journal_max_bytes,
        max_files: args.journal_max_files,
    };
    let header = Header::new(config.clone(), model_digest, numerics);
    Ok(Some(JournalWriter::create(&options, header)?))
}

fn labels(
    args: &EngineArgs,
    config: &SchedulerConfig,
    model_name: &str,
    device: &str,
) -> MetricsLabels {
    MetricsLabels {
        model_name: model_name.to_owned(),
        block_size: config.block_size,
        num_blocks: config.num_blocks,
        max_num_seqs: config.max_num_seqs,
        max_model_len: config.max_model_len,
        cache_dtype: args.kv_cache_dtype.to_string(),
        device: device.to_owned(),
    }
}
