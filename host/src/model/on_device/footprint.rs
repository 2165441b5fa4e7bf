//! The memory of a device that a model needs, and the KV blocks that the rest has room for.

use super::super::footprint::{positions, rope_floats};
use super::super::weights::Shapes;
use super::super::{ModelConfig, ModelError, ModelOptions, check};
use super::step::MAX_PADDING;
use super::{buffers, layers, limits, rounded};
use crate::gguf::Gguf;

/// What a model takes of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFootprint {
    /// Bytes of everything but the KV pool.
    pub fixed: u64,
    /// Bytes of a KV block, all layers together.
    pub block: u64,
    /// Blocks of the longest sequence.
    pub blocks_of_longest: u32,
}

impl DeviceFootprint {
    /// What the model of `file` takes with these options, whose `num_blocks` does not count.
    ///
    /// # Errors
    /// The model is not supported on a device, or not at all.
    pub fn of(file: &Gguf, options: &ModelOptions) -> Result<Self, ModelError> {
        check::options(options)?;
        let config = ModelConfig::from_gguf(file)?;
        // The longest sequence is then limited by the model and the options alone.
        let options = ModelOptions {
            num_blocks: 1 << 16,
            ..*options
        };
        limits::check(&config, &options)?;
        let shapes = Shapes::read(file, &config)?;
        let weights = shapes.packed_bytes() as u64 + shapes.norm_bytes() as u64;
        let tables = rope_floats(&config, &options) as u64 * 4;
        let block = 2 * config.layers as u64 * layers::block_bytes(&config, &options) as u64;
        let padding = block * u64::from(MAX_PADDING);
        let buffers = buffers::bytes(&config, &options);
        let longest = positions(&config, &options) as u32;
        Ok(Self {
            fixed: weights + tables + padding + buffers + rounded::bytes(&config, &options),
            block,
            blocks_of_longest: longest.div_ceil(options.block_size),
        })
    }

    /// Refuses more KV blocks than `free` bytes of a device's memory have room for.
    ///
    /// # Errors
    /// They do not fit.
    pub fn check(&self, blocks: u32, free: u64) -> Result<(), ModelError> {
        let needed = self
            .block
            .saturating_mul(blocks.into())
            .saturating_add(self.fixed);
        match needed <= free {
            true => Ok(()),
            false => Err(ModelError::DeviceMemory {
                blocks: Some(blocks),
                allowed: free,
                needed,
            }),
        }
    }

    /// The KV blocks that fit into `share` of a device's memory, of which `(free, total)` bytes are.
    ///
    /// # Errors
    /// Not even one sequence of the greatest length fits.
    pub fn blocks(
        &self,
        (free, total): (u64, u64),
        share: f64,
        options: &ModelOptions,
    ) -> Result<u32, ModelError> {
        let allowed = (total as f64 * share) as u64;
        let used = total.saturating_sub(free);
        let left = allowed.saturating_sub(used).saturating_sub(self.fixed);
        let fit = left / self.block.max(1);
        if fit < u64::from(self.blocks_of_longest) {
            return Err(ModelError::DeviceMemory {
                blocks: None,
                allowed: allowed.saturating_sub(used),
                needed: self.fixed + self.block * u64::from(self.blocks_of_longest),
            });
        }
        // A slot's number has 32 bits.
        let most = u32::MAX / options.block_size - MAX_PADDING;
        Ok(u32::try_from(fit).unwrap_or(u32::MAX).min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::tiny::tiny_llama;

    fn footprint(options: &ModelOptions) -> DeviceFootprint {
        let file = Gguf::from_bytes(tiny_llama(1)).expect("a valid file");
        DeviceFootprint::of(&file, options).expect("a supported model")
    }

    #[test]
    fn the_pool_takes_what_is_left() {
        let options = ModelOptions::default();
        let needed = footprint(&options);
        // Two layers, keys and values, two heads of 16, 16 positions, two bytes each.
        assert_eq!(needed.block, 2 * 2 * 2 * 16 * 16 * 2);
        assert_eq!(needed.blocks_of_longest, 512 / 16);
        let total = needed.fixed + 100 * needed.block;
        assert_eq!(needed.blocks((total, total), 1.0, &options).ok(), Some(100));
        let used = 60 * needed.block;
        assert_eq!(
            needed.blocks((total - used, total), 1.0, &options).ok(),
            Some(40)
        );
        let half = needed.blocks((2 * total, 2 * total), 0.5, &options);
        assert_eq!(half.ok(), Some(100));
    }

    #[test]
    fn less_than_one_sequence_is_refused() {
        let options = ModelOptions::default();
        let needed = footprint(&options);
        let total = needed.fixed + 31 * needed.block;
        let error = needed.blocks((total, total), 1.0, &options);
        let error = error.expect_err("a sequence has 32 blocks").to_string();
        assert!(error.contains("--max-model-len"), "{error}");
        assert!(needed.blocks((0, 0), 1.0, &options).is_err());
    }

    #[test]
    fn blocks_that_were_asked_for_fit_or_are_refused() {
        let needed = footprint(&ModelOptions::default());
        let free = needed.fixed + 100 * needed.block;
        assert!(needed.check(100, free).is_ok());
        let error = needed.check(101, free).expect_err("one more than fit");
        let error = error.to_string();
        assert!(
            error.contains("101 KV blocks") && error.contains("--num-blocks"),
            "{error}"
        );
        assert!(needed.check(u32::MAX, u64::MAX / 2).is_ok());
    }

    #[test]
    fn a_number_of_slots_stays_a_number_of_32_bits() {
        let options = ModelOptions::default();
        let blocks = footprint(&options).blocks((u64::MAX, u64::MAX), 1.0, &options);
        let most = u64::from(blocks.expect("enough memory") + MAX_PADDING);
        assert!(most * 16 <= u64::from(u32::MAX));
    }
}
