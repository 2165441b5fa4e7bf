//! Linear layers of every format, for one row and for eight and 128: how fast this machine runs
//! them on one thread.
//!
//! `cargo bench -p lockstep --bench kernels [filter]`. The throughput is in multiply-adds.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lockstep::backend::Isa;
use lockstep::backend::cpu::activations::{Activations, Form};
use lockstep::backend::cpu::device::{AttentionShape, Cpu, Flags, Rows};
use lockstep::backend::cpu::pack::PackedMatrix;
use lockstep::gguf::GgmlType;

const OUTPUTS: usize = 1536;
const INPUTS: usize = 512;

/// Any bytes will do but for scales: small ones everywhere.
fn weights(ggml_type: GgmlType) -> Vec<u8> {
    let len = OUTPUTS * INPUTS / ggml_type.block_len() * ggml_type.block_bytes();
    vec![0x11; len]
}

fn cpu() -> Cpu {
    let shape = AttentionShape {
        group: 1,
        kv_heads: 1,
        head_dim: 16,
        window: 0,
        scale: 1.0,
    };
    Cpu::new(Isa::best(), 1, 1, &shape).expect("one thread")
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

criterion_group!(benches, linear);
criterion_main!(benches);
