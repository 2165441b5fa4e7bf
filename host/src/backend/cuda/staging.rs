//! Copies between the host and the device, through pinned memory.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::{CudaEvent, CudaStream};

use super::driver::Named;
use super::memory::{Buffer, Pinned};
use crate::backend::device::HostMemory;

/// Bytes of one piece of pinned memory: the length of a chunk.
const CHUNK: usize = 4 << 20;
/// Pieces: one is filled or emptied while the others are under way.
const PIECES: usize = 3;

/// Pinned memory, and when the device is done with it.
#[derive(Debug)]
pub struct Piece {
    memory: Pinned,
    done: CudaEvent,
}

impl Piece {
    pub(super) fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, String> {
        Ok(Self {
            memory: Pinned::allocate(stream, bytes)?,
            done: stream.context().new_event(None).named("cuEventCreate")?,
        })
    }

    /// Its bytes, once the device is done with them.
    fn bytes(&mut self) -> Result<&mut [u8], String> {
        self.done.synchronize().named("cuEventSynchronize")?;
        Ok(self.memory.bytes())
    }

    /// Copies ranges of its words to the beginnings of buffers, in the order of `stream`: in one copy
    /// where the buffers lie in one allocation as the ranges do here.
    pub(super) fn send(
        &mut self,
        stream: &CudaStream,
        writes: &[(&Buffer, Range<usize>)],
    ) -> Result<(), String> {
        let Some((first, from)) = writes.iter().min_by_key(|(_, range)| range.start) else {
            return Ok(());
        };
        let shift = |buffer: &Buffer| buffer.offset_beside(first)?.checked_sub(first.offset());
        let mut together = true;
        for (buffer, range) in writes {
            buffer.check(0, range.len() * 4)?;
            together &= shift(buffer) == Some((range.start - from.start) * 4);
        }
        if together {
            let end = writes.iter().map(|(_, range)| range.end).max().unwrap_or(0);
            self.copy(stream, first.address(), from.start..end)?;
        } else {
            for (buffer, range) in writes {
                self.copy(stream, buffer.address(), range.clone())?;
            }
        }
        self.done.record(stream).named("cuEventRecord")
    }

    fn copy(&mut self, stream: &CudaStream, to: u64, words: Range<usize>) -> Result<(), String> {
        let bytes = self.memory.bytes().get(words.start * 4..words.end * 4);
        let bytes = bytes.ok_or("there are fewer words")?;
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: `send` checked that the bytes end inside of a live buffer; those here are not written
        // before `done`, for which `bytes` waits.
        unsafe { result::memcpy_htod_async(to, bytes, stream.cu_stream()) }
            .named("cuMemcpyHtoDAsync")
    }
}

impl HostMemory for Piece {
    fn words(&mut self) -> Result<&mut [u32], String> {
        bytemuck::try_cast_slice_mut(self.bytes()?).map_err(|error| error.to_string())
    }
}

/// The pieces, used in turn.
#[derive(Debug)]
pub(super) struct Staging {
    pieces: Vec<Piece>,
    next: usize,
}

impl Staging {
    pub(super) fn new(stream: &Arc<CudaStream>) -> Result<Self, String> {
        let piece = |_| Piece::new(stream, CHUNK);
        Ok(Self {
            pieces: (0..PIECES).map(piece).collect::<Result<_, String>>()?,
            next: 0,
        })
    }

    /// The piece whose turn it is, once the device is done with it.
    fn take(&mut self) -> Result<&mut Piece, String> {
        let index = self.next;
        self.next = (index + 1) % PIECES;
        let piece = &mut self.pieces[index];
        piece.done.synchronize().named("cuEventSynchronize")?;
        Ok(piece)
    }

    /// Writes `bytes` to a place in a buffer, in the order of `stream`.
    pub(super) fn write(
        &mut self,
        stream: &CudaStream,
        to: &Buffer,
        bytes: &[u8],
    ) -> Result<(), String> {
        to.check(0, bytes.len())?;
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            let address = to.address() + (index * CHUNK) as u64;
            let fill = |memory: &mut [u8]| memory[..chunk.len()].copy_from_slice(chunk);
            self.send(stream, address, chunk.len(), fill)?;
        }
        Ok(())
    }

    /// Copies the first `length` bytes of a piece to `address`, after `fill` has written them.
    fn send(
        &mut self,
        stream: &CudaStream,
        address: u64,
        length: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), String> {
        if length == 0 {
            return Ok(());
        }
        let piece = self.take()?;
        let memory = piece.memory.bytes();
        fill(memory);
        // SAFETY: the caller checked that the bytes are inside of a live buffer; the piece is not
        // touched again before `done`.
        unsafe { result::memcpy_htod_async(address, &memory[..length], stream.cu_stream()) }
            .named("cuMemcpyHtoDAsync")?;
        piece.done.record(stream).named("cuEventRecord")
    }

    /// Reads the first bytes of a buffer once everything before has ended on `stream`: a chunk is
    /// copied out of its piece while the next ones are under way.
    pub(super) fn read(
        &mut self,
        stream: &CudaStream,
        from: &Buffer,
        bytes: &mut [u8],
    ) -> Result<(), String> {
        from.check(0, bytes.len())?;
        let mut under_way = std::collections::VecDeque::new();
        for (index, chunk) in bytes.chunks_mut(CHUNK).enumerate() {
            if under_way.len() == PIECES {
                self.receive(under_way.pop_front())?;
            }
            let (turn, address) = (self.next, from.address() + (index * CHUNK) as u64);
            let piece = self.take()?;
            let memory = &mut piece.memory.bytes()[..chunk.len()];
            // SAFETY: the bytes are inside of a live buffer, and the piece is not touched before
            // `done`.
            unsafe { result::memcpy_dtoh_async(memory, address, stream.cu_stream()) }
                .named("cuMemcpyDtoHAsync")?;
            piece.done.record(stream).named("cuEventRecord")?;
            under_way.push_back((turn, chunk));
        }
        under_way
            .into_iter()
            .try_for_each(|chunk| self.receive(Some(chunk)))
    }

    /// Waits for a chunk and copies it out of its piece.
    fn receive(&mut self, chunk: Option<(usize, &mut [u8])>) -> Result<(), String> {
        let Some((turn, chunk)) = chunk else {
            return Ok(());
        };
        let piece = &mut self.pieces[turn];
        piece.done.synchronize().named("cuEventSynchronize")?;
        chunk.copy_from_slice(&piece.memory.bytes()[..chunk.len()]);
        Ok(())
    }
}
