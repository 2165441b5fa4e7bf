//! The shipped PTX, compiled by the driver, and its kernels.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};

use cudarc::driver::result;
use cudarc::driver::sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
use cudarc::driver::sys::{self, CUjit_option};
use lockstep_kernels::{Kernel, Module as Text};

use super::driver::{Named, message};

/// Bytes of each of the compiler's logs.
const LOG_BYTES: usize = 16 << 10;

/// A loaded kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) handle: sys::CUfunction,
    /// Bytes of shared memory that its text reserves.
    pub(super) shared_bytes: u32,
}

/// The entries of some kernels of the tables. Their modules stay loaded as long as the
/// context lives.
#[derive(Debug)]
pub(super) struct Functions {
    by_entry: BTreeMap<&'static str, Function>,
}

// SAFETY: the handles may be used from any thread to which their context is bound.
unsafe impl Send for Functions {}

impl Functions {
    /// Compiles the texts of `kernels` for the device whose context is bound to this thread.
    pub(super) fn load(kernels: &[&Kernel]) -> Result<Self, String> {
        let mut by_entry = BTreeMap::new();
        for text in Text::ALL {
            let mut wanted = kernels
                .iter()
                .filter(|kernel| kernel.module == text)
                .peekable();
            if wanted.peek().is_none() {
                continue;
            }
            let module = compile(text.name(), text.ptx())?;
            for kernel in wanted {
                by_entry.insert(kernel.entry, function(module, kernel)?);
            }
        }
        Ok(Self { by_entry })
    }

    pub(super) fn of(&self, kernel: &Kernel) -> Result<Function, String> {
        let found = self.by_entry.get(kernel.entry).copied();
        found.ok_or_else(|| format!("{} is not loaded", kernel.entry))
    }
}

fn function(module: sys::CUmodule, kernel: &Kernel) -> Result<Function, String> {
    let entry = CString::new(kernel.entry).map_err(|error| error.to_string())?;
    // SAFETY: the module is loaded.
    let handle = unsafe { result::module::get_function(module, entry) }
        .named(&format!("cuModuleGetFunction of {}", kernel.entry))?;
    // SAFETY: the function is loaded.
    let reserved = unsafe {
        result::function::get_function_attribute(handle, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
    };
    let reserved = reserved.named(&format!("cuFuncGetAttribute of {}", kernel.entry))?;
    Ok(Function {
        handle,
        shared_bytes: reserved.max(0) as u32,
    })
}

/// Loads a text; what the driver's compiler says of one that it does not take is in the error.
fn compile(name: &str, ptx: &str) -> Result<sys::CUmodule, String> {
    let image = CString::new(ptx).map_err(|error| error.to_string())?;
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = [
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    ];
    let mut values = [log.as_mut_ptr().cast::<c_void>(), LOG_BYTES as *mut c_void];
    let mut module = std::ptr::null_mut();
    // SAFETY: the image ends with a zero; the options' values are a buffer and its size, both of
    // which outlive the call.
    let loaded = unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            options.len() as u32,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    loaded.result().map_err(|error| {
        let call = format!("cuModuleLoadDataEx of the kernels in {name}.ptx");
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(LOG_BYTES);
        let log = String::from_utf8_lossy(&log[..end]);
        match log.trim() {
            "" => message(&call, error),
            log => format!(
                "{}\nthe driver's compiler says:\n{log}",
                message(&call, error)
            ),
        }
    })?;
    Ok(module)
}
