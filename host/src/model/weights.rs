//! The weights: which tensors a Llama model has, checked, and then packed.

use std::sync::Arc;

use super::{ModelConfig, ModelError};
use crate::backend::cpu::activations::Form;
use crate::backend::cpu::memory::Arena;
use crate::backend::cpu::pack::PackedMatrix;
use crate::backend::cpu::pool::Pool;
use crate::backend::decode;
use crate::gguf::{GgmlType, Gguf, TensorInfo};

/// The matrices of a transformer block: name, outputs, inputs.
const MATRICES: [(&str, Width, Width); 7] = [
    ("attn_q", Width::Query, Width::Embedding),
    ("attn_k", Width::Kv, Width::Embedding),
    ("attn_v", Width::Kv, Width::Embedding),
    ("attn_output", Width::Embedding, Width::Query),
    ("ffn_gate", Width::FeedForward, Width::Embedding),
    ("ffn_up", Width::FeedForward, Width::Embedding),
    ("ffn_down", Width::Embedding, Width::FeedForward),
];
const NORMS: [&str; 2] = ["attn_norm", "ffn_norm"];
const EMBEDDING: &str = "token_embd.weight";
const OUTPUT: &str = "output.weight";
const OUTPUT_NORM: &str = "output_norm.weight";
const ROPE_FACTORS: &str = "rope_freqs.weight";

#[derive(Clone, Copy)]
enum Width {
    Embedding,
    Query,
    Kv,
    FeedForward,
}

impl Width {
    const fn of(self, config: &ModelConfig) -> usize {
        match self {
            Self::Embedding => config.embedding,
            Self::Query => config.query_width(),
            Self::Kv => config.kv_width(),
            Self::FeedForward => config.feed_forward,
        }
    }
}

/// A matrix of the file whose shape and type are as they should be.
#[derive(Clone, Copy, Debug)]
struct Matrix<'a> {
    tensor: &'a TensorInfo,
    outputs: usize,
    inputs: usize,
}

/// Every tensor of the model, checked against its metadata.
#[derive(Debug)]
pub(super) struct Shapes<'a> {
    layers: Vec<([Matrix<'a>; 7], [&'a TensorInfo; 2])>,
    embedding: Matrix<'a>,
    output: Option<Matrix<'a>>,
    output_norm: &'a TensorInfo,
    rope_factors: Option<&'a TensorInfo>,
}

impl<'a> Shapes<'a> {
    /// Finds and checks them.
    pub(super) fn read(file: &'a Gguf, config: &ModelConfig) -> Result<Self, ModelError> {
        let mut layers = Vec::new();
        for layer in 0..config.layers {
            layers.push(read_layer(file, config, layer)?);
        }
        let vocabulary = |name| matrix(file, name, config.vocab_size, config.embedding);
        let output = file
            .tensor(OUTPUT)
            .map(|_| vocabulary(OUTPUT))
            .transpose()?;
        let factors = file.tensor(ROPE_FACTORS);
        let factors = factors.map(|_| vector(file, ROPE_FACTORS, config.head_dim / 2));
        let shapes = Self {
            layers,
            embedding: vocabulary(EMBEDDING)?,
            output,
            output_norm: vector(file, OUTPUT_NORM, config.embedding)?,
            rope_factors: factors.transpose()?,
        };
        shapes.refuse_others(file)?;
        Ok(shapes)
    }

    fn refuse_others(&self, file: &Gguf) -> Result<(), ModelError> {
        let top = [EMBEDDING, OUTPUT, OUTPUT_NORM, ROPE_FACTORS];
        let known = |name: &str| top.contains(&name) || is_block_tensor(name, self.layers.len());
        match file.tensors().iter().find(|tensor| !known(tensor.name())) {
            None => Ok(()),
            Some(tensor) => Err(ModelError::UnknownTensor {
                name: tensor.name().into(),
            }),
        }
    }

    fn matrices(&self) -> impl Iterator<Item = &Matrix<'a>> {
        let blocks = self.layers.iter().flat_map(|(matrices, _)| matrices);
        blocks.chain([&self.embedding]).chain(&self.output)
    }

    /// Bytes of all matrices when packed.
    pub(super) fn packed_bytes(&self) -> usize {
        let bytes = |m: &Matrix<'_>| {
            PackedMatrix::packed_bytes(m.tensor.ggml_type(), m.outputs, m.inputs)
                .unwrap_or(usize::MAX)
        };
        self.matrices().map(bytes).fold(0, usize::saturating_add)
    }

    /// Bytes of all norms.
    pub(super) fn norm_bytes(&self) -> usize {
        let norms = self.layers.iter().flat_map(|(_, norms)| norms);
        let elements = |tensor: &&TensorInfo| tensor.elements() as usize;
        norms
            .chain([&self.output_norm])
            .map(elements)
            .sum::<usize>()
            * 4
    }

    /// The forms of activations that the matrices want.
    pub(super) fn forms(&self) -> Vec<Form> {
        let mut forms = Vec::new();
        for matrix in self.matrices() {
            let form = Form::of(matrix.tensor.ggml_type());
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        forms
    }
}

fn is_block_tensor(name: &str, layers: usize) -> bool {
    let Some((layer, rest)) = name.strip_prefix("blk.").and_then(|s| s.split_once('.')) else {
        return false;
    };
    let Some(part) = rest.strip_suffix(".weight") else {
        return false;
    };
    let named = NORMS.contains(&part) || MATRICES.iter().any(|(name, ..)| *name == part);
    named && layer.parse::<usize>().is_ok_and(|layer| layer < layers)
}

