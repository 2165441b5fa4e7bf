//! What invariance costs: the contract's linear kernels against kernels that are free to add in any
//! order, on one thread, and the peaks of the machine.
//!
//! `cargo bench -p lockstep --bench invariance`. Both kinds multiply the same weights with the same
//! rows, quantised beforehand; they take turns, and medians are told.

#[cfg(target_arch = "x86_64")]
mod compare;
#[cfg(target_arch = "x86_64")]
mod folded;
#[cfg(target_arch = "x86_64")]
mod peak;
#[cfg(target_arch = "x86_64")]
mod vectors;

/// Prints the tables where the machine has what the free kernels are written for.
fn main() {
    #[cfg(target_arch = "x86_64")]
    if vectors::available() {
        peak::report();
        compare::report();
        return;
    }
    println!("the free kernels are written for AVX-512 with VNNI, which this machine lacks");
}
