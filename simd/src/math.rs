//! The scalar operations that `core` lacks, each rounded once, in one definition for every machine.

/// `a * b + c`, rounded once.
#[inline]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    libm::fmaf(a, b, c)
}

/// The square root.
#[inline]
pub(crate) fn sqrt(x: f32) -> f32 {
    libm::sqrtf(x)
}

/// The nearest integer, ties to even.
#[inline]
pub(crate) fn round_ties_even(x: f32) -> f32 {
    libm::rintf(x)
}
