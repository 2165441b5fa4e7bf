//! A block's shared memory, and which of the asynchronous copies into it anybody read.

use crate::fault::FaultKind;
use crate::memory::{Bytes, State, Storage, aligned};
use crate::shadow::Access;

/// The least bytes of an asynchronous copy, which are aligned to it.
const LEAST_COPY: usize = 4;

/// The shared memory of one block.
#[derive(Debug)]
pub(crate) struct Shared {
    storage: Storage,
    /// For each [`LEAST_COPY`] bytes the copy that brought them, from one; zero where none did.
    brought_by: Vec<usize>,
    /// For each copy, whether a thread read a byte of it.
    was_read: Vec<bool>,
}

impl Shared {
    pub(crate) fn new(length: usize) -> Self {
        Self {
            storage: Storage::unwritten(length, false),
            brought_by: vec![0; length.div_ceil(LEAST_COPY)],
            was_read: Vec::new(),
        }
    }

    /// Copies of which nobody read a byte.
    pub(crate) fn unread_copies(&self) -> u64 {
        self.was_read.iter().filter(|read| !**read).count() as u64
    }

    fn place(&self, address: u64, bytes: usize) -> Result<usize, FaultKind> {
        aligned(address, bytes)?;
        let offset = usize::try_from(address).unwrap_or(usize::MAX);
        match offset.checked_add(bytes) {
            Some(end) if end <= self.storage.length() => Ok(offset),
            _ => Err(FaultKind::OutOfBounds { address, bytes }),
        }
    }

    pub(crate) fn read(
        &mut self,
        address: u64,
        bytes: usize,
        now: &Access,
    ) -> Result<Bytes, FaultKind> {
        let offset = self.place(address, bytes)?;
        for at in offset / LEAST_COPY..(offset + bytes).div_ceil(LEAST_COPY) {
            let copy = self.brought_by[at];
            if copy > 0 {
                self.was_read[copy - 1] = true;
            }
        }
        self.storage.read(address, offset, bytes, now)
    }

    pub(crate) fn write(
        &mut self,
        address: u64,
        bytes: &[u8],
        now: &Access,
    ) -> Result<(), FaultKind> {
        let offset = self.place(address, bytes.len())?;
        self.is_brought_by(0, offset, bytes.len());
        self.storage.write(address, offset, bytes, now)
    }

    /// Begins an asynchronous copy: nobody may touch the bytes until it ends.
    pub(crate) fn begin_copy(
        &mut self,
        address: u64,
        bytes: usize,
        now: &Access,
    ) -> Result<(), FaultKind> {
        let offset = self.place(address, bytes)?;
        self.storage
            .mark(address, offset, bytes, State::InFlight, now)
    }

    /// Ends an asynchronous copy: the bytes are its owner's writes at this moment.
    pub(crate) fn end_copy(
        &mut self,
        address: u64,
        bytes: &[u8],
        now: &Access,
    ) -> Result<(), FaultKind> {
        let offset = self.place(address, bytes.len())?;
        self.was_read.push(false);
        self.is_brought_by(self.was_read.len(), offset, bytes.len());
        self.storage.end_copy(address, offset, bytes, now)
    }

    fn is_brought_by(&mut self, copy: usize, offset: usize, bytes: usize) {
        let end = (offset + bytes).div_ceil(LEAST_COPY);
        self.brought_by[offset / LEAST_COPY..end].fill(copy);
    }
}
