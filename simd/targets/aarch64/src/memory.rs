//! Memory for one thread: taken from the beginning to the end of a buffer, given back only in the
//! reverse order.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};

/// Bytes of the buffer; the system gives those that are touched.
const SIZE: usize = 1 << 29;

#[repr(align(64))]
struct Stack {
    bytes: UnsafeCell<[u8; SIZE]>,
    used: Cell<usize>,
}

// SAFETY: the program has one thread.
unsafe impl Sync for Stack {}

#[global_allocator]
static MEMORY: Stack = Stack {
    bytes: UnsafeCell::new([0; SIZE]),
    used: Cell::new(0),
};

// SAFETY: pieces do not overlap: each begins after all that are in use.
unsafe impl GlobalAlloc for Stack {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let first = self.used.get().next_multiple_of(layout.align());
        if layout.align() > 64 || layout.size() > SIZE - first {
            return core::ptr::null_mut();
        }
        self.used.set(first + layout.size());
        // SAFETY: within the buffer.
        unsafe { self.bytes.get().cast::<u8>().add(first) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let first = place.addr() - self.bytes.get().addr();
        if first + layout.size() == self.used.get() {
            self.used.set(first);
        }
    }
}
