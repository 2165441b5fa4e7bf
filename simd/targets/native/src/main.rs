//! Prints every digest on every path of this machine.

extern crate alloc;

use lockstep_simd::Isa;

#[path = "../../vectors/mod.rs"]
mod vectors;

fn main() {
    let mut text = String::new();
    let kernels = Isa::ALL.into_iter().filter(|isa| isa.available());
    vectors::run(kernels, &mut text).expect("memory");
    print!("{text}");
}
