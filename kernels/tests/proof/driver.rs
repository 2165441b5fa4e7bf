//! The same cases, and random shapes, through a driver: on a GPU, or on a stand-in that says so.
//!
//! The kernels of the `fast` profile are compiled and not run. The order in which tensor cores add is
//! each GPU's own, so there a bound is due, not bits.

use lockstep::backend::cuda::Cuda;
use lockstep::backend::device::{Argument, Device};
use lockstep_kernels::KERNELS;

use crate::case::{Case, Value};
use crate::random::Random;
use crate::{asked, cases, elementwise, linear};

/// What an output holds before, where a kernel must not write.
const BEFORE: u8 = 0xa5;

impl Case {
    /// Runs it on a device and compares every byte of every buffer.
    fn check_on<D: Device>(&self, device: &mut D) -> Result<(), String> {
        let mut buffers = Vec::new();
        for value in &self.values {
            buffers.push(match value {
                Value::In(bytes) | Value::InOut(bytes, _) => Some(device.upload(bytes)?),
                Value::Out(expected) => Some(device.upload(&vec![BEFORE; expected.len()])?),
                Value::U32(_) | Value::F32(_) => None,
            });
        }
        let pairs = self.values.iter().zip(&buffers);
        let arguments: Vec<_> = pairs
            .filter_map(|(value, buffer)| match (value, buffer) {
                (Value::U32(value), _) => Some(Argument::U32(*value)),
                (Value::F32(value), _) => Some(Argument::F32(*value)),
                (_, buffer) => buffer.as_ref().map(Argument::Buffer),
            })
            .collect();
        device.launch(self.kernel, &self.shape, &arguments)?;
        for (value, buffer) in self.values.iter().zip(&buffers) {
            let (Value::Out(expected) | Value::InOut(_, expected), Some(buffer)) = (value, buffer)
            else {
                continue;
            };
            let mut found = vec![0; expected.len()];
            device.read(buffer, &mut found)?;
            let other = |at: &usize| found[*at] != expected[*at].unwrap_or(BEFORE);
            if let Some(at) = (0..found.len()).find(other) {
                let wanted = expected[at];
                return Err(format!(
                    "byte {at} is {:#x}, expected {wanted:x?}",
                    found[at]
                ));
            }
        }
        Ok(())
    }
}

#[test]
fn every_kernel_equals_the_reference_through_a_driver() {
    if !asked::for_a_driver() {
        return;
    }
    let mut device = Cuda::open(0, &lockstep_kernels::kernels().collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("{error}"));
    let seed = std::env::var("LOCKSTEP_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let mut all = cases();
    all.extend(elementwise::random(&mut random));
    all.extend(linear::random(&mut random));
    let (mut failures, mut ran) = (Vec::new(), 0);
    for kernel in KERNELS {
        let mut of_it = all.iter().filter(|case| case.kernel.entry == kernel.entry);
        let checked = of_it.try_for_each(|case| {
            ran += 1;
            let checked = case.check_on(&mut device);
            checked.map_err(|error| format!("{}: {}: {error}", kernel.entry, case.name))
        });
        println!(
            "{:24} {}",
            kernel.entry,
            if checked.is_ok() {
                "equal"
            } else {
                "OTHER BITS"
            }
        );
        failures.extend(checked.err());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!(
        "{ran} cases of {} kernels, seed {seed}, on {}",
        KERNELS.len(),
        device.info()
    );
}
