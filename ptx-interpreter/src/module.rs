//! A parsed module: its kernels, their parameters, registers and shared variables.

use std::collections::BTreeMap;

use crate::fault::ParseError;
use crate::instruction::{Instruction, Type};
use crate::parse;

/// The kernels of one PTX text.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) kernels: BTreeMap<String, Kernel>,
}

impl Module {
    /// Parses and decodes every kernel of `source`.
    ///
    /// # Errors
    /// Names the line of the first text that is not PTX, or that is PTX the interpreter does not
    /// execute: approximate or contractible arithmetic, local memory and generic addresses among
    /// it, since a shipped kernel may have none of these.
    pub fn parse(source: &str) -> Result<Self, ParseError> {
        parse::module(source)
    }

    /// The names of its kernels, sorted.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// The kernel of that name.
    pub fn kernel(&self, entry: &str) -> Option<&Kernel> {
        self.kernels.get(entry)
    }
}

/// One kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: usize,
    /// Names of the registers, for messages.
    pub(crate) registers: Vec<(String, Type)>,
    /// Bytes of shared variables whose size the text gives.
    pub(crate) shared_bytes: usize,
    /// Whether there is a shared array whose size the launch gives.
    pub(crate) dynamic_shared: bool,
    /// The most threads a block may have, as the text declares.
    pub(crate) max_threads: Option<u32>,
    pub(crate) instructions: Vec<Instruction>,
}

impl Kernel {
    /// How many parameters it has.
    pub fn parameters(&self) -> usize {
        self.parameters.len()
    }

    /// How wide its parameters are, in order, in bytes.
    pub fn parameter_sizes(&self) -> impl Iterator<Item = usize> + '_ {
        self.parameters
            .iter()
            .map(|parameter| parameter.kind.bytes())
    }

    /// Whether the parameters are, in order, as wide as these, in bytes.
    pub fn takes(&self, bytes: &[usize]) -> bool {
        self.parameters
            .iter()
            .map(|p| p.kind.bytes())
            .eq(bytes.iter().copied())
    }

    /// Bytes of shared memory that the text itself reserves.
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }

    /// The most threads a block may have, where the text says.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }

    /// How many instructions it has.
    pub fn instructions(&self) -> usize {
        self.instructions.len()
    }

    /// The line and opcode of instruction `index`.
    pub fn instruction(&self, index: usize) -> Option<(usize, &str)> {
        self.instructions
            .get(index)
            .map(|i| (i.line, i.opcode.as_str()))
    }
}

/// A kernel's parameter: its type and its place in parameter memory.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) kind: Type,
    pub(crate) offset: usize,
}
