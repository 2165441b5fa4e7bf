//! What the machine gives at most.

use crate::clock;

/// What `threads` threads together read from memory, in GB/s: the best of five passes over 64 MiB
/// each.
pub(super) fn bandwidth(threads: usize) -> f64 {
    const WORDS: usize = 8 << 20;
    let memory: Vec<Vec<u64>> = (0..threads).map(|i| vec![i as u64 + 1; WORDS]).collect();
    let pass = || {
        let begun = clock::now();
        std::thread::scope(|scope| {
            for words in &memory {
                scope.spawn(|| std::hint::black_box(words.iter().fold(0, |sum, word| sum ^ word)));
            }
        });
        (threads * WORDS * 8) as f64 / begun.elapsed().as_secs_f64() / 1e9
    };
    (0..5).map(|_| pass()).fold(0.0, f64::max)
}
