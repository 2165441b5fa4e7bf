//! A row's bits depend on nothing but the row.

use lockstep_kernels::Format;
use ptx_interpreter::{Module, Order};

use super::cases::{Layer, formats};
use crate::case::{self, Case};

fn module_of(case: &Case) -> Module {
    case::module(&case::entry_text(case.kernel))
}

fn check(module: &Module, case: &Case) {
    let run = case.check(module, Order::Ascending);
    run.unwrap_or_else(|error| panic!("{}: {}: {error}", case.kernel.entry, case.name));
}

/// The rows of a batch, each of which is compared with what it gives alone.
fn rows_of(count: usize) -> Vec<usize> {
    // Not in order, so that a row stands at another place in every batch.
    (0..count).map(|row| (row * 29 + count) % 67).collect()
}

#[test]
fn a_row_gives_the_same_bits_in_every_batch_and_at_every_place() {
    for format in [Format::F16, Format::Q4_K] {
        let layer = Layer::new(format, (17, 256, 67));
        for kernel_for in [1, u32::MAX] {
            let module = module_of(&layer.case_of(kernel_for, &[0]));
            for count in 1..=67 {
                check(&module, &layer.case_of(kernel_for, &rows_of(count)));
            }
        }
    }
}

#[test]
fn a_row_that_is_no_number_reaches_no_neighbour() {
    for format in formats() {
        let inputs = 512 + format.block_len();
        let mut layer = Layer::new(format, (17, inputs, 10));
        for row in [1, 9] {
            layer.x[row * inputs..][..inputs].fill(f32::NAN);
            layer.expected[row].fill(f32::from_bits(0x7fff_ffff));
        }
        for kernel_for in [1, u32::MAX] {
            let case = layer.case(kernel_for);
            check(&module_of(&case), &case);
        }
    }
}
