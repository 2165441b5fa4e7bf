//! The device: memory, modules, and the running of queued work.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

use lockstep_kernels::Argument as Parameter;
use ptx_interpreter::{Argument, Launch as Run, Memory, Module, Permission, Pointer};

use crate::error::Code;
use crate::faults::Faults;
use crate::pinned::PinnedMemory;
use crate::stream::{Launch, Streams, Work};

/// The one device of the process.
pub(crate) static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

/// Bytes of shared memory that a block may have before its function is allowed more.
const SHARED_BYTES: u32 = 48 << 10;
/// Bytes that a function may be allowed: those of compute capability 9.0.
const MOST_SHARED_BYTES: u32 = 227 << 10;

/// A kernel of a loaded module.
#[derive(Debug)]
struct Function {
    module: usize,
    entry: String,
    /// Bytes of shared memory that the text reserves.
    reserved: u32,
    /// The most bytes of dynamic shared memory that a launch may have beside them.
    dynamic: u32,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) faults: Faults,
    pub(crate) initialised: bool,
    pub(crate) contexts: u32,
    pub(crate) pinned: PinnedMemory,
    pub(crate) streams: Streams,
    pub(crate) graphs: BTreeMap<usize, Vec<Work>>,
    memory: Memory,
    /// Bytes of each live allocation.
    allocations: BTreeMap<u64, usize>,
    allocated: u64,
    modules: BTreeMap<usize, Module>,
    functions: BTreeMap<usize, Function>,
    launched: u64,
    /// The failure after which nothing works.
    failure: Option<Code>,
    last_handle: usize,
}

impl State {
    fn new() -> Self {
        Self {
            faults: Faults::from_env(),
            initialised: false,
            contexts: 0,
            pinned: PinnedMemory::default(),
            streams: Streams::default(),
            graphs: BTreeMap::new(),
            memory: Memory::new(),
            allocations: BTreeMap::new(),
            allocated: 0,
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            launched: 0,
            failure: None,
            last_handle: 0,
        }
    }

    /// A handle that nothing had before; never null.
    pub(crate) fn handle(&mut self) -> usize {
        self.last_handle += 0x10;
        self.last_handle
    }

    pub(crate) fn healthy(&self) -> Result<(), Code> {
        self.failure.map_or(Ok(()), Err)
    }

    /// Bytes that nobody has, and all of them.
    pub(crate) fn free_memory(&self) -> (usize, usize) {
        let used: usize = self.allocations.values().sum();
        (self.faults.memory - used, self.faults.memory)
    }

    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<u64, Code> {
        self.allocated += 1;
        let (free, _) = self.free_memory();
        if bytes > free || self.faults.fail_allocation == Some(self.allocated) {
            return Err(Code::OUT_OF_MEMORY);
        }
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let address = self.memory.reserve(bytes).address();
        self.allocations.insert(address, bytes);
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), Code> {
        self.allocations
            .remove(&address)
            .ok_or(Code::INVALID_VALUE)?;
        self.memory.release(Pointer::from_address(address));
        Ok(())
    }

    /// Loads a text, or says why it does not compile.
    pub(crate) fn load(&mut self, text: &str) -> Result<usize, String> {
        if self.faults.fail_jit {
            return Err("ptxas application ptx input, line 1; error : planned by a test".into());
        }
        let module = Module::parse(text).map_err(|error| error.to_string())?;
        let reserved = |entry| {
            module
                .kernel(entry)
                .map_or(0, |kernel| kernel.shared_bytes())
        };
        if let Some(entry) = module
            .entries()
            .find(|entry| reserved(entry) > SHARED_BYTES as usize)
        {
            let bytes = reserved(entry);
            return Err(format!(
                "ptxas error : entry function '{entry}' uses too much shared data ({bytes:#x} bytes, 0xc000 max)"
            ));
        }
        let handle = self.handle();
        self.modules.insert(handle, module);
        Ok(handle)
    }

