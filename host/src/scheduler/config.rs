//! The limits that the scheduler works within, checked together before it starts.

use std::fmt;

use policy_core::PreemptionPolicy;
use serde::{Deserialize, Serialize};

/// The limits and choices of a scheduler; all of them are part of a journal's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// Seats: the most sequences that run at once.
    pub max_num_seqs: u32,
    /// The most tokens computed in one step, over all sequences.
    pub max_num_batched_tokens: u32,
    /// The most tokens computed in one step for one sequence.
    pub max_chunk_tokens: u32,
    /// The most tokens of prompt and answer together.
    pub max_model_len: u32,
    /// Tokens of one KV block, a multiple of 16.
    pub block_size: u32,
    /// KV blocks of the pool.
    pub num_blocks: u32,
    /// Whether full blocks are kept and found again by their content.
    pub enable_prefix_caching: bool,
    /// How a victim is chosen among the candidates.
    #[serde(with = "policy_name")]
    pub preemption_policy: PreemptionPolicy,
    /// Steps by which each class below High arrives later than it did, in the order of importance;
    /// 0 orders by class alone, and a Low may wait for ever.
    pub priority_aging_steps: u32,
    /// Steps for which a sequence that has generated nothing is not preempted for its seat.
    pub seat_lease_steps: u32,
    /// Preemptions after which a request's sequence comes last among its candidates.
    pub worn_after_preemptions: u32,
    /// Blocks that an admission leaves for the growth of each running sequence that it could not
    /// displace; waived where there is none.
    pub admission_headroom_blocks: u32,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        Self {
            max_num_seqs: 32,
            max_num_batched_tokens: 256,
            max_chunk_tokens: 128,
            max_model_len: 2048,
            block_size: 16,
            num_blocks: 1024,
            enable_prefix_caching: true,
            preemption_policy: PreemptionPolicy::LongestFirst,
            priority_aging_steps: 5000,
            seat_lease_steps: 8,
            worn_after_preemptions: 3,
            admission_headroom_blocks: 1,
        }
    }
}

impl SchedulerConfig {
    /// The most seats.
    pub const MAX_NUM_SEQS: u32 = 1 << 16;
    /// The most KV blocks: their accounts take about 64 bytes each.
    pub const MAX_NUM_BLOCKS: u32 = 1 << 24;

    /// Whether the limits fit each other: progress is proved from them.
    ///
    /// # Errors
    /// The first limit that does not hold, with its value.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let positive = [
            ("max_num_seqs", self.max_num_seqs),
            ("max_chunk_tokens", self.max_chunk_tokens),
            ("max_model_len", self.max_model_len),
            ("num_blocks", self.num_blocks),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero { name });
        }
        if self.block_size == 0 || !self.block_size.is_multiple_of(16) {
            return Err(ConfigError::BlockSize {
                block_size: self.block_size,
            });
        }
        let bounded = [
            ("max_num_seqs", self.max_num_seqs, Self::MAX_NUM_SEQS),
            ("num_blocks", self.num_blocks, Self::MAX_NUM_BLOCKS),
        ];
        let above = bounded.into_iter().find(|(_, value, limit)| value > limit);
        if let Some((name, value, limit)) = above {
            return Err(ConfigError::TooMany { name, value, limit });
        }
        let slots = u64::from(self.num_blocks) * u64::from(self.block_size);
        if slots > u64::from(u32::MAX) {
            return Err(ConfigError::PoolTooLarge { slots });
        }
        if u64::from(self.max_model_len) > slots {
            return Err(ConfigError::PoolTooSmall {
                max_model_len: self.max_model_len,
                num_blocks: self.num_blocks,
                block_size: self.block_size,
            });
        }
        if self.max_num_batched_tokens < self.max_num_seqs {
            return Err(ConfigError::BudgetBelowSeats {
                max_num_batched_tokens: self.max_num_batched_tokens,
                max_num_seqs: self.max_num_seqs,
            });
        }
        Ok(())
    }
}

/// Limits with which the scheduler cannot promise progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// A limit that must be positive is 0.
    Zero {
        /// Its name.
        name: &'static str,
    },
    /// More of something than the scheduler keeps accounts of.
    TooMany {
        /// The name of the limit.
        name: &'static str,
        /// Its value.
        value: u32,
        /// The most that it may be.
        limit: u32,
    },
    /// The block size is not a positive multiple of 16.
    BlockSize {
        /// The value.
        block_size: u32,
    },
    /// The pool has more slots than a slot number can say.
    PoolTooLarge {
        /// `num_blocks * block_size`.
        slots: u64,
    },
    /// One sequence of the greatest length does not fit the pool.
    PoolTooSmall {
        /// The greatest length in tokens.
        max_model_len: u32,
        /// Blocks of the pool.
        num_blocks: u32,
        /// Tokens of a block.
        block_size: u32,
    },
    /// A step's budget does not hold one token for every seat.
    BudgetBelowSeats {
        /// The budget in tokens.
        max_num_batched_tokens: u32,
        /// The seats.
        max_num_seqs: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { name } => write!(f, "{name} is 0 and must be at least 1"),
            Self::TooMany { name, value, limit } => {
                write!(f, "{name} is {value} and must be at most {limit}")
            }
            Self::BlockSize { block_size } => write!(
                f,
                "block_size is {block_size} and must be a positive multiple of 16"
            ),
            Self::PoolTooLarge { slots } => write!(
                f,
                "num_blocks x block_size is {slots} slots and must be at most {}",
                u32::MAX
            ),
            Self::PoolTooSmall {
                max_model_len,
                num_blocks,
                block_size,
            } => write!(
                f,
                "max_model_len is {max_model_len} and must be at most num_blocks x block_size, \
                 which is {num_blocks} x {block_size} = {} tokens",
                u64::from(*num_blocks) * u64::from(*block_size)
            ),
            Self::BudgetBelowSeats {
                max_num_batched_tokens,
                max_num_seqs,
            } => write!(
                f,
                "max_num_batched_tokens is {max_num_batched_tokens} and must be at least \
                 max_num_seqs, which is {max_num_seqs}: every running sequence computes a token in every step"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

mod policy_name {
    use policy_core::PreemptionPolicy;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(
        policy: &PreemptionPolicy,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(policy.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PreemptionPolicy, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}
