//! The table of the `fast` profile's kernels: linear layers by tensor cores over rows rounded to 16
//! bits.

use crate::size::{Block, Grid, Shared};
use crate::table::Argument::{self, In, Out, U32};
use crate::{Format, Kernel, Module};

/// Elements that a rounded row is a multiple of.
const STEP: u32 = 32;
/// The most rows for which a narrow kernel, which reads the weights once for eight, is launched.
const NARROW_ROWS: u32 = 64;

/// Elements that a row of `inputs` takes once rounded, those behind the last being zeros.
pub const fn rounded_stride(inputs: u32) -> u32 {
    inputs.next_multiple_of(STEP)
}

/// The kernel that multiplies `rows` rows with weights of a format; none where the profile takes
/// the portable one. Every kernel of a format gives a row the same bits.
pub const fn fast_linear(format: Format, rows: u32) -> Option<&'static str> {
    let (narrow, wide) = match format {
        Format::F32
        | Format::IQ4_NL
        | Format::MXFP4
        | Format::Q2_K
        | Format::Q3_K
        | Format::IQ4_XS => return None,
        Format::F16 => ("fast_linear_f16_narrow", "fast_linear_f16_wide"),
        Format::BF16 => ("fast_linear_bf16_narrow", "fast_linear_bf16_wide"),
        Format::Q4_0 => ("fast_linear_q4_0_narrow", "fast_linear_q4_0_wide"),
        Format::Q4_1 => ("fast_linear_q4_1_narrow", "fast_linear_q4_1_wide"),
        Format::Q5_0 => ("fast_linear_q5_0_narrow", "fast_linear_q5_0_wide"),
        Format::Q5_1 => ("fast_linear_q5_1_narrow", "fast_linear_q5_1_wide"),
        Format::Q8_0 => ("fast_linear_q8_0_narrow", "fast_linear_q8_0_wide"),
        Format::Q4_K => ("fast_linear_q4_k_narrow", "fast_linear_q4_k_wide"),
        Format::Q5_K => ("fast_linear_q5_k_narrow", "fast_linear_q5_k_wide"),
        Format::Q6_K => ("fast_linear_q6_k_narrow", "fast_linear_q6_k_wide"),
    };
    Some(if rows <= NARROW_ROWS { narrow } else { wide })
}

/// The kernel that rounds the rows that weights of a format read; none where [`fast_linear`] has
/// none.
pub const fn reads_rounded(format: Format) -> Option<&'static str> {
    match fast_linear(format, 1) {
        None => None,
        Some(_) if matches!(format, Format::BF16) => Some("fast_round_bf16"),
        Some(_) => Some("fast_round_f16"),
    }
}

const fn round(entry: &'static str) -> Kernel {
    const ARGUMENTS: &[Argument] = &[In("x"), Out("out"), Out("scales"), U32("inputs")];
    fast(entry, ARGUMENTS, Grid::Rows, 1024)
}

const fn narrow(entry: &'static str) -> Kernel {
    fast(entry, LINEAR, Grid::Tiles(8), 256)
}

/// 128 outputs by 128 rows.
const WIDE: Grid = Grid::TileGroups {
    tiles: 8,
    rows: 128,
};

const fn wide(entry: &'static str) -> Kernel {
    fast(entry, LINEAR, WIDE, 256)
}

const fn fast(
    entry: &'static str,
    arguments: &'static [Argument],
    grid: Grid,
    threads: u32,
) -> Kernel {
    Kernel {
        entry,
        module: Module::Fast,
        arguments,
        grid,
        block: Block::Threads(threads),
        shared: Shared::None,
        twin: "none: the CPU has no `fast` profile",
    }
}

const LINEAR: &[Argument] = &[
    In("tiles"),
    In("x"),
    In("scales"),
    Out("out"),
    U32("outputs"),
    U32("inputs"),
    U32("rows"),
];

/// Every kernel that only the `fast` profile has.
pub const FAST_KERNELS: &[Kernel] = &[
    round("fast_round_f16"),
    round("fast_round_bf16"),
    narrow("fast_linear_f16_narrow"),
    wide("fast_linear_f16_wide"),
    narrow("fast_linear_bf16_narrow"),
    wide("fast_linear_bf16_wide"),
    narrow("fast_linear_q4_0_narrow"),
    wide("fast_linear_q4_0_wide"),
    narrow("fast_linear_q4_1_narrow"),
    wide("fast_linear_q4_1_wide"),
    narrow("fast_linear_q5_0_narrow"),
    wide("fast_linear_q5_0_wide"),
    narrow("fast_linear_q5_1_narrow"),
    wide("fast_linear_q5_1_wide"),
    narrow("fast_linear_q8_0_narrow"),
    wide("fast_linear_q8_0_wide"),
    narrow("fast_linear_q4_k_narrow"),
    wide("fast_linear_q4_k_wide"),
    narrow("fast_linear_q5_k_narrow"),
    wide("fast_linear_q5_k_wide"),
    narrow("fast_linear_q6_k_narrow"),
    wide("fast_linear_q6_k_wide"),
];
