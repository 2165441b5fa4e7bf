//! Launch rules: how many blocks, threads and bytes of shared memory a shape takes.

/// Outputs of a tile.
const TILE: u32 = 16;
/// Elements of the inner dimension that one chain sums.
const SEGMENT: u32 = 512;
/// Segments that a block of a linear kernel sums at a time.
const SEGMENTS_AT_ONCE: u32 = 8;
/// Threads of half a warp.
const HALF_WARP: u32 = 16;
/// Threads of a warp.
const WARP: u32 = 32;
/// Positions of a split of attention.
const SPLIT: u32 = 256;
/// Bytes of keys and values that attention holds in shared memory.
const STAGED: u32 = 2 * 16384;
/// The most shared memory that a launch has without asking the driver for more, in bytes.
const SHARED_LIMIT: u32 = 48 * 1024 - 512;

/// What a launch is over; a kernel's rule reads the fields that its doc names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Rows of the step.
    pub rows: u32,
    /// Elements, or blocks of elements, for kernels that do not care about rows.
    pub elements: u32,
    /// Outputs of a linear layer.
    pub outputs: u32,
    /// Inputs of a linear layer.
    pub inputs: u32,
    /// Query heads.
    pub heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Components of a head.
    pub dim: u32,
    /// The greatest position of the step plus one.
    pub positions: u32,
}

/// The size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSize {
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: u32,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

/// How many blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grid {
    /// One for each of [`Shape::rows`].
    Rows,
    /// One for so many of [`Shape::elements`].
    Elements(u32),
    /// Tiles of [`Shape::outputs`], by groups of so many [`Shape::rows`].
    Tiles(u32),
    /// The same, so many tiles at a time.
    TileGroups {
        /// Tiles of a block.
        tiles: u32,
        /// Rows of a block.
        rows: u32,
    },
    /// Splits of [`Shape::positions`], by [`Shape::kv_heads`] and parts of their query heads, by
    /// [`Shape::rows`].
    Splits,
    /// So many of [`Shape::elements`], by [`Shape::rows`].
    Chunks(u32),
    /// [`Shape::heads`] by [`Shape::rows`].
    Heads,
}

/// How many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// So many.
    Threads(u32),
    /// Half a warp for each segment of [`Shape::inputs`], eight at most; whole warps.
    SegmentHalves,
    /// A warp for each segment of [`Shape::inputs`], eight at most.
    SegmentWarps,
}

/// How much dynamic shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// None.
    None,
    /// An f32 for each segment of [`Shape::inputs`], so many rows, and sixteen outputs.
    SegmentSums(u32),
    /// Keys and values under way, and for each query head of a block the scores of a split and a
    /// head's components.
    Attention,
}

impl Shape {
    fn segments(&self) -> u32 {
        self.inputs.div_ceil(SEGMENT)
    }

    /// Query heads that share a KV head.
    const fn group(&self) -> u32 {
        match self.kv_heads {
            0 => 0,
            kv_heads => self.heads / kv_heads,
        }
    }

    /// Parts into which the query heads of a KV head are cut, so that a block's shared memory is
    /// enough for one.
    const fn head_parts(&self) -> u32 {
        let room = (SHARED_LIMIT - STAGED) / ((SPLIT + self.dim) * 4);
        self.group().div_ceil(room)
    }

    /// Query heads of a block of attention, but for the last part, which may have fewer.
    fn heads_at_once(&self) -> u32 {
        self.group().div_ceil(self.head_parts().max(1))
    }

    /// Splits of attention that the step's positions need.
    pub fn splits(&self) -> u32 {
        self.positions.div_ceil(SPLIT)
    }
}

impl Grid {
    pub(crate) fn size(self, shape: &Shape) -> [u32; 3] {
        match self {
            Self::Rows => [shape.rows, 1, 1],
            Self::Elements(each) => [shape.elements.div_ceil(each), 1, 1],
            Self::Tiles(rows) => [shape.outputs.div_ceil(TILE), shape.rows.div_ceil(rows), 1],
            Self::TileGroups { tiles, rows } => {
                let groups = shape.outputs.div_ceil(TILE * tiles);
                [groups, shape.rows.div_ceil(rows), 1]
            }
            Self::Splits => [
                shape.splits(),
                shape.kv_heads * shape.head_parts(),
                shape.rows,
            ],
            Self::Chunks(each) => [shape.elements.div_ceil(each), shape.rows, 1],
            Self::Heads => [shape.heads, shape.rows, 1],
        }
    }
}

impl Block {
    pub(crate) fn size(self, shape: &Shape) -> u32 {
        match self {
            Self::Threads(threads) => threads,
            Self::SegmentHalves => {
                let segments = shape.segments().clamp(1, SEGMENTS_AT_ONCE);
                (segments * HALF_WARP).next_multiple_of(WARP)
            }
            Self::SegmentWarps => shape.segments().clamp(1, SEGMENTS_AT_ONCE) * WARP,
        }
    }
}

impl Shared {
    pub(crate) fn size(self, shape: &Shape) -> u32 {
        match self {
            Self::None => 0,
            Self::Attention => STAGED + shape.heads_at_once() * (SPLIT + shape.dim) * 4,
            Self::SegmentSums(rows) => shape.segments() * rows * TILE * 4,
        }
    }
}
