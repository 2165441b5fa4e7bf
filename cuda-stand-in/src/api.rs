//! The driver's entry points, as far as Lockstep calls them.
//!
//! Signatures are those of `cuda.h`; handles are numbers, and an error code is the result.
#![expect(
    clippy::missing_safety_doc,
    reason = "what each call asks of its caller is in NVIDIA's manual of the driver"
)]
#![expect(
    missing_docs,
    reason = "each is documented in NVIDIA's manual of the driver"
)]

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::PoisonError;

use ptx_interpreter::Argument;

use crate::error::{self, Code};
use crate::state::{STATE, State};
use crate::stream::{Launch, Work};

/// The one context.
const CONTEXT: usize = 0xC0;
/// CUDA 12.4, as a driver says it.
const VERSION: i32 = 12_040;

thread_local! {
    /// The context that is bound to this thread; none is 0.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn call(work: impl FnOnce(&mut State) -> Result<(), Code>) -> u32 {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    work(&mut state).err().unwrap_or(Code::SUCCESS).0
}

/// A call that needs an initialised driver.
fn ready(work: impl FnOnce(&mut State) -> Result<(), Code>) -> u32 {
    call(|state| match state.initialised {
        true => work(state),
        false => Err(Code::NOT_INITIALIZED),
    })
}

/// A call that needs a context that is bound to this thread, and a device that has not failed.
fn bound(work: impl FnOnce(&mut State) -> Result<(), Code>) -> u32 {
    ready(|state| {
        if CURRENT.get() != CONTEXT || state.contexts == 0 {
            return Err(Code::INVALID_CONTEXT);
        }
        state.healthy()?;
        work(state)
    })
}

/// Writes a result through the caller's pointer.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), Code> {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver gives a pointer that may be written.
    unsafe { to.write(value) };
    Ok(())
}

