//! Pinned memory: the only host memory that asynchronous copies may touch.

use std::alloc::{Layout, alloc_zeroed, dealloc};

const ALIGNMENT: usize = 4096;

/// The live pieces of pinned memory.
#[derive(Debug, Default)]
pub(crate) struct PinnedMemory {
    pieces: Vec<(usize, Layout)>,
}

impl PinnedMemory {
    /// Takes so many bytes: their address.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()?;
        // SAFETY: the layout is not empty.
        let address = unsafe { alloc_zeroed(layout) } as usize;
        if address == 0 {
            return None;
        }
        self.pieces.push((address, layout));
        Some(address)
    }

    /// Gives them back; `false` if the address is no piece's.
    pub(crate) fn release(&mut self, address: usize) -> bool {
        let Some(index) = self.pieces.iter().position(|(start, _)| *start == address) else {
            return false;
        };
        let (start, layout) = self.pieces.swap_remove(index);
        // SAFETY: the piece was allocated with this layout and is freed once.
        unsafe { dealloc(start as *mut u8, layout) };
        true
    }

    /// Whether the bytes are inside of a live piece.
    pub(crate) fn holds(&self, address: usize, bytes: usize) -> bool {
        self.pieces.iter().any(|(start, layout)| {
            let end = address.checked_add(bytes);
            *start <= address && end.is_some_and(|end| end <= start + layout.size())
        })
    }

    /// The bytes at an address, if they are pinned.
    pub(crate) fn read(&self, address: usize, bytes: usize) -> Option<Vec<u8>> {
        self.holds(address, bytes).then(|| {
            // SAFETY: the bytes are inside of a live allocation, which was zeroed at first; that
            // nobody writes them meanwhile is what the driver's caller has to see to.
            unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }.to_vec()
        })
    }

    /// Writes bytes at an address, if it is pinned.
    pub(crate) fn write(&self, address: usize, bytes: &[u8]) -> bool {
        let held = self.holds(address, bytes.len());
        if held {
            // SAFETY: as in `read`.
            unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes.len()) }
                .copy_from_slice(bytes);
        }
        held
    }
}
