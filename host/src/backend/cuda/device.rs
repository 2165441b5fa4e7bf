//! A GPU as a [`Device`].

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::{CudaContext, CudaStream};
use lockstep_kernels::{Argument as Parameter, Kernel, Shape};

use super::driver::{GpuInfo, Named, Unavailable, devices};
use super::graph::Graphs;
use super::memory::Buffer;
use super::module::Functions;
use super::staging::{Piece, Staging};
use crate::backend::device::{Argument, Device};

/// The oldest compute capability that the kernels are made for.
const OLDEST: (u32, u32) = (8, 0);
/// Bytes of shared memory, the text's own among them, that a launch may have without asking for more.
const SHARED_BYTES: u32 = 48 << 10;

/// A GPU: its context, its streams, its kernels and its graphs.
#[derive(Debug)]
pub struct Cuda {
    // Graphs and pinned memory go before the streams that they were made on.
    graphs: Graphs,
    staging: Staging,
    functions: Functions,
    compute: Arc<CudaStream>,
    copies: Arc<CudaStream>,
    context: Arc<CudaContext>,
    info: GpuInfo,
}

impl Cuda {
    /// Takes a device and has the driver compile `kernels` for it: no others can be launched.
    ///
    /// # Errors
    /// A sentence that says what is missing, with the driver's message.
    pub fn open(ordinal: u32, kernels: &[&Kernel]) -> Result<Self, String> {
        let driver = devices().map_err(|error: Unavailable| error.to_string())?;
        let last = driver.devices.len().saturating_sub(1);
        let info = driver.devices.into_iter().nth(ordinal as usize);
        let info = info.ok_or_else(|| {
            format!("there is no device cuda:{ordinal}: the last one is cuda:{last}")
        })?;
        if info.compute_capability < OLDEST {
            let (major, minor) = OLDEST;
            return Err(format!(
                "{info}: too old, since the kernels need compute capability {major}.{minor} or later"
            ));
        }
        let context = CudaContext::new(ordinal as usize).named("cuDevicePrimaryCtxRetain")?;
        // SAFETY: this turns off what cudarc tracks of its own slices, of which there are none.
        unsafe { context.disable_event_tracking() };
        let compute = context.new_stream().named("cuStreamCreate")?;
        let copies = context.new_stream().named("cuStreamCreate")?;
        Ok(Self {
            graphs: Graphs::default(),
            staging: Staging::new(&compute)?,
            functions: Functions::load(kernels)?,
            compute,
            copies,
            context,
            info,
        })
    }

    /// How the driver describes it.
    pub const fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Bytes of its memory that nobody uses, and all of them.
    ///
    /// # Errors
    /// The driver's message.
    pub fn memory(&self) -> Result<(u64, u64), String> {
        let (free, total) = self.context.mem_get_info().named("cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }

    fn bind(&self) -> Result<(), String> {
        self.context.bind_to_thread().named("cuCtxSetCurrent")
    }
}

/// The values of a launch's arguments, and where each begins.
fn values(kernel: &Kernel, arguments: &[Argument<'_, Buffer>]) -> Result<Vec<u64>, String> {
    let (found, expected) = (arguments.len(), kernel.arguments.len());
    if found != expected {
        return Err(format!("{found} arguments; it takes {expected}"));
    }
    let value = |(parameter, argument): (&Parameter, &Argument<'_, Buffer>)| {
        Ok(match (parameter, argument) {
            (
                Parameter::In(_) | Parameter::Out(_) | Parameter::InOut(_),
                Argument::Buffer(buffer),
            ) => buffer.address(),
            // The driver reads the low four bytes.
            (Parameter::U32(_), Argument::U32(value)) => u64::from(*value),
            (Parameter::F32(_), Argument::F32(value)) => u64::from(value.to_bits()),
            _ => return Err(format!("{parameter:?} is given another kind of argument")),
        })
    };
    kernel.arguments.iter().zip(arguments).map(value).collect()
}

impl Device for Cuda {
    type Buffer = Buffer;
    type Staging = Piece;

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, String> {
        Buffer::allocate(&self.compute, bytes)
    }

    fn allocate_together(&mut self, bytes: &[usize]) -> Result<Vec<Buffer>, String> {
        Buffer::allocate_together(&self.compute, bytes)
    }

    /// Copies on the stream of copies: the caller goes on once the bytes are in pinned memory.
    fn write(&mut self, buffer: &Buffer, bytes: &[u8]) -> Result<(), String> {
        self.bind()?;
        self.copies.join(&self.compute).named("cuStreamWaitEvent")?;
        self.staging.write(&self.copies, buffer, bytes)?;
        self.compute.join(&self.copies).named("cuStreamWaitEvent")
    }

    fn staging(&mut self, words: usize) -> Result<Piece, String> {
        self.bind()?;
        Piece::new(&self.compute, words * 4)
    }

    fn send(&mut self, from: &mut Piece, writes: &[(&Buffer, Range<usize>)]) -> Result<(), String> {
        self.bind()?;
        from.send(&self.compute, writes)
    }

    fn read(&mut self, buffer: &Buffer, bytes: &mut [u8]) -> Result<(), String> {
        self.bind()?;
        self.staging.read(&self.compute, buffer, bytes)
    }

    fn copy(
        &mut self,
        buffer: &Buffer,
        from: usize,
        to: usize,
        bytes: usize,
    ) -> Result<(), String> {
        self.bind()?;
        buffer.check(from, bytes)?;
        buffer.check(to, bytes)?;
        let (from, to) = (buffer.address() + from as u64, buffer.address() + to as u64);
        // SAFETY: both places are inside of a live buffer.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.compute.cu_stream()) }
            .named("cuMemcpyDtoDAsync")
    }

    fn launch(
        &mut self,
        kernel: &'static Kernel,
        shape: &Shape,
        arguments: &[Argument<'_, Buffer>],
    ) -> Result<(), String> {
        self.bind()?;
        let function = self.functions.of(kernel)?;
        let mut values = values(kernel, arguments)?;
        let mut pointers: Vec<*mut c_void> = values
            .iter_mut()
            .map(|value| (&raw mut *value).cast())
            .collect();
        let size = kernel.size(shape);
        let [x, y, z] = size.grid;
        if function.shared_bytes + size.shared_bytes > SHARED_BYTES {
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = size.shared_bytes as i32;
            // SAFETY: the function is loaded.
            unsafe { result::function::set_function_attribute(function.handle, attribute, bytes) }
                .named("cuFuncSetAttribute")?;
        }
        // SAFETY: the values are, in kind and number, those of the kernel's table; the buffers are
        // the caller's, and the shape is one that they are large enough for.
        unsafe {
            result::launch_kernel(
                function.handle,
                (x, y, z),
                (size.block, 1, 1),
                size.shared_bytes,
                self.compute.cu_stream(),
                &mut pointers,
            )
        }
        .named("cuLaunchKernel")
    }

    fn keeps_graphs(&self) -> bool {
        true
    }

    fn begin_graph(&mut self) -> Result<(), String> {
        Graphs::begin(&self.compute)
    }

    fn end_graph(&mut self) -> Result<usize, String> {
        self.graphs.end(&self.compute)
    }

    fn launch_graph(&mut self, graph: usize) -> Result<(), String> {
        self.bind()?;
        self.graphs.launch(graph)
    }
}