fn device(state: &State, device: i32) -> Result<(), Code> {
    match (0..state.faults.devices).contains(&device) {
        true => Ok(()),
        false => Err(Code::INVALID_DEVICE),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: u32) -> u32 {
    call(|state| {
        if let Some(code) = state.faults.fail_init {
            return Err(Code(code));
        }
        state.initialised = true;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> u32 {
    // SAFETY: as `give` asks.
    call(|_| unsafe { give(version, VERSION) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: u32, name: *mut *const c_char) -> u32 {
    call(|_| {
        let (text, _) = error::text(code).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: as `give` asks.
        unsafe { give(name, text.as_ptr()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: u32, message: *mut *const c_char) -> u32 {
    call(|_| {
        let (_, text) = error::text(code).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: as `give` asks.
        unsafe { give(message, text.as_ptr()) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> u32 {
    // SAFETY: as `give` asks.
    ready(|state| unsafe { give(count, state.faults.devices) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(found: *mut i32, ordinal: i32) -> u32 {
    ready(|state| {
        device(state, ordinal)?;
        // SAFETY: as `give` asks.
        unsafe { give(found, ordinal) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, bytes: i32, which: i32) -> u32 {
    ready(|state| {
        device(state, which)?;
        let text = crate::NAME.to_owned() + &state.faults.kind;
        let text = text.as_bytes();
        if text.len() >= bytes.max(0) as usize {
            return Err(Code::INVALID_VALUE);
        }
        for (index, byte) in text.iter().chain(&[0]).enumerate() {
            // SAFETY: the caller gives room for so many bytes.
            unsafe { name.add(index).write(*byte as c_char) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, which: i32, of: i32) -> u32 {
    ready(|state| {
        device(state, of)?;
        let found = match which {
            75 => state.faults.capability / 10,
            76 => state.faults.capability % 10,
            115 => i32::from(state.faults.pools),
            _ => return Err(Code::INVALID_VALUE),
        };
        // SAFETY: as `give` asks.
        unsafe { give(value, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, of: i32) -> u32 {
    ready(|state| {
        device(state, of)?;
        // SAFETY: as `give` asks.
        unsafe { give(bytes, state.faults.memory) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, of: i32) -> u32 {
    ready(|state| {
        device(state, of)?;
        state.contexts += 1;
        // SAFETY: as `give` asks.
        unsafe { give(context, CONTEXT) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(of: i32) -> u32 {
    ready(|state| {
        device(state, of)?;
        state.contexts = state.contexts.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> u32 {
    // SAFETY: as `give` asks.
    ready(|_| unsafe { give(context, CURRENT.get()) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> u32 {
    ready(|_| {
        if context != 0 && context != CONTEXT {
            return Err(Code::INVALID_CONTEXT);
        }
        CURRENT.set(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    bound(|state| {
        let mut streams = state.streams.numbers().into_iter();
        streams.try_for_each(|stream| state.drain(stream))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> u32 {
    bound(|state| {
        let (left, all) = state.free_memory();
        // SAFETY: as `give` asks.
        unsafe { give(free, left) }?;
        // SAFETY: as `give` asks.
        unsafe { give(total, all) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    bound(|state| {
        let found = state.allocate(bytes)?;
        // SAFETY: as `give` asks.
        unsafe { give(address, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) -> u32 {
    bound(|state| {
        state.streams.not_captured(stream)?;
        let found = state.allocate(bytes)?;
        // SAFETY: as `give` asks.
        unsafe { give(address, found) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    bound(|state| state.free(address))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeAsync(address: u64, stream: usize) -> u32 {
    bound(|state| state.streams.push(stream, Work::Free(address)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut c_void,
    bytes: usize,
    _flags: u32,
) -> u32 {
    bound(|state| {
        let found = state.pinned.take(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        // SAFETY: as `give` asks.
        unsafe { give(address, found as *mut c_void) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(address: *mut c_void) -> u32 {
    bound(|state| {
        let released = state.pinned.release(address as usize);
        released.then_some(()).ok_or(Code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: usize,
) -> u32 {
    bound(|state| {
        let from = from as usize;
        if !state.pinned.holds(from, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        state
            .streams
            .push(stream, Work::HostToDevice { to, from, bytes })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: usize,
) -> u32 {
    bound(|state| {
        let to = to as usize;
        let refused = state.faults.most_down;
        let refused = refused.is_some_and(|most| bytes as u64 > most);
        if refused || !state.pinned.holds(to, bytes) {
            return Err(Code::INVALID_VALUE);
        }
        state
            .streams
            .push(stream, Work::DeviceToHost { to, from, bytes })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) -> u32 {
    bound(|state| {
        state
            .streams
            .push(stream, Work::DeviceToDevice { to, from, bytes })
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const c_void,
    count: u32,
    options: *const i32,
    values: *const *mut c_void,
) -> u32 {
    bound(|state| {
        // SAFETY: the caller gives a text that ends with a zero.
        let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy();
        let loaded = state.load(&text).map_err(|message| {
            // SAFETY: the caller gives so many options and values.
            unsafe { log(&message, count as usize, options, values) };
            Code::INVALID_PTX
        })?;
        // SAFETY: as `give` asks.
        unsafe { give(module, loaded) }
    })
}

/// Writes a message to the buffer for errors, if the caller gave one and its size.
unsafe fn log(message: &str, count: usize, options: *const i32, values: *const *mut c_void) {
    const BUFFER: i32 = 5;
    const BYTES: i32 = 6;
    let find = |wanted| {
        // SAFETY: both arrays have `count` entries.
        (0..count)
            .find(|i| unsafe { *options.add(*i) } == wanted)
            .map(|i| unsafe { *values.add(i) })
    };
    if let (Some(buffer), Some(bytes)) = (find(BUFFER), find(BYTES)) {
        let room = (bytes as usize).saturating_sub(1).min(message.len());
        for (index, byte) in message.as_bytes()[..room].iter().chain(&[0]).enumerate() {
            // SAFETY: the buffer has so many bytes.
            unsafe { buffer.cast::<u8>().add(index).write(*byte) };
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: usize) -> u32 {
    bound(|state| state.unload(module))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> u32 {
    bound(|state| {
        // SAFETY: the caller gives a text that ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let found = state.function(module, &name)?;
        // SAFETY: as `give` asks.
        unsafe { give(function, found) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut i32, which: i32, function: usize) -> u32 {
    const SHARED_SIZE_BYTES: i32 = 1;
    bound(|state| match which {
        // SAFETY: as `give` asks.
        SHARED_SIZE_BYTES => unsafe { give(value, state.reserved_shared(function)? as i32) },
        _ => Err(Code::INVALID_VALUE),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: usize, which: i32, value: i32) -> u32 {
    const MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
    bound(|state| {
        let bytes = u32::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
        match which {
            MAX_DYNAMIC_SHARED_SIZE_BYTES => state.allow_shared(function, bytes),
            _ => Err(Code::INVALID_VALUE),
        }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: usize,
    parameters: *const *const c_void,
    _extra: *const c_void,
) -> u32 {
    bound(|state| {
        let value = |(index, bytes): (usize, usize)| {
            // SAFETY: the caller gives a pointer to each parameter's value.
            let from = unsafe { *parameters.add(index) };
            match bytes {
                // SAFETY: the value is as wide as the parameter.
                4 => Ok(Argument::U32(unsafe {
                    from.cast::<u32>().read_unaligned()
                })),
                // SAFETY: as above.
                8 => Ok(Argument::U64(unsafe {
                    from.cast::<u64>().read_unaligned()
                })),
                _ => Err(Code::INVALID_VALUE),
            }
        };
        state.check_shared(function, shared_bytes)?;
        let sizes = state.parameters(function)?.into_iter().enumerate();
        let launch = Launch {
            function,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared_bytes,
            arguments: sizes.map(value).collect::<Result<_, _>>()?,
        };
        state.streams.push(stream, Work::Launch(launch))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, _flags: u32) -> u32 {
    bound(|state| {
        let handle = state.handle();
        state.streams.add_stream(handle);
        // SAFETY: as `give` asks.
        unsafe { give(stream, handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: usize) -> u32 {
    bound(|state| {
        state.drain(stream)?;
        state.streams.remove_stream(stream)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: usize) -> u32 {
    bound(|state| state.drain(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) -> u32 {
    bound(|state| state.streams.wait(stream, event))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _flags: u32) -> u32 {
    bound(|state| {
        let handle = state.handle();
        state.streams.add_event(handle);
        // SAFETY: as `give` asks.
        unsafe { give(event, handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(event: usize) -> u32 {
    bound(|state| {
        // Work that waits for it still has to.
        state.reach(event)?;
        state.streams.remove_event(event)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(event: usize, stream: usize) -> u32 {
    bound(|state| state.streams.record(event, stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(event: usize) -> u32 {
    bound(|state| state.reach(event))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(stream: usize, _mode: u32) -> u32 {
    bound(|state| {
        state.streams.not_captured(stream)?;
        state.streams.begin_capture(stream)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> u32 {
    bound(|state| {
        let work = state.streams.end_capture(stream)?;
        let handle = state.handle();
        state.graphs.insert(handle, work);
        // SAFETY: as `give` asks.
        unsafe { give(graph, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    instance: *mut usize,
    graph: usize,
    _flags: u64,
) -> u32 {
    bound(|state| {
        let work = state
            .graphs
            .get(&graph)
            .ok_or(Code::INVALID_HANDLE)?
            .clone();
        let handle = state.handle();
        state.graphs.insert(handle, work);
        // SAFETY: as `give` asks.
        unsafe { give(instance, handle) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(instance: usize, stream: usize) -> u32 {
    bound(|state| {
        let work = state
            .graphs
            .get(&instance)
            .ok_or(Code::INVALID_HANDLE)?
            .clone();
        work.into_iter()
            .try_for_each(|work| state.streams.push(stream, work))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: usize) -> u32 {
    bound(|state| {
        state
            .graphs
            .remove(&graph)
            .map(|_| ())
            .ok_or(Code::INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(instance: usize) -> u32 {
    cuGraphDestroy(instance)
}
