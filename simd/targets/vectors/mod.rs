//! Every kernel over seeded inputs, each result as a digest of its bits: the same lines on every
//! path of every machine, and those of the scalar reference.
//!
//! The programs for the host and for a 64-bit Arm include this module; `run.sh` compares what they
//! print with `digests.txt`.

use core::fmt::{self, Write};

use lockstep_simd::Isa;

mod attention;
mod linear;
mod random;
mod rows;

/// Who computes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path {
    /// The contract as plain scalar code.
    Reference,
    /// The kernels in one of their guises; the machine has it.
    Kernels(Isa),
}

/// Prints each digest of the reference and of some kernels, which the machine has: the path's name,
/// the case, its digest.
pub(crate) fn run(
    kernels: impl Iterator<Item = Isa>,
    out: &mut dyn Write,
) -> Result<(), fmt::Error> {
    let paths = core::iter::once(Path::Reference).chain(kernels.map(Path::Kernels));
    for path in paths {
        let mut lines = Lines { path, out };
        linear::run(&mut lines)?;
        rows::run(&mut lines)?;
        attention::run(&mut lines)?;
    }
    Ok(())
}

/// Where digests go.
struct Lines<'a> {
    path: Path,
    out: &'a mut dyn Write,
}

impl Lines<'_> {
    fn put(&mut self, case: fmt::Arguments<'_>, digest: Digest) -> fmt::Result {
        match self.path {
            Path::Reference => write!(self.out, "reference")?,
            Path::Kernels(isa) => write!(self.out, "{isa}")?,
        }
        writeln!(self.out, ": {case} = {:016x}", digest.0)
    }
}

/// FNV-1a of 64 bits over the bits of numbers.
struct Digest(u64);

impl Digest {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn of(values: &[f32]) -> Self {
        let mut digest = Self::EMPTY;
        for value in values {
            digest.word(value.to_bits());
        }
        digest
    }

    fn word(&mut self, word: u32) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}
