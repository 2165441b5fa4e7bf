//! What a choice costs: `cargo bench -p policy-core`.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use policy_core::{
    Candidate, Need, PreemptionPolicy, RequestPriority, SequenceId, select_victim, select_victims,
};

/// Candidates as a loaded server has them: classes mixed, lengths in groups that tie.
fn candidates(n: u64) -> Vec<Candidate> {
    let candidate = |id: u64| Candidate {
        id: SequenceId::new(id),
        priority: RequestPriority::from((id.wrapping_mul(2_654_435_761) >> 7) as i64 % 3 - 1),
        generated_tokens: (id.wrapping_mul(40_503) >> 4) as u32 % 64,
        exempt: id.is_multiple_of(11),
        worn: id.is_multiple_of(13),
    };
    (0..n).map(candidate).collect()
}

fn victim(criterion: &mut Criterion) {
    for &policy in PreemptionPolicy::ALL {
        let mut group = criterion.benchmark_group(format!("select_victim {policy}"));
        for n in [8, 256, 4_096] {
            let offered = candidates(n);
            group.throughput(Throughput::Elements(n));
            group.bench_with_input(
                BenchmarkId::from_parameter(n),
                &offered,
                |bencher, offered| {
                    bencher.iter(|| {
                        let offered = black_box(offered).iter().copied();
                        select_victim(black_box(policy), black_box(Need::Seat), offered)
                    });
                },
            );
        }
        group.finish();
    }
}

fn victims(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("select_victims of 16");
    for n in [8, 256, 4_096] {
        let offered = candidates(n);
        group.throughput(Throughput::Elements(n));
        group.bench_with_input(
            BenchmarkId::from_parameter(n),
            &offered,
            |bencher, offered| {
                bencher.iter(|| {
                    let offered = black_box(offered).iter().copied();
                    select_victims::<16>(
                        black_box(PreemptionPolicy::LongestFirst),
                        Need::Blocks,
                        offered,
                    )
                });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, victim, victims);
criterion_main!(benches);
