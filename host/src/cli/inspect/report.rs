//! What `lockstep inspect` says of a file, for people and for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Serialize, Serializer};

use crate::backend::{DeviceChoice, Isa, cuda};
use crate::chat::{ChatError, ChatTemplate};
use crate::config::EngineArgs;
use crate::gguf::Gguf;
use crate::model::{DeviceFootprint, Footprint, ModelConfig, ModelError};
use crate::start;
use crate::tokenizer::{Tokenizer, TokenizerError};

mod print;

/// All that is said of a file. What cannot be read is an error in its place: a file that cannot
/// be served can still be looked at.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    path: String,
    file_bytes: u64,
    blake3: String,
    gguf_version: u32,
    name: Option<String>,
    architecture: Option<String>,
    parameters: u64,
    tensors: BTreeMap<&'static str, TypeCount>,
    model: Part<ModelPart>,
    tokenizer: Part<TokenizerPart>,
    chat_template: &'static str,
    chat_template_error: Option<String>,
    memory: Part<MemoryPart>,
    /// Why `serve` and `run` would refuse it with these limits.
    refusal: Option<String>,
    /// Where `serve` would compute.
    device: Part<String>,
}

/// A part of the report, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Part<T> {
    Read(T),
    Unread { error: String },
}

/// The tensors of one type.
#[derive(Debug, Default, Serialize)]
struct TypeCount {
    tensors: u64,
    elements: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ModelPart {
    context_length: u32,
    layers: usize,
    embedding_length: usize,
    feed_forward_length: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
}

#[derive(Debug, Serialize)]
struct TokenizerPart {
    model: String,
    pre_tokenizer: String,
    tokens: usize,
    bos: Option<u32>,
    eos: Option<u32>,
    end_of_generation: Vec<u32>,
}

/// The memory that `serve` will take with these limits, the file's own pages apart.
#[derive(Debug, Serialize)]
struct MemoryPart {
    max_num_seqs: u32,
    max_model_len: u32,
    block_size: u32,
    num_blocks: u32,
    kv_cache_dtype: &'static str,
    kv_bytes_per_token: u64,
    kv_tokens: u64,
    /// Bytes by use, in the order of the model's own account.
    #[serde(serialize_with = "as_object")]
    items: Vec<(&'static str, u64)>,
    total_bytes: u64,
}

fn as_object<S: Serializer>(items: &[(&str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(items.iter().copied())
}

impl<T, E: fmt::Display> From<Result<T, E>> for Part<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(part) => Self::Read(part),
            Err(error) => Self::Unread {
                error: error.to_string(),
            },
        }
    }
}

impl Report {
    /// What `file` holds and what an engine with these arguments would need for it.
    pub(super) fn of(file: &Gguf, path: &Path, args: &EngineArgs) -> Self {
        let text = |key| file.str(key).ok().flatten().map(str::to_owned);
        let tokenizer = Tokenizer::from_gguf(file);
        let template = tokenizer
            .as_ref()
            .map(|tokenizer| ChatTemplate::from_gguf(file, tokenizer));
        let (chat_template, chat_template_error) = match template {
            Ok(Ok(_)) => ("works", None),
            Ok(Err(ChatError::NoTemplate)) => ("none", None),
            Ok(Err(error)) => ("fails", Some(error.to_string())),
            Err(_) => ("not tried", None),
        };
        Self {
            path: path.display().to_string(),
            file_bytes: file.file_bytes(),
            blake3: file.digest().to_hex().to_string(),
            gguf_version: file.version(),
            name: text("general.name"),
            architecture: text("general.architecture"),
            parameters: file.tensors().iter().map(|tensor| tensor.elements()).sum(),
            tensors: count_types(file),
            model: ModelConfig::from_gguf(file).map(model_part).into(),
            tokenizer: tokenizer
                .and_then(|tokenizer| tokenizer_part(file, &tokenizer))
                .into(),
            chat_template,
            chat_template_error,
            memory: memory_part(file, args).into(),
            refusal: start::check(file, args)
                .err()
                .map(|error| error.to_string()),
            device: device_part(file, args).into(),
        }
    }

