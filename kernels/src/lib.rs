//! Lockstep's PTX kernels and the table that says how each is launched.
//!
//! The CUDA C++ in `kernels/cuda` is compiled by `kernels/build-ptx.sh`; the PTX is checked in and
//! embedded here, so that a build needs no NVIDIA tool. [`KERNELS`] names, for each entry, its
//! arguments, its launch rule ([`Kernel::size`]) and its CPU twin: the operation of the numerics
//! contract that it equals bit for bit. [`FAST_KERNELS`] are those of the `fast` profile, which has
//! no twin.

mod fast;
mod format;
mod size;
mod table;

pub use fast::{FAST_KERNELS, fast_linear, reads_rounded, rounded_stride};
pub use format::Format;
pub use size::{Block, Grid, LaunchSize, Shape, Shared};
pub use table::{Argument, KERNELS, Kernel, kernel, kernels};

/// The most ranks that the kernels of [`Module::Ranks`] find: the first round of `top_k_logits`
/// takes 1024 logits to `k` keys, each of `top_k_keys` 1024 keys, until a row has `k` left.
pub const TOP_K_LIMIT: u32 = 256;

/// A PTX text: kernels that are loaded together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Module {
    /// Normalisation, activation quantisation and what is done element by element.
    Rows,
    /// Rows of a packed matrix as f32.
    Embed,
    /// Linear layers over packed matrices, for few rows.
    Linear,
    /// The same for many rows.
    Matrix,
    /// The KV cache and paged attention.
    Attention,
    /// The highest logits.
    Ranks,
    /// The `fast` profile: linear layers by tensor cores.
    Fast,
}

impl Module {
    /// Every module.
    pub const ALL: [Self; 7] = [
        Self::Rows,
        Self::Embed,
        Self::Linear,
        Self::Matrix,
        Self::Attention,
        Self::Ranks,
        Self::Fast,
    ];

    /// The text that a driver compiles.
    pub const fn ptx(self) -> &'static str {
        match self {
            Self::Rows => include_str!("../ptx/rows.ptx"),
            Self::Embed => include_str!("../ptx/embed.ptx"),
            Self::Linear => include_str!("../ptx/linear.ptx"),
            Self::Matrix => include_str!("../ptx/matrix.ptx"),
            Self::Attention => include_str!("../ptx/attention.ptx"),
            Self::Ranks => include_str!("../ptx/ranks.ptx"),
            Self::Fast => include_str!("../ptx/fast.ptx"),
        }
    }

    /// Its name: that of its source and of its PTX.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Embed => "embed",
            Self::Linear => "linear",
            Self::Matrix => "matrix",
            Self::Attention => "attention",
            Self::Ranks => "ranks",
            Self::Fast => "fast",
        }
    }
}
