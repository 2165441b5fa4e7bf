//! Copies between the host and the device, through pinned memory that is used in turn.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::{CudaEvent, CudaStream};

use super::driver::Named;
use super::memory::{Buffer, Pinned};

/// Bytes of one piece of pinned memory: the length of a chunk.
const CHUNK: usize = 4 << 20;
/// Pieces: one is filled or emptied while the others are under way.
const PIECES: usize = 3;

/// Pinned memory, and when the device is done with it.
#[derive(Debug)]
struct Piece {
    memory: Pinned,
    done: CudaEvent,
}

/// The pieces, used in turn.
#[derive(Debug)]
pub(super) struct Staging {
    pieces: Vec<Piece>,
    next: usize,
}

impl Staging {
    pub(super) fn new(stream: &Arc<CudaStream>) -> Result<Self, String> {
        let piece = |_| {
            Ok(Piece {
                memory: Pinned::allocate(stream, CHUNK)?,
                done: stream.context().new_event(None).named("cuEventCreate")?,
            })
        };
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

    /// Writes several buffers of one allocation in one copy, if they lie close enough together:
    /// `false` if they do not.
    pub(super) fn write_together(
        &mut self,
        stream: &CudaStream,
        writes: &[(&Buffer, &[u8])],
    ) -> Result<bool, String> {
        let Some((first, _)) = writes.first() else {
            return Ok(true);
        };
        let mut places = Vec::with_capacity(writes.len());
        for (buffer, bytes) in writes {
            buffer.check(0, bytes.len())?;
            let Some(offset) = buffer.offset_beside(first) else {
                return Ok(false);
            };
            places.push((offset, *bytes));
        }
        let start = places.iter().map(|(offset, _)| *offset).min().unwrap_or(0);
        let end = places.iter().map(|(offset, bytes)| offset + bytes.len());
        let length = end.max().unwrap_or(0) - start;
        if length > CHUNK {
            return Ok(false);
        }
        let before = first.offset_beside(first).unwrap_or(0) - start;
        let address = first.address() - before as u64;
        self.send(stream, address, length, |memory| {
            for (offset, bytes) in places {
                memory[offset - start..][..bytes.len()].copy_from_slice(bytes);
            }
        })?;
        Ok(true)
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
