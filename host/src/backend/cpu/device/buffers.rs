//! What the operations read and write: rows, tables, flags.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use lockstep_simd::linear::Output;

use super::super::memory::Floats;

/// Rows of f32, all of one width.
#[derive(Debug)]
pub struct Rows {
    pub(super) floats: Floats,
    pub(super) width: usize,
}

impl Rows {
    /// Room for so many rows.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn new(rows: usize, width: usize) -> io::Result<Self> {
        let size = rows.checked_mul(width).ok_or(io::ErrorKind::OutOfMemory)?;
        let floats = Floats::zeroed(size)?;
        Ok(Self { floats, width })
    }

    /// # Safety
    /// Nobody writes the row meanwhile.
    pub(super) unsafe fn row(&self, row: usize) -> &[f32] {
        // SAFETY: as the caller says.
        unsafe { self.floats.part(row * self.width, self.width) }
    }

    /// # Safety
    /// Nobody else touches this part meanwhile.
    #[expect(
        clippy::mut_from_ref,
        reason = "several threads write disjoint parts of one buffer"
    )]
    pub(super) unsafe fn part(&self, row: usize, range: Range<usize>) -> &mut [f32] {
        assert!(range.end <= self.width);
        // SAFETY: as the caller says.
        unsafe {
            self.floats
                .part_mut(row * self.width + range.start, range.len())
        }
    }

    pub(super) fn output(&self, rows: usize, first: usize) -> Output {
        assert!(rows * self.width <= self.floats.len() && first <= self.width);
        Output {
            // SAFETY: within the buffer.
            base: unsafe { self.floats.as_ptr().add(first) },
            stride: self.width,
        }
    }
}

/// Rows that met a value that is not finite.
#[derive(Debug)]
pub struct Flags(Vec<AtomicBool>);

impl Flags {
    /// None of so many rows.
    pub fn new(rows: usize) -> Self {
        Self((0..rows).map(|_| AtomicBool::new(false)).collect())
    }

    /// Takes back all.
    pub fn clear(&mut self) {
        self.0.fill_with(|| AtomicBool::new(false));
    }

    /// Whether a row of a range is flagged.
    pub fn any(&self, rows: Range<usize>) -> bool {
        self.0[rows].iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    pub(super) fn note(&self, row: usize, finite: bool) {
        if !finite {
            self.0[row].store(true, Ordering::Relaxed);
        }
    }
}

/// Cosines and sines: for every position a head's worth.
#[derive(Debug)]
pub struct RopeTables {
    cos: Vec<f32>,
    sin: Vec<f32>,
    head_dim: usize,
}

impl RopeTables {
    /// Tables for `positions` positions: pair `i` turns by `position * frequencies[i]`, computed in
    /// f64.
    pub fn new(positions: usize, frequencies: &[f64]) -> Self {
        let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for angle in angles {
            let (c, s) = (libm::cos(angle) as f32, libm::sin(angle) as f32);
            cos.extend([c, c]);
            sin.extend([-s, s]);
        }
        let head_dim = 2 * frequencies.len();
        Self { cos, sin, head_dim }
    }

    pub(super) fn part(&self, position: usize, dims: Range<usize>) -> (&[f32], &[f32]) {
        let base = position * self.head_dim;
        let range = base + dims.start..base + dims.end;
        (&self.cos[range.clone()], &self.sin[range])
    }
}
