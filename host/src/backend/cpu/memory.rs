//! Memory for weights, caches and scratch: zeroed, aligned to cache lines, in huge pages where the
//! system gives them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapMut;

/// Bytes in anonymous memory, aligned to a page.
#[derive(Debug)]
pub struct Bytes {
    map: Option<MmapMut>,
    len: usize,
}

/// From this size on, huge pages are asked for.
const HUGE: usize = 2 << 20;

impl Bytes {
    /// So many zero bytes; memory is taken from the system as it is touched.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self { map: None, len });
        }
        let map = MmapMut::map_anon(len)?;
        #[cfg(target_os = "linux")]
        if len >= HUGE {
            // Only speed depends on the answer: a kernel without huge pages refuses.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Self {
            map: Some(map),
            len,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }

    /// Where they begin; dangling if there are none.
    pub fn as_ptr(&self) -> *const u8 {
        self.as_slice().as_ptr()
    }

    /// Where they begin, for writing; dangling if there are none.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut_slice().as_mut_ptr()
    }
}

/// Memory that is given out in pieces and never taken back: many small matrices in few large pages.
#[derive(Debug)]
pub struct Arena {
    bytes: Bytes,
    base: *mut u8,
    used: AtomicUsize,
}

// SAFETY: the memory is owned; each piece is given out once, to one owner.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// So many zero bytes.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn new(len: usize) -> io::Result<Arc<Self>> {
        let mut bytes = Bytes::zeroed(len)?;
        let base = bytes.as_mut_ptr();
        let used = AtomicUsize::new(0);
        Ok(Arc::new(Self { bytes, base, used }))
    }

    /// The next `len` bytes, aligned to a cache line; `None` if so many are not left.
    pub fn take(self: &Arc<Self>, len: usize) -> Option<Piece> {
        let size = len.checked_next_multiple_of(64)?;
        let next = |used: usize| {
            used.checked_add(size)
                .filter(|end| *end <= self.bytes.len())
        };
        let order = Ordering::Relaxed;
        let offset = self.used.fetch_update(order, order, next).ok()?;
        let arena = Arc::clone(self);
        Some(Piece { arena, offset, len })
    }
}

/// A piece of an [`Arena`].
#[derive(Debug)]
pub struct Piece {
    arena: Arc<Arena>,
    offset: usize,
    len: usize,
}

impl Piece {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: within the arena; the piece is this one's alone, and it is borrowed.
        unsafe { std::slice::from_raw_parts(self.arena.base.add(self.offset), self.len) }
    }

    /// Its bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: within the arena; the piece is this one's alone, and it is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.arena.base.add(self.offset), self.len) }
    }
}

/// A buffer of f32 whose parts several threads write at once.
#[derive(Debug)]
pub struct Floats {
    bytes: Bytes,
    base: *mut f32,
}

// SAFETY: the memory is owned; the pointer is only where it begins. Sharing is safe because a
// shared reference gives no access without an unsafe block that answers for disjointness.
unsafe impl Send for Floats {}
// SAFETY: as above.
unsafe impl Sync for Floats {}

impl Floats {
    /// So many zeros.
    ///
    /// # Errors
    /// The system has no address space for them.
    pub fn zeroed(len: usize) -> io::Result<Self> {
        let size = len.checked_mul(4).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut bytes = Bytes::zeroed(size)?;
        let base = bytes.as_mut_ptr().cast();
        Ok(Self { bytes, base })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / 4
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Where they begin; aligned to a page.
    pub fn as_ptr(&self) -> *mut f32 {
        self.base
    }

    /// All of them.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self.bytes.as_mut_slice())
    }

    /// A part of them.
    ///
    /// # Safety
    /// Nobody writes this part as long as the slice lives.
    pub unsafe fn part(&self, first: usize, len: usize) -> &[f32] {
        assert!(first.checked_add(len).is_some_and(|end| end <= self.len()));
        // SAFETY: in bounds; nobody writes it, says the caller.
        unsafe { std::slice::from_raw_parts(self.base.add(first), len) }
    }

    /// A part of them, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes this part as long as the slice lives.
    #[expect(
        clippy::mut_from_ref,
        reason = "several threads write disjoint parts of one buffer"
    )]
    pub unsafe fn part_mut(&self, first: usize, len: usize) -> &mut [f32] {
        assert!(first.checked_add(len).is_some_and(|end| end <= self.len()));
        // SAFETY: in bounds; nobody else touches it, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(first), len) }
    }
}
