//! The operations of a decoder as launches of the table's kernels.

use lockstep_kernels::{Kernel, Shape, kernel, reads_rounded};

use super::buffers::{Form, Quantised};
use super::layers::Matrix;
use super::rounded::Rounded;
use crate::backend::device::{Argument, Device};

use Argument::{Buffer, F32, U32};

/// A device, and the operations of a decoder on it.
#[derive(Debug)]
pub(super) struct Launcher<D: Device> {
    pub(super) device: D,
    /// What the `fast` profile needs; none under `portable`.
    pub(super) rounded: Option<Rounded<D::Buffer>>,
}

/// Launches the kernel of that entry.
pub(super) fn launch<D: Device>(
    device: &mut D,
    entry: &str,
    shape: Shape,
    arguments: &[Argument<'_, D::Buffer>],
) -> Result<(), String> {
    let kernel: &'static Kernel =
        kernel(entry).ok_or_else(|| format!("there is no kernel {entry}"))?;
    let message = |error| format!("{entry}: {error}");
    device.launch(kernel, &shape, arguments).map_err(message)
}

impl<D: Device> Launcher<D> {
    pub(super) fn launch(
        &mut self,
        entry: &str,
        shape: Shape,
        arguments: &[Argument<'_, D::Buffer>],
    ) -> Result<(), String> {
        launch(&mut self.device, entry, shape, arguments)
    }

    pub(super) fn embed(
        &mut self,
        matrix: &Matrix<D::Buffer>,
        tokens: &D::Buffer,
        out: &D::Buffer,
        rows: u32,
    ) -> Result<(), String> {
        let entry = format!("embed_{}", matrix.format.name());
        let shape = Shape {
            rows,
            ..Shape::default()
        };
        let arguments = [
            Buffer(&matrix.tiles),
            Buffer(tokens),
            Buffer(out),
            U32(matrix.inputs),
        ];
        self.launch(&entry, shape, &arguments)
    }

    /// Normalises rows and notes those that are not finite.
    pub(super) fn normalise(
        &mut self,
        x: &D::Buffer,
        weight: &D::Buffer,
        out: &D::Buffer,
        flags: &D::Buffer,
        (rows, width): (u32, u32),
        epsilon: f32,
    ) -> Result<(), String> {
        let shape = Shape {
            rows,
            ..Shape::default()
        };
        let arguments = [
            Buffer(x),
            Buffer(weight),
            Buffer(out),
            U32(width),
            F32(epsilon),
        ];
        self.launch("rms_norm", shape, &arguments)?;
        self.check(out, flags, (rows, width))
    }

    pub(super) fn check(
        &mut self,
        x: &D::Buffer,
        flags: &D::Buffer,
        (rows, width): (u32, u32),
    ) -> Result<(), String> {
        let shape = Shape {
            rows,
            ..Shape::default()
        };
        self.launch("check_rows", shape, &[Buffer(x), Buffer(flags), U32(width)])
    }

    /// Multiplies rows with matrices that read them; they are rounded or quantised once for each
    /// form. Under the `fast` profile tensor cores take the matrices that they can.
    pub(super) fn linear(
        &mut self,
        matrices: &[(&Matrix<D::Buffer>, &D::Buffer)],
        x: &D::Buffer,
        quantised: &Quantised<D::Buffer>,
        rows: u32,
    ) -> Result<(), String> {
        let is_fast = |m: &Matrix<_>| self.rounded.is_some() && reads_rounded(m.format).is_some();
        let (fast, matrices): (Vec<_>, Vec<_>) =
            matrices.iter().copied().partition(|(m, _)| is_fast(m));
        if let Some(rounded) = &self.rounded {
            rounded.linear(&mut self.device, &fast, x, rows)?;
        }
        for block in [32, 256] {
            let takes = |(m, _): &&(&Matrix<_>, _)| m.format.block_len() == block as usize;
            let Some((matrix, _)) = matrices.iter().find(takes) else {
                continue;
            };
            let Form { q, d, sums } = quantised.form(block);
            let blocks = rows * (matrix.inputs / block);
            let shape = Shape {
                elements: blocks,
                ..Shape::default()
            };
            let arguments = [Buffer(x), Buffer(q), Buffer(d), Buffer(sums), U32(blocks)];
            self.launch(&format!("quantise_{block}"), shape, &arguments)?;
        }
        matrices
            .iter()
            .try_for_each(|(matrix, out)| self.product(matrix, x, quantised, out, rows))
    }

    fn product(
        &mut self,
        matrix: &Matrix<D::Buffer>,
        x: &D::Buffer,
        quantised: &Quantised<D::Buffer>,
        out: &D::Buffer,
        rows: u32,
    ) -> Result<(), String> {
        let (outputs, inputs) = (matrix.outputs, matrix.inputs);
        let mut arguments = vec![Buffer(&matrix.tiles)];
        match matrix.format.block_len() {
            1 => arguments.push(Buffer(x)),
            block => {
                let Form { q, d, sums } = quantised.form(block as u32);
                arguments.extend([Buffer(q), Buffer(d), Buffer(sums)]);
            }
        }
        arguments.extend([Buffer(out), U32(outputs), U32(inputs), U32(rows)]);
        let at_once = matrix.format.rows_at_once(rows);
        let shape = Shape {
            rows,
            outputs,
            inputs,
            ..Shape::default()
        };
        self.launch(
            &format!("linear_{}_x{at_once}", matrix.format.name()),
            shape,
            &arguments,
        )
    }

    pub(super) fn elementwise(
        &mut self,
        entry: &str,
        [a, b, out]: [&D::Buffer; 3],
        elements: u32,
    ) -> Result<(), String> {
        let shape = Shape {
            elements,
            ..Shape::default()
        };
        self.launch(
            entry,
            shape,
            &[Buffer(a), Buffer(b), Buffer(out), U32(elements)],
        )
    }
}
