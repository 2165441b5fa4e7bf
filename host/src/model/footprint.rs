//! The memory that a model will need, item by item, before any of it is taken.

use super::transformer::attention_shape;
use super::weights::Shapes;
use super::{ModelConfig, ModelError, ModelOptions};
use crate::backend::cpu::activations::{Activations, Form};
use crate::backend::cpu::attention::Scratch;
use crate::backend::cpu::device::partial_floats;
use crate::backend::cpu::kv::KvShape;
use crate::gguf::Gguf;

/// One use of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What for.
    pub name: &'static str,
    /// How many bytes.
    pub bytes: u64,
}

/// All memory that a model takes while it is loaded, the file's mapping apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The uses, the weights first.
    pub items: Vec<Item>,
}

impl Footprint {
    /// What `file` will need with these options; takes no memory itself.
    ///
    /// # Errors
    /// Whatever [`Model::load`](super::Model::load) would refuse.
    pub fn of(file: &Gguf, options: &ModelOptions) -> Result<Self, ModelError> {
        let config = ModelConfig::from_gguf(file)?;
        let shapes = Shapes::read(file, &config)?;
        super::check::options(options)?;
        let overflow = || ModelError::BadOption {
            option: "num_blocks",
            found: options.num_blocks.into(),
            expected: "so many that the pool fits the address space",
        };
        let pool = kv_shape(&config, options).bytes().ok_or_else(overflow)?;
        let items = [
            ("weights", shapes.packed_bytes()),
            ("norms", shapes.norm_bytes()),
            ("KV pool", pool),
            ("rotation tables", rope_floats(&config, options) * 4),
            ("activations", activation_bytes(&config, &shapes, options)),
            ("attention scratch", attention_bytes(&config, options)),
        ];
        let item = |(name, bytes)| Item {
            name,
            bytes: bytes as u64,
        };
        Ok(Self {
            items: items.map(item).into(),
        })
    }

    /// The sum of all items.
    pub fn total(&self) -> u64 {
        self.items.iter().map(|item| item.bytes).sum()
    }
}

/// The shape of the KV pool.
pub(super) fn kv_shape(config: &ModelConfig, options: &ModelOptions) -> KvShape {
    KvShape {
        layers: config.layers,
        heads: config.kv_heads,
        head_dim: config.head_dim,
        blocks: options.num_blocks as usize,
        block_size: options.block_size as usize,
        dtype: options.kv_dtype,
    }
}

/// Positions that a sequence can have.
pub(super) fn positions(config: &ModelConfig, options: &ModelOptions) -> usize {
    let pool = u64::from(options.num_blocks) * u64::from(options.block_size);
    let limit = options.max_positions.min(config.context_length);
    u64::from(limit).min(pool) as usize
}

/// Elements of the cosines and sines together.
pub(super) fn rope_floats(config: &ModelConfig, options: &ModelOptions) -> usize {
    2 * positions(config, options) * config.head_dim
}

/// The f32 elements of each buffer of a row: residual, normed, queries with keys and values,
/// attention's results, gate, up.
pub(super) fn row_floats(config: &ModelConfig) -> [usize; 6] {
    let query = config.query_width();
    [
        config.embedding,
        config.embedding,
        query + 2 * config.kv_width(),
        query,
        config.feed_forward,
        config.feed_forward,
    ]
}

/// The longest row that a linear layer reads.
pub(super) fn max_inputs(config: &ModelConfig) -> usize {
    config
        .embedding
        .max(config.query_width())
        .max(config.feed_forward)
}

fn activation_bytes(config: &ModelConfig, shapes: &Shapes, options: &ModelOptions) -> usize {
    let floats: usize = row_floats(config).iter().sum();
    let forms: usize = shapes
        .forms()
        .iter()
        .map(|form: &Form| Activations::bytes_of(*form, options.max_rows, max_inputs(config)))
        .sum();
    floats * options.max_rows * 4 + forms
}

fn attention_bytes(config: &ModelConfig, options: &ModelOptions) -> usize {
    let shape = attention_shape(config);
    let partials = partial_floats(options.threads, positions(config, options), &shape) * 4;
    options.threads * Scratch::bytes(config.group(), config.head_dim) + partials
}
