//! Sixteen lanes as two registers of AVX2.

use core::arch::x86_64::*;

use super::{Kernel, Simd};

/// The guise for AVX2 with FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

/// Runs a kernel with the instruction set enabled.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) {
    // SAFETY: the set is enabled here; the caller vouches for the rest.
    unsafe { kernel.run::<Avx2>() }
}

type F = [__m256; 2];
type I = [__m256i; 2];

/// Functions that do the same to both halves.
macro_rules! halves {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller has the instruction set enabled.
            unsafe {
                let low = {
                    $(let $arg = $arg[0];)*
                    $body
                };
                let high = {
                    $(let $arg = $arg[1];)*
                    $body
                };
                [low, high]
            }
        }
    )*};
}

/// Other functions: an instruction or two.
macro_rules! simple {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller has the instruction set enabled, and the bytes behind pointers.
            unsafe { $body }
        }
    )*};
}

#[inline(always)]
unsafe fn load_128(p: *const u8) -> __m128i {
    // SAFETY: 16 bytes are there.
    unsafe { _mm_loadu_si128(p.cast()) }
}

#[inline(always)]
unsafe fn load_64(p: *const u8) -> __m128i {
    // SAFETY: 8 bytes are there.
    unsafe { _mm_loadl_epi64(p.cast()) }
}

#[inline(always)]
unsafe fn widen_bf16(p: *const u16) -> __m256 {
    // SAFETY: 8 bf16 are there.
    unsafe {
        let wide = _mm256_cvtepu16_epi32(load_128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

/// Products of unsigned with signed bytes, four to a lane; no sum of two exceeds an i16.
#[inline(always)]
unsafe fn dot_half(acc: __m256i, unsigned: __m256i, signed: __m256i) -> __m256i {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let pairs = _mm256_maddubs_epi16(unsigned, signed);
        _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

#[inline(always)]
unsafe fn splat_four(q: *const i8) -> __m256i {
    // SAFETY: four bytes are there.
    unsafe { _mm256_set1_epi32(q.cast::<i32>().read_unaligned()) }
}

/// [`dot_half`] of signed weights, by the sign trick.
#[inline(always)]
unsafe fn dot_signed_half(acc: __m256i, weights: __m256i, q: __m256i) -> __m256i {
    // SAFETY: the caller has the instruction set enabled.
    unsafe { dot_half(acc, _mm256_abs_epi8(weights), _mm256_sign_epi8(q, weights)) }
}

/// Sixteen lanes and sixteen more, each a byte, in order.
#[inline(always)]
unsafe fn narrow_two(x: I, y: I) -> __m256i {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let words = [
            _mm256_packs_epi32(x[0], x[1]),
            _mm256_packs_epi32(y[0], y[1]),
        ];
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_permutevar8x32_epi32(_mm256_packs_epi16(words[0], words[1]), order)
    }
}

/// All ones in the lanes whose bit is set among the lowest eight.
#[inline(always)]
unsafe fn lanes_of(mask: i32) -> __m256i {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask), bits), bits)
    }
}

/// The greatest of 8 lanes.
#[inline(always)]
pub(super) unsafe fn greatest_of_8(x: __m256) -> f32 {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
    }
}

/// Adds the upper half of 8 lanes to the lower one, down to one lane.
#[inline(always)]
pub(super) unsafe fn fold_8(x: __m256) -> f32 {
    // SAFETY: the caller has the instruction set enabled.
    unsafe {
        let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
        let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
        _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
    }
}

impl Simd for Avx2 {
    type F = F;
    type I = I;
    const WIDE_IS_BIASED: bool = false;
    const VECTORS: usize = 8;

