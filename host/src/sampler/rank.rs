//! The one order of tokens: logit descending, then id ascending. Taken lazily, never a full sort.

use crate::batch::{Ranked, TokenId};

/// How many ranks are put in order at first; each further need doubles it.
const FIRST_RANKS: usize = 64;

/// A token and its logit as one integer that ascends as the rank does.
///
/// The upper half is the logit, turned so that a higher one is a smaller integer; the lower half is
/// the id, which makes the order total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

impl Key {
    fn new(token: TokenId, logit: f32) -> Self {
        // Both zeros are one logit: adding +0.0 turns -0.0 into it.
        let bits = (logit + 0.0).to_bits();
        let ascending = if bits >> 31 == 1 {
            !bits
        } else {
            bits | 1 << 31
        };
        Self(u64::from(!ascending) << 32 | u64::from(token))
    }

    const fn token(self) -> TokenId {
        self.0 as u32
    }

    const fn logit(self) -> f32 {
        let ascending = !((self.0 >> 32) as u32);
        f32::from_bits(match ascending >> 31 {
            1 => ascending & !(1 << 31),
            _ => !ascending,
        })
    }
}

/// The token and logit of a key that a device found; none of the greatest key, which stands for none.
pub fn ranked(key: u64) -> Option<Ranked> {
    let found = Key(key);
    (key != u64::MAX).then(|| Ranked {
        token: found.token(),
        logit: found.logit(),
    })
}

/// The tokens in rank order, put in order only as far as they are asked for.
///
/// Most draws end among the first few. So only the best are taken at first: those that reach the
/// 64th greatest of the vocabulary's stretches' maxima, which are at least 64 tokens and rarely many
/// more. A token that was left out ranks after all of them.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    logits: Vec<f32>,
    maxima: Vec<f32>,
    keys: Vec<Key>,
    ordered: usize,
    possible: usize,
}

/// Tokens of a stretch of the vocabulary.
const STRETCH: usize = 64;

impl Ranks {
    /// Takes these tokens with their logits; O(n). Negative infinity is a token that cannot be
    /// drawn, and is left out.
    pub(super) fn load(&mut self, logits: &[f32]) {
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        let possible = logits.iter().filter(|logit| **logit > f32::NEG_INFINITY);
        self.possible = possible.count();
        self.maxima.clear();
        self.maxima.extend(logits.chunks(STRETCH).map(greatest));
        let least = match self.maxima.len() > FIRST_RANKS {
            true => {
                *self
                    .maxima
                    .select_nth_unstable_by(FIRST_RANKS - 1, |a, b| b.total_cmp(a))
                    .1
            }
            false => f32::NEG_INFINITY,
        };
        self.take(least);
    }

    /// Takes every token that can be drawn and whose logit is `least` or more, in no order yet.
    fn take(&mut self, least: f32) {
        self.keys.clear();
        self.ordered = 0;
        for (i, stretch) in self.logits.chunks(STRETCH).enumerate() {
            let taken = |logit: f32| logit >= least && logit > f32::NEG_INFINITY;
            if stretch.iter().any(|logit| taken(*logit)) {
                let tokens = (i * STRETCH..).zip(stretch);
                let taken = tokens.filter(|(_, logit)| taken(**logit));
                self.keys
                    .extend(taken.map(|(id, logit)| Key::new(id as TokenId, *logit)));
            }
        }
    }

    /// Takes the first tokens of a row, with their logits, as if they were all.
    pub(super) fn load_ranked(&mut self, first: impl Iterator<Item = Ranked>) {
        self.logits.clear();
        self.keys.clear();
        let keys = first.map(|Ranked { token, logit }| Key::new(token, logit));
        self.keys.extend(keys);
        self.keys.sort_unstable();
        self.ordered = self.keys.len();
        self.possible = self.ordered;
    }

    /// How many tokens there are.
    pub(super) fn len(&self) -> usize {
        self.possible
    }

    /// The token at `rank` (from 0), or `None` past the last. O(n) amortised over a doubling prefix.
    pub(super) fn token(&mut self, rank: usize) -> Option<TokenId> {
        if rank >= self.possible {
            return None;
        }
        if rank >= self.keys.len() {
            self.take(f32::NEG_INFINITY);
        }
        if rank >= self.ordered {
            self.order_up_to(rank);
        }
        Some(self.keys[rank].token())
    }

    fn order_up_to(&mut self, rank: usize) {
        let until = (rank + 1)
            .max(FIRST_RANKS)
            .max(2 * self.ordered)
            .min(self.keys.len());
        let rest = &mut self.keys[self.ordered..];
        let wanted = until - self.ordered;
        if wanted < rest.len() {
            rest.select_nth_unstable(wanted - 1);
        }
        rest[..wanted].sort_unstable();
        self.ordered = until;
    }
}

