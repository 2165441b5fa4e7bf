//! A device that is no GPU: the kernels' PTX in the interpreter.

use lockstep::backend::device::{Argument, Device};
use lockstep_kernels::{Argument as Parameter, Kernel, Module as Text, Shape};
use ptx_interpreter::{Argument as Value, Launch, Memory, Module, Permission, Pointer};

/// Buffers, and the parsed texts.
pub(crate) struct Interpreter {
    memory: Memory,
    texts: Vec<(Text, Module)>,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Interpreter")
    }
}

impl Interpreter {
    pub(crate) fn new() -> Self {
        let parse = |text: Text| {
            let module = Module::parse(text.ptx()).unwrap_or_else(|error| panic!("{error}"));
            (text, module)
        };
        Self {
            memory: Memory::new(),
            texts: Text::ALL.map(parse).into(),
        }
    }
}

impl Device for Interpreter {
    type Buffer = Pointer;

    fn allocate(&mut self, bytes: usize) -> Result<Pointer, String> {
        Ok(self.memory.reserve(bytes))
    }

    fn write(&mut self, buffer: &Pointer, bytes: &[u8]) -> Result<(), String> {
        self.memory
            .write_host(*buffer, 0, bytes)
            .map_err(|fault| fault.to_string())
    }

    fn read(&mut self, buffer: &Pointer, bytes: &mut [u8]) -> Result<(), String> {
        let found = self.memory.download(*buffer);
        let found = found.get(..bytes.len()).ok_or("the buffer is shorter")?;
        for (byte, found) in bytes.iter_mut().zip(found) {
            *byte = found.ok_or("a byte was never written")?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        buffer: &Pointer,
        from: usize,
        to: usize,
        bytes: usize,
    ) -> Result<(), String> {
        self.memory
            .copy_host(*buffer, from, to, bytes)
            .map_err(|fault| fault.to_string())
    }

    fn launch(
        &mut self,
        kernel: &'static Kernel,
        shape: &Shape,
        arguments: &[Argument<'_, Pointer>],
    ) -> Result<(), String> {
        if arguments.len() != kernel.arguments.len() {
            return Err(format!("{} arguments", arguments.len()));
        }
        // What the table calls an input can then not be an output of the same launch as well.
        self.memory.forbid_writes();
        let mut values = Vec::new();
        for (parameter, argument) in kernel.arguments.iter().zip(arguments) {
            values.push(match (parameter, argument) {
                (Parameter::In(_), Argument::Buffer(pointer)) => Value::Buffer(**pointer),
                (Parameter::Out(_) | Parameter::InOut(_), Argument::Buffer(pointer)) => {
                    self.memory.permit(**pointer, Permission::Write);
                    Value::Buffer(**pointer)
                }
                (Parameter::U32(_), Argument::U32(value)) => Value::U32(*value),
                (Parameter::F32(_), Argument::F32(value)) => Value::F32(*value),
                _ => return Err(format!("{parameter:?} is given another kind of argument")),
            });
        }
        let size = kernel.size(shape);
        let mut launch = Launch::new(size.grid[0], size.block, values);
        launch.grid = size.grid;
        launch.shared_bytes = size.shared_bytes as usize;
        launch.step_limit = u64::MAX;
        let text = self.texts.iter().find(|(text, _)| *text == kernel.module);
        let (_, module) = text.ok_or("the text is not loaded")?;
        let run = module.run(kernel.entry, &launch, &mut self.memory);
        run.map(|_| ()).map_err(|fault| fault.to_string())
    }
}
