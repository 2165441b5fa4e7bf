//! Runs PTX kernels on the CPU, strictly: a kernel's proof on a machine that has no GPU.
//!
//! The text that ships is parsed ([`Module::parse`]) and run ([`Module::run`]) over a grid of
//! blocks. Warps run in lockstep; of the lanes that have gone different ways, those furthest
//! behind go first. Everything that a device would let pass in silence is a [`Fault`] with the
//! instruction, the thread and the address:
//!
//! - an access outside of a buffer, misaligned, of bytes that nothing wrote, or of the wrong kind;
//! - a race: two accesses to one byte, one a write, with no barrier between them, inside a block
//!   or between blocks;
//! - a barrier, shuffle or vote that some of its threads cannot reach;
//! - a register read before it is written; an asynchronous copy read before its wait.
//!
//! Arithmetic is exact: integers wrap, f32 operations round once to nearest even, and a text with
//! approximate or contractible operations is refused.
//!
//! # What this is not
//! Not an emulator of a device: weak memory ordering between blocks, timing, local memory, textures
//! and atomics are not modelled. The fragment layout of the matrix product is one reading of the
//! manual.

mod arithmetic;
mod block;
mod collective;
mod decode;
mod execute;
mod fault;
mod float;
mod instruction;
mod launch;
mod memory;
mod module;
mod operand;
mod parse;
mod shadow;
mod shared;
mod token;
mod warp;

pub use fault::{Fault, FaultKind, ParseError};
pub use launch::{Argument, Launch, Order, Statistics};
pub use memory::{Memory, Permission, Pointer};
pub use module::{Kernel, Module};
