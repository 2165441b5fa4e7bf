//! What a forward pass on a device needs: buffers, and launches of the kernels in the table.
//!
//! A device is a GPU behind its driver, or a test's interpreter of the same kernels.

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

/// Memory and launches. Everything happens in the order of the calls.
///
/// Every error is the device's own message, and fatal.
pub trait Device: Send {
    /// Memory on the device.
    type Buffer: Send + std::fmt::Debug;

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

    /// Buffers of so many bytes each, such that [`write_all`](Self::write_all) can write them in one
    /// transfer.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    fn allocate_together(&mut self, bytes: &[usize]) -> Result<Vec<Self::Buffer>, String> {
        bytes.iter().map(|bytes| self.allocate(*bytes)).collect()
    }

    /// Writes the first bytes of several buffers.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_all(&mut self, writes: &[(&Self::Buffer, &[u8])]) -> Result<(), String> {
        let mut writes = writes.iter();
        writes.try_for_each(|(buffer, bytes)| self.write(buffer, bytes))
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
