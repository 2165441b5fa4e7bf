//! The block pool: who references which block, what is free, what is worth keeping.

use policy_core::CachedBlock;

use super::content::ContentId;
use super::evictable::Evictable;
use super::index::PrefixIndex;
use crate::batch::TokenId;

/// The blocks of a KV cache, by number.
///
/// Every block is free, cached or referenced at any time. All memory is allocated at the start.
#[derive(Clone, Debug)]
pub struct BlockPool {
    pub(super) block_size: usize,
    pub(super) references: Vec<u32>,
    /// A stack: the block freed last goes first.
    pub(super) free: Vec<u32>,
    pub(super) evictable: Evictable,
    pub(super) index: PrefixIndex,
    /// What indexed blocks hold; `None` for every other block.
    pub(super) contents: Vec<Option<Content>>,
    /// The tokens of indexed blocks, `block_size` each.
    tokens: Vec<TokenId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) id: ContentId,
    pub(super) parent: ContentId,
    pub(super) depth: u32,
}

impl Content {
    pub(super) fn new(id: ContentId, parent: ContentId, depth: u32) -> Self {
        Self { id, parent, depth }
    }
}

impl BlockPool {
    /// A pool of free blocks.
    pub fn new(num_blocks: u32, block_size: u32) -> Self {
        let blocks = num_blocks as usize;
        Self {
            block_size: block_size as usize,
            references: vec![0; blocks],
            free: (0..num_blocks).rev().collect(),
            evictable: Evictable::new(blocks),
            index: PrefixIndex::new(blocks),
            contents: vec![None; blocks],
            tokens: vec![0; blocks * block_size as usize],
        }
    }

    /// Blocks that can be had: free or cached.
    pub fn num_available(&self) -> usize {
        self.free.len() + self.evictable.len()
    }

    /// Blocks that hold nothing worth keeping.
    pub fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Blocks that nobody references and whose content may be found again.
    pub fn num_cached(&self) -> usize {
        self.evictable.len()
    }

    /// All blocks.
    pub fn num_blocks(&self) -> usize {
        self.references.len()
    }

    /// How many sequences reference a block.
    pub fn references(&self, block: u32) -> u32 {
        self.references[block as usize]
    }

    /// Whether a block's content can be found.
    pub fn is_indexed(&self, block: u32) -> bool {
        self.contents[block as usize].is_some()
    }

    /// The block that holds `tokens` behind `parent`, whose content id is `id`.
    ///
    /// The parent and the tokens are compared too: a collision of the hash is a miss.
    pub fn find(&self, id: &ContentId, parent: &ContentId, tokens: &[TokenId]) -> Option<u32> {
        let block = self.index.find(id, |block| self.content(block).id)?;
        let same = self.content(block).parent == *parent && self.tokens_of(block) == tokens;
        same.then_some(block)
    }

    /// References a block that was found or that a sibling references.
    pub fn share(&mut self, block: u32) {
        let references = &mut self.references[block as usize];
        if *references == 0 {
            self.evictable.remove(block);
        }
        *references += 1;
    }

    /// Takes a block for a sequence: a free one, or else the first in the order of eviction, which
    /// is noted in `evictions`. `None` where all are referenced.
    pub fn allocate(&mut self, evictions: &mut Vec<u32>) -> Option<u32> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let block = self.evictable.take_first()?;
                self.forget(block);
                evictions.push(block);
                block
            }
        };
        assert_eq!(self.references[block as usize], 0, "block {block} is free");
        self.references[block as usize] = 1;
        Some(block)
    }

    /// Takes back one reference; the last one leaves the block cached, last used in `step`, or free.
    pub fn release(&mut self, block: u32, step: u64) {
        let references = &mut self.references[block as usize];
        assert_ne!(*references, 0, "block {block} is referenced");
        *references -= 1;
        if *references > 0 {
            return;
        }
        match self.contents[block as usize] {
            Some(content) => self.evictable.insert(CachedBlock {
                id: block,
                last_used_step: step,
                depth: content.depth,
            }),
            None => self.free.push(block),
        }
    }

    /// Makes a referenced block's content findable. It must have been written in an earlier step.
    ///
    /// Of blocks with one content the lowest is the one found; the other is given up once nobody
    /// references it.
    pub fn publish(
        &mut self,
        block: u32,
        id: ContentId,
        parent: ContentId,
        tokens: &[TokenId],
        depth: u32,
    ) {
        assert_ne!(self.references[block as usize], 0, "block {block} is used");
        assert!(!self.is_indexed(block), "block {block} is published once");
        assert_eq!(tokens.len(), self.block_size, "only full blocks are found");
        if let Some(other) = self.index.find(&id, |block| self.content(block).id) {
            if other < block || self.find(&id, &parent, tokens) != Some(other) {
                return;
            }
            self.forget(other);
            if self.evictable.contains(other) {
                self.evictable.remove(other);
                self.free.push(other);
            }
        }
        self.place(block, Content::new(id, parent, depth), tokens);
    }

    /// Notes what a block holds that is not indexed, under a content that nothing else has.
    pub(super) fn place(&mut self, block: u32, content: Content, tokens: &[TokenId]) {
        self.contents[block as usize] = Some(content);
        let first = block as usize * self.block_size;
        self.tokens[first..first + self.block_size].copy_from_slice(tokens);
        self.index.insert(&content.id, block);
    }

    fn forget(&mut self, block: u32) {
        let contents = &self.contents;
        self.index
            .remove(block, |block| indexed(contents, block).id);
        self.contents[block as usize] = None;
    }

    pub(super) fn content(&self, block: u32) -> Content {
        indexed(&self.contents, block)
    }

    pub(super) fn tokens_of(&self, block: u32) -> &[TokenId] {
        &self.tokens[block as usize * self.block_size..][..self.block_size]
    }

    /// Checks that every block is exactly one of free, cached and referenced. O(blocks).
    ///
    /// # Panics
    /// At the first block that is not.
    pub fn check(&self) {
        let mut free = vec![false; self.num_blocks()];
        for &block in &self.free {
            assert!(!free[block as usize], "block {block} is free twice");
            free[block as usize] = true;
            assert!(!self.is_indexed(block), "free block {block} is indexed");
        }
        for block in 0..self.num_blocks() as u32 {
            let states = [
                free[block as usize],
                self.evictable.contains(block),
                self.references(block) > 0,
            ];
            let held = states.into_iter().filter(|held| *held).count();
            assert_eq!(
                held, 1,
                "block {block}: free, cached, referenced: {states:?}"
            );
            if let Some(content) = self.contents[block as usize] {
                let found = self.index.find(&content.id, |block| self.content(block).id);
                assert_eq!(found, Some(block), "block {block} is found by its content");
            }
        }
    }
}

