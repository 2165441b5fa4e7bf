//! What a file's metadata says of its model, checked.

use super::ModelError;
use crate::gguf::{Gguf, Value};

/// The most elements that any dimension of a model may have: products of three stay far inside 64
/// bits.
const MAX_DIMENSION: u32 = 1 << 20;
const MAX_LAYERS: u32 = 1 << 10;
const MAX_CONTEXT: u32 = 1 << 24;

/// How positions beyond the trained context are squeezed into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// They are not.
    None,
    /// Positions are divided by a factor.
    Linear {
        /// The factor.
        factor: f32,
    },
}

/// The shape of a Llama model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Transformer blocks.
    pub layers: usize,
    /// Elements of a token's embedding.
    pub embedding: usize,
    /// Elements between the two halves of a feed-forward layer.
    pub feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values; divides [`heads`](Self::heads).
    pub kv_heads: usize,
    /// Elements of a head, a multiple of 16.
    pub head_dim: usize,
    /// Positions the model was made for.
    pub context_length: u32,
    /// Positions that a row's attention sees, its own the last of them; 0 for all.
    pub sliding_window: u32,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// What RMSNorm adds to the mean square.
    pub rms_epsilon: f32,
    /// The base of the rotation frequencies.
    pub rope_base: f32,
    /// How positions are scaled.
    pub rope_scaling: RopeScaling,
}

impl ModelConfig {
    /// Reads it from a file's metadata.
    ///
    /// # Errors
    /// A [`ModelError`] that names the key, what was found and what would be supported.
    pub fn from_gguf(file: &Gguf) -> Result<Self, ModelError> {
        let architecture = file.str("general.architecture")?.unwrap_or_default();
        if architecture != "llama" {
            let found = architecture.into();
            return Err(ModelError::Architecture { found });
        }
        let keys = Keys { file };
        let embedding = keys.dimension("llama.embedding_length", None, MAX_DIMENSION)?;
        let heads = keys.dimension("llama.attention.head_count", None, MAX_DIMENSION)?;
        let kv_heads =
            keys.dimension("llama.attention.head_count_kv", Some(heads), MAX_DIMENSION)?;
        let head_dim = keys.head_dim(embedding, heads)?;
        let config = Self {
            layers: keys.dimension("llama.block_count", None, MAX_LAYERS)? as usize,
            embedding: embedding as usize,
            feed_forward: keys.dimension("llama.feed_forward_length", None, MAX_DIMENSION)?
                as usize,
            heads: heads as usize,
            kv_heads: kv_heads as usize,
            head_dim: head_dim as usize,
            context_length: keys.dimension("llama.context_length", None, MAX_CONTEXT)?,
            sliding_window: keys.sliding_window()?,
            vocab_size: keys.vocab_size()?,
            rms_epsilon: keys.positive("llama.attention.layer_norm_rms_epsilon", None)?,
            rope_base: keys.positive("llama.rope.freq_base", Some(10_000.0))?,
            rope_scaling: keys.rope_scaling()?,
        };
        config.check(&keys)?;
        Ok(config)
    }

    /// Query heads that share a head of keys and values.
    pub const fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Elements of all queries of a row.
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of all keys (or values) of a row.
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn check(&self, keys: &Keys<'_>) -> Result<(), ModelError> {
        let multiple = |key: &str, value: usize, of: usize| match value.is_multiple_of(of) {
            true => Ok(()),
            false => Err(bad(key, value, format!("a multiple of {of}"))),
        };
        multiple("llama.embedding_length", self.embedding, 16)?;
        multiple("llama.feed_forward_length", self.feed_forward, 16)?;
        multiple("llama.attention.key_length", self.head_dim, 16)?;
        if !self.heads.is_multiple_of(self.kv_heads) {
            let expected = format!("a divisor of {} heads", self.heads);
            return Err(bad(
                "llama.attention.head_count_kv",
                self.kv_heads,
                expected,
            ));
        }
        if self.query_width() > MAX_DIMENSION as usize {
            let expected = format!("at most {MAX_DIMENSION} elements of all heads");
            return Err(bad("llama.attention.head_count", self.heads, expected));
        }
        let head_dim = self.head_dim as u32;
        for key in ["llama.attention.value_length", "llama.rope.dimension_count"] {
            let found = keys.dimension(key, Some(head_dim), MAX_DIMENSION)?;
            if found != head_dim {
                return Err(bad(key, found, format!("the length of a key, {head_dim}")));
            }
        }
        let experts = keys.file.u32("llama.expert_count")?.unwrap_or(0);
        match experts {
            0 => Ok(()),
            _ => Err(bad("llama.expert_count", experts, "0: no experts".into())),
        }
    }
}

