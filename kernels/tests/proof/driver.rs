//! The same cases, and random shapes, through a driver: on a GPU, or on a stand-in that says so.
//!
//! Bits are due of every kernel but the linear ones of the `fast` profile, for which see
//! [`fast::device`].

use lockstep::backend::cuda::Cuda;
use lockstep::backend::device::{Argument, Device};
use lockstep_kernels::{Kernel, kernels};

use crate::case::{Case, Value};
use crate::random::Random;
use crate::{asked, cases, elementwise, fast, linear};

/// What an output holds before, where a kernel must not write.
const BEFORE: u8 = 0xa5;

impl Case {
    /// Runs it on a device; gives what each buffer that it may write holds then.
    pub(crate) fn run_on<D: Device>(&self, device: &mut D) -> Result<Vec<Vec<u8>>, String> {
        let mut buffers = Vec::new();
        for value in &self.values {
            buffers.push(match value {
                Value::In(bytes) | Value::InOut(bytes, _) => Some(device.upload(bytes)?),
                Value::InPart(bytes) => {
                    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.unwrap_or(BEFORE)).collect();
                    Some(device.upload(&bytes)?)
                }
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
        let mut out = Vec::new();
        for (value, buffer) in self.values.iter().zip(&buffers) {
            if let (Value::Out(expected) | Value::InOut(_, expected), Some(buffer)) =
                (value, buffer)
            {
                let mut found = vec![0; expected.len()];
                device.read(buffer, &mut found)?;
                out.push(found);
            }
        }
        Ok(out)
    }

    /// Runs it on a device and compares every byte of every buffer.
    fn check_on<D: Device>(&self, device: &mut D) -> Result<(), String> {
        let expected = self.values.iter().filter_map(|value| match value {
            Value::Out(expected) | Value::InOut(_, expected) => Some(expected),
            _ => None,
        });
        for (expected, found) in expected.zip(self.run_on(device)?) {
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
    let mut device =
        Cuda::open(0, &kernels().collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{error}"));
    let seed = std::env::var("LOCKSTEP_TEST_SEED").ok();
    let seed = seed.and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = Random::new(seed);
    let mut all = cases().to_vec();
    all.extend(elementwise::random(&mut random));
    all.extend(linear::random(&mut random));
    let (mut failures, mut ran) = (Vec::new(), 0);
    let exact = |kernel: &&Kernel| !kernel.entry.starts_with("fast_linear_");
    for kernel in kernels().filter(exact) {
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
    let (of_fast, of_fast_ran) = fast::device::check(&mut device);
    failures.extend(of_fast);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    println!(
        "{} cases of {} kernels, seed {seed}, on {}",
        ran + of_fast_ran,
        kernels().count(),
        device.info()
    );
}
