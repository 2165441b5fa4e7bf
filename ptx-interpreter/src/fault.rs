//! What can be wrong with a kernel: every fault names the instruction, the thread and the address.

use std::fmt;

/// A text that is not PTX as the interpreter knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from one.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl ParseError {
    pub(crate) fn new(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Why a launch was stopped, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// The line of the instruction in the PTX, counted from one; zero where there is none.
    pub line: usize,
    /// The instruction's opcode.
    pub opcode: String,
    /// The block, linear in the grid.
    pub block: u32,
    /// The thread, linear in the block.
    pub thread: u32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            line,
            opcode,
            block,
            thread,
        } = self;
        write!(
            f,
            "line {line}: {opcode}: block {block}, thread {thread}: {kind}"
        )
    }
}

impl std::error::Error for Fault {}

/// What a kernel did wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The launch itself does not fit the kernel.
    Launch(String),
    /// A register was read before anything was written to it.
    UndefinedRegister(String),
    /// An access that no buffer, or not all of one, covers.
    OutOfBounds {
        /// The first byte's address.
        address: u64,
        /// Bytes accessed.
        bytes: usize,
    },
    /// An address that is not a multiple of the access's size.
    Misaligned {
        /// The first byte's address.
        address: u64,
        /// Bytes accessed.
        bytes: usize,
    },
    /// A read of a byte that nothing wrote.
    Uninitialised {
        /// That byte's address.
        address: u64,
    },
    /// A write to a buffer that the launch declared as input only.
    ReadOnly {
        /// The first byte's address.
        address: u64,
    },
    /// A non-coherent read of a buffer that the launch may write.
    NonCoherent {
        /// The first byte's address.
        address: u64,
    },
    /// Two accesses to one byte, one of them a write, that nothing orders.
    Race {
        /// That byte's address.
        address: u64,
        /// The block of the earlier access, or `u32::MAX` for several.
        block: u32,
        /// The thread of the earlier access, or `u32::MAX` for several.
        thread: u32,
    },
    /// A byte with an asynchronous copy under way was touched.
    InFlight {
        /// That byte's address.
        address: u64,
    },
    /// A thread ended with an asynchronous copy that it never waited for.
    NeverWaited,
    /// A barrier, shuffle, vote or matrix operation that some of its threads cannot reach.
    NotConverged {
        /// Lanes that are there, as a bit mask.
        present: u32,
        /// Lanes that have to be there, as a bit mask.
        expected: u32,
    },
    /// Threads wait at a barrier for threads that have ended.
    ExitedAtBarrier,
    /// A shuffle read the register of a lane that does not take part.
    ShuffleSource {
        /// The lane it read.
        lane: u32,
    },
    /// An integer division by zero.
    DivisionByZero,
    /// More instructions than the launch allows: most likely a loop that does not end.
    StepLimit,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Launch(message) => write!(f, "cannot launch: {message}"),
            Self::UndefinedRegister(name) => write!(f, "{name} is read before it is written"),
            Self::OutOfBounds { address, bytes } => {
                write!(
                    f,
                    "{bytes} bytes at {address:#x} are outside of every buffer"
                )
            }
            Self::Misaligned { address, bytes } => {
                write!(f, "{address:#x} is not aligned to {bytes} bytes")
            }
            Self::Uninitialised { address } => write!(f, "{address:#x} was never written"),
            Self::ReadOnly { address } => write!(f, "{address:#x} may only be read"),
            Self::NonCoherent { address } => {
                write!(
                    f,
                    "non-coherent read of {address:#x}, which this launch may write"
                )
            }
            Self::Race {
                address,
                block,
                thread,
            } => {
                write!(
                    f,
                    "race at {address:#x} with block {block}, thread {thread}"
                )
            }
            Self::InFlight { address } => write!(f, "{address:#x} has a copy under way"),
            Self::NeverWaited => write!(f, "an asynchronous copy was never waited for"),
            Self::NotConverged { present, expected } => {
                write!(
                    f,
                    "lanes {present:#010x} are here, {expected:#010x} have to be"
                )
            }
            Self::ExitedAtBarrier => write!(f, "others wait at a barrier for threads that ended"),
            Self::ShuffleSource { lane } => write!(f, "lane {lane} does not take part"),
            Self::DivisionByZero => write!(f, "integer division by zero"),
            Self::StepLimit => write!(f, "the launch's instruction limit is reached"),
        }
    }
}
