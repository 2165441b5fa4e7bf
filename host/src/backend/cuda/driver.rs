//! Whether a driver answers, which devices it has, and what its errors say.

use std::fmt;
use std::panic::catch_unwind;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};

/// The driver's entry points that are called, those of cudarc's safe part among them: a library
/// that lacks one is not used. The driver of release 470 (CUDA 11.4) has them all.
const SYMBOLS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

/// A driver that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The newest CUDA version that it supports: major and minor.
    pub cuda_version: (u32, u32),
    /// Its devices, by number.
    pub devices: Vec<GpuInfo>,
}

/// A device, as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number: that of `--device cuda:N`.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its compute capability: major and minor.
    pub compute_capability: (u32, u32),
    /// Its memory, in bytes.
    pub memory: u64,
}

impl fmt::Display for GpuInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        let gib = self.memory as f64 / f64::from(1 << 30);
        let Self { ordinal, name, .. } = self;
        write!(
            f,
            "cuda:{ordinal}: {name}, compute capability {major}.{minor}, {gib:.1} GiB"
        )
    }
}

/// Why there is no device: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The system has no driver library, or none that can be loaded.
    NoDriver,
    /// The driver library lacks an entry point.
    MissingSymbol(&'static str),
    /// The driver refused a call.
    Driver(String),
    /// The driver library made the process panic.
    Panic(String),
    /// The driver has no device.
    NoDevice,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => f.write_str("no NVIDIA driver (libcuda.so.1) can be loaded"),
            Self::MissingSymbol(name) => {
                write!(
                    f,
                    "libcuda.so.1 has no {name}: it is no NVIDIA driver, or one older than release 470"
                )
            }
            Self::Driver(message) => write!(f, "the NVIDIA driver does not work: {message}"),
            Self::Panic(message) => write!(f, "the NVIDIA driver cannot be used: {message}"),
            Self::NoDevice => f.write_str(
                "the NVIDIA driver finds no GPU: there is none, or CUDA_VISIBLE_DEVICES hides it",
            ),
        }
    }
}

impl std::error::Error for Unavailable {}

/// What a failed call says: the call, the driver's name for the error, its number, its message. A name
/// that the driver does not know is the one of its header.
pub(super) fn message(call: &str, error: DriverError) -> String {
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let name = error
        .error_name()
        .map_or_else(|_| format!("{:?}", error.0), text);
    let what = error.error_string().map_or_else(|_| unknown(error.0), text);
    format!("{call}: {name} ({}): {what}", error.0 as u32)
}

/// A message for an error that the driver has none for.
fn unknown(error: sys::CUresult) -> String {
    match error {
        sys::CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "this library is the toolkit's stub for linking, and no driver".to_owned()
        }
        _ => "the driver has no message for it".to_owned(),
    }
}

/// Says which call failed.
pub(super) trait Named<T> {
    fn named(self, call: &str) -> Result<T, String>;
}

impl<T> Named<T> for Result<T, DriverError> {
    fn named(self, call: &str) -> Result<T, String> {
        self.map_err(|error| message(call, error))
    }
}

/// The driver and its devices, if a driver answers.
///
/// # Errors
/// Why it does not.
pub fn devices() -> Result<DriverInfo, Unavailable> {
    // SAFETY: opening the driver's library runs its initialisers, as linking against it would.
    if !unsafe { sys::is_culib_present() } {
        return Err(Unavailable::NoDriver);
    }
    // cudarc panics where the library does not do what it expects of it.
    catch_unwind(|| {
        whole()?;
        ask()
    })
    .unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        Err(Unavailable::Panic(
            text.unwrap_or_else(|| "it panicked".into()),
        ))
    })
    .and_then(|found| match found.devices.is_empty() {
        true => Err(Unavailable::NoDevice),
        false => Ok(found),
    })
}

/// Whether the library has every entry point.
fn whole() -> Result<(), Unavailable> {
    // SAFETY: the library is present.
    let library = unsafe { sys::culib() };
    let missing = SYMBOLS.iter().find(|name| {
        // SAFETY: the address is only compared with none, and never called.
        unsafe { library.get::<*const ()>(name.as_bytes()) }.is_err()
    });
    missing.map_or(Ok(()), |name| Err(Unavailable::MissingSymbol(name)))
}

fn ask() -> Result<DriverInfo, Unavailable> {
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Err(Unavailable::NoDevice),
        begun => begun.named("cuInit").map_err(Unavailable::Driver)?,
    }
    describe_all().map_err(Unavailable::Driver)
}

fn describe_all() -> Result<DriverInfo, String> {
    let mut version = 0;
    // SAFETY: the pointer is to an integer that outlives the call.
    let asked = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    asked.result().named("cuDriverGetVersion")?;
    let count = CudaContext::device_count().named("cuDeviceGetCount")?;
    let version = version.max(0) as u32;
    Ok(DriverInfo {
        cuda_version: (version / 1000, version % 1000 / 10),
        devices: (0..count).map(describe).collect::<Result<_, _>>()?,
    })
}

fn describe(ordinal: i32) -> Result<GpuInfo, String> {
    use sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let device = result::device::get(ordinal).named("cuDeviceGet")?;
    let attribute = |which| {
        // SAFETY: the device is one that the driver just gave.
        let value = unsafe { result::device::get_attribute(device, which) };
        value
            .named("cuDeviceGetAttribute")
            .map(|value| value.max(0) as u32)
    };
    // SAFETY: as above.
    let memory = unsafe { result::device::total_mem(device) };
    Ok(GpuInfo {
        ordinal: ordinal as u32,
        name: result::device::get_name(device).named("cuDeviceGetName")?,
        compute_capability: (attribute(MAJOR)?, attribute(MINOR)?),
        memory: memory.named("cuDeviceTotalMem_v2")? as u64,
    })
}
