//! The table against the texts.

use lockstep_kernels::{Module, kernels};

use crate::case;

#[test]
fn the_table_names_every_entry_once_and_fits_its_parameters() {
    let mut named: Vec<_> = kernels().map(|kernel| kernel.entry).collect();
    named.sort_unstable();
    let mut found = Vec::new();
    for module in Module::ALL {
        let text = case::module(module.ptx());
        found.extend(text.entries().map(str::to_owned));
        for kernel in kernels().filter(|kernel| kernel.module == module) {
            let entry = text.kernel(kernel.entry).expect("the module has it");
            let sizes: Vec<usize> = kernel.arguments.iter().map(|a| a.bytes()).collect();
            assert!(entry.takes(&sizes), "{}", kernel.entry);
        }
    }
    found.sort();
    assert_eq!(named, found);
}

#[test]
fn the_texts_ask_for_no_newer_driver_than_is_promised() {
    for module in Module::ALL {
        let text = module.ptx();
        assert!(
            text.contains("\n.version 7.4\n.target sm_80\n"),
            "{}",
            module.name()
        );
        assert!(
            !text.contains(".local") && !text.contains(".approx"),
            "{}",
            module.name()
        );
    }
}
