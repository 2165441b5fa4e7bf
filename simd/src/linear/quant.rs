//! What kernels need to know of the quantised formats, and how their planes become bytes.

use crate::activations::OFFSETS;
use crate::decode::{IQ4_VALUES, MXFP4_VALUES};
use crate::lanes::Simd;

/// Vectors of a step: each holds four elements of sixteen outputs.
pub(super) const VECTORS: usize = 8;

/// How a super-block keeps its sub-scales.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SubScale {
    /// One signed byte for every 16 elements.
    Signed16,
    /// One signed byte for every 32 elements.
    Signed32,
    /// A byte for every 32 elements, and one for the sub-minimum.
    WithMin32,
    /// A nibble for every 16 elements, and one for the sub-minimum.
    WithMin16,
}

/// A quantised format.
pub(super) trait Quant: Copy {
    /// Bits of a code in the lower plane.
    const LOW: usize;
    /// Bits of a code in the upper plane.
    const HIGH: usize = 0;
    /// What is to be subtracted from a byte to get the integer.
    const OFFSET: i32 = 0;
    /// The bytes that codes stand for, where a byte is not the code itself.
    const TABLE: Option<[u8; 16]> = None;
    /// Whether bytes reach beyond 127: then the offset is 128.
    const WIDE: bool = false;
    /// Whether blocks of 32 have a minimum.
    const MIN: bool = false;
    /// Whether a block of 32 has an E8M0 scale and not one of f16.
    const E8M0: bool = false;
    /// How super-blocks keep their sub-scales.
    const SUB_SCALE: SubScale = SubScale::Signed16;

    /// Bytes of a step's planes.
    const STEP_BYTES: usize = 64 * (Self::LOW + Self::HIGH);
}

macro_rules! formats {
    ($($name:ident { $($item:ident: $type:ty = $value:expr,)* })*) => {$(
        /// The format of this name.
        #[derive(Clone, Copy)]
        pub(in super::super) struct $name;

        impl Quant for $name {
            $(const $item: $type = $value;)*
        }
    )*};
}

#[expect(
    non_camel_case_types,
    reason = "the field writes these names with underscores"
)]
mod names {
    use super::*;

    formats! {
        Q4_0 { LOW: usize = 4, OFFSET: i32 = 8, }
        Q4_1 { LOW: usize = 4, MIN: bool = true, }
        Q5_0 { LOW: usize = 4, HIGH: usize = 1, OFFSET: i32 = 16, }
        Q5_1 { LOW: usize = 4, HIGH: usize = 1, MIN: bool = true, }
        Q8_0 { LOW: usize = 8, OFFSET: i32 = 128, WIDE: bool = true, }
        IQ4_NL {
            LOW: usize = 4,
            OFFSET: i32 = 128,
            WIDE: bool = true,
            TABLE: Option<[u8; 16]> = Some(raised(IQ4_VALUES, 128)),
        }
        MXFP4 {
            LOW: usize = 4,
            OFFSET: i32 = 12,
            E8M0: bool = true,
            TABLE: Option<[u8; 16]> = Some(raised(MXFP4_VALUES, 12)),
        }
        Q2_K { LOW: usize = 2, SUB_SCALE: SubScale = SubScale::WithMin16, }
        Q3_K { LOW: usize = 2, HIGH: usize = 1, OFFSET: i32 = 4, }
        Q4_K { LOW: usize = 4, SUB_SCALE: SubScale = SubScale::WithMin32, }
        Q5_K { LOW: usize = 4, HIGH: usize = 1, SUB_SCALE: SubScale = SubScale::WithMin32, }
        Q6_K { LOW: usize = 4, HIGH: usize = 2, OFFSET: i32 = 32, }
        IQ4_XS {
            LOW: usize = 4,
            OFFSET: i32 = 128,
            WIDE: bool = true,
            TABLE: Option<[u8; 16]> = Some(raised(IQ4_VALUES, 128)),
            SUB_SCALE: SubScale = SubScale::Signed32,
        }
    }
}

pub(super) use names::*;

/// A table of bytes, raised so that none is negative.
const fn raised(values: [i8; 16], offset: i32) -> [u8; 16] {
    let mut table = [0; 16];
    let mut i = 0;
    while i < table.len() {
        table[i] = (values[i] as i32 + offset) as u8;
        i += 1;
    }
    table
}

/// Where [`OFFSETS`] has a format's offset.
pub(super) const fn bias_index(offset: i32) -> usize {
    let mut i = 0;
    while i < OFFSETS.len() && OFFSETS[i] != offset {
        i += 1;
    }
    i
}

/// The bytes of a step: vector `j` holds elements `4 j..4 j + 4` of sixteen outputs.
#[inline(always)]
pub(super) unsafe fn unpack<S: Simd, Q: Quant>(step: *const u8) -> [S::I; VECTORS] {
    // SAFETY: the step's planes are there.
    unsafe {
        let mut bytes = plane::<S>(step, Q::LOW);
        if Q::HIGH > 0 {
            let high = plane::<S>(step.add(64 * Q::LOW), Q::HIGH);
            for j in 0..VECTORS {
                let raised = match Q::LOW {
                    2 => S::shl::<2>(high[j]),
                    _ => S::shl::<4>(high[j]),
                };
                bytes[j] = S::or(bytes[j], raised);
            }
        }
        if let Some(table) = &Q::TABLE {
            for vector in &mut bytes {
                *vector = S::lookup(table.as_ptr(), *vector);
            }
        }
        if Q::WIDE {
            for vector in &mut bytes {
                *vector = S::widen(*vector);
            }
        }
        bytes
    }
}

/// Eight vectors out of a plane of `bits` bits: the plane's vectors lie one above the other.
#[inline(always)]
unsafe fn plane<S: Simd>(p: *const u8, bits: usize) -> [S::I; VECTORS] {
    // SAFETY: `bits` vectors are there.
    unsafe {
        let mask = S::splat_int((((1_u32 << bits) - 1) * 0x0101_0101) as i32);
        // Spelt out: as a loop it stays one, and keeps the vectors in memory.
        macro_rules! all {
            ($($j:literal)*) => { [$(codes::<S>(p, bits, mask, $j)),*] };
        }
        all!(0 1 2 3 4 5 6 7)
    }
}

/// Vector `j` out of a plane of `bits` bits.
#[inline(always)]
unsafe fn codes<S: Simd>(p: *const u8, bits: usize, mask: S::I, j: usize) -> S::I {
    // SAFETY: `bits` vectors are there.
    unsafe {
        let vector = S::load_int(p.add(j % bits * 64));
        let shifted = match j / bits * bits {
            0 => vector,
            1 => S::shr::<1>(vector),
            2 => S::shr::<2>(vector),
            3 => S::shr::<3>(vector),
            4 => S::shr::<4>(vector),
            5 => S::shr::<5>(vector),
            6 => S::shr::<6>(vector),
            _ => S::shr::<7>(vector),
        };
        match bits {
            8 => shifted,
            _ => S::and(shifted, mask),
        }
    }
}
