//! The few vector operations that several files here need.

use std::arch::x86_64::*;

/// Whether the machine has what the kernels here use.
pub(crate) fn available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni")
        && is_x86_feature_detected!("f16c")
}

/// The sums of sixteen vectors, each over its lanes: sum `i` in lane `i`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn fold(v: &[__m512; 16]) -> __m512 {
    let mut pairs = [_mm512_setzero_ps(); 8];
    for (i, pair) in pairs.iter_mut().enumerate() {
        // Lane p of each 128 bits: a, b, a, b.
        let (a, b) = (v[(i & 4) << 1 | (i & 3)], v[(i & 4) << 1 | (i & 3) | 4]);
        *pair = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    }
    let mut fours = [_mm512_setzero_ps(); 4];
    for (i, four) in fours.iter_mut().enumerate() {
        let (a, b) = (
            pairs[(i & 2) << 1 | (i & 1)],
            pairs[(i & 2) << 1 | (i & 1) | 2],
        );
        let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
        let low = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        let high = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        *four = _mm512_add_ps(low, high);
    }
    let halves = |a, b| {
        let even = _mm512_shuffle_f32x4::<0b1000_1000>(a, b);
        let odd = _mm512_shuffle_f32x4::<0b1101_1101>(a, b);
        _mm512_add_ps(even, odd)
    };
    let (a, b) = (halves(fours[0], fours[1]), halves(fours[2], fours[3]));
    let sums = halves(a, b);
    _mm512_permutexvar_ps(order(), sums)
}

/// Where the steps of [`fold`] leave each sum.
#[target_feature(enable = "avx512f")]
#[inline]
fn order() -> __m512i {
    let places: [i32; 16] = std::array::from_fn(|sum| {
        // In a quarter: bit 2 of the sum picks the odd lane, bit 1 the upper pair.
        let lane = (sum >> 2 & 1) | (sum >> 1 & 1) << 1;
        // The first of two `halves` gives the even quarters.
        let quarter = (sum & 1) | (sum >> 3 & 1) << 1;
        (quarter * 4 + lane) as i32
    });
    // SAFETY: the array has sixteen elements.
    unsafe { _mm512_loadu_epi32(places.as_ptr()) }
}
