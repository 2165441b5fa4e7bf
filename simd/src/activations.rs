//! Activations as the linear kernels read them: quantised, or as they are, in groups of eight rows.
//!
//! Rows stand in groups of eight, the last group having what remains; inside a group the rows of one
//! step (or one element) are adjacent.

use crate::lanes::dispatch;
use crate::matrix::STEP;
use crate::{GgmlType, Isa};

mod quantise;

use quantise::Quantise;

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

impl Step {
    const ZERO: Self = Self {
        q: [0; STEP],
        d: 0.0,
        d_sum: 0.0,
        sums: [0; 2],
        biases: [0; OFFSETS.len()],
    };
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
    let mut finite = true;
    // SAFETY: the buffer holds all rows, the machine has `isa`.
    unsafe {
        let kernel = Quantise {
            x,
            block,
            out: base.cast::<Step>().add(place),
            stride,
            finite: &mut finite,
        };
        dispatch(isa, kernel);
    }
    finite
}