fn bad(key: &str, found: impl ToString, expected: String) -> ModelError {
    ModelError::BadValue {
        key: key.into(),
        found: found.to_string(),
        expected,
    }
}

/// The file's metadata, each value checked as it is read.
struct Keys<'a> {
    file: &'a Gguf,
}

impl Keys<'_> {
    fn dimension(&self, key: &str, default: Option<u32>, limit: u32) -> Result<u32, ModelError> {
        let value = self.file.u32(key)?.or(default);
        let value = value.ok_or_else(|| ModelError::MissingKey { key: key.into() })?;
        match (1..=limit).contains(&value) {
            true => Ok(value),
            false => Err(bad(key, value, format!("1 to {limit}"))),
        }
    }

    fn sliding_window(&self) -> Result<u32, ModelError> {
        let key = "llama.attention.sliding_window";
        match self.file.u32(key)?.unwrap_or(0) {
            window if window <= MAX_CONTEXT => Ok(window),
            window => Err(bad(key, window, format!("at most {MAX_CONTEXT}"))),
        }
    }

    fn positive(&self, key: &str, default: Option<f32>) -> Result<f32, ModelError> {
        let value = self.file.f32(key)?.or(default);
        let value = value.ok_or_else(|| ModelError::MissingKey { key: key.into() })?;
        match value.is_finite() && value > 0.0 {
            true => Ok(value),
            false => Err(bad(key, value, "a number above 0".into())),
        }
    }

    fn head_dim(&self, embedding: u32, heads: u32) -> Result<u32, ModelError> {
        let key = "llama.attention.key_length";
        if self.file.value(key).is_none() && !embedding.is_multiple_of(heads) {
            let expected = format!("a divisor of the embedding's {embedding} elements");
            return Err(bad("llama.attention.head_count", heads, expected));
        }
        self.dimension(key, Some(embedding / heads), MAX_DIMENSION)
    }

    /// The rows of the embedding: what the vocabulary really has.
    fn vocab_size(&self) -> Result<usize, ModelError> {
        let name = "token_embd.weight";
        let tensor = self.file.tensor(name);
        let tensor = tensor.ok_or_else(|| ModelError::MissingTensor { name: name.into() })?;
        let rows = tensor.rows();
        match rows <= 1 << 24 {
            true => Ok(rows as usize),
            false => Err(bad("the vocabulary", rows, "at most 2^24 entries".into())),
        }
    }

    fn rope_scaling(&self) -> Result<RopeScaling, ModelError> {
        let kind = self.file.str("llama.rope.scaling.type")?;
        let factor = self.file.f32("llama.rope.scaling.factor")?;
        let legacy = match self.file.value("llama.rope.scale_linear") {
            Some(Value::F32(factor)) => Some(*factor),
            _ => None,
        };
        match (kind, factor.or(legacy)) {
            (Some("none"), _) | (None, None) => Ok(RopeScaling::None),
            (Some("linear") | None, Some(factor)) if factor.is_finite() && factor > 0.0 => {
                Ok(RopeScaling::Linear { factor })
            }
            (kind, factor) => Err(bad(
                "llama.rope.scaling.type",
                format!("{} with factor {factor:?}", kind.unwrap_or("absent")),
                "\"none\", or \"linear\" with a factor above 0".into(),
            )),
        }
    }
}
