//! The table of kernels.

use crate::size::{Block, Grid, LaunchSize, Shape, Shared};
use crate::{FAST_KERNELS, Module};

/// A kernel's argument, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The address of a buffer that is only read; no output of the launch may overlap it.
    In(&'static str),
    /// The address of a buffer that is written.
    Out(&'static str),
    /// The address of a buffer that is read and written.
    InOut(&'static str),
    /// A 32-bit integer.
    U32(&'static str),
    /// A single-precision float.
    F32(&'static str),
}

impl Argument {
    /// Bytes that it takes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::In(_) | Self::Out(_) | Self::InOut(_) => 8,
            Self::U32(_) | Self::F32(_) => 4,
        }
    }
}

/// A kernel: where it is, what it takes, how it is launched and what it equals.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Its entry's name.
    pub entry: &'static str,
    /// The text that holds it.
    pub module: Module,
    /// Its arguments, in order.
    pub arguments: &'static [Argument],
    /// How many blocks.
    pub grid: Grid,
    /// How many threads a block has.
    pub block: Block,
    /// How much dynamic shared memory a block has.
    pub shared: Shared,
    /// The CPU backend's operation that it equals bit for bit.
    pub twin: &'static str,
}

impl Kernel {
    /// The size of its launch over `shape`.
    pub fn size(&self, shape: &Shape) -> LaunchSize {
        LaunchSize {
            grid: self.grid.size(shape),
            block: self.block.size(shape),
            shared_bytes: self.shared.size(shape),
        }
    }
}

/// The kernel of that entry.
pub fn kernel(entry: &str) -> Option<&'static Kernel> {
    kernels().find(|kernel| kernel.entry == entry)
}

/// The kernels of every profile.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    KERNELS.iter().chain(FAST_KERNELS)
}

use Argument::{F32, In, InOut, Out, U32};

const fn rows(
    entry: &'static str,
    arguments: &'static [Argument],
    grid: Grid,
    threads: u32,
    twin: &'static str,
) -> Kernel {
    let block = Block::Threads(threads);
    Kernel {
        entry,
        module: Module::Rows,
        arguments,
        grid,
        block,
        shared: Shared::None,
        twin,
    }
}

const fn embed(entry: &'static str) -> Kernel {
    Kernel {
        entry,
        module: Module::Embed,
        arguments: &[In("tiles"), In("tokens"), Out("out"), U32("inputs")],
        grid: Grid::Rows,
        block: Block::Threads(256),
        shared: Shared::None,
        twin: "decode::row",
    }
}

const QUANTISED: &[Argument] = &[
    In("tiles"),
    In("q"),
    In("d"),
    In("sums"),
    Out("out"),
    U32("outputs"),
    U32("inputs"),
    U32("rows"),
];
const DENSE: &[Argument] = &[
    In("tiles"),
    In("x"),
    Out("out"),
    U32("outputs"),
    U32("inputs"),
    U32("rows"),
];

const fn linear(
    entry: &'static str,
    arguments: &'static [Argument],
    (block, rows): (Block, u32),
) -> Kernel {
    Kernel {
        entry,
        module: Module::Linear,
        arguments,
        grid: Grid::Tiles(rows),
        block,
        shared: Shared::SegmentSums(rows),
        twin: "reference::dot",
    }
}

/// One row; eight rows of quantised and of dense weights.
const ONE: (Block, u32) = (Block::SegmentHalves, 1);
const EIGHT: (Block, u32) = (Block::SegmentWarps, 8);
const EIGHT_DENSE: (Block, u32) = (Block::SegmentHalves, 8);

const fn matrix(entry: &'static str) -> Kernel {
    Kernel {
        entry,
        module: Module::Matrix,
        arguments: QUANTISED,
        grid: Grid::TileGroups { tiles: 4, rows: 64 },
        block: Block::Threads(128),
        shared: Shared::None,
        twin: "reference::dot",
    }
}

