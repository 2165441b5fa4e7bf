//! A step of steady decode allocates nothing after warm-up: counted, in a test binary of its own.

use std::sync::Arc;

use lockstep::batch::Batch;
use lockstep::journal::{Encoder, Header};
use lockstep::request::RequestId;
use lockstep::scheduler::{Advance, Arrival, Inputs, Plan, Scheduler, SchedulerConfig};
use policy_core::RequestPriority;

#[path = "../../policy-core/tests/support/counting.rs"]
mod counting;

use counting::allocations;

const RUNNING: u32 = 256;

/// The engine's part of a step: plan, record, batch, and the next advances.
struct Loop {
    scheduler: Scheduler,
    encoder: Encoder,
    inputs: Inputs,
    plan: Plan,
    batch: Batch,
    line: Vec<u8>,
}

impl Loop {
    fn new(num_blocks: u32) -> Self {
        let config = SchedulerConfig {
            max_num_seqs: RUNNING,
            max_num_batched_tokens: 8192,
            max_model_len: 2048,
            num_blocks,
            ..SchedulerConfig::default()
        };
        let encoder = Encoder::new(&Header::new(config.clone(), "", ""));
        let mut inputs = Inputs::default();
        inputs
            .arrivals
            .extend((0..RUNNING + 1000).map(|number| Arrival {
                request: RequestId::new(number.into()),
                priority: RequestPriority::Normal,
                prompt: Arc::from_iter((0..40).map(|position| position + number * 40)),
                max_tokens: 1900,
                structured: false,
                cache_salt: None,
                sibling_of: None,
                parameters: None,
            }));
        Self {
            scheduler: Scheduler::new(config).expect("the limits hold"),
            encoder,
            inputs,
            plan: Plan::default(),
            batch: Batch::default(),
            line: Vec::new(),
        }
    }

    fn step(&mut self) {
        self.scheduler.step(&self.inputs, &mut self.plan);
        self.line.clear();
        self.encoder
            .record(&self.inputs, &self.plan, &self.scheduler, &mut self.line);
        self.scheduler.fill_batch(&self.plan, &mut self.batch);
        self.inputs.clear();
        let sampled = self.plan.chunks.iter().filter(|chunk| chunk.sample);
        self.inputs.advances.extend(sampled.map(|chunk| Advance {
            sequence: chunk.sequence,
            token: Some(chunk.start),
            finished: None,
        }));
    }
}

#[test]
fn steady_decode_allocates_nothing() {
    let mut engine = Loop::new(RUNNING * 128);
    for _ in 0..1000 {
        engine.step();
    }
    // Blocks of tables are planned side by side: the plan's own memory still grows with them.
    engine.plan.block_tables.reserve(RUNNING as usize * 128);
    engine.batch.block_tables.reserve(RUNNING as usize * 128);
    let allocated = allocations(|| {
        for _ in 0..500 {
            engine.step();
            assert_eq!(engine.plan.chunks.len(), RUNNING as usize);
        }
    });
    assert_eq!(allocated, 0);
}

#[test]
fn decode_under_starved_blocks_allocates_only_where_a_sequence_is_seated() {
    let mut engine = Loop::new(RUNNING * 4);
    for _ in 0..1000 {
        engine.step();
    }
    let (mut quiet, mut preemptions) = (0, 0);
    for _ in 0..500 {
        let allocated = allocations(|| engine.step());
        preemptions += engine.plan.preemptions.len();
        if engine.plan.admissions.is_empty() && engine.plan.preemptions.is_empty() {
            assert_eq!(allocated, 0, "step {}", engine.plan.step);
            quiet += 1;
        }
    }
    assert!(quiet > 100 && preemptions > 0, "{quiet}, {preemptions}");
}
