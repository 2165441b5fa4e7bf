//! Philox 4x32-10: random words as a function of (key, counter), with no state between draws.
//!
//! Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// The four words at `counter` under `key`.
pub fn philox4x32(key: u64, counter: [u32; 4]) -> [u32; 4] {
    let mut key = [key as u32, (key >> 32) as u32];
    let mut words = counter;
    for _ in 0..ROUNDS {
        words = round(key, words);
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    words
}

fn round(key: [u32; 2], c: [u32; 4]) -> [u32; 4] {
    let low = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
    let high = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
    [
        (high >> 32) as u32 ^ c[1] ^ key[0],
        high as u32,
        (low >> 32) as u32 ^ c[3] ^ key[1],
        low as u32,
    ]
}

/// A number in [0, 1) of 24 bits for the token at absolute `position` of an answer with `seed`.
pub fn uniform(seed: u64, position: u64) -> f32 {
    let word = philox4x32(seed, [position as u32, (position >> 32) as u32, 0, 0])[0];
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the authors' own test suite (Random123, `kat_vectors`).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(
            philox4x32(0, [0; 4]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox4x32(u64::MAX, [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32(
                0x299f_31d0_a409_3822,
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_stays_below_one() {
        for position in 0..10_000 {
            let u = uniform(3, position);
            assert!((0.0..1.0).contains(&u), "{u} at {position}");
        }
    }
}
