//! The highest logits of rows, found on the device.

use std::ops::Range;

use lockstep_kernels::Shape;

use super::super::{ModelConfig, ModelOptions};
use super::launcher::Launcher;
use crate::backend::device::{Argument, Device};
use crate::batch::Ranked;
use crate::sampler;

use Argument::{Buffer, U32};

/// The most ranks that are found of a row: more would take as much memory as the logits do.
pub(super) const MAX_RANKS: u32 = 64;

/// Logits, or keys, that a block takes.
const CHUNK: u32 = 1024;

/// How many ranks are found where so many are wanted: few numbers, since each has graphs of its own.
pub(super) const fn ranks_found(wanted: u32) -> u32 {
    match wanted {
        0 | 1 => wanted,
        _ => MAX_RANKS,
    }
}

/// Keys of a row after a round over `n` entries.
const fn keys_after(n: u32, ranks: u32) -> u32 {
    n.div_ceil(CHUNK) * ranks
}

/// Room for the keys of a round, and of the next.
#[derive(Debug)]
pub(super) struct Ranks<B> {
    keys: [B; 2],
}

/// Words of the two.
pub(super) fn sizes(config: &ModelConfig, options: &ModelOptions) -> [usize; 2] {
    let first = keys_after(config.vocab_size as u32, MAX_RANKS);
    let second = keys_after(first, MAX_RANKS);
    [first, second].map(|keys| options.max_rows * keys as usize * 2)
}

impl<B> Ranks<B> {
    pub(super) const fn new(keys: [B; 2]) -> Self {
        Self { keys }
    }

    /// Finds the highest logits of each of so many rows. Every round leaves the best of each chunk;
    /// the last one leaves as many as are wanted.
    pub(super) fn find<D: Device<Buffer = B>>(
        &self,
        launcher: &mut Launcher<D>,
        logits: &B,
        (rows, outputs): (u32, u32),
        ranks: u32,
    ) -> Result<(), String> {
        let [mut from, mut to] = self.keys.each_ref();
        let shape = |elements| Shape {
            rows,
            elements,
            ..Shape::default()
        };
        let arguments = [Buffer(logits), Buffer(from), U32(outputs), U32(ranks)];
        launcher.launch("top_k_logits", shape(outputs), &arguments)?;
        let mut n = keys_after(outputs, ranks);
        while n > ranks {
            let arguments = [Buffer(from), Buffer(to), U32(n), U32(ranks)];
            launcher.launch("top_k_keys", shape(n), &arguments)?;
            n = keys_after(n, ranks);
            std::mem::swap(&mut from, &mut to);
        }
        Ok(())
    }

    /// Reads what was found of the rows from `first` on, the whole of each behind the one before.
    pub(super) fn read<D: Device<Buffer = B>>(
        &self,
        device: &mut D,
        rows: Range<usize>,
        (outputs, ranks): (u32, u32),
        found: &mut Found,
    ) -> Result<(), String> {
        let mut n = keys_after(outputs, ranks);
        let mut last = 0;
        while n > ranks {
            n = keys_after(n, ranks);
            last = 1 - last;
        }
        let each = ranks as usize;
        let mut keys = vec![0_u64; rows.end * each];
        device.read(&self.keys[last], bytemuck::cast_slice_mut(&mut keys))?;
        for keys in keys.chunks_exact(each.max(1)).skip(rows.start) {
            let tokens = keys.iter().filter_map(|key| sampler::ranked(*key));
            found.tokens.extend(tokens);
            found.ends.push(found.tokens.len());
        }
        Ok(())
    }
}

/// What a step found of its ranked rows.
#[derive(Debug, Default)]
pub(super) struct Found {
    tokens: Vec<Ranked>,
    /// Where each row's tokens end.
    ends: Vec<usize>,
}

impl Found {
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.ends.clear();
    }

    /// The tokens of a row; none of a row that there is not.
    pub(super) fn of(&self, index: usize) -> &[Ranked] {
        let start = match index.checked_sub(1) {
            None => Some(0),
            Some(before) => self.ends.get(before).copied(),
        };
        let range = start.zip(self.ends.get(index)).map(|(a, b)| a..*b);
        range
            .and_then(|range| self.tokens.get(range))
            .unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vocabulary_is_ranked_down_to_one_chunk_in_the_room_there_is() {
        for vocabulary in [1, 64, 1000, 1024, 1025, 32_000, 128_256, 262_144] {
            for ranks in [1, MAX_RANKS] {
                let room = [keys_after(vocabulary, MAX_RANKS)]
                    .map(|first| [first, keys_after(first, MAX_RANKS)]);
                let mut n = keys_after(vocabulary, ranks);
                let mut rounds = 0;
                while n > ranks {
                    assert!(n <= room[0][rounds % 2], "{vocabulary} {ranks} {rounds}");
                    n = keys_after(n, ranks);
                    rounds += 1;
                }
                assert_eq!(n, ranks, "{vocabulary}");
            }
        }
    }
}
