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
