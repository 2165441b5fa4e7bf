//! Sixteen lanes as four registers of NEON, with `sdot` or with widening multiplications.
//!
//! Conversions from and to f16, `sdot` and prefetching have no stable intrinsic; they are one
//! instruction each of assembly.

use core::arch::aarch64::*;
use core::arch::asm;

use super::{Kernel, Simd};

/// The guise for NEON, with the dot product of bytes where `DOTPROD`.
#[derive(Clone, Copy)]
pub(super) struct Neon<const DOTPROD: bool>;

/// Runs a kernel with the instruction set enabled.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) {
    // SAFETY: the set is enabled here; the caller vouches for the rest.
    unsafe { kernel.run::<Neon<false>>() }
}

/// Runs a kernel with the instruction set and the dot product of bytes enabled.
#[target_feature(enable = "neon,dotprod")]
pub(super) unsafe fn run_dotprod<K: Kernel>(kernel: K) {
    // SAFETY: the set is enabled here; the caller vouches for the rest.
    unsafe { kernel.run::<Neon<true>>() }
}

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];

/// Functions that do the same to each quarter; no closure, which would not have the instruction set.
macro_rules! quarters {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller has the instruction set enabled.
            unsafe {
                [
                    {
                        $(let $arg = $arg[0];)*
                        $body
                    },
                    {
                        $(let $arg = $arg[1];)*
                        $body
                    },
                    {
                        $(let $arg = $arg[2];)*
                        $body
                    },
                    {
                        $(let $arg = $arg[3];)*
                        $body
                    },
                ]
            }
        }
    )*};
}

/// An expression of an index, for each quarter.
macro_rules! each {
    ($i:ident => $body:expr) => {
        [
            {
                const $i: usize = 0;
                $body
            },
            {
                const $i: usize = 1;
                $body
            },
            {
                const $i: usize = 2;
                $body
            },
            {
                const $i: usize = 3;
                $body
            },
        ]
    };
}

/// Other functions: a few instructions.
macro_rules! simple {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller has the instruction set enabled, and the bytes behind pointers.
            unsafe { $body }
        }
    )*};
}

/// Four f16 as f32, exactly.
#[inline(always)]
unsafe fn from_half(half: uint16x4_t) -> float32x4_t {
    let single: float32x4_t;
    // SAFETY: registers only.
    unsafe {
        asm!(
            "fcvtl {single:v}.4s, {half:v}.4h",
            single = lateout(vreg) single,
            half = in(vreg) half,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    single
}

/// Four f32 as f16, rounded to nearest even.
#[inline(always)]
unsafe fn to_half(single: float32x4_t) -> uint16x4_t {
    let half: uint16x4_t;
    // SAFETY: registers only.
    unsafe {
        asm!(
            "fcvtn {half:v}.4h, {single:v}.4s",
            half = lateout(vreg) half,
            single = in(vreg) single,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    half
}

/// Adds to each lane the products of its four signed bytes with four others; no sum of two of them
/// exceeds an i16.
#[inline(always)]
unsafe fn dot_quarter<const DOTPROD: bool>(
    acc: int32x4_t,
    weights: int32x4_t,
    q: int8x16_t,
) -> int32x4_t {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let weights = vreinterpretq_s8_s32(weights);
        if DOTPROD {
            let mut acc = acc;
            asm!(
                "sdot {acc:v}.4s, {weights:v}.16b, {q:v}.16b",
                acc = inlateout(vreg) acc,
                weights = in(vreg) weights,
                q = in(vreg) q,
                options(pure, nomem, nostack, preserves_flags)
            );
            return acc;
        }
        let low = vmull_s8(vget_low_s8(weights), vget_low_s8(q));
        let high = vmull_high_s8(weights, q);
        vpadalq_s16(acc, vpaddq_s16(low, high))
    }
}

/// Sixteen bytes zero-extended to lanes.
#[inline(always)]
unsafe fn widen_u8(bytes: uint8x16_t) -> I {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
        [
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
            vreinterpretq_s32_u32(vmovl_high_u16(low)),
            vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
            vreinterpretq_s32_u32(vmovl_high_u16(high)),
        ]
    }
}

/// Sixteen bytes sign-extended to lanes.
#[inline(always)]
unsafe fn widen_i8(bytes: int8x16_t) -> I {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
        [
            vmovl_s16(vget_low_s16(low)),
            vmovl_high_s16(low),
            vmovl_s16(vget_low_s16(high)),
            vmovl_high_s16(high),
        ]
    }
}

/// The lowest byte of each lane.
#[inline(always)]
unsafe fn narrow(x: I) -> int8x16_t {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let low = vmovn_high_s32(vmovn_s32(x[0]), x[1]);
        let high = vmovn_high_s32(vmovn_s32(x[2]), x[3]);
        vmovn_high_s16(vmovn_s16(low), high)
    }
}

/// All ones in the lanes whose bit is set among the lowest four.
#[inline(always)]
unsafe fn lanes_of(mask: u32) -> uint32x4_t {
    // SAFETY: the caller has the instruction set enabled, and four lanes are loaded.
    unsafe { vtstq_u32(vdupq_n_u32(mask), vld1q_u32([1, 2, 4, 8].as_ptr())) }
}

impl<const DOTPROD: bool> Simd for Neon<DOTPROD> {
    type F = F;
    type I = I;
    const WIDE_IS_BIASED: bool = false;
    const VECTORS: usize = 8;

