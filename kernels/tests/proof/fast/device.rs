//! The `fast` kernels through a driver. In which order tensor cores add is each GPU's own: what is
//! due is the bound of the roundings, and bits that depend on nothing but the row.

use lockstep::backend::device::Device;
use lockstep_kernels::fast_linear;

use super::bound;
use super::cases::{Layer, formats, narrow_shapes, wide_shapes};
use crate::case::Case;

/// Rows of a batch of which each is computed at another place as well.
const ROWS: usize = 67;

/// The outputs of a linear layer's launch.
fn outputs<D: Device>(case: &Case, device: &mut D) -> Result<Vec<f32>, String> {
    let mut found = case.run_on(device)?;
    let bytes = found.pop().ok_or("it has no output")?;
    let float = |word: &[u8]| word.try_into().map(f32::from_le_bytes);
    let floats: Result<Vec<f32>, _> = bytes.chunks(4).map(float).collect();
    floats.map_err(|error| error.to_string())
}

/// How many of a launch's outputs have the bits of the rules as the interpreter adds; each has to be
/// within its bound.
fn within_bound<D: Device>(
    layer: &Layer,
    kernel_for: u32,
    device: &mut D,
) -> Result<[usize; 2], String> {
    let case = layer.case(kernel_for);
    let found = outputs(&case, device)?;
    let mut equal = 0;
    for (index, found) in found.iter().enumerate() {
        let (row, output) = (index / layer.outputs, index % layer.outputs);
        let x = &layer.x[row * layer.inputs..][..layer.inputs];
        let (exact, most) = bound::output(layer, x, output);
        // An output that is no number is within no bound.
        let is_within = (f64::from(*found) - exact).abs() <= most;
        if !is_within {
            return Err(format!(
                "{}: row {row}, output {output}: {found} for {exact}, bound {most}",
                case.name
            ));
        }
        equal += usize::from(found.to_bits() == layer.expected[row][output].to_bits());
    }
    Ok([equal, found.len()])
}

/// A row's bits in batches of other sizes, at other places, by either kernel.
fn invariant<D: Device>(layer: &Layer, device: &mut D) -> Result<(), String> {
    let all: Vec<usize> = (0..ROWS).collect();
    let bits = |rows: &[usize], kernel_for, device: &mut D| {
        let found = outputs(&layer.case_of(kernel_for, rows), device)?;
        let bits = found.iter().map(|x| x.to_bits());
        Ok::<Vec<u32>, String>(bits.collect())
    };
    let whole = bits(&all, 1, device)?;
    let reversed: Vec<usize> = all.iter().rev().copied().collect();
    let others = [&all[..], &reversed, &all[5..6], &all[60..], &reversed[..9]];
    for (rows, kernel_for) in others.iter().flat_map(|rows| [(rows, 1), (rows, u32::MAX)]) {
        let found = bits(rows, kernel_for, device)?;
        for (row, found) in rows.iter().zip(found.chunks(layer.outputs)) {
            if found != &whole[row * layer.outputs..][..layer.outputs] {
                return Err(format!("row {row} among {} has other bits", rows.len()));
            }
        }
    }
    Ok(())
}

/// Prints a line for each linear kernel; gives what failed, and how many launches were compared.
pub(crate) fn check<D: Device>(device: &mut D) -> (Vec<String>, usize) {
    let (mut failures, mut ran) = (Vec::new(), 0);
    for format in formats() {
        let shapes = [(1, narrow_shapes(format)), (u32::MAX, wide_shapes(format))];
        for (kernel_for, shapes) in shapes {
            let entry = fast_linear(format, kernel_for).unwrap_or_default();
            let mut of = [0; 2];
            let checked = shapes.into_iter().try_for_each(|shape| {
                ran += 1;
                let [equal, all] = within_bound(&Layer::new(format, shape), kernel_for, device)?;
                of = [of[0] + equal, of[1] + all];
                Ok::<(), String>(())
            });
            let verdict = if checked.is_ok() {
                "within its bound"
            } else {
                "OFF"
            };
            println!(
                "{entry:24} {verdict}, {} of {} as the interpreter adds",
                of[0], of[1]
            );
            failures.extend(checked.err().map(|error| format!("{entry}: {error}")));
        }
        ran += 1;
        let layer = Layer::new(format, (17, 512 + format.block_len(), ROWS));
        let checked = invariant(&layer, device);
        failures.extend(checked.err().map(|error| format!("{format:?}: {error}")));
    }
    (failures, ran)
}
