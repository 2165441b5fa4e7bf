//! What the server counts, and how `/metrics` and `/v1/loads` tell it.
//!
//! Two threads of calls meet here. The **engine** calls [`Metrics::step`] once per step,
//! [`Metrics::admitted`] when a request gets its first seat, [`Metrics::first_token`] and
//! [`Metrics::inter_token`] per token, and [`Metrics::ended`] once per request. The **HTTP side** calls the rest. All of it is relaxed
//! atomics: nothing waits, and nothing that is counted here reaches a decision.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::request::Usage;

mod exposition;
mod histogram;
mod page;

pub(crate) use exposition::CONTENT_TYPE;
use histogram::Histogram;

const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const INTER_TOKEN_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const STEP_SECONDS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];
const STEP_TOKENS: &[f64] = &[
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// What the metrics say of the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsLabels {
    /// The name of the model, in the label `model_name`.
    pub model_name: String,
    /// Tokens per KV block.
    pub block_size: u32,
    /// KV blocks in all.
    pub num_blocks: u32,
    /// Seats.
    pub max_num_seqs: u32,
    /// The context's length in tokens.
    pub max_model_len: u32,
    /// The KV cache's element type.
    pub cache_dtype: String,
    /// Where the model computes.
    pub device: String,
}

/// What the engine tells once per step.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepSample {
    /// Sequences with a seat, after the step.
    pub running: usize,
    /// Sequences without one.
    pub waiting: usize,
    /// KV blocks that sequences hold.
    pub used_blocks: usize,
    /// Tokens that the waiting still have to compute.
    pub waiting_uncached_tokens: usize,
    /// Rows computed in this step, of prompts and of answers.
    pub scheduled_tokens: u64,
    /// Prompt tokens among them that were computed for the first time.
    pub prompt_tokens: u64,
    /// Tokens drawn.
    pub generated_tokens: u64,
    /// Rows that had been computed before a preemption.
    pub recomputed_tokens: u64,
    /// Sequences preempted for a seat.
    pub preempted_for_seat: u64,
    /// Sequences preempted for KV blocks.
    pub preempted_for_blocks: u64,
    /// Prompt tokens looked up in the prefix index.
    pub prefix_queries: u64,
    /// Those that were found.
    pub prefix_hits: u64,
    /// Records queued for the journal and not yet written.
    pub journal_lag: u64,
    /// How long the step took.
    pub duration: Duration,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// An end token or a stop text.
    Stop,
    /// `max_tokens`, or the context.
    Length,
    /// Its client went away, or asked for it.
    Abort,
    /// A failure.
    Error,
}

impl EndReason {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::Abort, "abort"),
        (Self::Error, "error"),
    ];
}

/// What the engine tells once per request, at its end.
#[derive(Clone, Copy, Debug)]
pub struct RequestSample {
    /// How it ended.
    pub reason: EndReason,
    /// What it took.
    pub usage: Usage,
    /// From the door to the end.
    pub total: Duration,
    /// From its first seat to its first token; zero if it had none.
    pub prefill: Duration,
    /// From its first token to its last.
    pub decode: Duration,
    /// The most tokens it could have had.
    pub max_tokens: u32,
}

/// Every counter of the server. One per process, shared by engine and HTTP side.
#[derive(Debug)]
pub struct Metrics {
    labels: MetricsLabels,
    running: AtomicUsize,
    waiting: AtomicUsize,
    used_blocks: AtomicUsize,
    waiting_uncached_tokens: AtomicUsize,
    journal_lag: AtomicU64,
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    recomputed_tokens: AtomicU64,
    preempted_for_seat: AtomicU64,
    preempted_for_blocks: AtomicU64,
    prefix_queries: AtomicU64,
    prefix_hits: AtomicU64,
    step_nanos_with_tokens: AtomicU64,
    ended: [AtomicU64; 4],
    rejections: AtomicU64,
    connections: AtomicUsize,
    in_flight: AtomicUsize,
    responses: [AtomicU64; 5],
    first_token: Histogram,
    inter_token: Histogram,
    total: Histogram,
    queue: Histogram,
    inference: Histogram,
    prefill: Histogram,
    decode: Histogram,
    step_time: Histogram,
    step_tokens: Histogram,
    request_preemptions: Histogram,
    request_prompt_tokens: Histogram,
    request_generated_tokens: Histogram,
    request_max_tokens: Histogram,
}

/// The server's load, as `/v1/loads` tells it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) waiting_uncached_tokens: usize,
    pub(super) used_tokens: usize,
    pub(super) total_tokens: usize,
    pub(super) generated_per_second: f64,
    pub(super) cache_hit_rate: f64,
}

