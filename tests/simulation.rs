//! The simulator against the production scheduler: safety, liveness, twice, alone.

mod exhaustive;
mod explain;
mod journal;
mod tables;

use lockstep::simulation::{Coverage, verify_seed};

/// Seeds that every run verifies, unless `LOCKSTEP_SEEDS` says how many; `lockstep simulate
/// --explore` looks further.
const SEEDS: u64 = 2000;
const REQUESTS: u32 = 60;

#[test]
fn every_promise_holds_over_the_swarm_of_fixed_seeds() {
    let seeds = std::env::var("LOCKSTEP_SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let mut total = Coverage::default();
    for seed in 0..seeds {
        let coverage = verify_seed(seed, REQUESTS).unwrap_or_else(|failure| panic!("{failure}"));
        total.add(&coverage);
    }
    eprintln!("{total:?}");
    // A swarm that never preempts proves nothing about preemption.
    let reached = [
        total.seat_preemptions,
        total.block_preemptions,
        total.resumes,
        total.cached_resumes,
        total.hits,
        total.evictions,
        total.copies,
        total.broken_off,
    ];
    assert!(reached.iter().all(|count| *count > 100), "{total:?}");
}
