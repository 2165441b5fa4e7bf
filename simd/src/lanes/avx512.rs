//! Sixteen lanes as one register of AVX-512 with VNNI.

use core::arch::x86_64::*;

use super::avx2::{fold_8, greatest_of_8};
use super::{Kernel, Simd};

/// The guise for AVX-512.
#[derive(Clone, Copy)]
pub(super) struct Avx512;

/// Runs a kernel with the instruction set enabled.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) {
    // SAFETY: the set is enabled here; the caller vouches for the rest.
    unsafe { kernel.run::<Avx512>() }
}

/// Every function of the trait has the same shape: an instruction or two.
macro_rules! simple {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller has the instruction set enabled, and the bytes behind pointers.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    const WIDE_IS_BIASED: bool = true;
    const VECTORS: usize = 32;

    simple! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
        load_f16(p: *const u16) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        load_bf16(p: *const u16) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))
        ));
        store(p: *mut f32, x: __m512) -> () = _mm512_storeu_ps(p, x);
        store_f16(p: *mut u16, x: __m512) -> () = _mm256_storeu_si256(
            p.cast(),
            _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)
        );
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        first(x: __m512) -> f32 = _mm512_cvtss_f32(x);
        greatest(x: __m512) -> f32 = {
            let x = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            greatest_of_8(x)
        };
        fold(x: __m512) -> f32 = {
            let x = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps::<1>(x));
            fold_8(x)
        };
        select_less(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes);
        swap_pairs(x: __m512) -> __m512 = _mm512_permute_ps::<0b10_11_00_01>(x);
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
        zero() -> __m512i = _mm512_setzero_si512();
        splat_int(x: i32) -> __m512i = _mm512_set1_epi32(x);
        load_int(p: *const u8) -> __m512i = _mm512_loadu_si512(p.cast());
        load_u8(p: *const u8) -> __m512i = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
        load_i8(p: *const u8) -> __m512i = _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()));
        store_halves(places: [*mut u8; 2], x: __m512i) -> () = {
            _mm256_storeu_si256(places[0].cast(), _mm512_castsi512_si256(x));
            _mm256_storeu_si256(places[1].cast(), _mm512_extracti64x4_epi64::<1>(x));
        };
        add_int(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        mul_int(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        max_int(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epi32(a, b);
        any_above(a: __m512i, x: i32) -> bool =
            _mm512_cmpgt_epi32_mask(a, _mm512_set1_epi32(x)) != 0;
        blend(mask: u16, a: __m512i, b: __m512i) -> __m512i = _mm512_mask_blend_epi32(mask, a, b);
        narrow(x: [__m512i; 4]) -> __m512i = {
            let low = _mm512_packs_epi32(x[0], x[1]);
            let high = _mm512_packs_epi32(x[2], x[3]);
            // Each quarter has four bytes of each vector now.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high))
        };
        sum_fours(x: __m512i) -> __m512i =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), x);
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        to_float(x: __m512i) -> __m512 = _mm512_cvtepi32_ps(x);
        to_int(x: __m512) -> __m512i = _mm512_cvtps_epi32(x);
        bits(x: __m512) -> __m512i = _mm512_castps_si512(x);
        from_bits(x: __m512i) -> __m512 = _mm512_castsi512_ps(x);
        lookup(table: *const u8, codes: __m512i) -> __m512i = _mm512_shuffle_epi8(
            _mm512_broadcast_i32x4(_mm_loadu_si128(table.cast())),
            codes
        );
        dot(acc: __m512i, weights: __m512i, q: *const i8) -> __m512i =
            _mm512_dpbusd_epi32(acc, weights, _mm512_set1_epi32(q.cast::<i32>().read_unaligned()));
        dot_wide(acc: __m512i, weights: __m512i, q: *const i8) -> __m512i =
            Self::dot(acc, weights, q);
    }

    #[inline(always)]
    unsafe fn widen(weights: __m512i) -> __m512i {
        weights
    }

    #[inline(always)]
    unsafe fn exchange<const N: usize>(x: __m512i) -> __m512i {
        // SAFETY: the caller has the instruction set enabled.
        unsafe {
            match N {
                1 => _mm512_shuffle_epi32::<0b10_11_00_01>(x),
                2 => _mm512_shuffle_epi32::<0b01_00_11_10>(x),
                4 => _mm512_shuffle_i32x4::<0b10_11_00_01>(x, x),
                _ => _mm512_shuffle_i32x4::<0b01_00_11_10>(x, x),
            }
        }
    }

    #[inline(always)]
    unsafe fn shl<const N: u32>(x: __m512i) -> __m512i {
        // SAFETY: the caller has the instruction set enabled.
        unsafe { _mm512_slli_epi32::<N>(x) }
    }

    #[inline(always)]
    unsafe fn shr<const N: u32>(x: __m512i) -> __m512i {
        // SAFETY: the caller has the instruction set enabled.
        unsafe { _mm512_srli_epi32::<N>(x) }
    }
}
