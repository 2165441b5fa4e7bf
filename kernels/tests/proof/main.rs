//! Every kernel's shipped PTX, run in the interpreter over edge shapes: equal to the scalar
//! reference bit for bit (under `fast`, to its rules), every instruction executed, and every planted
//! bug caught, or explained in `allowed`.

mod allowed;
#[path = "../asked/mod.rs"]
mod asked;
mod attention;
mod case;
mod driver;
mod elementwise;
mod embed;
mod fast;
mod linear;
mod mutation;
mod random;
mod ranks;
mod reference;
mod table;
mod weights;

use std::sync::LazyLock;

use case::Case;
use lockstep_kernels::kernels;

/// The cases of every kernel.
fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
        [
            elementwise::cases(),
            embed::cases(),
            linear::cases(),
            attention::cases(),
            ranks::cases(),
            fast::cases::cases(),
        ]
        .concat()
    });
    &CASES
}

/// The cases of one kernel.
fn cases_of(entry: &str) -> Vec<Case> {
    let of_it = cases().iter().filter(|case| case.kernel.entry == entry);
    of_it.cloned().collect()
}

#[test]
fn every_kernel_equals_the_reference_bit_for_bit_and_is_executed_whole() {
    let cases = cases();
    for kernel in kernels() {
        let module = case::module(&case::entry_text(kernel));
        let mut executed = vec![false; module.kernel(kernel.entry).map_or(0, |k| k.instructions())];
        let mut count = 0;
        for case in cases
            .iter()
            .filter(|case| case.kernel.entry == kernel.entry)
        {
            for order in case::ORDERS {
                let statistics = case.check(&module, order).unwrap_or_else(|error| {
                    panic!("{}: {}: {error}", kernel.entry, case.name);
                });
                for (seen, now) in executed.iter_mut().zip(statistics.executed) {
                    *seen |= now;
                }
            }
            count += 1;
        }
        assert!(count > 0, "{} has no case", kernel.entry);
        let text = module.kernel(kernel.entry).expect("its text holds it");
        let missed: Vec<_> = (0..executed.len())
            .filter(|index| !executed[*index])
            .filter_map(|index| text.instruction(index))
            .collect();
        assert!(
            missed.is_empty(),
            "{}: no case executes {missed:?}",
            kernel.entry
        );
    }
}
