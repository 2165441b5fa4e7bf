//! What a step is made of, on one thread: linear layers of every format, attention, the operations on
//! single rows, and sampling.
//!
//! `cargo bench -p lockstep --bench kernels [filter]`. The throughput is in multiply-adds (linear
//! layers, prompts), in bytes that are read or written (attention of one row, row operations), or in
//! logits (sampling), so that it can be held against what the machine gives at most.

use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use lockstep::backend::Isa;
use lockstep::backend::cpu::activations::{Activations, Form};
use lockstep::backend::cpu::device::{AttentionShape, Cpu, Flags, Piece, Places, Rows};
use lockstep::backend::cpu::kv::{KvDtype, KvPool, KvShape};
use lockstep::backend::cpu::pack::PackedMatrix;
use lockstep::gguf::GgmlType;
use lockstep::request::SamplingParams;
use lockstep::sampler::{Draw, History, Sampler, greedy};
use lockstep_simd::rows;

const OUTPUTS: usize = 1536;
const INPUTS: usize = 512;

/// The heads of SmolLM2-135M.
const SHAPE: AttentionShape = AttentionShape {
    group: 3,
    kv_heads: 3,
    head_dim: 64,
    window: 0,
    scale: 0.125,
};
const MOST_POSITIONS: usize = 4096;
const BLOCK_SIZE: usize = 16;
const VOCABULARY: usize = 49_152;

/// Any bytes will do but for scales: small ones everywhere.
fn weights(ggml_type: GgmlType) -> Vec<u8> {
    let len = OUTPUTS * INPUTS / ggml_type.block_len() * ggml_type.block_bytes();
    vec![0x11; len]
}

fn cpu() -> Cpu {
    Cpu::new(Isa::best(), 1, MOST_POSITIONS, &SHAPE).expect("one thread")
}

fn linear(c: &mut Criterion) {
    let mut cpu = cpu();
    let mut group = c.benchmark_group("linear");
    for ggml_type in GgmlType::ALL {
        let bytes = weights(ggml_type);
        let matrix = PackedMatrix::pack(ggml_type, OUTPUTS, INPUTS, &bytes, cpu.pool());
        let matrix = matrix.expect("memory");
        let form = Form::of(ggml_type);
        for rows in [1, 8, 128] {
            let x = Rows::new(rows, INPUTS).expect("memory");
            let mut activations = Activations::new(rows, INPUTS, &[form]).expect("memory");
            cpu.prepare(&x, rows, &mut activations, form, &Flags::new(rows));
            let mut out = vec![0.0; rows * OUTPUTS];
            group.throughput(Throughput::Elements((rows * OUTPUTS * INPUTS) as u64));
            group.bench_function(BenchmarkId::new(ggml_type.name(), rows), |b| {
                b.iter(|| cpu.linear(&matrix, &activations, rows, &mut out));
            });
        }
    }
    group.finish();
}

fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention");
    for dtype in [KvDtype::F16, KvDtype::F32] {
        for positions in [256, 1024, MOST_POSITIONS] {
            let read = 2 * SHAPE.kv_heads * SHAPE.head_dim * positions * dtype.bytes();
            group.throughput(Throughput::Bytes(read as u64));
            let name = format!("one row, {dtype}");
            attend(
                &mut group,
                BenchmarkId::new(name, positions),
                dtype,
                positions - 1,
                1,
            );
        }
    }
    // A chunk of a prompt: on average its rows see one and a half times as many positions.
    let (rows, heads) = (256, SHAPE.group * SHAPE.kv_heads);
    let products = 2 * heads * SHAPE.head_dim * rows * (rows + rows.div_ceil(2));
    group.throughput(Throughput::Elements(products as u64));
    let id = BenchmarkId::new("256 rows at 256", KvDtype::F16);
    attend(&mut group, id, KvDtype::F16, rows, rows);
    group.finish();
}

