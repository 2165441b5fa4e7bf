//! One launch of one kernel, and the bytes that it has to leave behind.

use lockstep_kernels::{Argument as Parameter, Kernel, Shape};
use ptx_interpreter::{
    Argument, Fault, Launch, Memory, Module, Order, Permission, Pointer, Statistics,
};

/// Every case runs in both.
pub(crate) const ORDERS: [Order; 2] = [Order::Ascending, Order::Descending];

/// More than any case takes, less than a second's work.
const STEP_LIMIT: u64 = 20_000_000;

/// Bytes; `None` where the kernel must not write.
pub(crate) type Expected = Vec<Option<u8>>;

/// An argument's value, in the order of the table.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    In(Vec<u8>),
    /// The same with bytes that nobody wrote, which the kernel must not read.
    InPart(Expected),
    /// What an output buffer holds afterwards; nothing before.
    Out(Expected),
    /// What a buffer holds before and afterwards.
    InOut(Vec<u8>, Expected),
    U32(u32),
    F32(f32),
}

pub(crate) fn bytes_of_f32(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub(crate) fn bytes_of_u32(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

pub(crate) fn in_f32(values: &[f32]) -> Value {
    Value::In(bytes_of_f32(values))
}

pub(crate) fn in_u32(values: &[u32]) -> Value {
    Value::In(bytes_of_u32(values))
}

pub(crate) fn written(bytes: Vec<u8>) -> Expected {
    bytes.into_iter().map(Some).collect()
}

pub(crate) fn out_f32(values: &[f32]) -> Value {
    Value::Out(written(bytes_of_f32(values)))
}

/// Flags that a kernel adds to: every fifth row has one already.
pub(crate) fn noted(flags: &[u32]) -> Value {
    let before: Vec<u32> = (0..flags.len())
        .map(|row| u32::from(row % 5 == 4))
        .collect();
    let after: Vec<u32> = before.iter().zip(flags).map(|(a, b)| a | b).collect();
    Value::InOut(bytes_of_u32(&before), written(bytes_of_u32(&after)))
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) kernel: &'static Kernel,
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) values: Vec<Value>,
    /// Copies into shared memory that nobody reads. None is made but where a case says so: they would
    /// be traffic for nothing.
    pub(crate) unread_copies: u64,
    /// Warp instructions after which it counts as endless.
    pub(crate) step_limit: u64,
}

impl Case {
    pub(crate) fn new(
        entry: &str,
        name: impl Into<String>,
        shape: Shape,
        values: Vec<Value>,
    ) -> Self {
        let kernel = lockstep_kernels::kernel(entry).expect("the table has it");
        let fits = kernel
            .arguments
            .iter()
            .zip(&values)
            .all(|(parameter, value)| {
                matches!(
                    (parameter, value),
                    (Parameter::In(_), Value::In(_) | Value::InPart(_))
                        | (Parameter::Out(_), Value::Out(_))
                        | (Parameter::InOut(_), Value::InOut(..))
                        | (Parameter::U32(_), Value::U32(_))
                        | (Parameter::F32(_), Value::F32(_))
                )
            });
        assert!(
            fits && kernel.arguments.len() == values.len(),
            "{entry}: arguments differ"
        );
        Self {
            kernel,
            name: name.into(),
            shape,
            values,
            unread_copies: 0,
            step_limit: STEP_LIMIT,
        }
    }

    /// Runs it and compares every byte of every buffer.
    pub(crate) fn check(&self, module: &Module, order: Order) -> Result<Statistics, String> {
        let mut memory = Memory::new();
        let mut buffers = Vec::new();
        let mut arguments = Vec::new();
        for (value, parameter) in self.values.iter().zip(self.kernel.arguments) {
            let pointer = match value {
                Value::In(bytes) => memory.upload(bytes, Permission::Read),
                Value::InPart(bytes) => upload_part(&mut memory, bytes),
                Value::InOut(bytes, _) => memory.upload(bytes, Permission::Write),
                Value::Out(expected) => memory.reserve(expected.len()),
                Value::U32(value) => {
                    arguments.push(Argument::U32(*value));
                    continue;
                }
                Value::F32(value) => {
                    arguments.push(Argument::F32(*value));
                    continue;
                }
            };
            if let Value::Out(expected) | Value::InOut(_, expected) = value {
                buffers.push((parameter, pointer, expected));
            }
            arguments.push(Argument::Buffer(pointer));
        }
        let size = self.kernel.size(&self.shape);
        let mut launch = Launch::new(size.grid[0], size.block, arguments);
        launch.grid = size.grid;
        launch.shared_bytes = size.shared_bytes as usize;
        launch.order = order;
        launch.step_limit = self.step_limit;
        let run: Result<Statistics, Fault> = module.run(self.kernel.entry, &launch, &mut memory);
        let statistics = run.map_err(|fault| fault.to_string())?;
        for (parameter, pointer, expected) in buffers {
            let found = memory.download(pointer);
            if let Some(at) = (0..expected.len()).find(|at| found[*at] != expected[*at]) {
                let word = at / 4 * 4;
                let show =
                    |bytes: &Expected| format!("{:02x?}", &bytes[word..bytes.len().min(word + 4)]);
                return Err(format!(
                    "{parameter:?} differs at byte {at}: {}, expected {}",
                    show(&found),
                    show(expected)
                ));
            }
        }
        if statistics.unread_copies != self.unread_copies {
            return Err(format!(
                "{} copies that nobody reads, expected {}",
                statistics.unread_copies, self.unread_copies
            ));
        }
        Ok(statistics)
    }
}

/// A buffer of which the bytes that are there are written.
fn upload_part(memory: &mut Memory, bytes: &Expected) -> Pointer {
    let pointer = memory.reserve(bytes.len());
    let mut at = 0;
    for run in bytes.chunk_by(|a, b| a.is_some() == b.is_some()) {
        let there: Vec<u8> = run.iter().copied().flatten().collect();
        memory
            .write_host(pointer, at, &there)
            .expect("it is inside of the buffer");
        at += run.len();
    }
    memory.permit(pointer, Permission::Read);
    pointer
}

/// The text of one kernel alone, as a module.
pub(crate) fn entry_text(kernel: &Kernel) -> String {
    let text = kernel.module.ptx();
    let (header, _) = text
        .split_once("\t// .globl")
        .expect("nvcc announces its entries");
    let own = |part: &&str| part.split_whitespace().next() == Some(kernel.entry);
    let mut kernels = text.split("\t// .globl").skip(1);
    let body = kernels.find(own).expect("the module has the entry");
    let external = text.lines().filter(|line| line.starts_with(".extern"));
    let external = external.filter(|line| !header.contains(line) && !body.contains(line));
    format!(
        "{header}{}\n\t// .globl{body}",
        external.collect::<Vec<_>>().join("\n")
    )
}

pub(crate) fn module(text: &str) -> Module {
    Module::parse(text).unwrap_or_else(|error| panic!("{error}"))
}