/// The greatest of some logits; negative infinity if there are none. A maximum is exact in any order:
/// sixteen lanes at once.
fn greatest(logits: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = logits.as_chunks::<16>();
    for chunk in chunks {
        for (lane, &logit) in lanes.iter_mut().zip(chunk) {
            *lane = if logit > *lane { logit } else { *lane };
        }
    }
    let all = lanes.iter().chain(rest);
    all.fold(
        f32::NEG_INFINITY,
        |best, &logit| if logit > best { logit } else { best },
    )
}

/// The token of rank 0, or `None` where every logit is negative infinity. O(vocabulary).
pub fn greedy(logits: &[f32]) -> Option<TokenId> {
    let best = greatest(logits);
    if best == f32::NEG_INFINITY {
        return None;
    }
    // The first id among equals is the smallest: that makes the choice total.
    logits
        .iter()
        .position(|&logit| logit == best)
        .map(|id| id as TokenId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    fn sorted(logits: &[f32]) -> Vec<TokenId> {
        let mut ids: Vec<TokenId> = (0..logits.len() as u32).collect();
        ids.retain(|&id| logits[id as usize] > f32::NEG_INFINITY);
        ids.sort_by(|&a, &b| {
            logits[b as usize]
                .partial_cmp(&logits[a as usize])
                .unwrap()
                .then(a.cmp(&b))
        });
        ids
    }

    quickcheck! {
        fn ranks_agree_with_a_full_sort(values: Vec<i8>) -> bool {
            let logits: Vec<f32> = values
                .iter()
                .map(|&v| if v == i8::MIN { f32::NEG_INFINITY } else { f32::from(v / 8) * 0.5 })
                .collect();
            let mut ranks = Ranks::default();
            ranks.load(&logits);
            let lazy: Vec<_> = (0..).map_while(|rank| ranks.token(rank)).collect();
            lazy == sorted(&logits) && greedy(&logits) == lazy.first().copied()
        }
    }

    #[test]
    fn a_long_tail_is_ordered_in_doublings() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 101) as f32).collect();
        let mut ranks = Ranks::default();
        ranks.load(&logits);
        let lazy: Vec<_> = (0..1000).map_while(|rank| ranks.token(rank)).collect();
        assert_eq!(lazy, sorted(&logits));
    }

    #[test]
    fn the_best_of_a_long_vocabulary_are_the_best() {
        // Ties by the dozen, tokens that cannot be drawn, the best ones in one stretch and scattered.
        for (spread, masked) in [(101, 0), (5003, 3), (65_537, 7), (2, 5)] {
            let mut logits: Vec<f32> = (0..20_000_u64)
                .map(|i| ((i * 7919) % spread) as f32 - 50.0)
                .collect();
            for logit in logits
                .iter_mut()
                .step_by(masked * 13 + 1)
                .take(masked * 100)
            {
                *logit = f32::NEG_INFINITY;
            }
            logits[4100..4200]
                .iter_mut()
                .for_each(|logit| *logit += 1e5);
            let mut ranks = Ranks::default();
            ranks.load(&logits);
            let lazy: Vec<_> = (0..).map_while(|rank| ranks.token(rank)).collect();
            assert_eq!(lazy, sorted(&logits), "{spread} {masked}");
            assert_eq!(ranks.len(), lazy.len());
        }
    }

    #[test]
    fn the_smallest_id_wins_wherever_the_lanes_end() {
        let mut many = vec![0.5; 1003];
        for greatest in [1002, 999, 17, 3] {
            many[greatest] = 2.0;
            assert_eq!(greedy(&many), Some(greatest as TokenId));
        }
    }

    #[test]
    fn a_key_is_its_token_and_logit() {
        for logit in [
            1.5,
            -2.25,
            0.0,
            1e-40,
            -1e-40,
            f32::MAX,
            f32::MIN,
            f32::INFINITY,
        ] {
            let found = ranked(Key::new(77, logit).0);
            assert_eq!(found, Some(Ranked { token: 77, logit }));
        }
        assert_eq!(
            ranked(Key::new(3, -0.0).0).map(|r| r.logit.to_bits()),
            Some(0)
        );
        assert_eq!(ranked(u64::MAX), None);
    }

    #[test]
    fn the_two_zeros_tie() {
        assert_eq!(greedy(&[-0.0, 0.0]), Some(0));
        let mut ranks = Ranks::default();
        ranks.load(&[-0.0, 0.0]);
        assert_eq!(ranks.token(0), Some(0));
    }
}