impl Metrics {
    /// Counters at zero.
    pub fn new(labels: MetricsLabels) -> Self {
        let context = labels.max_model_len;
        Self {
            labels,
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            used_blocks: AtomicUsize::new(0),
            waiting_uncached_tokens: AtomicUsize::new(0),
            journal_lag: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            generated_tokens: AtomicU64::new(0),
            recomputed_tokens: AtomicU64::new(0),
            preempted_for_seat: AtomicU64::new(0),
            preempted_for_blocks: AtomicU64::new(0),
            prefix_queries: AtomicU64::new(0),
            prefix_hits: AtomicU64::new(0),
            step_nanos_with_tokens: AtomicU64::new(0),
            ended: Default::default(),
            rejections: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            responses: Default::default(),
            first_token: Histogram::of_seconds(FIRST_TOKEN_SECONDS),
            inter_token: Histogram::of_seconds(INTER_TOKEN_SECONDS),
            total: Histogram::of_seconds(REQUEST_SECONDS),
            queue: Histogram::of_seconds(REQUEST_SECONDS),
            inference: Histogram::of_seconds(REQUEST_SECONDS),
            prefill: Histogram::of_seconds(REQUEST_SECONDS),
            decode: Histogram::of_seconds(REQUEST_SECONDS),
            step_time: Histogram::of_seconds(STEP_SECONDS),
            step_tokens: Histogram::of_numbers(STEP_TOKENS),
            request_preemptions: Histogram::of_numbers(PREEMPTIONS),
            request_prompt_tokens: Histogram::of_tokens(context),
            request_generated_tokens: Histogram::of_tokens(context),
            request_max_tokens: Histogram::of_tokens(context),
        }
    }

    /// Engine: a step is done.
    pub fn step(&self, sample: &StepSample) {
        self.running.store(sample.running, Ordering::Relaxed);
        self.waiting.store(sample.waiting, Ordering::Relaxed);
        self.used_blocks
            .store(sample.used_blocks, Ordering::Relaxed);
        self.waiting_uncached_tokens
            .store(sample.waiting_uncached_tokens, Ordering::Relaxed);
        self.journal_lag
            .store(sample.journal_lag, Ordering::Relaxed);
        let add = |counter: &AtomicU64, by: u64| counter.fetch_add(by, Ordering::Relaxed);
        add(&self.prompt_tokens, sample.prompt_tokens);
        add(&self.generated_tokens, sample.generated_tokens);
        add(&self.recomputed_tokens, sample.recomputed_tokens);
        add(&self.preempted_for_seat, sample.preempted_for_seat);
        add(&self.preempted_for_blocks, sample.preempted_for_blocks);
        add(&self.prefix_queries, sample.prefix_queries);
        add(&self.prefix_hits, sample.prefix_hits);
        self.step_time.observe(sample.duration);
        if sample.scheduled_tokens > 0 {
            self.step_tokens.observe_number(sample.scheduled_tokens);
        }
        if sample.generated_tokens > 0 {
            let nanos = u64::try_from(sample.duration.as_nanos()).unwrap_or(u64::MAX);
            add(&self.step_nanos_with_tokens, nanos);
        }
    }

    /// Engine: a request has its first seat, this long after the door.
    pub fn admitted(&self, waited: Duration) {
        self.queue.observe(waited);
    }

    /// Engine: a request has its first token, this long after the door.
    pub fn first_token(&self, since_submitted: Duration) {
        self.first_token.observe(since_submitted);
    }

    /// Engine: a request has a further token, this long after the one before.
    pub fn inter_token(&self, since_last: Duration) {
        self.inter_token.observe(since_last);
    }

    /// Engine: a request has ended.
    pub fn ended(&self, sample: &RequestSample) {
        if let Some(counter) = self.ended.get(sample.reason as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        self.total.observe(sample.total);
        self.prefill.observe(sample.prefill);
        self.decode.observe(sample.decode);
        self.inference.observe(sample.prefill + sample.decode);
        self.request_preemptions
            .observe_number(sample.usage.preemptions.into());
        self.request_prompt_tokens
            .observe_number(sample.usage.prompt_tokens.into());
        self.request_generated_tokens
            .observe_number(sample.usage.completion_tokens.into());
        self.request_max_tokens
            .observe_number(sample.max_tokens.into());
    }

    pub(super) fn rejected(&self) {
        self.rejections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn responded(&self, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = self.responses.get(class) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn connections(&self) -> &AtomicUsize {
        &self.connections
    }

    pub(super) fn in_flight(&self) -> &AtomicUsize {
        &self.in_flight
    }

    pub(super) fn labels(&self) -> &MetricsLabels {
        &self.labels
    }

    pub(super) fn load(&self) -> Load {
        let block_size = self.labels.block_size as usize;
        let ratio = |part: u64, whole: f64| {
            if whole > 0.0 {
                part as f64 / whole
            } else {
                0.0
            }
        };
        let generated = self.generated_tokens.load(Ordering::Relaxed);
        let seconds = self.step_nanos_with_tokens.load(Ordering::Relaxed) as f64 / 1e9;
        let queries = self.prefix_queries.load(Ordering::Relaxed) as f64;
        Load {
            running: self.running.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            waiting_uncached_tokens: self.waiting_uncached_tokens.load(Ordering::Relaxed),
            used_tokens: self.used_blocks.load(Ordering::Relaxed) * block_size,
            total_tokens: self.labels.num_blocks as usize * block_size,
            generated_per_second: ratio(generated, seconds),
            cache_hit_rate: ratio(self.prefix_hits.load(Ordering::Relaxed), queries),
        }
    }
}
