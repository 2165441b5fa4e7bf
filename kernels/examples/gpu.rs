//! What `tests/gpu/run.sh` measures and needs beside the program itself:
//!
//! `gpu bandwidth [SCALE]` prints, for the kernels that bound decoding, a JSON line with the time of a
//! launch, the bytes that it has to read, and their rate as a share of a copy on the same device
//! in the same run. `SCALE` divides the matrices' sides, for a rehearsal.
//!
//! `gpu model FILE TYPE [SCALE]` writes a Llama file of the 8B shape with random weights of a type,
//! and prints how many of its bytes a decode step has to read.

use std::io::Write;
use std::time::Duration;

use half::f16;
use lockstep::backend::cuda::{Buffer, Cuda};
use lockstep::backend::device::{Argument, Device};
use lockstep::clock;
use lockstep::gguf::{GgmlType, write::Writer};
use lockstep_kernels::{Format, Shape, kernel};

use Argument::{Buffer as At, F32, U32};

/// Bytes of the matrices that a kernel reads in turn: several times any device's cache.
const UNCACHED: usize = 512 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let scale = |text: Option<&&str>| text.and_then(|text| text.parse().ok()).unwrap_or(1);
    let done = match &arguments[..] {
        ["bandwidth", rest @ ..] => bandwidth(scale(rest.first())),
        ["model", file, kind, rest @ ..] => model(file, kind, scale(rest.first()) as u64),
        _ => Err("gpu bandwidth [SCALE] | gpu model FILE q4_k|q8_0 [SCALE]".into()),
    };
    if let Err(error) = done {
        eprintln!("gpu: {error}");
        std::process::exit(1);
    }
}

/// The time of one of `repeats` runs of something, to the end of the last.
fn time(
    device: &mut Cuda,
    sink: &Buffer,
    repeats: u32,
    mut run: impl FnMut(&mut Cuda) -> Result<(), String>,
) -> Result<Duration, String> {
    let mut word = [0; 4];
    run(device)?;
    device.read(sink, &mut word)?;
    let begun = clock::now();
    for _ in 0..repeats {
        run(device)?;
    }
    device.read(sink, &mut word)?;
    Ok(begun.elapsed() / repeats)
}

/// A buffer of words that are small numbers, whatever they are read as.
fn filled(device: &mut Cuda, bytes: usize) -> Result<Buffer, String> {
    let word = [0x11, 0x11, 0x11, 0x11];
    device.upload(&word.repeat(bytes.div_ceil(4)))
}

fn bandwidth(scale: usize) -> Result<(), String> {
    let mut device = Cuda::open(0, &lockstep_kernels::kernels().collect::<Vec<_>>())?;
    let repeats = if scale > 1 { 1 } else { 50 };
    let half = (1 << 29) / scale / scale;
    let pool = filled(&mut device, 2 * half)?;
    let copy = time(&mut device, &pool, repeats, |device| {
        device.copy(&pool, 0, half, half)
    })?;
    let copied = 2.0 * half as f64 / copy.as_secs_f64();
    line("copy", copy, 2 * half, copied);
    for format in [
        Format::Q4_K,
        Format::Q8_0,
        Format::Q4_0,
        Format::Q6_K,
        Format::F16,
    ] {
        for rows in [1, 8] {
            linear(&mut device, format, rows, scale, repeats, copied)?;
        }
    }
    attention(&mut device, scale, repeats, copied)
}

/// One line of the table: name, seconds, GB/s, share of the copy's rate.
fn line(name: &str, took: Duration, bytes: usize, copied: f64) {
    let rate = bytes as f64 / took.as_secs_f64();
    println!(
        "{{\"kernel\":\"{name}\",\"microseconds\":{:.2},\"bytes\":{bytes},\"gb_per_second\":{:.1},\"of_copy\":{:.3}}}",
        took.as_secs_f64() * 1e6,
        rate / 1e9,
        rate / copied
    );
}

fn linear(
    device: &mut Cuda,
    format: Format,
    rows: u32,
    scale: usize,
    repeats: u32,
    copied: f64,
) -> Result<(), String> {
    let (outputs, inputs) = (14_336 / scale, (4096 / scale).next_multiple_of(256));
    let bytes = format.packed_bytes(outputs, inputs);
    // Matrices in turn, so many that a cache of the device does not hold the next one.
    let copies = (UNCACHED / scale / scale).div_ceil(bytes);
    let copies = (0..copies).map(|_| filled(device, bytes));
    let copies: Vec<Buffer> = copies.collect::<Result<_, _>>()?;
    let x = filled(device, rows as usize * inputs * 4)?;
    let out = device.allocate(rows as usize * outputs * 4)?;
    let activations = if format.block_len() == 1 { 1 } else { 3 };
    let shape = Shape {
        rows,
        outputs: outputs as u32,
        inputs: inputs as u32,
        ..Shape::default()
    };
    let entry = format!("linear_{}_x{rows}", format.name());
    let found = kernel(&entry).ok_or_else(|| format!("there is no kernel {entry}"))?;
    let mut turn = copies.iter().cycle();
    let took = time(device, &out, repeats, |device| {
        let mut arguments: Vec<_> = turn.next().map(At).into_iter().collect();
        arguments.extend((0..activations).map(|_| At(&x)));
        arguments.extend([At(&out), U32(outputs as u32), U32(inputs as u32), U32(rows)]);
        device.launch(found, &shape, &arguments)
    })?;
    line(&entry, took, bytes, copied);
    Ok(())
}

