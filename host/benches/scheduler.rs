//! A step of the scheduler, and its record, by the number of running and waiting requests.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lockstep::clock;
use lockstep::journal::{Encoder, Header};
use lockstep::request::RequestId;
use lockstep::scheduler::{Advance, Arrival, Inputs, Plan, Scheduler, SchedulerConfig};
use policy_core::RequestPriority;

/// Steps after which a measured scheduler starts over, so that contexts stay as long as they were:
/// 512 tokens of prompt, and up to this many of answer.
const STEPS: u64 = 512;

/// A scheduler in steady decode: so many run, so many wait for a seat.
#[derive(Clone)]
struct Steady {
    scheduler: Scheduler,
    inputs: Inputs,
    plan: Plan,
}

impl Steady {
    fn new(running: u32, waiting: u32) -> Self {
        let config = SchedulerConfig {
            max_num_seqs: running,
            max_num_batched_tokens: 8192,
            max_chunk_tokens: 2048,
            max_model_len: 2048,
            num_blocks: 128 * running,
            ..SchedulerConfig::default()
        };
        let mut steady = Self {
            scheduler: Scheduler::new(config).expect("the limits hold"),
            inputs: Inputs::default(),
            plan: Plan::default(),
        };
        let arrivals = (0..running + waiting).map(|number| Arrival {
            request: RequestId::new(number.into()),
            priority: RequestPriority::Normal,
            prompt: Arc::from_iter((0..512).map(|position| position + number * 512)),
            max_tokens: 1024,
            structured: false,
            cache_salt: None,
            sibling_of: None,
            parameters: None,
        });
        steady.inputs.arrivals.extend(arrivals);
        while steady.scheduler.num_running() < running as usize || !steady.decodes() {
            steady.step();
        }
        steady
    }

    /// How long so many steps take.
    fn time(&self, steps: u64) -> Duration {
        let mut total = Duration::ZERO;
        let mut left = steps;
        while left > 0 {
            let mut steady = self.clone();
            steady.step();
            let started = clock::now();
            for _ in 0..left.min(STEPS) {
                steady.step();
            }
            total += started.elapsed();
            assert!(steady.decodes(), "the decode is steady");
            left -= left.min(STEPS);
        }
        total
    }

    fn decodes(&self) -> bool {
        self.plan.chunks.iter().all(|chunk| chunk.len == 1)
            && self.plan.chunks.len() == self.scheduler.num_running()
    }

    fn step(&mut self) {
        self.scheduler.step(&self.inputs, &mut self.plan);
        self.inputs.clear();
        let sampled = self.plan.chunks.iter().filter(|chunk| chunk.sample);
        self.inputs.advances.extend(sampled.map(|chunk| Advance {
            sequence: chunk.sequence,
            token: Some(chunk.start),
            finished: None,
        }));
    }
}

fn steady_decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    for (running, waiting) in [(16, 4096), (64, 4096), (256, 0), (256, 4096), (1024, 4096)] {
        let steady = Steady::new(running, waiting);
        group.throughput(Throughput::Elements(running.into()));
        let id = BenchmarkId::from_parameter(format!("{running} running, {waiting} waiting"));
        group.bench_function(id, |b| b.iter_custom(|steps| steady.time(steps)));
    }
    group.finish();
}

fn record(c: &mut Criterion) {
    let mut group = c.benchmark_group("record");
    for running in [16, 256] {
        let mut steady = Steady::new(running, 0);
        let inputs = steady.inputs.clone();
        steady.step();
        let encoder = Encoder::new(&Header::new(steady.scheduler.config().clone(), "", ""));
        let mut line = Vec::new();
        let id = BenchmarkId::from_parameter(format!("{running} running"));
        group.bench_function(id, |b| {
            b.iter(|| {
                line.clear();
                encoder.record(&inputs, &steady.plan, &steady.scheduler, &mut line);
                black_box(&line);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, steady_decode, record);
criterion_main!(benches);
