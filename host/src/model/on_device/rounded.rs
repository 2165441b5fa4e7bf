//! Linear layers of the `fast` profile: rows rounded to 16 bits, multiplied by tensor cores.

use lockstep_kernels::{Shape, fast_linear, reads_rounded, rounded_stride};

use super::super::footprint::max_inputs;
use super::super::{ModelConfig, ModelOptions, Numerics};
use super::launcher::launch;
use super::layers::Matrix;
use crate::backend::device::{Argument, Device};

use Argument::{Buffer, U32};

/// Room for the rows of a step rounded to 16 bits, and their scales.
#[derive(Debug)]
pub(super) struct Rounded<B> {
    rows: B,
    scales: B,
}

impl<B> Rounded<B> {
    pub(super) fn new<D: Device<Buffer = B>>(
        config: &ModelConfig,
        options: &ModelOptions,
        device: &mut D,
    ) -> Result<Self, String> {
        let [rows, scales] = sizes(config, options);
        Ok(Self {
            rows: device.allocate(rows)?,
            scales: device.allocate(scales)?,
        })
    }

    /// Multiplies rows with matrices that tensor cores take. They are rounded once for each 16-bit
    /// type.
    pub(super) fn linear<D: Device<Buffer = B>>(
        &self,
        device: &mut D,
        matrices: &[(&Matrix<B>, &B)],
        x: &B,
        rows: u32,
    ) -> Result<(), String> {
        for rounding in ["fast_round_f16", "fast_round_bf16"] {
            let reads = |(m, _): &&(&Matrix<_>, _)| reads_rounded(m.format) == Some(rounding);
            let mut reading = matrices.iter().filter(reads).peekable();
            let Some((first, _)) = reading.peek() else {
                continue;
            };
            let shape = Shape {
                rows,
                ..Shape::default()
            };
            let buffers = [x, &self.rows, &self.scales].map(Buffer);
            let [x, out, scales] = buffers;
            launch(
                device,
                rounding,
                shape,
                &[x, out, scales, U32(first.inputs)],
            )?;
            for (matrix, out) in reading {
                self.product(device, matrix, out, rows)?;
            }
        }
        Ok(())
    }

    fn product<D: Device<Buffer = B>>(
        &self,
        device: &mut D,
        matrix: &Matrix<B>,
        out: &B,
        rows: u32,
    ) -> Result<(), String> {
        let (outputs, inputs) = (matrix.outputs, matrix.inputs);
        let name = matrix.format.name();
        let entry = fast_linear(matrix.format, rows)
            .ok_or_else(|| format!("no tensor-core kernel takes {name}"))?;
        let shape = Shape {
            rows,
            outputs,
            inputs,
            ..Shape::default()
        };
        let arguments = [
            Buffer(&matrix.tiles),
            Buffer(&self.rows),
            Buffer(&self.scales),
            Buffer(out),
            U32(outputs),
            U32(inputs),
            U32(rows),
        ];
        launch(device, entry, shape, &arguments)
    }
}

/// Bytes of the rounded rows of a step, and of their scales.
fn sizes(config: &ModelConfig, options: &ModelOptions) -> [usize; 2] {
    let stride = rounded_stride(max_inputs(config) as u32) as usize;
    [options.max_rows * stride * 2, options.max_rows * 4]
}

/// Bytes that the profile of the options takes beside what every model takes.
pub(super) fn bytes(config: &ModelConfig, options: &ModelOptions) -> u64 {
    match options.numerics {
        Numerics::Portable => 0,
        Numerics::Fast => sizes(config, options).iter().sum::<usize>() as u64,
    }
}
