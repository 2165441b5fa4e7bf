//! The cached blocks in the order in which they are evicted.

use policy_core::{BlockId, CachedBlock, EvictionRank};

const ABSENT: u32 = u32::MAX;

/// A binary heap of cached blocks, least rank first, that finds any of them by its id.
///
/// The rank ends in the block id, so the order is total and the heap's shape does not show.
/// Insert, remove and take: O(log n). Allocates nothing after it is made.
#[derive(Clone, Debug)]
pub(super) struct Evictable {
    heap: Vec<EvictionRank>,
    /// Where each block stands in the heap, or [`ABSENT`].
    places: Vec<u32>,
    /// The step of each cached block's last use.
    steps: Vec<u64>,
}

impl Evictable {
    /// An empty heap for the blocks of a pool of this size.
    pub(super) fn new(num_blocks: usize) -> Self {
        Self {
            heap: Vec::with_capacity(num_blocks),
            places: vec![ABSENT; num_blocks],
            steps: vec![0; num_blocks],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.places[block as usize] != ABSENT
    }

    /// The step of a block's last use, if it is cached.
    pub(super) fn last_used_step(&self, block: BlockId) -> Option<u64> {
        self.contains(block).then(|| self.steps[block as usize])
    }

    pub(super) fn insert(&mut self, block: CachedBlock) {
        assert!(!self.contains(block.id), "block {} is cached", block.id);
        self.steps[block.id as usize] = block.last_used_step;
        self.heap.push(block.rank());
        self.rise(self.heap.len() - 1);
    }

    pub(super) fn remove(&mut self, block: BlockId) {
        let place = self.places[block as usize];
        assert_ne!(place, ABSENT, "block {block} is not cached");
        self.remove_at(place as usize);
    }

    /// Takes the block that is evicted next.
    pub(super) fn take_first(&mut self) -> Option<BlockId> {
        let first = self.heap.first()?.id();
        self.remove_at(0);
        Some(first)
    }

    fn remove_at(&mut self, place: usize) {
        let removed = self.heap.swap_remove(place);
        self.places[removed.id() as usize] = ABSENT;
        if place < self.heap.len() {
            let place = self.rise(place);
            self.sink(place);
        }
    }

    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above] < self.heap[place] {
                break;
            }
            self.heap.swap(above, place);
            self.note(place);
            place = above;
        }
        self.note(place);
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1)..(2 * place + 3).min(self.heap.len());
            let least = children.min_by_key(|&child| self.heap[child]);
            match least {
                Some(child) if self.heap[child] < self.heap[place] => {
                    self.heap.swap(child, place);
                    self.note(place);
                    place = child;
                }
                _ => return self.note(place),
            }
        }
    }

    fn note(&mut self, place: usize) {
        self.places[self.heap[place].id() as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quickcheck::quickcheck;

    use super::*;

    quickcheck! {
        fn heap_agrees_with_an_ordered_set(operations: Vec<(u8, u8, u8)>) -> bool {
            let mut heap = Evictable::new(64);
            let mut model = BTreeSet::new();
            operations.into_iter().all(|(number, last_used_step, depth)| {
                let id = u32::from(number % 64);
                let block = CachedBlock { id, last_used_step: last_used_step.into(), depth: depth.into() };
                if number >= 192 {
                    let expected = model.pop_first().map(|rank: EvictionRank| rank.id());
                    return heap.take_first() == expected && heap.len() == model.len();
                }
                if heap.contains(id) {
                    heap.remove(id);
                    model.retain(|rank| rank.id() != id);
                } else {
                    heap.insert(block);
                    model.insert(block.rank());
                }
                heap.len() == model.len()
            })
        }
    }
}