    quarters! {
        add(a: F, b: F) -> F = vaddq_f32(a, b);
        sub(a: F, b: F) -> F = vsubq_f32(a, b);
        mul(a: F, b: F) -> F = vmulq_f32(a, b);
        div(a: F, b: F) -> F = vdivq_f32(a, b);
        fma(a: F, b: F, c: F) -> F = vfmaq_f32(c, a, b);
        fnma(a: F, b: F, c: F) -> F = vfmsq_f32(c, a, b);
        max(a: F, b: F) -> F = vmaxq_f32(a, b);
        select_less(a: F, b: F, yes: F, no: F) -> F = vbslq_f32(vcltq_f32(a, b), yes, no);
        swap_pairs(x: F) -> F = vrev64q_f32(x);
        add_int(a: I, b: I) -> I = vaddq_s32(a, b);
        mul_int(a: I, b: I) -> I = vmulq_s32(a, b);
        max_int(a: I, b: I) -> I = vmaxq_s32(a, b);
        and(a: I, b: I) -> I = vandq_s32(a, b);
        or(a: I, b: I) -> I = vorrq_s32(a, b);
        to_float(x: I) -> F = vcvtq_f32_s32(x);
        to_int(x: F) -> I = vcvtnq_s32_f32(x);
        bits(x: F) -> I = vreinterpretq_s32_f32(x);
        from_bits(x: I) -> F = vreinterpretq_f32_s32(x);
        sum_fours(x: I) -> I = vpaddlq_s16(vpaddlq_s8(vreinterpretq_s8_s32(x)));
        widen(weights: I) -> I = veorq_s32(weights, vdupq_n_s32(0x8080_8080_u32 as i32));
    }

    simple! {
        splat(x: f32) -> F = [vdupq_n_f32(x); 4];
        load(p: *const f32) -> F = each!(Q => vld1q_f32(p.add(4 * Q)));
        load_f16(p: *const u16) -> F = each!(Q => from_half(vld1_u16(p.add(4 * Q))));
        load_bf16(p: *const u16) -> F = each!(Q => {
            vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(p.add(4 * Q))))
        });
        store(p: *mut f32, x: F) -> () = {
            each!(Q => vst1q_f32(p.add(4 * Q), x[Q]));
        };
        store_f16(p: *mut u16, x: F) -> () = {
            each!(Q => vst1_u16(p.add(4 * Q), to_half(x[Q])));
        };
        first(x: F) -> f32 = vgetq_lane_f32::<0>(x[0]);
        greatest(x: F) -> f32 =
            vmaxvq_f32(vmaxq_f32(vmaxq_f32(x[0], x[1]), vmaxq_f32(x[2], x[3])));
        fold(x: F) -> f32 = {
            let x = vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
            let x = vadd_f32(vget_low_f32(x), vget_high_f32(x));
            vget_lane_f32::<0>(x) + vget_lane_f32::<1>(x)
        };
        prefetch(p: *const u8) -> () = asm!(
            "prfm pldl1keep, [{p}]",
            p = in(reg) p,
            options(readonly, nostack, preserves_flags)
        );
        zero() -> I = [vdupq_n_s32(0); 4];
        splat_int(x: i32) -> I = [vdupq_n_s32(x); 4];
        load_int(p: *const u8) -> I = each!(Q => vreinterpretq_s32_u8(vld1q_u8(p.add(16 * Q))));
        load_u8(p: *const u8) -> I = widen_u8(vld1q_u8(p));
        load_i8(p: *const u8) -> I = widen_i8(vld1q_s8(p.cast()));
        store_halves(places: [*mut u8; 2], x: I) -> () = {
            each!(Q => vst1q_s8(places[Q / 2].add(Q % 2 * 16).cast(), vreinterpretq_s8_s32(x[Q])));
        };
        any_above(a: I, x: i32) -> bool =
            vmaxvq_s32(vmaxq_s32(vmaxq_s32(a[0], a[1]), vmaxq_s32(a[2], a[3]))) > x;
        blend(mask: u16, a: I, b: I) -> I = each!(Q => {
            vbslq_s32(lanes_of(u32::from(mask) >> (4 * Q)), b[Q], a[Q])
        });
        narrow(x: [I; 4]) -> I = each!(Q => vreinterpretq_s32_s8(narrow(x[Q])));
        lookup(table: *const u8, codes: I) -> I = {
            let table = vld1q_u8(table);
            each!(Q => vreinterpretq_s32_u8(vqtbl1q_u8(table, vreinterpretq_u8_s32(codes[Q]))))
        };
        dot(acc: I, weights: I, q: *const i8) -> I = {
            let q = vreinterpretq_s8_s32(vdupq_n_s32(q.cast::<i32>().read_unaligned()));
            each!(Q => dot_quarter::<DOTPROD>(acc[Q], weights[Q], q))
        };
        dot_wide(acc: I, weights: I, q: *const i8) -> I = Self::dot(acc, weights, q);
    }

    #[inline(always)]
    unsafe fn exchange<const N: usize>(x: I) -> I {
        // SAFETY: the caller has the instruction set enabled.
        unsafe {
            match N {
                1 => each!(Q => vrev64q_s32(x[Q])),
                2 => each!(Q => vextq_s32::<2>(x[Q], x[Q])),
                4 => [x[1], x[0], x[3], x[2]],
                _ => [x[2], x[3], x[0], x[1]],
            }
        }
    }

    #[inline(always)]
    unsafe fn shl<const N: u32>(x: I) -> I {
        // SAFETY: the caller has the instruction set enabled.
        unsafe { each!(Q => vshlq_s32(x[Q], vdupq_n_s32(N as i32))) }
    }

    #[inline(always)]
    unsafe fn shr<const N: u32>(x: I) -> I {
        // SAFETY: the caller has the instruction set enabled.
        unsafe {
            each!(Q => {
                let shifted = vshlq_u32(vreinterpretq_u32_s32(x[Q]), vdupq_n_s32(-(N as i32)));
                vreinterpretq_s32_u32(shifted)
            })
        }
    }
}
