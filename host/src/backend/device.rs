//! What a forward pass on a device needs: buffers, and launches of the kernels in the table.
//!
//! A device is a GPU behind its driver, or a test's interpreter of the same kernels.

use std::fmt::Debug;
use std::ops::Range;

use lockstep_kernels::{Kernel, Shape};

/// A launch's argument; arguments stand in the order of the kernel's table.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a, B> {
    /// The address of a buffer.
    Buffer(&'a B),
    /// A 32-bit integer.
    U32(u32),
    /// A single-precision float.
    F32(f32),
}

/// Memory of the host that a device copies from, in words.
pub trait HostMemory: Send + Debug {
    /// Its words, once the device has copied what was last sent of them.
    ///
    /// # Errors
    /// The device failed.
    fn words(&mut self) -> Result<&mut [u32], String>;
}

impl HostMemory for Vec<u32> {
    fn words(&mut self) -> Result<&mut [u32], String> {
        Ok(self)
    }
}

/// Memory and launches. Everything happens in the order of the calls.
///
/// Every error is the device's own message, and fatal.
pub trait Device: Send {
    /// Memory on the device.
    type Buffer: Send + Debug;

    /// Memory of the host that [`send`](Self::send) sends from.
    type Staging: HostMemory;

    /// Memory for so many bytes, which hold nothing yet.
    ///
    /// # Errors
    /// The device has none left.
    fn allocate(&mut self, bytes: usize) -> Result<Self::Buffer, String>;

    /// Writes the first bytes of a buffer.
    ///
    /// # Errors
    /// The buffer is shorter, or the device failed.
    fn write(&mut self, buffer: &Self::Buffer, bytes: &[u8]) -> Result<(), String>;

    /// Waits for everything before it, and reads the first bytes of a buffer.
    ///
    /// # Errors
    /// The buffer is shorter, or the device failed.
    fn read(&mut self, buffer: &Self::Buffer, bytes: &mut [u8]) -> Result<(), String>;

    /// Copies bytes within a buffer, between places that do not overlap.
    ///
    /// # Errors
    /// A place is outside of the buffer, or the device failed.
    fn copy(
        &mut self,
        buffer: &Self::Buffer,
        from: usize,
        to: usize,
        bytes: usize,
    ) -> Result<(), String>;

    /// Launches a kernel over a shape.
    ///
    /// # Errors
    /// The arguments are not the kernel's, or the device failed.
    fn launch(
        &mut self,
        kernel: &'static Kernel,
        shape: &Shape,
        arguments: &[Argument<'_, Self::Buffer>],
    ) -> Result<(), String>;

    /// Buffers of so many bytes each, such that [`send`](Self::send) can write them in one transfer:
    /// each begins at the next multiple of 256 bytes behind the one before.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_together(&mut self, bytes: &[usize]) -> Result<Vec<Self::Buffer>, String> {
        bytes.iter().map(|bytes| self.allocate(*bytes)).collect()
    }

    /// Memory of the host for so many words, which are zero.
    ///
    /// # Errors
    /// There is none left.
    fn staging(&mut self, words: usize) -> Result<Self::Staging, String>;

    /// Writes the first words of several buffers, each those of a range of `from`; returns before the
    /// device has copied them.
    ///
    /// # Errors
    /// A range is not in `from`, a buffer is shorter than its range, or the device failed.
    fn send(
        &mut self,
        from: &mut Self::Staging,
        writes: &[(&Self::Buffer, Range<usize>)],
    ) -> Result<(), String> {
        let words: &[u32] = from.words()?;
        writes.iter().try_for_each(|(buffer, range)| {
            let words = words.get(range.clone()).ok_or("there are fewer words")?;
            self.write(buffer, bytemuck::cast_slice(words))
        })
    }

    /// Whether launches can be recorded as a graph, and the graph launched instead.
    fn keeps_graphs(&self) -> bool {
        false
    }

    /// From here on, launches are recorded and not run. Nothing else may be asked of the device
    /// before [`end_graph`](Self::end_graph).
    ///
    /// # Errors
    /// The device keeps no graphs, or failed.
    fn begin_graph(&mut self) -> Result<(), String> {
        Err("this device keeps no graphs".into())
    }

    /// Ends the recording: the number by which the graph is launched. Graphs live as long as the
    /// device, and the buffers that they name have to as well.
    ///
    /// # Errors
    /// The device keeps no graphs, or failed.
    fn end_graph(&mut self) -> Result<usize, String> {
        Err("this device keeps no graphs".into())
    }

    /// Launches everything that was recorded, with the arguments of that time.
    ///
    /// # Errors
    /// There is no such graph, or the device failed.
    fn launch_graph(&mut self, graph: usize) -> Result<(), String> {
        Err(format!("there is no graph {graph}"))
    }

    /// A buffer that holds `bytes`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate) and [`write`](Self::write).
    fn upload(&mut self, bytes: &[u8]) -> Result<Self::Buffer, String> {
        let buffer = self.allocate(bytes.len())?;
        self.write(&buffer, bytes)?;
        Ok(buffer)
    }
}