/// Decoding 32 sequences of 4096 positions: 32 heads of 128, 8 of keys and values.
fn attention(device: &mut Cuda, scale: usize, repeats: u32, copied: f64) -> Result<(), String> {
    let (rows, positions) = ((32 / scale).max(1), (4096 / scale).max(256));
    let (heads, kv_heads, dim, block) = (32_usize, 8_usize, 128_usize, 16_usize);
    let shape = Shape {
        rows: rows as u32,
        heads: heads as u32,
        kv_heads: kv_heads as u32,
        dim: dim as u32,
        positions: positions as u32,
        ..Shape::default()
    };
    let blocks = positions / block;
    let bytes = rows * positions * kv_heads * dim * 2;
    let (keys, values) = (filled(device, bytes)?, filled(device, bytes)?);
    let q = filled(device, rows * heads * dim * 4)?;
    let words = |device: &mut Cuda, words: Vec<u32>| {
        device.upload(
            &words
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect::<Vec<_>>(),
        )
    };
    let at = words(device, vec![positions as u32 - 1; rows])?;
    let tables = words(device, (0..rows).map(|row| (row * blocks) as u32).collect())?;
    let block_tables = words(device, (0..(rows * blocks) as u32).collect())?;
    let parts = rows * heads * shape.splits() as usize;
    let [m, l] = [device.allocate(parts * 4)?, device.allocate(parts * 4)?];
    let o = device.allocate(parts * dim * 4)?;
    let inputs = [&q, &keys, &values, &at, &tables, &block_tables, &m, &l, &o];
    let mut arguments = Vec::from(inputs.map(At));
    arguments.extend([heads, kv_heads, dim, block, 0].map(|word| U32(word as u32)));
    arguments.push(F32(0.088));
    let found = kernel("attention_split_f16").ok_or("there is no attention_split_f16")?;
    let took = time(device, &m, repeats, |device| {
        device.launch(found, &shape, &arguments)
    })?;
    line(
        &format!("attention_split_f16 {rows} of {positions}"),
        took,
        2 * bytes,
        copied,
    );
    Ok(())
}

/// Elements and bytes of a block.
const fn block(ggml_type: GgmlType) -> (u64, usize) {
    match ggml_type {
        GgmlType::Q8_0 => (32, 34),
        _ => (256, 144),
    }
}

/// A matrix's bytes: blocks with a small scale and codes that differ.
fn matrix(ggml_type: GgmlType, elements: u64, seed: &mut u64) -> Vec<u8> {
    let (length, bytes) = block(ggml_type);
    let scales = if ggml_type == GgmlType::Q8_0 { 1 } else { 2 };
    let count = (elements / length) as usize;
    let mut out = Vec::with_capacity(count * bytes);
    for _ in 0..count {
        let start = out.len();
        while out.len() < start + bytes {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            out.extend((*seed >> 16).to_le_bytes());
        }
        out.truncate(start + bytes);
        for scale in 0..scales {
            let small = f16::from_f32(2e-4).to_le_bytes();
            out[start + 2 * scale..start + 2 * scale + 2].copy_from_slice(&small);
        }
    }
    out
}

fn model(file: &str, kind: &str, scale: u64) -> Result<(), String> {
    let ggml_type = match kind {
        "q4_k" => GgmlType::Q4_K,
        "q8_0" => GgmlType::Q8_0,
        _ => return Err(format!("{kind} is none of q4_k, q8_0")),
    };
    let (width, inner, layers) = (4096 / scale, 14_336 / scale / 256 * 256, 32 / scale.min(32));
    let (heads, kv_heads) = (32 / scale, (8 / scale).max(1));
    let (vocabulary, kv) = (128_256 / scale, kv_heads * 128);
    let mut seed = 1;
    let mut writer = Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("llama.block_count", layers as u32)
        .metadata("llama.context_length", 8192_u32)
        .metadata("llama.embedding_length", width as u32)
        .metadata("llama.feed_forward_length", inner as u32)
        .metadata("llama.attention.head_count", heads as u32)
        .metadata("llama.attention.head_count_kv", kv_heads as u32)
        .metadata("llama.rope.dimension_count", 128_u32)
        .metadata("llama.rope.freq_base", 500_000_f32)
        .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .metadata("llama.vocab_size", vocabulary as u32);
    let mut add = |writer: Writer, name: &str, dims: [u64; 2]| {
        writer.tensor(
            name,
            &dims,
            ggml_type,
            matrix(ggml_type, dims[0] * dims[1], &mut seed),
        )
    };
    let norm = 1_f32.to_le_bytes().repeat(width as usize);
    writer = add(writer, "token_embd.weight", [width, vocabulary]);
    writer = add(writer, "output.weight", [width, vocabulary]);
    for layer in 0..layers {
        for (part, dims) in [
            ("attn_q", [width, heads * 128]),
            ("attn_k", [width, kv]),
            ("attn_v", [width, kv]),
            ("attn_output", [heads * 128, width]),
            ("ffn_gate", [width, inner]),
            ("ffn_up", [width, inner]),
            ("ffn_down", [inner, width]),
        ] {
            writer = add(writer, &format!("blk.{layer}.{part}.weight"), dims);
        }
        for part in ["attn_norm", "ffn_norm"] {
            let name = format!("blk.{layer}.{part}.weight");
            writer = writer.tensor(&name, &[width], GgmlType::F32, norm.clone());
        }
    }
    let bytes = writer
        .tensor("output_norm.weight", &[width], GgmlType::F32, norm)
        .finish();
    let mut out = std::fs::File::create(file).map_err(|error| error.to_string())?;
    out.write_all(&bytes).map_err(|error| error.to_string())?;
    // Of the embedding a decode step reads a row.
    let (length, block) = block(ggml_type);
    let read = bytes.len() - ((width * vocabulary / length) as usize) * block;
    println!(
        "{{\"model\":\"{kind}\",\"bytes\":{},\"read_by_a_step\":{read}}}",
        bytes.len()
    );
    Ok(())
}
