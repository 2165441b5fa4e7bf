//! The order in which cached, unreferenced KV blocks are evicted.
//!
//! The block used longest ago goes first; among blocks of one step the deepest in its sequence,
//! because a prefix is worth more than what follows it and is useless without it; among blocks of
//! one depth the lowest id.

use core::cmp::Reverse;

use crate::order::{Choice, DuplicateId, Identified, Ranked, select_least};

/// A block's number in the pool.
pub type BlockId = u32;

/// A cached block that no sequence references.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CachedBlock {
    /// Its number in the pool.
    pub id: BlockId,
    /// The step in which a sequence last referenced it.
    pub last_used_step: u64,
    /// Which block of its sequence it is, from 0.
    pub depth: u32,
}

/// What decides before the block id: least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EvictionKey {
    last_used_step: u64,
    deepest: Reverse<u32>,
}

/// A block's place in the order of eviction: the least goes first.
///
/// It is `Ord`, so a pool can keep its blocks in an ordered set and take the first in O(log n).
pub type EvictionRank = Ranked<EvictionKey, BlockId>;

impl CachedBlock {
    /// Its place in the order of eviction. The block id ends it and makes it total.
    pub fn rank(&self) -> EvictionRank {
        Ranked::new(self.key(), self)
    }

    const fn key(&self) -> EvictionKey {
        EvictionKey {
            last_used_step: self.last_used_step,
            deepest: Reverse(self.depth),
        }
    }
}

impl Identified for CachedBlock {
    type Id = BlockId;

    fn id(&self) -> BlockId {
        self.id
    }
}

/// The block that is evicted next, and the one after it; `None` where there are none.
///
/// One pass, no allocation; the order of `blocks` does not matter.
///
/// # Errors
/// [`DuplicateId`] where two of the three blocks that would go first have one id
/// (see [`crate::order`]).
///
/// ```
/// use policy_core::{CachedBlock, select_block};
/// let block = |id, last_used_step, depth| CachedBlock { id, last_used_step, depth };
/// let cached = [block(0, 7, 0), block(1, 7, 1), block(2, 9, 5), block(3, 7, 1)];
/// let choice = select_block(cached)?.unwrap();
/// assert_eq!((choice.winner.id, choice.runner_up.unwrap().id), (1, 3));
/// # Ok::<(), policy_core::DuplicateId<u32>>(())
/// ```
pub fn select_block(
    blocks: impl IntoIterator<Item = CachedBlock>,
) -> Result<Option<Choice<CachedBlock>>, DuplicateId<BlockId>> {
    // `select_least` appends the block id: it is what makes the order total.
    select_least(blocks, CachedBlock::key)
}
