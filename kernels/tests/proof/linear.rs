//! Cases of the linear kernels: one block, a segment and a bit, more segments than go at once; a
//! whole tile, and one output more; rows below, at and above what goes at once.

use lockstep_kernels::{Format, Shape};

use crate::case::{Case, Value, in_f32, in_u32, out_f32};
use crate::random::Random;
use crate::reference::quantised;
use crate::weights::Weights;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for format in Format::ALL {
        let block = format.block_len();
        // Three segments, the last one as long as leaves most of an unrolled loop's remainder.
        let ragged = 1024 + if block == 256 { 256 } else { 7 * block };
        let shapes = [
            (1, block, 1),
            (17, 512 + block, 2),
            (16, if block == 1 { 45 } else { 7 * block }, 3),
            (3, 512 * 9 + block, 1),
            (2, ragged, 2),
            (17, 1024, 1),
            (2, 512, 1),
            (2, 512 * 3 + block, 1),
            (2, 512 * 4 + block, 1),
            (17, 2 * block, 1),
            (2, if block == 1 { 8 } else { 5 * block }, 1),
            (2, if block == 1 { 9 } else { 4 * block }, 1),
        ];
        out.extend(shapes.map(|(outputs, inputs, rows)| case(format, 1, outputs, inputs, rows)));
        let shapes = [
            (17, block, 9),
            (17, 512 + block, 11),
            (17, 1024, 3),
            (17, 512 * 4 + block, 9),
            (16, 512 * 9 + block, 8),
            (2, ragged, 2),
            (3, ragged, 3),
            (2, 512, 1),
            (2, 512 * 3 + block, 1),
            (2, 512 * 4 + block, 1),
        ];
        out.extend(shapes.map(|(outputs, inputs, rows)| case(format, 8, outputs, inputs, rows)));
        if format.is_quantised() {
            // A chunk at most; a segment and a bit; two segments and rows of two blocks; outputs of
            // two blocks; whole tiles and columns; columns that begin with their last row, and a last
            // chunk of one step.
            let odd = if block == 32 { 96 } else { block };
            let shapes = [
                (17, block, 3),
                (3, 512 + block, 9),
                (32, 1024, 65),
                (65, 4 * block, 17),
                (2, if block == 32 { 160 } else { 768 }, 1),
                (64, block, 64),
                (2, odd, 25),
                (2, odd, 33),
                (2, odd, 41),
                (2, odd, 49),
                (2, odd, 57),
                // Whole tiles and columns; in a second block of rows so many that each end of columns is met; a
                // second block of outputs with each of its tiles, over rows so long that a byte too much
                // in each block is not lost in the rounding.
                (16, odd, 16),
                (2, odd, 81),
                (2, odd, 97),
                (113, if block == 32 { 160 } else { 16_384 }, 1),
            ];
            let case = |(outputs, inputs, rows)| case(format, 64, outputs, inputs, rows);
            out.extend(shapes.map(case));
        }
    }
    out
}

/// Shapes that nobody chose, of every format.
pub(crate) fn random(random: &mut Random) -> Vec<Case> {
    let mut out = Vec::new();
    for format in Format::ALL {
        let block = format.block_len() as u64;
        for at_once in [1, 8] {
            let outputs = 1 + random.below(70) as usize;
            let inputs = (block * (1 + random.below(3000 / block))) as usize;
            let rows = 1 + random.below(if at_once == 1 { 1 } else { 20 }) as usize;
            out.push(case(format, at_once, outputs, inputs, rows));
        }
    }
    out
}

fn case(format: Format, at_once: u32, outputs: usize, inputs: usize, rows: usize) -> Case {
    let seed = (outputs * 31 + inputs * 7 + rows) as u64;
    let weights = Weights::random(format, outputs, inputs, seed);
    let mut random = Random::new(seed + 1);
    let mut x = random.activations(rows * inputs);
    // The last elements count: they are all that some segments have.
    for row in x.chunks_mut(inputs) {
        let tail = inputs.saturating_sub(if inputs > 1024 { 224 } else { 32 });
        row[tail..].fill_with(|| random.float());
    }
    let expected: Vec<f32> = x.chunks(inputs).flat_map(|x| weights.times(x)).collect();
    let mut values = vec![Value::In(weights.packed(format))];
    if format.block_len() == 1 {
        values.push(in_f32(&x));
    } else {
        let (q, d, sums) = quantised(&x, format.block_len());
        values.extend([Value::In(q), in_f32(&d), in_u32(&sums)]);
    }
    values.push(out_f32(&expected));
    let shape = Shape {
        rows: rows as u32,
        outputs: outputs as u32,
        inputs: inputs as u32,
        ..Shape::default()
    };
    values.extend([shape.outputs, shape.inputs, shape.rows].map(Value::U32));
    let entry = format!("linear_{}_x{at_once}", format.name());
    Case::new(
        &entry,
        format!("{rows} rows, {outputs} x {inputs}"),
        shape,
        values,
    )
}
