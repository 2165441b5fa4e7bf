//! The interpreter on small hand-written kernels: what it computes, and each thing it must catch.

mod arithmetic;
mod convergence;
mod copies;
mod halves;
mod matrix;
mod memory;
mod parsing;
mod races;

use ptx_interpreter::{
    Argument, Fault, FaultKind, Launch, Memory, Module, Order, Permission, Statistics,
};

/// A kernel `k` with the registers that the tests use, around `body`; it takes an input buffer, an
/// output buffer and a number.
fn kernel(body: &str) -> String {
    format!(
        ".version 7.4\n.target sm_80\n.address_size 64\n\
         .extern .shared .align 16 .b8 dynamic[];\n\
         .visible .entry k(\n.param .u64 k_in,\n.param .u64 k_out,\n.param .u32 k_n\n)\n{{\n\
         .reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<64>;\n.reg .f32 %f<16>;\n\
         .reg .b64 %rd<16>;\n.shared .align 16 .b8 buffer[512];\n\
         ld.param.u64 %rd1, [k_in];\nld.param.u64 %rd2, [k_out];\nld.param.u32 %r1, [k_n];\n\
         mov.u32 %r2, %tid.x;\nmul.wide.u32 %rd3, %r2, 4;\nadd.s64 %rd4, %rd1, %rd3;\n\
         add.s64 %rd5, %rd2, %rd3;\n{body}\nret;\n}}\n"
    )
}

/// Runs `body` with one block of `threads`; gives the output's words.
fn run(body: &str, threads: u32, input: &[u32], output: usize) -> Result<Vec<u32>, Fault> {
    run_grid(body, 1, threads, input, output, Order::Ascending)
}

fn run_grid(
    body: &str,
    grid: u32,
    threads: u32,
    input: &[u32],
    output: usize,
    order: Order,
) -> Result<Vec<u32>, Fault> {
    run_counted(body, [grid, threads], input, output, order).map(|(words, _)| words)
}

/// The same, and what the launch did.
fn run_counted(
    body: &str,
    [grid, threads]: [u32; 2],
    input: &[u32],
    output: usize,
    order: Order,
) -> Result<(Vec<u32>, Statistics), Fault> {
    let module = Module::parse(&kernel(body)).unwrap_or_else(|error| panic!("{error}"));
    let mut memory = Memory::new();
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let from = memory.upload(&bytes, Permission::Read);
    let to = memory.reserve(output * 4);
    let arguments = vec![
        Argument::Buffer(from),
        Argument::Buffer(to),
        Argument::U32(threads),
    ];
    let mut launch = Launch::new(grid, threads, arguments);
    launch.order = order;
    launch.step_limit = 100_000;
    let statistics = module.run("k", &launch, &mut memory)?;
    let bytes: Option<Vec<u8>> = memory.download(to).into_iter().collect();
    let bytes = bytes.unwrap_or_default();
    let word = |chunk: &[u8]| {
        chunk
            .iter()
            .rev()
            .fold(0, |word, b| word << 8 | u32::from(*b))
    };
    Ok((bytes.chunks(4).map(word).collect(), statistics))
}

/// What the kernel did wrong.
fn fault(body: &str, threads: u32) -> FaultKind {
    let input: Vec<u32> = (0..threads.max(64)).collect();
    match run(body, threads, &input, threads as usize) {
        Ok(words) => panic!("no fault, but {words:?}"),
        Err(fault) => {
            assert!(fault.line > 0, "{fault}");
            fault.kind
        }
    }
}
