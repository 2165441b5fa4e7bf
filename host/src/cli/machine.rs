//! What the machine gives at most.

use std::io;

use crate::backend::cpu::memory::Bytes;
use crate::clock;

/// Bytes that a thread reads in a pass: two threads read more than a third-level cache of 32 MiB keeps.
const READ: usize = 64 << 20;

/// What `threads` threads together read from memory, in GB/s: the best of five passes, over memory
/// like that of weights.
///
/// # Errors
/// The system has no address space for it.
pub(super) fn bandwidth(threads: usize) -> io::Result<f64> {
    let mut memory = (0..threads)
        .map(|_| Bytes::zeroed(READ))
        .collect::<io::Result<Vec<_>>>()?;
    for bytes in &mut memory {
        bytes.as_mut_slice().fill(1);
    }
    let pass = || {
        let begun = clock::now();
        std::thread::scope(|scope| {
            for bytes in &memory {
                scope.spawn(|| std::hint::black_box(mixed(bytes.as_slice())));
            }
        });
        (threads * READ) as f64 / begun.elapsed().as_secs_f64() / 1e9
    };
    Ok((0..5).map(|_| pass()).fold(0.0, f64::max))
}

/// Places that are read side by side: one alone waits for memory more than it reads.
const PLACES: usize = 8;

/// All bytes, a line of each place at a step, its words side by side so that vectors hold them.
fn mixed(bytes: &[u8]) -> [u64; 8] {
    let lines = bytes.as_chunks::<64>().0;
    let part = lines.len() / PLACES;
    let mut mixed = [0; 8];
    for i in 0..part {
        for line in lines.iter().skip(i).step_by(part).take(PLACES) {
            for (mixed, word) in mixed.iter_mut().zip(line.as_chunks::<8>().0) {
                *mixed ^= u64::from_ne_bytes(*word);
            }
        }
    }
    mixed
}
