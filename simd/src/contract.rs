//! The numbers of the contract, and the fold that every reduction over a row ends with.

/// The version of the contract that this crate computes.
pub const NUMERICS_VERSION: &str = "portable-1";
/// Elements of the inner dimension that one chain sums.
pub const SEGMENT: usize = 512;
/// Virtual lanes of a reduction over a row.
pub const LANES: usize = 64;
/// Absolute positions in a split of attention.
pub const SPLIT: usize = 256;
/// Blocks whose greatest magnitude is below this are quantised to zeros: 2^-100.
pub const TINY: f32 = f32::from_bits(27 << 23);

/// Folds the virtual lanes: 32, 16, 8, 4, 2, 1.
pub fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The positions that a row at `position` sees: all up to its own, or the last `window` of them; a
/// window of 0 is none.
pub fn seen(position: usize, window: usize) -> core::ops::Range<usize> {
    let end = position + 1;
    match window {
        0 => 0..end,
        _ => end.saturating_sub(window)..end,
    }
}