    pub(crate) fn unload(&mut self, module: usize) -> Result<(), Code> {
        self.modules
            .remove(&module)
            .map(|_| ())
            .ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn function(&mut self, module: usize, entry: &str) -> Result<usize, Code> {
        let found = self.modules.get(&module).ok_or(Code::INVALID_HANDLE)?;
        let kernel = found.kernel(entry).ok_or(Code::NOT_FOUND)?;
        let reserved = kernel.shared_bytes() as u32;
        let handle = self.handle();
        let entry = entry.to_owned();
        let function = Function {
            module,
            entry,
            reserved,
            dynamic: SHARED_BYTES - reserved,
        };
        self.functions.insert(handle, function);
        Ok(handle)
    }

    /// Allows a function's launches so many bytes of dynamic shared memory.
    pub(crate) fn allow_shared(&mut self, function: usize, bytes: u32) -> Result<(), Code> {
        let function = self.functions.get_mut(&function);
        let function = function.ok_or(Code::INVALID_HANDLE)?;
        if bytes > MOST_SHARED_BYTES - function.reserved {
            return Err(Code::INVALID_VALUE);
        }
        function.dynamic = bytes;
        Ok(())
    }

    /// Bytes of shared memory that a function's text reserves.
    pub(crate) fn reserved_shared(&self, function: usize) -> Result<u32, Code> {
        let function = self.functions.get(&function);
        function
            .map(|function| function.reserved)
            .ok_or(Code::INVALID_HANDLE)
    }

    /// Whether a launch of a function may have so many bytes of dynamic shared memory.
    pub(crate) fn check_shared(&self, function: usize, bytes: u32) -> Result<(), Code> {
        let function = self.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        match bytes <= function.dynamic {
            true => Ok(()),
            false => Err(Code::INVALID_VALUE),
        }
    }

    /// Bytes of each of a function's parameters.
    pub(crate) fn parameters(&self, function: usize) -> Result<Vec<usize>, Code> {
        let function = self.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        let module = self
            .modules
            .get(&function.module)
            .ok_or(Code::INVALID_HANDLE)?;
        let kernel = module.kernel(&function.entry).ok_or(Code::NOT_FOUND)?;
        Ok(kernel.parameter_sizes().collect())
    }

    /// Runs a stream's work to its end.
    pub(crate) fn drain(&mut self, stream: usize) -> Result<(), Code> {
        self.streams.not_captured(stream)?;
        while self.streams.first(stream).is_some() {
            self.run_first(stream)?;
        }
        Ok(())
    }

    /// Runs a stream's work until an event is reached.
    pub(crate) fn reach(&mut self, event: usize) -> Result<(), Code> {
        let Some((stream, times)) = self.streams.outstanding(event)? else {
            return Ok(());
        };
        self.run_until(stream, event, times)
    }

    fn run_until(&mut self, stream: usize, event: usize, times: u64) -> Result<(), Code> {
        while !self.streams.reached(event, times) {
            if self.streams.first(stream).is_none() {
                eprintln!("cuda stand-in: an event is waited for that no stream will reach");
                return Err(Code::UNKNOWN);
            }
            self.run_first(stream)?;
        }
        Ok(())
    }

    fn run_first(&mut self, stream: usize) -> Result<(), Code> {
        self.healthy()?;
        let Some(work) = self.streams.first(stream) else {
            return Ok(());
        };
        let ran = self.run(&work);
        self.streams.pop(stream);
        ran.inspect_err(|code| {
            // A failure of the device is every later call's as well.
            self.failure.get_or_insert(*code);
        })
    }

    fn run(&mut self, work: &Work) -> Result<(), Code> {
        match work {
            Work::HostToDevice { to, from, bytes } => {
                let found = self.pinned.read(*from, *bytes).ok_or(Code::INVALID_VALUE)?;
                let to = Pointer::from_address(*to);
                checked(self.memory.write_host(to, 0, &found))
            }
            Work::DeviceToHost { to, from, bytes } => {
                let from = Pointer::from_address(*from);
                let found = checked(self.memory.read_host(from, *bytes))?;
                self.pinned
                    .write(*to, &found)
                    .then_some(())
                    .ok_or(Code::INVALID_VALUE)
            }
            Work::DeviceToDevice { to, from, bytes } => {
                let (to, from) = (Pointer::from_address(*to), Pointer::from_address(*from));
                checked(self.memory.copy_between(from, to, *bytes))
            }
            Work::Launch(launch) => self.run_kernel(launch),
            Work::Free(address) => self.free(*address),
            Work::Record(event, times) => {
                self.streams.reach(*event, *times);
                Ok(())
            }
            Work::Wait(event, times) => match self.streams.stream_of(*event) {
                Some(stream) => self.run_until(stream, *event, *times),
                None => Ok(()),
            },
        }
    }

    fn run_kernel(&mut self, launch: &Launch) -> Result<(), Code> {
        self.launched += 1;
        if let Some((number, code)) = self.faults.fail_launch
            && number == self.launched
        {
            return Err(Code(code));
        }
        let function = self
            .functions
            .get(&launch.function)
            .ok_or(Code::INVALID_HANDLE)?;
        let module = self
            .modules
            .get(&function.module)
            .ok_or(Code::INVALID_HANDLE)?;
        permit(&mut self.memory, &function.entry, &launch.arguments);
        let mut run = Run::new(1, 1, launch.arguments.clone());
        run.grid = launch.grid;
        run.block = launch.block;
        run.shared_bytes = launch.shared_bytes as usize;
        run.step_limit = u64::MAX;
        match module.run(&function.entry, &run, &mut self.memory) {
            Ok(_) => Ok(()),
            Err(fault) => {
                eprintln!("cuda stand-in: {}: {fault}", function.entry);
                Err(Code::LAUNCH_FAILED)
            }
        }
    }
}

/// Lets a launch write what the table calls an output, and nothing else; every buffer that it is
/// given, where the table does not know the kernel.
fn permit(memory: &mut Memory, entry: &str, arguments: &[Argument]) {
    memory.forbid_writes();
    let known = lockstep_kernels::kernel(entry).map(|kernel| kernel.arguments);
    for (index, argument) in arguments.iter().enumerate() {
        let output = known.is_none_or(|parameters| {
            matches!(
                parameters.get(index),
                Some(Parameter::Out(_) | Parameter::InOut(_))
            )
        });
        if let (true, Argument::U64(address)) = (output, argument) {
            memory.permit(Pointer::from_address(*address), Permission::Write);
        }
    }
}

/// Says what a copy did wrong.
fn checked<T>(copied: Result<T, ptx_interpreter::FaultKind>) -> Result<T, Code> {
    copied.map_err(|fault| {
        eprintln!("cuda stand-in: a copy: {fault}");
        Code(700)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel whose text reserves so many bytes of shared memory.
    fn text(bytes: u32) -> String {
        format!(
            ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n\
             .shared .align 16 .b8 own[{bytes}];\nret;\n}}\n"
        )
    }

    fn loaded(state: &mut State, bytes: u32) -> usize {
        let module = state.load(&text(bytes)).unwrap();
        state.function(module, "k").unwrap()
    }

    #[test]
    fn the_texts_own_shared_memory_counts() {
        let mut state = State::new();
        let function = loaded(&mut state, 40 << 10);
        assert_eq!(state.reserved_shared(function), Ok(40 << 10));
        assert_eq!(state.check_shared(function, 8 << 10), Ok(()));
        let more = (8 << 10) + 1;
        assert_eq!(state.check_shared(function, more), Err(Code::INVALID_VALUE));
        assert_eq!(state.allow_shared(function, 187 << 10), Ok(()));
        assert_eq!(state.check_shared(function, 187 << 10), Ok(()));
        let most = (187 << 10) + 1;
        assert_eq!(state.allow_shared(function, most), Err(Code::INVALID_VALUE));
        let other = loaded(&mut state, 48 << 10);
        assert_eq!(state.check_shared(other, 0), Ok(()));
        assert_eq!(state.check_shared(other, 1), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn a_text_that_reserves_too_much_does_not_compile() {
        let error = State::new().load(&text((48 << 10) + 16)).unwrap_err();
        assert!(
            error.contains("entry function 'k' uses too much shared data (0xc010"),
            "{error}"
        );
    }
}
