//! Memory on the device, allocated and freed in the order of the compute stream, and pinned memory.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::result;

use super::driver::Named;

/// A part of the device's memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    allocation: Arc<Allocation>,
    offset: usize,
    bytes: usize,
}

/// What the driver gave; freed after the last launch that could use it.
#[derive(Debug)]
struct Allocation {
    address: u64,
    stream: Arc<CudaStream>,
}

/// Buffers of one allocation begin at multiples of this, as allocations do.
const ALIGNMENT: usize = 256;

impl Buffer {
    /// Takes memory for so many bytes.
    pub(super) fn allocate(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, String> {
        let context = stream.context();
        context.bind_to_thread().named("cuCtxSetCurrent")?;
        let size = bytes.max(1);
        let what = |call: &str| format!("{call} of {size} bytes");
        let address = match context.has_async_alloc() {
            // SAFETY: the stream is the context's; the memory is freed once, by `Allocation`.
            true => unsafe { result::malloc_async(stream.cu_stream(), size) }
                .named(&what("cuMemAllocAsync"))?,
            // SAFETY: as above.
            false => unsafe { result::malloc_sync(size) }.named(&what("cuMemAlloc"))?,
        };
        let stream = Arc::clone(stream);
        Ok(Self {
            allocation: Arc::new(Allocation { address, stream }),
            offset: 0,
            bytes,
        })
    }

    /// Takes memory once for buffers of so many bytes each, in their order.
    pub(super) fn allocate_together(
        stream: &Arc<CudaStream>,
        bytes: &[usize],
    ) -> Result<Vec<Self>, String> {
        let mut end = 0_usize;
        let mut places = Vec::with_capacity(bytes.len());
        for bytes in bytes {
            let offset = end.next_multiple_of(ALIGNMENT);
            places.push((offset, *bytes));
            end = offset + bytes;
        }
        let whole = Self::allocate(stream, end)?;
        let part = |(offset, bytes)| Self {
            allocation: Arc::clone(&whole.allocation),
            offset,
            bytes,
        };
        Ok(places.into_iter().map(part).collect())
    }

    /// Where it begins on the device.
    pub(super) fn address(&self) -> u64 {
        self.allocation.address + self.offset as u64
    }

    /// Where it begins in its allocation, in bytes.
    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    /// The same, if that is `other`'s allocation as well.
    pub(super) fn offset_beside(&self, other: &Self) -> Option<usize> {
        Arc::ptr_eq(&self.allocation, &other.allocation).then_some(self.offset)
    }

    /// Refuses a place that is not inside.
    pub(super) fn check(&self, offset: usize, bytes: usize) -> Result<(), String> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(format!(
                "{bytes} bytes at {offset} are outside of a buffer of {}",
                self.bytes
            )),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let context = self.stream.context();
        context.record_err(context.bind_to_thread());
        context.record_err(match context.has_async_alloc() {
            // SAFETY: the address is the driver's, and nobody has it any more; what was launched
            // before comes before it on the stream.
            true => unsafe { result::free_async(self.address, self.stream.cu_stream()) },
            false => self.stream.synchronize().and_then(|()| {
                // SAFETY: as above; everything launched has ended.
                unsafe { result::free_sync(self.address) }
            }),
        });
    }
}

/// Memory of the host that the device copies from and to by itself.
#[derive(Debug)]
pub(super) struct Pinned {
    start: *mut u8,
    bytes: usize,
    stream: Arc<CudaStream>,
}

// SAFETY: it is plain memory that one owner reads and writes; any thread may free it.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Takes so many bytes; they are zero.
    pub(super) fn allocate(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, String> {
        stream.context().bind_to_thread().named("cuCtxSetCurrent")?;
        // SAFETY: the memory is freed once, by `drop`.
        let start = unsafe { result::malloc_host(bytes, 0) };
        let start: *mut c_void = start.named(&format!("cuMemHostAlloc of {bytes} bytes"))?;
        let start = start.cast::<u8>();
        // SAFETY: the driver gave so many bytes, which are written before they are read.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self {
            start,
            bytes,
            stream: Arc::clone(stream),
        })
    }

    /// Its bytes. No copy to them may be under way, and they are not written while one from them is.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is this one's alone, so many bytes long, and initialised.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let context = self.stream.context();
        context.record_err(context.synchronize());
        // SAFETY: no copy is under way, and nobody has the memory any more.
        context.record_err(unsafe { result::free_host(self.start.cast()) });
    }
}
