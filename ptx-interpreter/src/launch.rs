//! A launch: a grid of blocks of one kernel, run one block after the other.

use crate::block::Block;
use crate::fault::{Fault, FaultKind};
use crate::memory::{Memory, Pointer};
use crate::module::{Kernel, Module};
use crate::shared::Shared;

/// Warp instructions that a launch may execute before it counts as endless.
const DEFAULT_STEP_LIMIT: u64 = 200_000_000;

/// The most shared memory that a block can have on the smallest device that is supported, in bytes.
const SHARED_LIMIT: usize = 99 * 1024;

/// The most threads in a block.
const THREAD_LIMIT: u32 = 1024;

/// A kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The address of a buffer.
    Buffer(Pointer),
    /// A null pointer.
    Null,
    /// A 32-bit integer.
    U32(u32),
    /// A 64-bit integer.
    U64(u64),
    /// A single-precision float.
    F32(f32),
}

impl Argument {
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Buffer(pointer) => pointer.0.to_le_bytes().to_vec(),
            Self::Null => vec![0; 8],
            Self::U32(value) => value.to_le_bytes().to_vec(),
            Self::U64(value) => value.to_le_bytes().to_vec(),
            Self::F32(value) => value.to_le_bytes().to_vec(),
        }
    }
}

/// In which order blocks, and the warps of a block, are run. A kernel's results depend on none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The lowest number first.
    #[default]
    Ascending,
    /// The highest number first.
    Descending,
}

impl Order {
    pub(crate) fn nth(self, index: usize, count: usize) -> usize {
        match self {
            Self::Ascending => index,
            Self::Descending => count - 1 - index,
        }
    }
}

/// The size and the arguments of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Threads of a block along each axis.
    pub block: [u32; 3],
    /// Bytes of shared memory beyond what the text reserves.
    pub shared_bytes: usize,
    /// The arguments, in order.
    pub arguments: Vec<Argument>,
    /// The order of blocks and warps.
    pub order: Order,
    /// Warp instructions after which the launch counts as endless.
    pub step_limit: u64,
}

impl Launch {
    /// A launch of `grid` blocks of `block` threads, both along the first axis.
    pub fn new(grid: u32, block: u32, arguments: Vec<Argument>) -> Self {
        Self {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared_bytes: 0,
            arguments,
            order: Order::Ascending,
            step_limit: DEFAULT_STEP_LIMIT,
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions that a warp issued.
    pub warp_instructions: u64,
    /// The same, times the threads that executed each.
    pub thread_instructions: u64,
    /// For each instruction of the kernel, whether any thread executed it; a branch also counts
    /// where none took it.
    pub executed: Vec<bool>,
    /// Asynchronous copies of which no thread read a byte: traffic for nothing, or an index that is
    /// wrong without a result that is.
    pub unread_copies: u64,
}

impl Module {
    /// Runs a launch of the kernel `entry` on `memory`.
    ///
    /// Blocks run one after the other; races between them are found all the same. Weak memory
    /// ordering between blocks and timing are not modelled.
    ///
    /// # Errors
    /// The first thing that the kernel did wrong; `memory` then holds what was written before.
    pub fn run(
        &self,
        entry: &str,
        launch: &Launch,
        memory: &mut Memory,
    ) -> Result<Statistics, Fault> {
        let refuse = |message: String| Fault {
            kind: FaultKind::Launch(message),
            line: 0,
            opcode: entry.to_owned(),
            block: 0,
            thread: 0,
        };
        let kernel = self
            .kernel(entry)
            .ok_or_else(|| refuse("there is no such kernel".into()))?;
        let parameters = arguments(kernel, launch).map_err(refuse)?;
        check_size(kernel, launch).map_err(refuse)?;
        memory.begin_launch();
        let blocks: u32 = launch.grid.iter().product();
        let mut statistics = Statistics {
            executed: vec![false; kernel.instructions.len()],
            ..Default::default()
        };
        for index in 0..blocks {
            let number = launch.order.nth(index as usize, blocks as usize) as u32;
            let static_bytes = kernel.shared_bytes.next_multiple_of(16);
            let bytes = if launch.shared_bytes == 0 {
                kernel.shared_bytes
            } else {
                static_bytes + launch.shared_bytes
            };
            Block::new(
                kernel,
                launch,
                &parameters,
                number,
                memory,
                Shared::new(bytes),
            )
            .run(&mut statistics)?;
        }
        Ok(statistics)
    }
}

fn arguments(kernel: &Kernel, launch: &Launch) -> Result<Vec<u8>, String> {
    let given: Vec<Vec<u8>> = launch.arguments.iter().map(|a| a.bytes()).collect();
    let sizes: Vec<usize> = given.iter().map(Vec::len).collect();
    if !kernel.takes(&sizes) {
        return Err(format!(
            "arguments of {sizes:?} bytes do not fit its parameters"
        ));
    }
    let mut out = vec![0; kernel.parameter_bytes];
    for (parameter, bytes) in kernel.parameters.iter().zip(&given) {
        out[parameter.offset..parameter.offset + bytes.len()].copy_from_slice(bytes);
    }
    Ok(out)
}

fn check_size(kernel: &Kernel, launch: &Launch) -> Result<(), String> {
    let product = |size: [u32; 3]| size.iter().try_fold(1_u32, |p, s| p.checked_mul(*s));
    let threads = product(launch.block).unwrap_or(u32::MAX);
    let limit = kernel.max_threads.unwrap_or(THREAD_LIMIT).min(THREAD_LIMIT);
    if threads == 0 || threads > limit {
        return Err(format!(
            "a block of {threads} threads; 1 to {limit} are possible"
        ));
    }
    if launch.grid[1] > 65_535
        || launch.grid[2] > 65_535
        || !matches!(product(launch.grid), Some(1..))
    {
        return Err(format!("a grid of {:?} blocks", launch.grid));
    }
    if launch.shared_bytes > 0 && !kernel.dynamic_shared {
        return Err("it has no dynamic shared memory".into());
    }
    let shared = kernel.shared_bytes + launch.shared_bytes;
    if shared > SHARED_LIMIT {
        return Err(format!(
            "{shared} bytes of shared memory; at most {SHARED_LIMIT}"
        ));
    }
    Ok(())
}
