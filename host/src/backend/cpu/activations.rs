//! Memory for activations, in the forms that linear layers want.

use std::io;

pub use lockstep_simd::activations::Form;
use lockstep_simd::activations::{bytes_of, write_row};

use super::memory::Bytes;
use crate::backend::Isa;

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
        bytes_of(form, rows, inputs)
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
        let base = self.base(form, rows, x.len()).cast_mut();
        // SAFETY: the buffer holds all rows; the rest is as the caller says.
        unsafe { write_row(isa, form, x, base, row, rows) }
    }
}
