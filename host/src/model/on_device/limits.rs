//! What the kernels' grids and 32-bit numbers have room for.

use super::step::MAX_PADDING;
use super::{ModelConfig, ModelError, ModelOptions};

/// The most components of a head that the attention kernels have room for.
const MAX_HEAD_DIM: usize = 256;
/// The most blocks along the second and third axis of a grid.
const MAX_GRID: usize = 65_535;

/// Refuses a model or options that a launch could not name in its arguments.
///
/// # Errors
/// [`ModelError`] with the value that is too great, and the limit.
pub(super) fn check(config: &ModelConfig, options: &ModelOptions) -> Result<(), ModelError> {
    if config.head_dim > MAX_HEAD_DIM || config.heads > MAX_GRID {
        return Err(ModelError::BadValue {
            key: "llama.attention.key_length".into(),
            found: format!("{} in {} heads", config.head_dim, config.heads),
            expected: format!("at most {MAX_HEAD_DIM} in {MAX_GRID} heads on a device"),
        });
    }
    let blocks = u64::from(options.num_blocks) + u64::from(MAX_PADDING);
    if blocks * u64::from(options.block_size) > u64::from(u32::MAX) {
        return Err(ModelError::BadOption {
            option: "num_blocks",
            found: options.num_blocks.into(),
            expected: "so many that a slot's number has 32 bits",
        });
    }
    if options.max_rows > MAX_GRID {
        let found = options.max_rows as u64;
        let expected = "at most 65535 on a device";
        return Err(ModelError::BadOption {
            option: "max_num_batched_tokens",
            found,
            expected,
        });
    }
    elements(config, options.max_rows)
}

/// Refuses rows so wide that the elements of a step would not have 32-bit numbers.
fn elements(config: &ModelConfig, max_rows: usize) -> Result<(), ModelError> {
    for (key, width) in [
        ("llama.embedding_length", config.embedding),
        ("llama.feed_forward_length", config.feed_forward),
        ("llama.attention.head_count", config.query_width()),
    ] {
        // Both factors have been found to be far below 32 bits.
        if width as u64 * max_rows as u64 > u64::from(u32::MAX) {
            return Err(ModelError::BadValue {
                key: key.into(),
                found: format!("so large that {max_rows} rows of {width} elements are a step"),
                expected: format!(
                    "at most {} elements in a step on a device (--max-num-batched-tokens)",
                    u32::MAX
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::{Gguf, tiny::tiny_llama};

    #[test]
    fn elements_of_a_step_have_32_bit_numbers() {
        let file = Gguf::from_bytes(tiny_llama(1)).unwrap();
        let tiny = ModelConfig::from_gguf(&file).unwrap();
        let options = ModelOptions {
            max_rows: 4096,
            ..ModelOptions::default()
        };
        assert!(check(&tiny, &options).is_ok());
        let width = 1 << 20;
        let [mut embedding, mut feed_forward, mut heads] = [tiny.clone(), tiny.clone(), tiny];
        embedding.embedding = width;
        feed_forward.feed_forward = width;
        (heads.heads, heads.head_dim) = (width / 256, 256);
        for config in [&embedding, &feed_forward, &heads] {
            let error = check(config, &options).expect_err("4096 x 2^20 is 2^32");
            let said = error.to_string();
            assert!(said.contains("4096 rows of 1048576 elements"), "{said}");
            assert!(said.contains("4294967295 elements"), "{said}");
            let fewer = ModelOptions {
                max_rows: 4095,
                ..options
            };
            assert!(check(config, &fewer).is_ok());
        }
    }
}