fn indexed(contents: &[Option<Content>], block: u32) -> Content {
    contents[block as usize].expect("an indexed block has content")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> (BlockPool, ContentId) {
        (BlockPool::new(4, 16), ContentId::root(None))
    }

    fn publish(pool: &mut BlockPool, block: u32, token: TokenId, depth: u32) -> ContentId {
        let root = ContentId::root(None);
        let tokens = [token; 16];
        let id = root.child(&tokens);
        pool.publish(block, id, root, &tokens, depth);
        id
    }

    #[test]
    fn blocks_are_handed_out_from_the_lowest_and_none_twice() {
        let (mut pool, _) = pool();
        let mut evictions = Vec::new();
        let blocks: Vec<_> = (0..5).map(|_| pool.allocate(&mut evictions)).collect();
        assert_eq!(blocks, [Some(0), Some(1), Some(2), Some(3), None]);
        assert!(evictions.is_empty());
        pool.check();
    }

    #[test]
    fn a_released_full_block_is_found_until_it_is_evicted() {
        let (mut pool, root) = pool();
        let mut evictions = Vec::new();
        let block = pool.allocate(&mut evictions).unwrap();
        let id = publish(&mut pool, block, 7, 0);
        pool.release(block, 1);
        assert_eq!((pool.num_free(), pool.num_cached()), (3, 1));
        assert_eq!(pool.find(&id, &root, &[7; 16]), Some(block));
        assert_eq!(pool.find(&id, &root, &[8; 16]), None, "tokens are compared");
        assert_eq!(pool.find(&id, &id, &[7; 16]), None, "parents are compared");
        for _ in 0..4 {
            pool.allocate(&mut evictions).unwrap();
        }
        assert_eq!(evictions, [block]);
        assert_eq!(pool.find(&id, &root, &[7; 16]), None);
        pool.check();
    }

    #[test]
    fn eviction_goes_by_last_use_then_depth_then_id() {
        let (mut pool, _) = pool();
        let mut evictions = Vec::new();
        let blocks = [(); 4].map(|()| pool.allocate(&mut evictions).unwrap());
        for (block, depth) in [(0, 0), (1, 1), (2, 1), (3, 2)] {
            publish(&mut pool, block, block, depth);
        }
        for (block, step) in blocks.into_iter().zip([5, 5, 5, 6]) {
            pool.release(block, step);
        }
        for _ in 0..4 {
            pool.allocate(&mut evictions);
        }
        assert_eq!(evictions, [1, 2, 0, 3]);
    }

    #[test]
    fn duplicates_resolve_to_the_lowest_block() {
        let (mut pool, root) = pool();
        let mut evictions = Vec::new();
        for _ in 0..3 {
            pool.allocate(&mut evictions);
        }
        let id = publish(&mut pool, 1, 9, 0);
        pool.release(1, 1);
        publish(&mut pool, 2, 9, 0);
        assert_eq!(
            pool.find(&id, &root, &[9; 16]),
            Some(1),
            "1 is lower than 2"
        );
        publish(&mut pool, 0, 9, 0);
        assert_eq!(
            pool.find(&id, &root, &[9; 16]),
            Some(0),
            "0 is lower than 1"
        );
        assert_eq!(pool.num_cached(), 0, "the duplicate is not kept");
        pool.release(2, 2);
        assert_eq!(pool.num_free(), 3);
        pool.check();
    }

    #[test]
    fn a_shared_block_is_available_only_after_its_last_release() {
        let (mut pool, _) = pool();
        let block = pool.allocate(&mut Vec::new()).unwrap();
        publish(&mut pool, block, 3, 0);
        pool.share(block);
        pool.release(block, 1);
        assert_eq!((pool.references(block), pool.num_cached()), (1, 0));
        pool.release(block, 2);
        assert_eq!(pool.num_cached(), 1);
        pool.share(block);
        assert_eq!((pool.references(block), pool.num_cached()), (1, 0));
        pool.check();
    }
}