fn read_layer<'a>(
    file: &'a Gguf,
    config: &ModelConfig,
    layer: usize,
) -> Result<([Matrix<'a>; 7], [&'a TensorInfo; 2]), ModelError> {
    let read = |(part, outputs, inputs): (&str, Width, Width)| {
        let name = format!("blk.{layer}.{part}.weight");
        matrix(file, &name, outputs.of(config), inputs.of(config))
    };
    let norm = |part| {
        let name = format!("blk.{layer}.{part}.weight");
        vector(file, &name, config.embedding)
    };
    let [q, k, v, o, gate, up, down] = MATRICES.map(read);
    let [attention, feed_forward] = NORMS.map(norm);
    Ok((
        [q?, k?, v?, o?, gate?, up?, down?],
        [attention?, feed_forward?],
    ))
}

fn find<'a>(file: &'a Gguf, name: &str, expected: &[usize]) -> Result<&'a TensorInfo, ModelError> {
    let tensor = file.tensor(name);
    let tensor = tensor.ok_or_else(|| ModelError::MissingTensor { name: name.into() })?;
    let expected: Vec<u64> = expected.iter().map(|d| *d as u64).collect();
    match tensor.dims() == expected {
        true => Ok(tensor),
        false => Err(ModelError::BadShape {
            name: name.into(),
            found: tensor.dims().into(),
            expected,
        }),
    }
}

fn matrix<'a>(
    file: &'a Gguf,
    name: &str,
    outputs: usize,
    inputs: usize,
) -> Result<Matrix<'a>, ModelError> {
    let tensor = find(file, name, &[inputs, outputs])?;
    Ok(Matrix {
        tensor,
        outputs,
        inputs,
    })
}

fn vector<'a>(file: &'a Gguf, name: &str, len: usize) -> Result<&'a TensorInfo, ModelError> {
    let tensor = find(file, name, &[len])?;
    match tensor.ggml_type() {
        GgmlType::F32 | GgmlType::F16 | GgmlType::BF16 => Ok(tensor),
        found => Err(ModelError::BadType {
            name: name.into(),
            found,
            expected: "F32, F16 or BF16",
        }),
    }
}

/// The weights of a transformer block.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) attention_norm: Vec<f32>,
    pub(super) query: PackedMatrix,
    pub(super) key: PackedMatrix,
    pub(super) value: PackedMatrix,
    pub(super) output: PackedMatrix,
    pub(super) feed_forward_norm: Vec<f32>,
    pub(super) gate: PackedMatrix,
    pub(super) up: PackedMatrix,
    pub(super) down: PackedMatrix,
}

/// All weights of a model.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) layers: Vec<Layer>,
    pub(super) embedding: PackedMatrix,
    /// None where the embedding is the output projection as well.
    output: Option<PackedMatrix>,
    pub(super) output_norm: Vec<f32>,
    /// What divides each pair's frequency, if anything does.
    pub(super) rope_factors: Option<Vec<f32>>,
}

impl Weights {
    /// Packs the tensors of `shapes`.
    pub(super) fn load(
        file: &Gguf,
        shapes: &Shapes<'_>,
        pool: &mut Pool,
    ) -> Result<Self, ModelError> {
        let arena = Arena::new(shapes.packed_bytes()).map_err(no_memory)?;
        let mut pack = |matrix: &Matrix<'_>| pack(file, matrix, &arena, pool);
        let mut layers = Vec::new();
        for (matrices, norms) in &shapes.layers {
            let [attention_norm, feed_forward_norm] = norms.map(|norm| floats(file, norm));
            let mut pack = |i: usize| pack(&matrices[i]);
            layers.push(Layer {
                attention_norm,
                query: pack(0)?,
                key: pack(1)?,
                value: pack(2)?,
                output: pack(3)?,
                feed_forward_norm,
                gate: pack(4)?,
                up: pack(5)?,
                down: pack(6)?,
            });
        }
        let output = shapes.output.as_ref();
        Ok(Self {
            layers,
            embedding: pack(&shapes.embedding)?,
            output: output.map(pack).transpose()?,
            output_norm: floats(file, shapes.output_norm),
            rope_factors: shapes.rope_factors.map(|tensor| floats(file, tensor)),
        })
    }

    /// The output projection.
    pub(super) fn output(&self) -> &PackedMatrix {
        self.output.as_ref().unwrap_or(&self.embedding)
    }
}

fn pack(
    file: &Gguf,
    matrix: &Matrix<'_>,
    arena: &Arc<Arena>,
    pool: &mut Pool,
) -> Result<PackedMatrix, ModelError> {
    let bytes = file.tensor_data(matrix.tensor);
    let (outputs, inputs) = (matrix.outputs, matrix.inputs);
    let ggml_type = matrix.tensor.ggml_type();
    PackedMatrix::pack_into(arena, ggml_type, outputs, inputs, bytes, pool).map_err(no_memory)
}

fn no_memory(source: std::io::Error) -> ModelError {
    ModelError::System {
        what: "memory for the weights",
        source,
    }
}

fn floats(file: &Gguf, tensor: &TensorInfo) -> Vec<f32> {
    let mut out = vec![0.0; tensor.elements() as usize];
    decode::row(tensor.ggml_type(), file.tensor_data(tensor), &mut out);
    out
}
