//! Activations as the linear kernels read them: quantised, or as they are, in groups of eight rows.
//!
//! Rows stand in groups of eight, the last group having what remains; inside a group the rows of one
//! step (or one element) are adjacent.

use crate::contract::TINY;
use crate::lanes::{Kernel, Simd, WIDTH, dispatch};
use crate::matrix::STEP;
use crate::{GgmlType, Isa};

/// Rows that a kernel computes together.
pub const GROUP: usize = 8;

/// What a type of weights wants its activations to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// f32, as they are.
    Dense,
    /// Quantised in blocks of 32.
    Blocks32,
    /// Quantised in blocks of 256.
    Blocks256,
}

impl Form {
    /// What `ggml_type` wants.
    pub const fn of(ggml_type: GgmlType) -> Self {
        match ggml_type.block_len() {
            1 => Self::Dense,
            32 => Self::Blocks32,
            _ => Self::Blocks256,
        }
    }
}

/// The offsets that formats subtract from their codes, in the order of [`Step::biases`].
pub(crate) const OFFSETS: [i32; 4] = [8, 16, 128, 12];

/// 32 quantised activations: a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) q: [i8; STEP],
    /// The scale of the block.
    pub(crate) d: f32,
    /// The scale times the sum, where blocks are as long as a step.
    pub(crate) d_sum: f32,
    /// The sums of the first and of the second sixteen.
    pub(crate) sums: [i32; 2],
    /// The sum times the negated [`OFFSETS`].
    pub(crate) biases: [i32; OFFSETS.len()],
}

/// Bytes that rows take in a form.
pub const fn bytes_of(form: Form, rows: usize, inputs: usize) -> usize {
    match form {
        Form::Dense => rows * inputs * 4,
        _ => rows * inputs.div_ceil(STEP) * size_of::<Step>(),
    }
}

/// Writes row `row` of `rows` in a form; false if the form is quantised and an element is not
/// finite, and then the row is zeros.
///
/// # Safety
/// The machine has `isa`; at `base`, aligned to 64, is room for [`bytes_of`] all rows; nobody else
/// writes this row of this form or reads it meanwhile.
///
/// # Panics
/// If there is no such row, or it is not a multiple of the form's block.
pub unsafe fn write_row(
    isa: Isa,
    form: Form,
    x: &[f32],
    base: *mut u8,
    row: usize,
    rows: usize,
) -> bool {
    assert!(row < rows);
    let first = row / GROUP * GROUP;
    let (lane, stride) = (row - first, GROUP.min(rows - first));
    let mut finite = true;
    let block = match form {
        Form::Dense => {
            let corner = first * x.len() + lane;
            for (k, x) in x.iter().enumerate() {
                // SAFETY: the buffer holds all rows; this element is this row's own.
                unsafe { *base.cast::<f32>().add(corner + k * stride) = *x };
            }
            return true;
        }
        Form::Blocks32 => STEP,
        Form::Blocks256 => 256,
    };
    assert!(x.len().is_multiple_of(block));
    let place = first * (x.len() / STEP) + lane;
    // SAFETY: the buffer holds all rows, the machine has `isa`.
    unsafe {
        let out = base.cast::<Step>().add(place);
        let finite = &mut finite;
        dispatch(
            isa,
            Quantise {
                x,
                block,
                out,
                stride,
                finite,
            },
        );
    }
    finite
}

/// Quantises a row into steps that are `stride` apart.
struct Quantise<'a> {
    x: &'a [f32],
    block: usize,
    out: *mut Step,
    stride: usize,
    finite: &'a mut bool,
}

impl Kernel for Quantise<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (i, x) in self.x.chunks_exact(self.block).enumerate() {
            // SAFETY: the slices are as long as the loads, and the caller gave room for the steps.
            unsafe {
                let greatest = greatest_bits::<S>(x);
                let finite = greatest < f32::INFINITY.to_bits();
                *self.finite &= finite;
                let amax = f32::from_bits(greatest);
                let (d, inverse) = match finite && amax >= TINY {
                    true => (amax / 127.0, 127.0 / amax),
                    false => (0.0, 0.0),
                };
                for (j, x) in x.chunks_exact(STEP).enumerate() {
                    let out = self.out.add((i * self.block / STEP + j) * self.stride);
                    quantise_step::<S>(x, d, inverse, finite, out);
                }
            }
        }
    }
}

/// The greatest magnitude, as bits: those of a number that is not finite are greater than all.
#[inline(always)]
unsafe fn greatest_bits<S: Simd>(x: &[f32]) -> u32 {
    // SAFETY: chunks of 16 are loaded.
    unsafe {
        let mask = S::splat_int(i32::MAX);
        let mut greatest = S::zero();
        for x in x.chunks_exact(WIDTH) {
            greatest = S::max_int(greatest, S::and(S::bits(S::load(x.as_ptr())), mask));
        }
        S::reduce_max(greatest) as u32
    }
}

/// No clamp is needed: the greatest magnitude times `127 / amax` rounds to 127.
#[inline(always)]
unsafe fn quantise_step<S: Simd>(x: &[f32], d: f32, inverse: f32, finite: bool, out: *mut Step) {
    // SAFETY: `x` has 32 elements and `out` is valid.
    unsafe {
        let out = &mut *out;
        let mut sums = [0; 2];
        for (half, sum) in sums.iter_mut().enumerate() {
            let x = S::load(x.as_ptr().add(half * WIDTH));
            let mut q = S::to_int(S::mul(x, S::splat(inverse)));
            if !finite {
                q = S::zero();
            }
            S::store_i8(out.q.as_mut_ptr().add(half * WIDTH), q);
            *sum = S::reduce_add(q);
        }
        let sum = sums[0] + sums[1];
        out.d = d;
        out.d_sum = d * sum as f32;
        out.sums = sums;
        out.biases = OFFSETS.map(|offset| -offset * sum);
    }
}
