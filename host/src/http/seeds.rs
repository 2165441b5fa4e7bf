//! Seeds: the one a request names, the one it is given, and those of its further choices.

use std::sync::atomic::{AtomicU64, Ordering};

/// Gives seeds to requests that name none: a function of the server's own seed and of how many
/// were given before. The seed goes into the request, so the journal records it, and into the
/// answer, so the caller can ask again.
#[derive(Debug)]
pub struct SeedSource {
    base: u64,
    given: AtomicU64,
}

impl SeedSource {
    /// A source that starts from the server's seed.
    pub fn new(base: u64) -> Self {
        Self {
            base,
            given: AtomicU64::new(0),
        }
    }

    /// The next seed: below 2^53, so that every JSON reader carries it back unchanged.
    pub fn next_seed(&self) -> u64 {
        let number = self.given.fetch_add(1, Ordering::Relaxed);
        mix(self.base ^ mix(number.wrapping_add(1))) >> 11
    }
}

/// The seed of choice `choice` of a request with this seed: choice 0 has the seed itself, choice
/// `i` has `mix(seed + i * 0x9E3779B97F4A7C15)` (wrapping), where `mix` is the finaliser of
/// SplitMix64 (Steele, Lea, Flood 2014). The prompts of a batch share the seeds of their choices,
/// so that each is answered as if it had come alone.
pub fn choice_seed(seed: u64, choice: u32) -> u64 {
    if choice == 0 {
        return seed;
    }
    mix(seed.wrapping_add(u64::from(choice).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choice_zero_has_the_seed_itself_and_others_follow_splitmix() {
        assert_eq!(choice_seed(42, 0), 42);
        // The first two outputs of SplitMix64 from state 0, as published with the algorithm.
        assert_eq!(choice_seed(0, 1), 0xE220_A839_7B1D_CDAF);
        assert_eq!(choice_seed(0, 2), 0x6E78_9E6A_A1B9_65F4);
    }

    #[test]
    fn given_seeds_repeat_with_the_server_seed_and_stay_exact_in_a_double() {
        let take = |base| {
            let source = SeedSource::new(base);
            (0..100).map(|_| source.next_seed()).collect::<Vec<_>>()
        };
        let mut seeds = take(7);
        assert_eq!(seeds, take(7));
        assert_ne!(seeds, take(8));
        assert!(
            seeds
                .iter()
                .all(|&seed| seed as f64 as u64 == seed && seed < 1 << 53)
        );
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 100);
    }
}
