//! The prefix index: from a block's content to the block that holds it.

use super::content::ContentId;

const EMPTY: u32 = u32::MAX;

/// An open-addressing table over the blocks of a pool.
///
/// It places a content by the content's own bytes, a fixed cryptographic hash, and is only ever
/// asked for one content at a time: its order is never walked, so it cannot reach a decision. Its
/// size is fixed at the start, twice the blocks or more: it allocates nothing and always has gaps.
#[derive(Clone, Debug)]
pub(super) struct PrefixIndex {
    places: Vec<u32>,
    mask: usize,
}

impl PrefixIndex {
    /// An empty index for a pool of so many blocks.
    pub(super) fn new(num_blocks: usize) -> Self {
        let places = (num_blocks * 2).next_power_of_two().max(2);
        Self {
            places: vec![EMPTY; places],
            mask: places - 1,
        }
    }

    /// The block with this content; `content_of` says what an indexed block holds.
    pub(super) fn find(
        &self,
        content: &ContentId,
        content_of: impl Fn(u32) -> ContentId,
    ) -> Option<u32> {
        let mut place = self.home(content);
        while self.places[place] != EMPTY {
            if content_of(self.places[place]) == *content {
                return Some(self.places[place]);
            }
            place = (place + 1) & self.mask;
        }
        None
    }

    /// Adds a block whose content is not in the index.
    pub(super) fn insert(&mut self, content: &ContentId, block: u32) {
        let mut place = self.home(content);
        while self.places[place] != EMPTY {
            place = (place + 1) & self.mask;
        }
        self.places[place] = block;
    }

    /// Removes a block that is in the index, and closes the gap (Knuth, volume 3, 6.4, algorithm R).
    pub(super) fn remove(&mut self, block: u32, content_of: impl Fn(u32) -> ContentId) {
        let mut gap = self.home(&content_of(block));
        while self.places[gap] != block {
            assert_ne!(self.places[gap], EMPTY, "block {block} is not indexed");
            gap = (gap + 1) & self.mask;
        }
        let mut place = gap;
        loop {
            self.places[gap] = EMPTY;
            loop {
                place = (place + 1) & self.mask;
                if self.places[place] == EMPTY {
                    return;
                }
                let home = self.home(&content_of(self.places[place]));
                // The entry may fill the gap unless its home lies after the gap, cyclically.
                if place.wrapping_sub(home) & self.mask >= place.wrapping_sub(gap) & self.mask {
                    break;
                }
            }
            self.places[gap] = self.places[place];
            gap = place;
        }
    }

    fn home(&self, content: &ContentId) -> usize {
        content.bucket() as usize & self.mask
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quickcheck::quickcheck;

    use super::*;

    fn content(number: u8) -> ContentId {
        // Few homes: most of them collide.
        ContentId::root(None).child(&[u32::from(number) % 32])
    }

    quickcheck! {
        fn index_agrees_with_an_ordered_map(operations: Vec<(bool, u8)>) -> bool {
            let mut index = PrefixIndex::new(32);
            let mut model: BTreeMap<ContentId, u32> = BTreeMap::new();
            let content_of = |block: u32| content(block as u8);
            operations.into_iter().all(|(insert, number)| {
                let (id, block) = (content(number), u32::from(number % 32));
                match (insert, model.contains_key(&id)) {
                    (true, false) => {
                        index.insert(&id, block);
                        model.insert(id, block);
                    }
                    (false, true) => {
                        index.remove(block, content_of);
                        model.remove(&id);
                    }
                    _ => {}
                }
                (0..32).all(|n| index.find(&content(n), content_of) == model.get(&content(n)).copied())
            })
        }
    }
}
