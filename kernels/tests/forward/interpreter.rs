//! A device that is no GPU: the kernels' PTX in the interpreter.

use lockstep::backend::device::{Argument, Device};
use lockstep_kernels::{Argument as Parameter, Kernel, Module as Text, Shape};
use ptx_interpreter::{Argument as Value, Launch, Memory, Module, Permission, Pointer};

/// A launch that was recorded.
type Recorded = (&'static Kernel, Shape, Vec<Value>);

/// Buffers, the parsed texts, and what was recorded.
pub(crate) struct Interpreter {
    memory: Memory,
    texts: Vec<(Text, Module)>,
    graphs: Vec<Vec<Recorded>>,
    recording: Option<Vec<Recorded>>,
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
            graphs: Vec::new(),
            recording: None,
        }
    }

    fn run(
        &mut self,
        kernel: &'static Kernel,
        shape: &Shape,
        values: &[Value],
    ) -> Result<(), String> {
        // What the table calls an input can then not be an output of the same launch as well.
        self.memory.forbid_writes();
        for (parameter, value) in kernel.arguments.iter().zip(values) {
            if let (Parameter::Out(_) | Parameter::InOut(_), Value::Buffer(pointer)) =
                (parameter, value)
            {
                self.memory.permit(*pointer, Permission::Write);
            }
        }
        let size = kernel.size(shape);
        let mut launch = Launch::new(size.grid[0], size.block, values.to_vec());
        launch.grid = size.grid;
        launch.shared_bytes = size.shared_bytes as usize;
        launch.step_limit = u64::MAX;
        let text = self.texts.iter().find(|(text, _)| *text == kernel.module);
        let (_, module) = text.ok_or("the text is not loaded")?;
        let run = module.run(kernel.entry, &launch, &mut self.memory);
        run.map(|_| ()).map_err(|fault| fault.to_string())
    }
}

impl Device for Interpreter {
    type Buffer = Pointer;
    type Staging = Vec<u32>;

    fn staging(&mut self, words: usize) -> Result<Vec<u32>, String> {
        Ok(vec![0; words])
    }

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
        let mut values = Vec::new();
        for (parameter, argument) in kernel.arguments.iter().zip(arguments) {
            values.push(match (parameter, argument) {
                (
                    Parameter::In(_) | Parameter::Out(_) | Parameter::InOut(_),
                    Argument::Buffer(pointer),
                ) => Value::Buffer(**pointer),
                (Parameter::U32(_), Argument::U32(value)) => Value::U32(*value),
                (Parameter::F32(_), Argument::F32(value)) => Value::F32(*value),
                _ => return Err(format!("{parameter:?} is given another kind of argument")),
            });
        }
        if let Some(recording) = &mut self.recording {
            recording.push((kernel, *shape, values));
            return Ok(());
        }
        self.run(kernel, shape, &values)
    }

    fn keeps_graphs(&self) -> bool {
        true
    }

    fn begin_graph(&mut self) -> Result<(), String> {
        self.recording = Some(Vec::new());
        Ok(())
    }

    fn end_graph(&mut self) -> Result<usize, String> {
        self.graphs
            .push(self.recording.take().ok_or("nothing is recorded")?);
        Ok(self.graphs.len() - 1)
    }

    fn launch_graph(&mut self, graph: usize) -> Result<(), String> {
        let launches = self
            .graphs
            .get(graph)
            .ok_or("there is no such graph")?
            .clone();
        launches
            .iter()
            .try_for_each(|(kernel, shape, values)| self.run(kernel, shape, values))
    }
}
