//! What the machine multiplies and reads at most.

use std::arch::x86_64::*;
use std::hint::black_box;
use std::time::Duration;

use lockstep::clock;

/// Multiplications of a pass.
const COUNT: usize = 1 << 22;
/// Chains that run side by side: more than latency times units.
const CHAINS: usize = 12;

/// Prints the peaks for one thread and for two.
pub(crate) fn report() {
    println!("peaks                        1 thread   2 threads");
    // SAFETY: the caller has found the instructions.
    let int8 = |threads| rate(threads, 64, || unsafe { int8_chains() });
    // SAFETY: as above.
    let f32 = |threads| rate(threads, 16, || unsafe { f32_chains() });
    let line = |name, values: [f64; 2]| println!("{name:26}{:11.1}{:12.1}", values[0], values[1]);
    line("vpdpbusd, G mul-add/s", [int8(1), int8(2)]);
    line("f32 fma, G mul-add/s", [f32(1), f32(2)]);
    println!();
}

/// Billions of multiply-adds a second of so many threads, each of whose vectors makes `lanes`.
fn rate(threads: usize, lanes: usize, work: impl Fn() + Sync) -> f64 {
    let pass = || {
        let begun = clock::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(&work);
            }
        });
        begun.elapsed()
    };
    let best = (0..9).map(|_| pass()).min().unwrap_or(Duration::MAX);
    (threads * COUNT * CHAINS * lanes) as f64 / best.as_secs_f64() / 1e9
}

#[target_feature(enable = "avx512f,avx512vnni")]
fn int8_chains() {
    let (a, b) = (
        black_box(_mm512_set1_epi8(3)),
        black_box(_mm512_set1_epi8(5)),
    );
    let mut sums = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..COUNT {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, a, b);
        }
    }
    black_box(sums);
}

#[target_feature(enable = "avx512f")]
fn f32_chains() {
    let (a, b) = (
        black_box(_mm512_set1_ps(0.5)),
        black_box(_mm512_set1_ps(0.25)),
    );
    let mut sums = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..COUNT {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
}
