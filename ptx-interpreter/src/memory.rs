//! Global memory that knows its bounds, what was written, and by whom.

use crate::fault::FaultKind;
use crate::shadow::{Access, Shadow};

/// Buffers lie this far apart, so that no stray address of a real size meets another buffer.
const SPACING: u64 = 1 << 40;

/// The most bytes that one instruction accesses for one thread.
pub(crate) const WIDEST: usize = 16;

/// The bytes of one access.
pub(crate) type Bytes = [u8; WIDEST];

/// What a launch may do with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Read, also through the non-coherent path.
    Read,
    /// Read and write.
    Write,
}

/// The address of a buffer on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer(pub(crate) u64);

impl Pointer {
    /// The address as a number: what a kernel is given.
    pub const fn address(self) -> u64 {
        self.0
    }

    /// The pointer to an address, the inside of a buffer among them.
    pub const fn from_address(address: u64) -> Self {
        Self(address)
    }
}

/// Global memory: buffers, each with bounds, a permission and initialised bytes.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: Vec<Storage>,
}

impl Memory {
    /// Memory without a buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer that holds `bytes`.
    pub fn upload(&mut self, bytes: &[u8], permission: Permission) -> Pointer {
        self.push(Storage {
            bytes: bytes.to_vec(),
            state: vec![State::Written; bytes.len()],
            shadow: Vec::new(),
            permission,
            blocks_share: true,
        })
    }

    /// A writable buffer of `length` bytes that nothing has written.
    pub fn reserve(&mut self, length: usize) -> Pointer {
        self.push(Storage::unwritten(length, true))
    }

    fn push(&mut self, storage: Storage) -> Pointer {
        self.buffers.push(storage);
        Pointer(self.buffers.len() as u64 * SPACING)
    }

    /// Ends a buffer: every later access to it is outside of every buffer.
    pub fn release(&mut self, pointer: Pointer) {
        if let Ok((buffer, _)) = self.find(pointer.0, 0) {
            *buffer = Storage::unwritten(0, true);
        }
    }

    /// Changes what the following launches may do with a buffer.
    pub fn permit(&mut self, pointer: Pointer, permission: Permission) {
        if let Ok((buffer, _)) = self.find(pointer.0, 0) {
            buffer.permission = permission;
        }
    }

    /// Makes every buffer one that the following launches may only read.
    pub fn forbid_writes(&mut self) {
        for buffer in &mut self.buffers {
            buffer.permission = Permission::Read;
        }
    }

    /// Writes bytes into a buffer, from the host.
    ///
    /// # Errors
    /// The buffer is shorter.
    pub fn write_host(
        &mut self,
        pointer: Pointer,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), FaultKind> {
        let (buffer, start) = self.find(pointer.0 + offset as u64, bytes.len())?;
        buffer.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        buffer.state[start..start + bytes.len()].fill(State::Written);
        Ok(())
    }

    /// Copies bytes within a buffer, those that nothing wrote included.
    ///
    /// # Errors
    /// A place is outside of the buffer.
    pub fn copy_host(
        &mut self,
        pointer: Pointer,
        from: usize,
        to: usize,
        length: usize,
    ) -> Result<(), FaultKind> {
        self.find(pointer.0 + from as u64, length)?;
        let (buffer, to) = self.find(pointer.0 + to as u64, length)?;
        buffer.bytes.copy_within(from..from + length, to);
        buffer.state.copy_within(from..from + length, to);
        Ok(())
    }

    /// Copies bytes from one place to another, those that nothing wrote included.
    ///
    /// # Errors
    /// A place is outside of a buffer.
    pub fn copy_between(
        &mut self,
        from: Pointer,
        to: Pointer,
        length: usize,
    ) -> Result<(), FaultKind> {
        let (source, start) = self.find(from.0, length)?;
        let bytes = source.bytes[start..start + length].to_vec();
        let state = source.state[start..start + length].to_vec();
        let (target, start) = self.find(to.0, length)?;
        target.bytes[start..start + length].copy_from_slice(&bytes);
        target.state[start..start + length].copy_from_slice(&state);
        Ok(())
    }

    /// The bytes at a place.
    ///
    /// # Errors
    /// They are outside of a buffer, or nothing wrote one of them.
    pub fn read_host(&mut self, pointer: Pointer, length: usize) -> Result<Vec<u8>, FaultKind> {
        let (buffer, start) = self.find(pointer.0, length)?;
        let state = &buffer.state[start..start + length];
        match state.iter().position(|state| *state != State::Written) {
            None => Ok(buffer.bytes[start..start + length].to_vec()),
            Some(at) => Err(FaultKind::Uninitialised {
                address: pointer.0 + at as u64,
            }),
        }
    }

    /// What a buffer holds; `None` for a byte that nothing has written.
    pub fn download(&self, pointer: Pointer) -> Vec<Option<u8>> {
        let index = (pointer.0 / SPACING) as usize;
        let Some(buffer) = index.checked_sub(1).and_then(|i| self.buffers.get(i)) else {
            return Vec::new();
        };
        let known = |(byte, state): (&u8, &State)| (*state == State::Written).then_some(*byte);
        buffer.bytes.iter().zip(&buffer.state).map(known).collect()
    }

