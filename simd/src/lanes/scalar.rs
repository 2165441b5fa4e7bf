//! Sixteen lanes as arrays, in plain Rust.

use half::{bf16, f16};

use super::{Simd, WIDTH};
use crate::math;

/// The guise that runs anywhere.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

type F = [f32; WIDTH];
type I = [i32; WIDTH];

fn map2<A: Copy, B: Copy, T>(a: [A; WIDTH], b: [B; WIDTH], f: impl Fn(A, B) -> T) -> [T; WIDTH] {
    core::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Scalar {
    type F = F;
    type I = I;
    const WIDE_IS_BIASED: bool = true;
    const VECTORS: usize = 8;

    unsafe fn splat(x: f32) -> F {
        [x; WIDTH]
    }

    unsafe fn load(p: *const f32) -> F {
        // SAFETY: 16 f32 are there.
        unsafe { p.cast::<F>().read_unaligned() }
    }

    unsafe fn load_f16(p: *const u16) -> F {
        // SAFETY: 16 f16 are there.
        let bits = unsafe { p.cast::<[u16; WIDTH]>().read_unaligned() };
        bits.map(|bits| f16::from_bits(bits).to_f32())
    }

    unsafe fn load_bf16(p: *const u16) -> F {
        // SAFETY: 16 bf16 are there.
        let bits = unsafe { p.cast::<[u16; WIDTH]>().read_unaligned() };
        bits.map(|bits| bf16::from_bits(bits).to_f32())
    }

    unsafe fn store(p: *mut f32, x: F) {
        // SAFETY: there is room for 16 f32.
        unsafe { p.cast::<F>().write_unaligned(x) }
    }

    unsafe fn store_f16(p: *mut u16, x: F) {
        let bits = x.map(|x| f16::from_f32(x).to_bits());
        // SAFETY: there is room for 16 f16.
        unsafe { p.cast::<[u16; WIDTH]>().write_unaligned(bits) }
    }

    unsafe fn add(a: F, b: F) -> F {
        map2(a, b, |a, b| a + b)
    }

    unsafe fn sub(a: F, b: F) -> F {
        map2(a, b, |a, b| a - b)
    }

    unsafe fn mul(a: F, b: F) -> F {
        map2(a, b, |a, b| a * b)
    }

    unsafe fn div(a: F, b: F) -> F {
        map2(a, b, |a, b| a / b)
    }

    unsafe fn fma(a: F, b: F, c: F) -> F {
        core::array::from_fn(|i| math::fma(a[i], b[i], c[i]))
    }

    unsafe fn fnma(a: F, b: F, c: F) -> F {
        core::array::from_fn(|i| math::fma(-a[i], b[i], c[i]))
    }

    unsafe fn max(a: F, b: F) -> F {
        map2(a, b, f32::max)
    }

    unsafe fn first(x: F) -> f32 {
        x[0]
    }

    unsafe fn greatest(x: F) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    unsafe fn fold(mut x: F) -> f32 {
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                x[i] += x[i + width];
            }
        }
        x[0]
    }

    unsafe fn select_less(a: F, b: F, yes: F, no: F) -> F {
        core::array::from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }

    unsafe fn swap_pairs(x: F) -> F {
        core::array::from_fn(|i| x[i ^ 1])
    }

    unsafe fn prefetch(_: *const u8) {}

    unsafe fn zero() -> I {
        [0; WIDTH]
    }

    unsafe fn splat_int(x: i32) -> I {
        [x; WIDTH]
    }

    unsafe fn load_int(p: *const u8) -> I {
        // SAFETY: 64 bytes are there.
        unsafe { p.cast::<I>().read_unaligned() }.map(i32::from_le)
    }

    unsafe fn load_u8(p: *const u8) -> I {
        // SAFETY: 16 bytes are there.
        unsafe { p.cast::<[u8; WIDTH]>().read() }.map(i32::from)
    }

    unsafe fn load_i8(p: *const u8) -> I {
        // SAFETY: 16 bytes are there.
        unsafe { p.cast::<[i8; WIDTH]>().read() }.map(i32::from)
    }

    unsafe fn store_halves(places: [*mut u8; 2], x: I) {
        for (place, half) in places.into_iter().zip(x.as_chunks::<8>().0) {
            // SAFETY: there is room for 32 bytes.
            unsafe { place.cast::<[i32; 8]>().write_unaligned(*half) }
        }
    }

    unsafe fn add_int(a: I, b: I) -> I {
        map2(a, b, i32::wrapping_add)
    }

    unsafe fn mul_int(a: I, b: I) -> I {
        map2(a, b, i32::wrapping_mul)
    }

    unsafe fn max_int(a: I, b: I) -> I {
        map2(a, b, i32::max)
    }

    unsafe fn any_above(a: I, x: i32) -> bool {
        a.into_iter().any(|a| a > x)
    }

    unsafe fn exchange<const N: usize>(x: I) -> I {
        core::array::from_fn(|i| x[i ^ N])
    }

    unsafe fn blend(mask: u16, a: I, b: I) -> I {
        core::array::from_fn(|i| if mask >> i & 1 == 1 { b[i] } else { a[i] })
    }

    unsafe fn narrow(x: [I; 4]) -> I {
        let byte = |i: usize| x[i / WIDTH][i % WIDTH] as i8 as u8;
        core::array::from_fn(|i| i32::from_ne_bytes(core::array::from_fn(|j| byte(4 * i + j))))
    }

    unsafe fn sum_fours(x: I) -> I {
        x.map(|x| {
            x.to_ne_bytes()
                .into_iter()
                .map(|x| i32::from(x as i8))
                .sum()
        })
    }

    unsafe fn and(a: I, b: I) -> I {
        map2(a, b, |a, b| a & b)
    }

    unsafe fn or(a: I, b: I) -> I {
        map2(a, b, |a, b| a | b)
    }

    unsafe fn shl<const N: u32>(x: I) -> I {
        x.map(|x| x << N)
    }

    unsafe fn shr<const N: u32>(x: I) -> I {
        x.map(|x| (x as u32 >> N) as i32)
    }

    unsafe fn to_float(x: I) -> F {
        x.map(|x| x as f32)
    }

    unsafe fn to_int(x: F) -> I {
        x.map(|x| math::round_ties_even(x) as i32)
    }

    unsafe fn bits(x: F) -> I {
        x.map(|x| x.to_bits() as i32)
    }

    unsafe fn from_bits(x: I) -> F {
        x.map(|x| f32::from_bits(x as u32))
    }

    unsafe fn lookup(table: *const u8, codes: I) -> I {
        // SAFETY: 16 bytes are there.
        let table = unsafe { table.cast::<[u8; 16]>().read() };
        codes.map(|codes| {
            i32::from_le_bytes(
                codes
                    .to_le_bytes()
                    .map(|code| table[usize::from(code & 15)]),
            )
        })
    }

    unsafe fn dot(acc: I, weights: I, q: *const i8) -> I {
        // SAFETY: four bytes are there.
        let q = unsafe { q.cast::<[i8; 4]>().read() };
        map2(acc, weights, |acc, weights| {
            let products = weights.to_le_bytes().into_iter().zip(q);
            products.fold(acc, |acc, (w, q)| acc + i32::from(w) * i32::from(q))
        })
    }

    unsafe fn widen(weights: I) -> I {
        weights
    }

    unsafe fn dot_wide(acc: I, weights: I, q: *const i8) -> I {
        // SAFETY: as the caller says.
        unsafe { Self::dot(acc, weights, q) }
    }
}