    halves! {
        add(a: F, b: F) -> F = _mm256_add_ps(a, b);
        sub(a: F, b: F) -> F = _mm256_sub_ps(a, b);
        mul(a: F, b: F) -> F = _mm256_mul_ps(a, b);
        div(a: F, b: F) -> F = _mm256_div_ps(a, b);
        fma(a: F, b: F, c: F) -> F = _mm256_fmadd_ps(a, b, c);
        fnma(a: F, b: F, c: F) -> F = _mm256_fnmadd_ps(a, b, c);
        max(a: F, b: F) -> F = _mm256_max_ps(a, b);
        select_less(a: F, b: F, yes: F, no: F) -> F =
            _mm256_blendv_ps(no, yes, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
        swap_pairs(x: F) -> F = _mm256_permute_ps::<0b10_11_00_01>(x);
        add_int(a: I, b: I) -> I = _mm256_add_epi32(a, b);
        mul_int(a: I, b: I) -> I = _mm256_mullo_epi32(a, b);
        max_int(a: I, b: I) -> I = _mm256_max_epi32(a, b);
        and(a: I, b: I) -> I = _mm256_and_si256(a, b);
        or(a: I, b: I) -> I = _mm256_or_si256(a, b);
        to_float(x: I) -> F = _mm256_cvtepi32_ps(x);
        to_int(x: F) -> I = _mm256_cvtps_epi32(x);
        bits(x: F) -> I = _mm256_castps_si256(x);
        from_bits(x: I) -> F = _mm256_castsi256_ps(x);
        sum_fours(x: I) -> I = dot_half(_mm256_setzero_si256(), _mm256_set1_epi8(1), x);
        widen(weights: I) -> I = _mm256_xor_si256(weights, _mm256_set1_epi8(i8::MIN));
    }

    simple! {
        splat(x: f32) -> F = [_mm256_set1_ps(x); 2];
        load(p: *const f32) -> F = [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))];
        load_f16(p: *const u16) -> F = [
            _mm256_cvtph_ps(load_128(p.cast())),
            _mm256_cvtph_ps(load_128(p.add(8).cast())),
        ];
        load_bf16(p: *const u16) -> F = [widen_bf16(p), widen_bf16(p.add(8))];
        store(p: *mut f32, x: F) -> () = {
            _mm256_storeu_ps(p, x[0]);
            _mm256_storeu_ps(p.add(8), x[1]);
        };
        first(x: F) -> f32 = _mm256_cvtss_f32(x[0]);
        greatest(x: F) -> f32 = greatest_of_8(_mm256_max_ps(x[0], x[1]));
        fold(x: F) -> f32 = fold_8(_mm256_add_ps(x[0], x[1]));
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
        store_f16(p: *mut u16, x: F) -> () = {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[0]);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x[1]);
            _mm256_storeu_si256(p.cast(), _mm256_set_m128i(high, low));
        };
        zero() -> I = [_mm256_setzero_si256(); 2];
        splat_int(x: i32) -> I = [_mm256_set1_epi32(x); 2];
        load_int(p: *const u8) -> I = [
            _mm256_loadu_si256(p.cast()),
            _mm256_loadu_si256(p.add(32).cast()),
        ];
        load_u8(p: *const u8) -> I = [
            _mm256_cvtepu8_epi32(load_64(p)),
            _mm256_cvtepu8_epi32(load_64(p.add(8))),
        ];
        load_i8(p: *const u8) -> I = [
            _mm256_cvtepi8_epi32(load_64(p)),
            _mm256_cvtepi8_epi32(load_64(p.add(8))),
        ];
        store_halves(places: [*mut u8; 2], x: I) -> () = {
            _mm256_storeu_si256(places[0].cast(), x[0]);
            _mm256_storeu_si256(places[1].cast(), x[1]);
        };
        any_above(a: I, x: i32) -> bool = {
            let x = _mm256_set1_epi32(x);
            let above = _mm256_or_si256(_mm256_cmpgt_epi32(a[0], x), _mm256_cmpgt_epi32(a[1], x));
            _mm256_movemask_epi8(above) != 0
        };
        blend(mask: u16, a: I, b: I) -> I = [
            _mm256_blendv_epi8(a[0], b[0], lanes_of(i32::from(mask))),
            _mm256_blendv_epi8(a[1], b[1], lanes_of(i32::from(mask >> 8))),
        ];
        narrow(x: [I; 4]) -> I = [narrow_two(x[0], x[1]), narrow_two(x[2], x[3])];
        lookup(table: *const u8, codes: I) -> I = {
            let table = _mm256_broadcastsi128_si256(load_128(table));
            [
                _mm256_shuffle_epi8(table, codes[0]),
                _mm256_shuffle_epi8(table, codes[1]),
            ]
        };
        dot(acc: I, weights: I, q: *const i8) -> I = {
            let q = splat_four(q);
            [
                dot_half(acc[0], weights[0], q),
                dot_half(acc[1], weights[1], q),
            ]
        };
        dot_wide(acc: I, weights: I, q: *const i8) -> I = {
            let q = splat_four(q);
            [
                dot_signed_half(acc[0], weights[0], q),
                dot_signed_half(acc[1], weights[1], q),
            ]
        };
    }

    #[inline(always)]
    unsafe fn exchange<const N: usize>(x: I) -> I {
        // SAFETY: the caller has the instruction set enabled.
        unsafe {
            match N {
                1 => [
                    _mm256_shuffle_epi32::<0b10_11_00_01>(x[0]),
                    _mm256_shuffle_epi32::<0b10_11_00_01>(x[1]),
                ],
                2 => [
                    _mm256_shuffle_epi32::<0b01_00_11_10>(x[0]),
                    _mm256_shuffle_epi32::<0b01_00_11_10>(x[1]),
                ],
                4 => [
                    _mm256_permute4x64_epi64::<0b01_00_11_10>(x[0]),
                    _mm256_permute4x64_epi64::<0b01_00_11_10>(x[1]),
                ],
                _ => [x[1], x[0]],
            }
        }
    }

    #[inline(always)]
    unsafe fn shl<const N: u32>(x: I) -> I {
        // SAFETY: the caller has the instruction set enabled.
        unsafe { [sll::<N>(x[0]), sll::<N>(x[1])] }
    }

    #[inline(always)]
    unsafe fn shr<const N: u32>(x: I) -> I {
        // SAFETY: the caller has the instruction set enabled.
        unsafe { [srl::<N>(x[0]), srl::<N>(x[1])] }
    }
}

/// AVX2's shifts take an `i32`, which a constant parameter cannot be converted into: the count
/// goes through a register that the compiler folds away.
#[inline(always)]
unsafe fn sll<const N: u32>(x: __m256i) -> __m256i {
    // SAFETY: the caller has the instruction set enabled.
    unsafe { _mm256_sll_epi32(x, _mm_cvtsi32_si128(N as i32)) }
}

/// See [`sll`].
#[inline(always)]
unsafe fn srl<const N: u32>(x: __m256i) -> __m256i {
    // SAFETY: the caller has the instruction set enabled.
    unsafe { _mm256_srl_epi32(x, _mm_cvtsi32_si128(N as i32)) }
}