    /// Forgets the accesses of earlier launches, which are ordered before the next.
    pub(crate) fn begin_launch(&mut self) {
        for buffer in &mut self.buffers {
            buffer.shadow.clear();
            if buffer.permission == Permission::Write {
                buffer.shadow.resize(buffer.bytes.len(), Shadow::UNTOUCHED);
            }
        }
    }

    fn find(&mut self, address: u64, bytes: usize) -> Result<(&mut Storage, usize), FaultKind> {
        let outside = FaultKind::OutOfBounds { address, bytes };
        let index = ((address / SPACING) as usize)
            .checked_sub(1)
            .ok_or(outside.clone())?;
        let buffer = self.buffers.get_mut(index).ok_or(outside.clone())?;
        let offset = (address % SPACING) as usize;
        match offset.checked_add(bytes) {
            Some(end) if end <= buffer.bytes.len() => Ok((buffer, offset)),
            _ => Err(outside),
        }
    }

    pub(crate) fn read(
        &mut self,
        address: u64,
        bytes: usize,
        non_coherent: bool,
        now: &Access,
    ) -> Result<Bytes, FaultKind> {
        aligned(address, bytes)?;
        let (buffer, offset) = self.find(address, bytes)?;
        if non_coherent && buffer.permission != Permission::Read {
            return Err(FaultKind::NonCoherent { address });
        }
        buffer.read(address, offset, bytes, now)
    }

    /// The first `read` of so many bytes; zeros in place of the others.
    pub(crate) fn read_filled(
        &mut self,
        address: u64,
        bytes: usize,
        read: usize,
        now: &Access,
    ) -> Result<Bytes, FaultKind> {
        if read == bytes {
            return self.read(address, bytes, false, now);
        }
        aligned(address, bytes)?;
        if read > bytes {
            return Err(FaultKind::OutOfBounds {
                address,
                bytes: read,
            });
        }
        let mut out = [0; WIDEST];
        for (index, byte) in out[..read].iter_mut().enumerate() {
            [*byte, ..] = self.read(address + index as u64, 1, false, now)?;
        }
        Ok(out)
    }

    pub(crate) fn write(
        &mut self,
        address: u64,
        bytes: &[u8],
        now: &Access,
    ) -> Result<(), FaultKind> {
        aligned(address, bytes.len())?;
        let (buffer, offset) = self.find(address, bytes.len())?;
        if buffer.permission == Permission::Read {
            return Err(FaultKind::ReadOnly { address });
        }
        buffer.write(address, offset, bytes, now)
    }
}

pub(crate) fn aligned(address: u64, bytes: usize) -> Result<(), FaultKind> {
    if address.is_multiple_of(bytes as u64) {
        return Ok(());
    }
    Err(FaultKind::Misaligned { address, bytes })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Unwritten,
    Written,
    InFlight,
}

/// Bytes, and for each what is known of it.
#[derive(Debug)]
pub(crate) struct Storage {
    bytes: Vec<u8>,
    state: Vec<State>,
    /// Empty where nothing can be written, and so nothing can race.
    shadow: Vec<Shadow>,
    permission: Permission,
    blocks_share: bool,
}

impl Storage {
    pub(crate) fn unwritten(length: usize, blocks_share: bool) -> Self {
        Self {
            bytes: vec![0; length],
            state: vec![State::Unwritten; length],
            shadow: vec![Shadow::UNTOUCHED; length],
            permission: Permission::Write,
            blocks_share,
        }
    }

    pub(crate) fn read(
        &mut self,
        address: u64,
        offset: usize,
        bytes: usize,
        now: &Access,
    ) -> Result<Bytes, FaultKind> {
        for index in 0..bytes {
            let address = address + index as u64;
            match self.state[offset + index] {
                State::Written => {}
                State::Unwritten => return Err(FaultKind::Uninitialised { address }),
                State::InFlight => return Err(FaultKind::InFlight { address }),
            }
            if let Some(shadow) = self.shadow.get_mut(offset + index) {
                shadow.read(now, self.blocks_share, address)?;
            }
        }
        let mut out = [0; WIDEST];
        out[..bytes].copy_from_slice(&self.bytes[offset..offset + bytes]);
        Ok(out)
    }

    /// Notes a write to each byte and leaves it in `state`.
    pub(crate) fn mark(
        &mut self,
        address: u64,
        offset: usize,
        bytes: usize,
        state: State,
        now: &Access,
    ) -> Result<(), FaultKind> {
        for index in 0..bytes {
            let address = address + index as u64;
            if self.state[offset + index] == State::InFlight {
                return Err(FaultKind::InFlight { address });
            }
            self.shadow[offset + index].write(now, self.blocks_share, address)?;
            self.state[offset + index] = state;
        }
        Ok(())
    }

    pub(crate) fn write(
        &mut self,
        address: u64,
        offset: usize,
        bytes: &[u8],
        now: &Access,
    ) -> Result<(), FaultKind> {
        self.mark(address, offset, bytes.len(), State::Written, now)?;
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Writes what is in flight.
    pub(crate) fn end_copy(
        &mut self,
        address: u64,
        offset: usize,
        bytes: &[u8],
        now: &Access,
    ) -> Result<(), FaultKind> {
        self.state[offset..offset + bytes.len()].fill(State::Unwritten);
        self.write(address, offset, bytes, now)
    }
}