const fn attention(
    entry: &'static str,
    arguments: &'static [Argument],
    grid: Grid,
    shared: Shared,
    twin: &'static str,
) -> Kernel {
    Kernel {
        entry,
        module: Module::Attention,
        arguments,
        grid,
        block: Block::Threads(128),
        shared,
        twin,
    }
}

/// Elements are logits, or keys, of a row.
const fn ranks(entry: &'static str, arguments: &'static [Argument]) -> Kernel {
    Kernel {
        entry,
        module: Module::Ranks,
        arguments,
        grid: Grid::Chunks(1024),
        block: Block::Threads(512),
        shared: Shared::None,
        twin: "the sampler's ranks",
    }
}

const KV_STORE: &[Argument] = &[
    In("k"),
    In("v"),
    In("slots"),
    InOut("keys"),
    InOut("values"),
    InOut("non_finite"),
    U32("kv_heads"),
    U32("dim"),
    U32("block_size"),
];
const SPLIT: &[Argument] = &[
    In("q"),
    In("keys"),
    In("values"),
    In("positions"),
    In("tables"),
    In("block_tables"),
    Out("partial_m"),
    Out("partial_l"),
    Out("partial_o"),
    U32("heads"),
    U32("kv_heads"),
    U32("dim"),
    U32("block_size"),
    U32("window"),
    F32("scale"),
];
const MERGE: &[Argument] = &[
    In("partial_m"),
    In("partial_l"),
    In("partial_o"),
    In("positions"),
    Out("out"),
    U32("dim"),
    U32("window"),
    U32("splits"),
];