fn attend(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    dtype: KvDtype,
    position: usize,
    rows: usize,
) {
    let blocks = (position + rows).div_ceil(BLOCK_SIZE);
    let kv = KvPool::new(KvShape {
        layers: 1,
        heads: SHAPE.kv_heads,
        head_dim: SHAPE.head_dim,
        blocks,
        block_size: BLOCK_SIZE,
        dtype,
    });
    let kv = kv.expect("memory");
    let mut cpu = cpu();
    let table: Vec<u32> = (0..blocks as u32).collect();
    let mut pieces = Vec::new();
    Piece::cut(&mut pieces, 0, rows, position, 0..blocks);
    let positions: Vec<u32> = (position as u32..).take(rows).collect();
    let places = Places {
        positions: &positions,
        slots: &positions,
        block_tables: &table,
        pieces: &pieces,
    };
    let width = SHAPE.group * SHAPE.kv_heads * SHAPE.head_dim;
    let queries = Rows::new(rows, width).expect("memory");
    let mut out = Rows::new(rows, width).expect("memory");
    group.bench_function(id, |b| {
        b.iter(|| cpu.attend(&SHAPE, 0, &places, &queries, &kv, &mut out));
    });
}

fn row_operations(c: &mut Criterion) {
    const WIDTH: usize = 1536;
    let mut group = c.benchmark_group("rows");
    let isa = Isa::best();
    let (ones, mut x) = (vec![1.0; WIDTH], vec![0.5; WIDTH]);
    let mut out = vec![0.0; WIDTH];
    let activations = Rows::new(1, WIDTH).expect("memory");
    let mut cpu = cpu();
    for form in [Form::Blocks32, Form::Blocks256] {
        let mut quantised = Activations::new(1, WIDTH, &[form]).expect("memory");
        group.throughput(Throughput::Bytes((WIDTH * 4 + WIDTH * 2) as u64));
        group.bench_function(BenchmarkId::new("quantise", format!("{form:?}")), |b| {
            b.iter(|| cpu.prepare(&activations, 1, &mut quantised, form, &Flags::new(1)));
        });
    }
    group.throughput(Throughput::Bytes((WIDTH * 4 * 3) as u64));
    // SAFETY: the machine has the set that it says is its best.
    unsafe {
        group.bench_function("norm", |b| {
            b.iter(|| rows::rms_norm(isa, &x, &ones, 1e-5, &mut out));
        });
        group.bench_function("add", |b| b.iter(|| rows::add(isa, &mut x, &ones)));
        group.bench_function("silu", |b| b.iter(|| rows::silu_mul(isa, &mut out, &ones)));
        group.bench_function("gelu", |b| b.iter(|| rows::gelu_mul(isa, &mut out, &ones)));
        group.bench_function("rotation", |b| {
            b.iter(|| rows::rope(isa, &mut out, &ones, &ones))
        });
    }
    group.finish();
}

fn sampling(c: &mut Criterion) {
    let mut group = c.benchmark_group("sampling");
    group.throughput(Throughput::Elements(VOCABULARY as u64));
    // Logits of a plausible spread: a few far above the rest.
    let spread =
        |i: usize| (i * 7919 % 10_007) as f32 / 1000.0 + 1e4 / (i * 31 % 49_157 + 900) as f32;
    let logits: Vec<f32> = (0..VOCABULARY).map(spread).collect();
    group.bench_function("greedy", |b| b.iter(|| greedy(&logits)));
    let plain = SamplingParams::default();
    let cases = [
        ("temperature", plain.clone()),
        (
            "top_k 50",
            SamplingParams {
                top_k: 50,
                ..plain.clone()
            },
        ),
        (
            "top_p 0.95",
            SamplingParams {
                top_p: 0.95,
                ..plain.clone()
            },
        ),
        (
            "top_k 50, top_p 0.95",
            SamplingParams {
                top_k: 50,
                top_p: 0.95,
                ..plain
            },
        ),
    ];
    let (mut sampler, mut changed) = (Sampler::default(), logits.clone());
    for (name, params) in cases {
        let history = History {
            prompt: &[1],
            output: &[],
        };
        let draw = Draw {
            params: &params,
            history,
            ending: &[],
        };
        group.bench_function(name, |b| {
            b.iter(|| {
                changed.copy_from_slice(&logits);
                sampler.sample(&mut changed, draw)
            });
        });
    }
    group.bench_function("logprobs, the best 5", |b| {
        b.iter(|| sampler.logprobs(&logits, 7, 5))
    });
    group.finish();
}

criterion_group!(benches, linear, attention, row_operations, sampling);
criterion_main!(benches);