    /// Why the file cannot be served with these limits, if it cannot.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

/// The device, where its driver answers and the model is supported there; opens none.
fn device_part(file: &Gguf, args: &EngineArgs) -> Result<String, ModelError> {
    let limits = start::settle(args, &ModelConfig::from_gguf(file)?);
    let supported = DeviceFootprint::of(file, &start::model_options(args, &limits));
    let ordinal = match args.device.device {
        DeviceChoice::Cpu => return Ok(format!("cpu ({})", Isa::best())),
        DeviceChoice::Auto => 0,
        DeviceChoice::Cuda(ordinal) => ordinal,
    };
    let found = supported.and_then(|_| {
        let driver = cuda::devices().map_err(|error| ModelError::Device(error.to_string()))?;
        let device = driver
            .devices
            .get(ordinal as usize)
            .map(ToString::to_string);
        device.ok_or_else(|| ModelError::Device(format!("there is no device cuda:{ordinal}")))
    });
    match found {
        Err(error) if args.device.device == DeviceChoice::Auto => {
            Ok(format!("cpu ({}): {error}", Isa::best()))
        }
        found => found,
    }
}

fn count_types(file: &Gguf) -> BTreeMap<&'static str, TypeCount> {
    let mut types: BTreeMap<&'static str, TypeCount> = BTreeMap::new();
    for tensor in file.tensors() {
        let count = types.entry(tensor.ggml_type().name()).or_default();
        count.tensors += 1;
        count.elements += tensor.elements();
        count.bytes += tensor.bytes();
    }
    types
}

fn model_part(config: ModelConfig) -> ModelPart {
    ModelPart {
        context_length: config.context_length,
        layers: config.layers,
        embedding_length: config.embedding,
        feed_forward_length: config.feed_forward,
        heads: config.heads,
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        vocab_size: config.vocab_size,
    }
}

fn tokenizer_part(file: &Gguf, tokenizer: &Tokenizer) -> Result<TokenizerPart, TokenizerError> {
    let text = |key| Ok(file.str(key)?.unwrap_or_default().to_owned());
    Ok(TokenizerPart {
        model: text("tokenizer.ggml.model").map_err(TokenizerError::Metadata)?,
        pre_tokenizer: text("tokenizer.ggml.pre").map_err(TokenizerError::Metadata)?,
        tokens: tokenizer.len(),
        bos: tokenizer.bos(),
        eos: tokenizer.eos(),
        end_of_generation: tokenizer.end_of_generation().to_vec(),
    })
}

fn memory_part(file: &Gguf, args: &EngineArgs) -> Result<MemoryPart, ModelError> {
    let model = ModelConfig::from_gguf(file)?;
    let limits = start::settle(args, &model);
    let options = start::model_options(args, &limits);
    let footprint = Footprint::of(file, &options)?;
    let values = 2 * (model.layers * model.kv_width()) as u64;
    Ok(MemoryPart {
        max_num_seqs: limits.max_num_seqs,
        max_model_len: limits.max_model_len,
        block_size: options.block_size,
        num_blocks: options.num_blocks,
        kv_cache_dtype: options.kv_dtype.name(),
        kv_bytes_per_token: values * options.kv_dtype.bytes() as u64,
        kv_tokens: u64::from(options.num_blocks) * u64::from(options.block_size),
        total_bytes: footprint.total(),
        items: footprint
            .items
            .into_iter()
            .map(|item| (item.name, item.bytes))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::tiny::tiny_llama;
    use crate::gguf::write::Writer;

    fn report(bytes: Vec<u8>, change: impl FnOnce(&mut EngineArgs)) -> Report {
        let file = Gguf::from_bytes(bytes).expect("a valid file");
        let mut args = EngineArgs::for_model("m");
        change(&mut args);
        Report::of(&file, Path::new("m.gguf"), &args)
    }

    #[test]
    fn a_model_is_described_for_programs() {
        let report = report(tiny_llama(1), |args| {
            args.num_blocks = Some(10);
            args.block_size = 32;
            args.max_model_len = Some(320);
        });
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["architecture"], "llama");
        assert_eq!(json["tensors"]["Q8_0"]["tensors"], 14);
        assert_eq!(json["model"]["context_length"], 512);
        assert_eq!(
            json["tokenizer"]["end_of_generation"],
            serde_json::json!([0, 2])
        );
        assert_eq!(json["chat_template"], "works");
        assert_eq!(report.refusal(), None);
        // Two layers, keys and values, two heads of 16, two bytes each.
        assert_eq!(json["memory"]["kv_bytes_per_token"], 2 * 2 * 2 * 16 * 2);
        assert_eq!(json["memory"]["kv_tokens"], 320);
        let items = json["memory"]["items"].as_object().unwrap();
        assert_eq!(items["KV pool"], 320 * 256);
        let sum: u64 = items.values().map(|bytes| bytes.as_u64().unwrap()).sum();
        assert_eq!(json["memory"]["total_bytes"], sum);
    }

    #[test]
    fn a_model_is_described_for_people() {
        let text = report(tiny_llama(1), |args| args.num_blocks = Some(10)).to_string();
        assert!(text.contains("context        512 tokens\n"), "{text}");
        assert!(text.contains("KV cache       f16, 256 B a token, 10 blocks of 16 = 160 tokens\n"));
    }

    #[test]
    fn a_file_that_cannot_be_served_is_still_described() {
        let file = Writer::new()
            .metadata("general.architecture", "mamba\x1b")
            .finish();
        let report = report(file, |_| {});
        let text = report.to_string();
        assert!(text.contains("architecture   mamba\\u{1b}\n"), "{text}");
        assert!(text.contains("model          not usable: "), "{text}");
        assert!(text.contains("tokenizer      not usable: "), "{text}");
        assert!(!text.contains('\x1b'));
        assert!(report.refusal().is_some());
    }

    #[test]
    fn what_serving_would_refuse_is_told() {
        let long = report(tiny_llama(1), |args| args.max_model_len = Some(100_000));
        let told = long.refusal().expect("the context is 512 tokens");
        assert!(told.contains("100000") && told.contains("512"), "{told}");
        let budget = report(tiny_llama(1), |args| args.max_num_batched_tokens = 3);
        assert!(budget.refusal().is_some());
        assert!(budget.to_string().contains("serving        refused: "));
    }
}
