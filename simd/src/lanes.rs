//! One vector of sixteen lanes in several guises, and the run-time choice among them.
//!
//! Kernels are generic over [`Simd`], inlined whole into a function that enables the instruction
//! set. Every operation is one IEEE-754 operation per lane or exact, so that the guise cannot
//! change a bit.

use crate::Isa;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod scalar;

pub(crate) use scalar::Scalar;

/// Lanes of a vector: outputs of a tile.
pub const WIDTH: usize = 16;

/// Sixteen lanes of f32 ([`F`](Self::F)), and of i32 or of four bytes each ([`I`](Self::I)).
///
/// # Safety
/// Every function may be called only where the implementation's instruction set is enabled;
/// pointers are valid for the bytes that are named; none needs an alignment above its element's.
pub(crate) trait Simd: Copy {
    /// Sixteen f32.
    type F: Copy;
    /// Sixteen i32, or 64 bytes.
    type I: Copy;
    /// Whether [`dot_wide`](Self::dot_wide) takes excess-128 weights as they are, so that 128 times
    /// the activations' sum is to be subtracted.
    const WIDE_IS_BIASED: bool;
    /// How many [`F`](Self::F) the registers hold.
    const VECTORS: usize;

    unsafe fn splat(x: f32) -> Self::F;
    /// Loads 16 f32.
    unsafe fn load(p: *const f32) -> Self::F;
    /// Loads 16 f16, exactly.
    unsafe fn load_f16(p: *const u16) -> Self::F;
    /// Loads 16 bf16, exactly.
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    /// Stores 16 f32.
    unsafe fn store(p: *mut f32, x: Self::F);
    /// Stores 16 f16, rounded to nearest even.
    unsafe fn store_f16(p: *mut u16, x: Self::F);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b`, rounded once.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The greater of two numbers that are not NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The first lane.
    unsafe fn first(x: Self::F) -> f32;
    /// The greatest lane, where none is NaN.
    unsafe fn greatest(x: Self::F) -> f32;
    /// Adds the upper half of the lanes to the lower one, down to one lane.
    unsafe fn fold(x: Self::F) -> f32;
    /// Where `a < b`: `yes`, else `no`.
    unsafe fn select_less(a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// Exchanges neighbours: lanes 1, 0, 3, 2 and so on.
    unsafe fn swap_pairs(x: Self::F) -> Self::F;

    /// Asks for the cache line at `p`, which need not be valid.
    unsafe fn prefetch(p: *const u8);

    unsafe fn zero() -> Self::I;
    unsafe fn splat_int(x: i32) -> Self::I;
    /// Loads 64 bytes.
    unsafe fn load_int(p: *const u8) -> Self::I;
    /// Loads 16 bytes, each zero-extended to a lane.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// Loads 16 bytes, each sign-extended to a lane.
    unsafe fn load_i8(p: *const u8) -> Self::I;
    /// Stores the first 32 bytes and the last 32 bytes.
    unsafe fn store_halves(places: [*mut u8; 2], x: Self::I);
    unsafe fn add_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn mul_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn max_int(a: Self::I, b: Self::I) -> Self::I;
    /// Whether any lane is greater than `x`.
    unsafe fn any_above(a: Self::I, x: i32) -> bool;
    /// Lane `i` becomes lane `i ^ N`, where `N` is 1, 2, 4 or 8.
    unsafe fn exchange<const N: usize>(x: Self::I) -> Self::I;
    /// The lanes of `b` where the mask has a one, those of `a` where it has none.
    unsafe fn blend(mask: u16, a: Self::I, b: Self::I) -> Self::I;
    /// The 64 lanes, each from -128 to 127, as bytes.
    unsafe fn narrow(x: [Self::I; 4]) -> Self::I;
    /// Each lane's sum of its four signed bytes.
    unsafe fn sum_fours(x: Self::I) -> Self::I;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// Shifts each lane of 32 bits left.
    unsafe fn shl<const N: u32>(x: Self::I) -> Self::I;
    /// Shifts each lane of 32 bits right, zeros coming in.
    unsafe fn shr<const N: u32>(x: Self::I) -> Self::I;
    /// Each lane's i32 as f32, rounded to nearest even.
    unsafe fn to_float(x: Self::I) -> Self::F;
    /// Each lane's f32 to the nearest i32, ties to even; in range.
    unsafe fn to_int(x: Self::F) -> Self::I;
    unsafe fn bits(x: Self::F) -> Self::I;
    unsafe fn from_bits(x: Self::I) -> Self::F;
    /// Byte-wise look-up of values below 16 in the 16 bytes at `table`.
    unsafe fn lookup(table: *const u8, codes: Self::I) -> Self::I;
    /// Adds to each lane the products of its four unsigned bytes, each below 128, with the four
    /// signed bytes at `q`.
    unsafe fn dot(acc: Self::I, weights: Self::I, q: *const i8) -> Self::I;
    /// Prepares excess-128 bytes for [`dot_wide`](Self::dot_wide).
    unsafe fn widen(weights: Self::I) -> Self::I;
    /// [`dot`](Self::dot) for bytes from [`widen`](Self::widen); `q` is above -128.
    unsafe fn dot_wide(acc: Self::I, weights: Self::I, q: *const i8) -> Self::I;
}

/// Work that is generic over the instruction set.
pub(crate) trait Kernel {
    /// Does it; to be `#[inline(always)]`, so that the instruction set reaches all of it.
    ///
    /// # Safety
    /// The instruction set of `S` is enabled, and what the kernel itself demands.
    unsafe fn run<S: Simd>(self);
}

/// Runs a kernel with an instruction set.
///
/// # Safety
/// The machine has `isa`, and what the kernel itself demands.
pub(crate) unsafe fn dispatch<K: Kernel>(isa: Isa, kernel: K) {
    // SAFETY: the caller vouches for the instruction set and for the kernel.
    unsafe {
        match isa {
            Isa::Scalar => kernel.run::<Scalar>(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::run(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::run(kernel),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::run(kernel),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::NeonDotprod => neon::run_dotprod(kernel),
            // Another machine's: the caller has promised not to ask for it.
            _ => kernel.run::<Scalar>(),
        }
    }
}
