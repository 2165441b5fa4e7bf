//! A model's weights and KV pool on a device.

use lockstep_kernels::Format;

use super::super::footprint::positions;
use super::super::transformer::frequencies;
use super::super::weights::{Layer, Weights};
use super::super::{ModelConfig, ModelError, ModelOptions};
use super::failed;
use super::step::MAX_PADDING;
use crate::backend::cpu::pack::PackedMatrix;
use crate::backend::device::Device;
use crate::gguf::GgmlType;

/// A packed matrix.
#[derive(Debug)]
pub(super) struct Matrix<B> {
    pub(super) format: Format,
    pub(super) outputs: u32,
    pub(super) inputs: u32,
    pub(super) tiles: B,
}

impl<B> Matrix<B> {
    pub(super) fn load<D: Device<Buffer = B>>(
        matrix: &PackedMatrix,
        device: &mut D,
    ) -> Result<Self, ModelError> {
        Ok(Self {
            format: format(matrix.ggml_type()),
            outputs: matrix.outputs() as u32,
            inputs: matrix.inputs() as u32,
            tiles: device.upload(matrix.as_slice()).map_err(failed)?,
        })
    }
}

pub(super) const fn format(ggml_type: GgmlType) -> Format {
    match ggml_type {
        GgmlType::F32 => Format::F32,
        GgmlType::F16 => Format::F16,
        GgmlType::BF16 => Format::BF16,
        GgmlType::Q4_0 => Format::Q4_0,
        GgmlType::Q4_1 => Format::Q4_1,
        GgmlType::Q5_0 => Format::Q5_0,
        GgmlType::Q5_1 => Format::Q5_1,
        GgmlType::Q8_0 => Format::Q8_0,
        GgmlType::IQ4_NL => Format::IQ4_NL,
        GgmlType::MXFP4 => Format::MXFP4,
        GgmlType::Q2_K => Format::Q2_K,
        GgmlType::Q3_K => Format::Q3_K,
        GgmlType::Q4_K => Format::Q4_K,
        GgmlType::Q5_K => Format::Q5_K,
        GgmlType::Q6_K => Format::Q6_K,
        GgmlType::IQ4_XS => Format::IQ4_XS,
    }
}

/// The weights of a transformer block, and its part of the KV pool.
#[derive(Debug)]
pub(super) struct DeviceLayer<B> {
    pub(super) attention_norm: B,
    pub(super) query: Matrix<B>,
    pub(super) key: Matrix<B>,
    pub(super) value: Matrix<B>,
    pub(super) output: Matrix<B>,
    pub(super) feed_forward_norm: B,
    pub(super) gate: Matrix<B>,
    pub(super) up: Matrix<B>,
    pub(super) down: Matrix<B>,
    pub(super) kv_keys: B,
    pub(super) kv_values: B,
}

/// Bytes of the keys (or values) of a block in one layer.
pub(super) fn block_bytes(config: &ModelConfig, options: &ModelOptions) -> usize {
    config.kv_width() * options.block_size as usize * options.kv_dtype.bytes()
}

impl<B> DeviceLayer<B> {
    pub(super) fn load<D: Device<Buffer = B>>(
        layer: &Layer,
        config: &ModelConfig,
        options: &ModelOptions,
        device: &mut D,
    ) -> Result<Self, ModelError> {
        let blocks = options.num_blocks as usize + MAX_PADDING as usize;
        let pool = block_bytes(config, options).checked_mul(blocks);
        let pool = pool.ok_or(ModelError::BadOption {
            option: "num_blocks",
            found: options.num_blocks.into(),
            expected: "so many that the pool fits the address space",
        })?;
        Ok(Self {
            attention_norm: floats(&layer.attention_norm, device).map_err(failed)?,
            query: Matrix::load(&layer.query, device)?,
            key: Matrix::load(&layer.key, device)?,
            value: Matrix::load(&layer.value, device)?,
            output: Matrix::load(&layer.output, device)?,
            feed_forward_norm: floats(&layer.feed_forward_norm, device).map_err(failed)?,
            gate: Matrix::load(&layer.gate, device)?,
            up: Matrix::load(&layer.up, device)?,
            down: Matrix::load(&layer.down, device)?,
            kv_keys: device.allocate(pool).map_err(failed)?,
            kv_values: device.allocate(pool).map_err(failed)?,
        })
    }
}

/// Cosines and sines: half a head's worth for every position.
#[derive(Debug)]
pub(super) struct RopeTables<B> {
    pub(super) cosines: B,
    pub(super) sines: B,
}

impl<B> RopeTables<B> {
    pub(super) fn load<D: Device<Buffer = B>>(
        config: &ModelConfig,
        options: &ModelOptions,
        weights: &Weights,
        device: &mut D,
    ) -> Result<Self, String> {
        let frequencies = frequencies(config, weights.rope_factors.as_deref());
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for position in 0..positions(config, options) {
            for frequency in &frequencies {
                let angle = position as f64 * frequency;
                cosines.push(libm::cos(angle) as f32);
                sines.push(libm::sin(angle) as f32);
            }
        }
        Ok(Self {
            cosines: floats(&cosines, device)?,
            sines: floats(&sines, device)?,
        })
    }
}

/// A buffer that holds these.
pub(super) fn floats<D: Device>(values: &[f32], device: &mut D) -> Result<D::Buffer, String> {
    device.upload(bytemuck::cast_slice(values))
}
