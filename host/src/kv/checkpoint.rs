//! The state of a pool as data.

use policy_core::CachedBlock;
use serde::{Deserialize, Serialize};

use super::content::ContentId;
use super::pool::{BlockPool, Content};
use crate::batch::TokenId;

/// What a pool holds, beside the references that live sequences have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolCheckpoint {
    /// The free blocks; the last goes first.
    free: Vec<u32>,
    /// Every block whose content can be found.
    contents: Vec<ContentCheckpoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentCheckpoint {
    block: u32,
    parent: ContentId,
    depth: u32,
    tokens: Vec<TokenId>,
    /// The step of its last use, where nobody references it.
    last_used_step: Option<u64>,
}

impl BlockPool {
    /// Its state, without the references.
    pub fn checkpoint(&self) -> PoolCheckpoint {
        let content = |block: u32| {
            let content = self.contents[block as usize]?;
            Some(ContentCheckpoint {
                block,
                parent: content.parent,
                depth: content.depth,
                tokens: self.tokens_of(block).to_vec(),
                last_used_step: self.evictable.last_used_step(block),
            })
        };
        PoolCheckpoint {
            free: self.free.clone(),
            contents: (0..self.num_blocks() as u32).filter_map(content).collect(),
        }
    }

    /// The pool that a checkpoint was taken of, with the references of live sequences.
    ///
    /// # Errors
    /// What in it no pool can be in.
    pub fn restore(
        num_blocks: u32,
        block_size: u32,
        references: Vec<u32>,
        checkpoint: &PoolCheckpoint,
    ) -> Result<Self, String> {
        let mut pool = Self::new(num_blocks, block_size);
        pool.references = references;
        let mut seen: Vec<bool> = pool.references.iter().map(|count| *count > 0).collect();
        let mut take = |block: u32| match seen.get_mut(block as usize) {
            Some(seen) if !*seen => {
                *seen = true;
                Ok(())
            }
            _ => Err(format!("block {block} cannot be where it is")),
        };
        for &block in &checkpoint.free {
            take(block)?;
        }
        pool.free.clone_from(&checkpoint.free);
        for content in &checkpoint.contents {
            if content.last_used_step.is_some() {
                take(content.block)?;
            }
            pool.restore_content(content)?;
        }
        match seen.iter().position(|seen| !seen) {
            Some(block) => Err(format!("block {block} is nowhere")),
            None => Ok(pool),
        }
    }

    fn restore_content(&mut self, content: &ContentCheckpoint) -> Result<(), String> {
        let block = content.block;
        let wrong = || format!("block {block} cannot hold what it holds");
        let references = self.references.get(block as usize).ok_or_else(wrong)?;
        let id = content.parent.child(&content.tokens);
        let taken = self.index.find(&id, |block| self.content(block).id);
        let referenced = *references > 0;
        if content.tokens.len() != self.block_size
            || referenced == content.last_used_step.is_some()
            || self.is_indexed(block)
            || taken.is_some()
        {
            return Err(wrong());
        }
        self.place(
            block,
            Content::new(id, content.parent, content.depth),
            &content.tokens,
        );
        if let Some(last_used_step) = content.last_used_step {
            self.evictable.insert(CachedBlock {
                id: block,
                last_used_step,
                depth: content.depth,
            });
        }
        Ok(())
    }
}
