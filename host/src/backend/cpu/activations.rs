//! Activations as the linear kernels read them: quantised, or as they are, in groups of eight rows.

use std::io;

use super::memory::Bytes;
use super::pack::STEP;
use super::simd::{Kernel, Simd, WIDTH, dispatch};
use crate::backend::Isa;
use crate::backend::reference::TINY;
use crate::gguf::GgmlType;

/// Rows that a kernel computes together.
pub(super) const GROUP: usize = 8;

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
pub(super) const OFFSETS: [i32; 4] = [8, 16, 128, 12];

/// 32 quantised activations: a cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) q: [i8; STEP],
    /// The scale of the block.
    pub(super) d: f32,
    /// The scale times the sum, where blocks are as long as a step.
    pub(super) d_sum: f32,
    /// The sums of the first and of the second sixteen.
    pub(super) sums: [i32; 2],
    /// The sum times the negated [`OFFSETS`].
    pub(super) biases: [i32; OFFSETS.len()],
}

/// Activations of a batch of rows, in whichever forms are wanted.
///
/// Rows stand in groups of eight, the last group having what remains; inside a group the rows of
/// one step (or one element) are adjacent.
#[derive(Debug)]
pub struct Activations {
    buffers: [Bytes; 3],
    bases: [*mut u8; 3],
}

// SAFETY: the pointers are where the owned buffers begin; rows are written by one thread each.
unsafe impl Send for Activations {}
// SAFETY: as above.
unsafe impl Sync for Activations {}

impl Activations {
    /// Room for so many rows of so many elements, in the forms of `forms`.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn new(max_rows: usize, max_inputs: usize, forms: &[Form]) -> io::Result<Self> {
        let room = |form| match forms.contains(&form) {
            true => Bytes::zeroed(Self::bytes_of(form, max_rows, max_inputs)),
            false => Bytes::zeroed(0),
        };
        let mut buffers = [
            room(Form::Dense)?,
            room(Form::Blocks32)?,
            room(Form::Blocks256)?,
        ];
        let bases = buffers.each_mut().map(Bytes::as_mut_ptr);
        Ok(Self { buffers, bases })
    }

    /// Bytes that rows take in a form.
    pub const fn bytes_of(form: Form, rows: usize, inputs: usize) -> usize {
        match form {
            Form::Dense => rows * inputs * 4,
            _ => rows * inputs.div_ceil(STEP) * size_of::<Step>(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.buffers.iter().map(Bytes::len).sum()
    }

    /// Where rows of `inputs` elements are read in a form.
    ///
    /// # Panics
    /// If so many do not fit.
    pub(super) fn base(&self, form: Form, rows: usize, inputs: usize) -> *const u8 {
        let index = form as usize;
        assert!(self.buffers[index].len() >= Self::bytes_of(form, rows, inputs));
        self.bases[index]
    }

    /// Writes row `row` of `rows` in a form; false if the form is quantised and an element is not
    /// finite, and then the row is zeros.
    ///
    /// # Safety
    /// The machine has `isa`; no other thread writes this row of this form or reads it meanwhile.
    ///
    /// # Panics
    /// If it does not fit, or is not a multiple of the form's block.
    pub(super) unsafe fn write(
        &self,
        isa: Isa,
        form: Form,
        x: &[f32],
        row: usize,
        rows: usize,
    ) -> bool {
        assert!(row < rows);
        let base = self.base(form, rows, x.len()).cast_mut();
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
