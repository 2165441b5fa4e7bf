//! Cases of the embedding kernels.

use lockstep_kernels::{Format, Shape};

use crate::case::{Case, Value, in_u32, out_f32};
use crate::weights::Weights;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for format in Format::ALL {
        let block = format.block_len();
        for inputs in [block, 4 * block, if block == 1 { 300 } else { 9 * block }] {
            out.push(case(format, inputs));
        }
    }
    out
}

fn case(format: Format, inputs: usize) -> Case {
    let tokens = [33, 0, 15, 16, 33];
    let weights = Weights::random(format, 34, inputs, inputs as u64);
    let row = |token: &u32| weights.row(*token as usize);
    let expected: Vec<f32> = tokens.iter().flat_map(row).collect();
    let shape = Shape {
        rows: tokens.len() as u32,
        ..Shape::default()
    };
    let values = vec![
        Value::In(weights.packed(format)),
        in_u32(&tokens),
        out_f32(&expected),
        Value::U32(inputs as u32),
    ];
    Case::new(
        &format!("embed_{}", format.name()),
        format!("rows of {inputs}"),
        shape,
        values,
    )
}