/// Every kernel of the `portable` profile.
pub const KERNELS: &[Kernel] = &[
    rows(
        "rms_norm",
        &[In("x"), In("weight"), Out("out"), U32("n"), F32("epsilon")],
        Grid::Rows,
        64,
        "reference::rms_norm",
    ),
    // Elements are blocks of 32 and of 256 activations; a warp takes one.
    rows(
        "quantise_32",
        &[In("x"), Out("q"), Out("d"), Out("sums"), U32("blocks")],
        Grid::Elements(8),
        256,
        "reference::quantise",
    ),
    rows(
        "quantise_256",
        &[In("x"), Out("q"), Out("d"), Out("sums"), U32("blocks")],
        Grid::Elements(8),
        256,
        "reference::quantise",
    ),
    rows(
        "add",
        &[In("a"), In("b"), Out("out"), U32("n")],
        Grid::Elements(256),
        256,
        "a + b",
    ),
    rows(
        "silu_mul",
        &[In("gate"), In("up"), Out("out"), U32("n")],
        Grid::Elements(256),
        256,
        "exp::silu(gate) * up",
    ),
    rows(
        "gelu_mul",
        &[In("gate"), In("up"), Out("out"), U32("n")],
        Grid::Elements(256),
        256,
        "exp::gelu(gate) * up",
    ),
    rows(
        "rope",
        &[
            InOut("x"),
            In("cosines"),
            In("sines"),
            In("positions"),
            U32("heads"),
            U32("dim"),
            U32("stride"),
            U32("offset"),
        ],
        Grid::Rows,
        256,
        "reference::rope",
    ),
    rows(
        "check_rows",
        &[In("x"), InOut("non_finite"), U32("n")],
        Grid::Rows,
        128,
        "f32::is_finite",
    ),
    rows(
        "gather_rows",
        &[In("x"), In("rows"), Out("out"), U32("n")],
        Grid::Rows,
        256,
        "a copy",
    ),
    embed("embed_f32"),
    embed("embed_f16"),
    embed("embed_bf16"),
    embed("embed_q4_0"),
    embed("embed_q4_1"),
    embed("embed_q5_0"),
    embed("embed_q5_1"),
    embed("embed_q8_0"),
    embed("embed_iq4_nl"),
    embed("embed_mxfp4"),
    embed("embed_q2_k"),
    embed("embed_q3_k"),
    embed("embed_q4_k"),
    embed("embed_q5_k"),
    embed("embed_q6_k"),
    embed("embed_iq4_xs"),
    linear("linear_f32_x1", DENSE, ONE),
    linear("linear_f32_x8", DENSE, EIGHT_DENSE),
    linear("linear_f16_x1", DENSE, ONE),
    linear("linear_f16_x8", DENSE, EIGHT_DENSE),
    linear("linear_bf16_x1", DENSE, ONE),
    linear("linear_bf16_x8", DENSE, EIGHT_DENSE),
    linear("linear_q4_0_x1", QUANTISED, ONE),
    linear("linear_q4_0_x8", QUANTISED, EIGHT),
    linear("linear_q4_1_x1", QUANTISED, ONE),
    linear("linear_q4_1_x8", QUANTISED, EIGHT),
    linear("linear_q5_0_x1", QUANTISED, ONE),
    linear("linear_q5_0_x8", QUANTISED, EIGHT),
    linear("linear_q5_1_x1", QUANTISED, ONE),
    linear("linear_q5_1_x8", QUANTISED, EIGHT),
    linear("linear_q8_0_x1", QUANTISED, ONE),
    linear("linear_q8_0_x8", QUANTISED, EIGHT),
    linear("linear_iq4_nl_x1", QUANTISED, ONE),
    linear("linear_iq4_nl_x8", QUANTISED, EIGHT),
    linear("linear_mxfp4_x1", QUANTISED, ONE),
    linear("linear_mxfp4_x8", QUANTISED, EIGHT),
    linear("linear_q2_k_x1", QUANTISED, ONE),
    linear("linear_q2_k_x8", QUANTISED, EIGHT),
    linear("linear_q3_k_x1", QUANTISED, ONE),
    linear("linear_q3_k_x8", QUANTISED, EIGHT),
    linear("linear_q4_k_x1", QUANTISED, ONE),
    linear("linear_q4_k_x8", QUANTISED, EIGHT),
    linear("linear_q5_k_x1", QUANTISED, ONE),
    linear("linear_q5_k_x8", QUANTISED, EIGHT),
    linear("linear_q6_k_x1", QUANTISED, ONE),
    linear("linear_q6_k_x8", QUANTISED, EIGHT),
    linear("linear_iq4_xs_x1", QUANTISED, ONE),
    linear("linear_iq4_xs_x8", QUANTISED, EIGHT),
    matrix("linear_q4_0_x64"),
    matrix("linear_q4_1_x64"),
    matrix("linear_q5_0_x64"),
    matrix("linear_q5_1_x64"),
    matrix("linear_q8_0_x64"),
    matrix("linear_iq4_nl_x64"),
    matrix("linear_mxfp4_x64"),
    matrix("linear_q2_k_x64"),
    matrix("linear_q3_k_x64"),
    matrix("linear_q4_k_x64"),
    matrix("linear_q5_k_x64"),
    matrix("linear_q6_k_x64"),
    matrix("linear_iq4_xs_x64"),
    attention(
        "kv_store_f16",
        KV_STORE,
        Grid::Rows,
        Shared::None,
        "rounding to f16",
    ),
    attention(
        "attention_split_f16",
        SPLIT,
        Grid::Splits,
        Shared::Attention,
        "reference::attention",
    ),
    attention(
        "kv_store_f32",
        KV_STORE,
        Grid::Rows,
        Shared::None,
        "rounding to f32",
    ),
    attention(
        "attention_split_f32",
        SPLIT,
        Grid::Splits,
        Shared::Attention,
        "reference::attention",
    ),
    attention(
        "attention_merge",
        MERGE,
        Grid::Heads,
        Shared::None,
        "reference::Partial::merge",
    ),
    ranks(
        "top_k_logits",
        &[In("logits"), Out("keys"), U32("n"), U32("k")],
    ),
    ranks("top_k_keys", &[In("from"), Out("keys"), U32("n"), U32("k")]),
];
