//! The layout of the KV pool, and what is stored in it.
//!
//! In a block the keys of a head stand dimension by dimension, so that vector lanes run over
//! positions; its values stand position by position, so that lanes run over dimensions.

use half::f16;

use crate::Isa;
use crate::lanes::{Simd, WIDTH};
use crate::rows;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KvDtype {
    /// f16, rounded to nearest even.
    #[default]
    F16,
    /// f32, as they are.
    F32,
}

impl KvDtype {
    /// Bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// Its name, as [`FromStr`](core::str::FromStr) reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

impl core::fmt::Display for KvDtype {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::str::FromStr for KvDtype {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "f16" => Ok(Self::F16),
            "f32" => Ok(Self::F32),
            _ => Err("unknown KV cache type: f16 or f32"),
        }
    }
}

/// The shape of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Layers of the model.
    pub layers: usize,
    /// Heads of keys and values.
    pub heads: usize,
    /// Elements of a head, a multiple of 16.
    pub head_dim: usize,
    /// Blocks of the pool.
    pub blocks: usize,
    /// Positions of a block, a multiple of 16.
    pub block_size: usize,
    /// How elements are stored.
    pub dtype: KvDtype,
}

impl KvShape {
    /// Elements of one head's keys (or values) in a block.
    const fn head(&self) -> usize {
        self.head_dim * self.block_size
    }

    /// Bytes of a block in one layer, keys and values.
    pub const fn block_bytes(&self) -> usize {
        2 * self.heads * self.head() * self.dtype.bytes()
    }

    /// Bytes of a pool of this shape; `None` where that exceeds the address space.
    pub fn bytes(&self) -> Option<usize> {
        let factors = [
            self.heads,
            self.head_dim,
            self.block_size,
            self.dtype.bytes(),
            self.layers,
            self.blocks,
        ];
        factors
            .into_iter()
            .try_fold(2_usize, |product, factor| product.checked_mul(factor))
    }
}

/// Where the keys and values of every block and layer are.
#[derive(Clone, Copy, Debug)]
pub struct Kv {
    shape: KvShape,
    base: *mut u8,
}

// SAFETY: a place is no access; who reads or writes there answers for disjointness.
unsafe impl Send for Kv {}
// SAFETY: as above.
unsafe impl Sync for Kv {}

impl Kv {
    /// The pool at `base`.
    ///
    /// # Safety
    /// As long as it is used, [`KvShape::bytes`] bytes are there, aligned to 4.
    pub const unsafe fn new(shape: KvShape, base: *mut u8) -> Self {
        Self { shape, base }
    }

    /// Its shape.
    pub const fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Where the keys (`part` 0) or values (`part` 1) of a head of a block begin.
    ///
    /// # Panics
    /// If there is no such place.
    pub(crate) fn place(self, layer: usize, block: usize, part: usize, head: usize) -> *mut u8 {
        let shape = self.shape;
        assert!(layer < shape.layers && block < shape.blocks && head < shape.heads && part < 2);
        let first = (layer * shape.blocks + block) * shape.block_bytes();
        let offset = (part * shape.heads + head) * shape.head() * shape.dtype.bytes();
        // SAFETY: the place was checked.
        unsafe { self.base.add(first + offset) }
    }

    /// Stores elements `dim..dim + 16` of the key of one head at a slot; whether all are finite as stored.
    ///
    /// # Safety
    /// The machine has `isa`; no other thread accesses these elements meanwhile.
    ///
    /// # Panics
    /// If there is no such place.
    pub unsafe fn store_key(
        self,
        isa: Isa,
        layer: usize,
        slot: usize,
        head: usize,
        dim: usize,
        x: &[f32; WIDTH],
    ) -> bool {
        let size = self.shape.block_size;
        assert!(dim + WIDTH <= self.shape.head_dim);
        let base = self.place(layer, slot / size, 0, head);
        let first = dim * size + slot % size;
        // SAFETY: the place and the dimensions were checked; nobody else is there.
        unsafe {
            match self.shape.dtype {
                KvDtype::F16 => store_f16(isa, base.cast(), first, size, x),
                KvDtype::F32 => store_f32(base.cast(), first, size, x),
            }
        }
    }

    /// Stores elements `dim..dim + 16` of the value of one head at a slot; whether all are finite as stored.
    ///
    /// # Safety
    /// The machine has `isa`; no other thread accesses these elements meanwhile.
    ///
    /// # Panics
    /// If there is no such place.
    pub unsafe fn store_value(
        self,
        isa: Isa,
        layer: usize,
        slot: usize,
        head: usize,
        dim: usize,
        x: &[f32; WIDTH],
    ) -> bool {
        let size = self.shape.block_size;
        assert!(dim + WIDTH <= self.shape.head_dim);
        let base = self.place(layer, slot / size, 1, head);
        let first = slot % size * self.shape.head_dim + dim;
        // SAFETY: the place and the dimensions were checked; nobody else is there.
        unsafe {
            match self.shape.dtype {
                KvDtype::F16 => store_f16(isa, base.cast(), first, 1, x),
                KvDtype::F32 => store_f32(base.cast(), first, 1, x),
            }
        }
    }
}

/// Stores elements `stride` apart.
unsafe fn store_f16(
    isa: Isa,
    base: *mut u16,
    first: usize,
    stride: usize,
    x: &[f32; WIDTH],
) -> bool {
    // SAFETY: the machine has `isa`.
    let halves = unsafe { rows::to_f16(isa, x) };
    for (i, half) in halves.iter().enumerate() {
        // SAFETY: the caller checked the place.
        unsafe { *base.add(first + i * stride) = *half };
    }
    // An exponent of all ones, in any lane; no early end, so that lanes are looked at together.
    halves
        .iter()
        .fold(true, |finite, half| finite & (half & 0x7c00 != 0x7c00))
}

/// Stores elements `stride` apart.
unsafe fn store_f32(base: *mut f32, first: usize, stride: usize, x: &[f32; WIDTH]) -> bool {
    for (i, x) in x.iter().enumerate() {
        // SAFETY: the caller checked the place.
        unsafe { *base.add(first + i * stride) = *x };
    }
    x.iter().all(|x| x.is_finite())
}

/// An element of the pool.
pub(crate) trait KvElement: Copy {
    /// Loads sixteen, exactly.
    ///
    /// # Safety
    /// The instruction set is enabled; sixteen elements are there.
    unsafe fn load<S: Simd>(p: *const Self) -> S::F;
}

impl KvElement for f16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const Self) -> S::F {
        // SAFETY: as the caller says; f16 is a u16 of bits.
        unsafe { S::load_f16(p.cast()) }
    }
}

impl KvElement for f32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const Self) -> S::F {
        // SAFETY: as the caller says.
        unsafe { S::load(p) }
    }
}
