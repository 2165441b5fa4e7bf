//! Loads to compare configurations by: light, heavy, adversarial and sustained.

use policy_core::RequestPriority::{self, High, Low, Normal};

use super::random::Random;
use super::workload::{SimulatedRequest, Workload};
use crate::scheduler::SchedulerConfig;

/// The names of the built-in loads.
pub const LOADS: [&str; 4] = ["light", "heavy", "adversarial", "sustained"];

/// A built-in load and the limits that make it what its name says; `None` for another name.
///
/// - `light`: requests come as fast as they are served; blocks seldom run out.
/// - `heavy`: half as many again as can be served, of all classes, on few blocks.
/// - `adversarial`: Lows of one length in lockstep, all tied; Highs that keep displacing them;
///   long prompts with shared beginnings; Normals whose blocks run out together.
/// - `sustained`: for 20,000 steps, as many Highs as there are seats for, and a few Lows that wait.
pub fn load(name: &str) -> Option<(SchedulerConfig, Workload)> {
    let (config, requests) = match name {
        "light" => (limits(32, 512), mixed(1, 400, 12)),
        "heavy" => (limits(16, 96), mixed(2, 600, 5)),
        "adversarial" => (limits(16, 96), adversarial()),
        "sustained" => (limits(4, 96), sustained()),
        _ => return None,
    };
    Some((config, Workload { requests }))
}

fn limits(max_num_seqs: u32, num_blocks: u32) -> SchedulerConfig {
    SchedulerConfig {
        max_num_seqs,
        max_num_batched_tokens: 256,
        max_chunk_tokens: 128,
        max_model_len: 1024,
        num_blocks,
        ..SchedulerConfig::default()
    }
}

/// Requests of all classes with exponential-like lengths, a few of them very long, that come so
/// many steps apart on average.
fn mixed(seed: u64, requests: u32, gap: u32) -> Vec<SimulatedRequest> {
    let mut random = Random::new(seed);
    let mut step = 1;
    (0..requests)
        .map(|_| {
            step += u64::from(random.below(2 * gap + 1));
            let prompt = random.pick(&[20, 40, 60, 120, 240]) + random.below(20);
            let output = random.pick(&[10, 20, 40, 80, 240]) + random.below(10);
            let mut request = SimulatedRequest::new(step, prompt, output);
            request.priority = random.pick(&[High, Normal, Normal, Normal, Low, Low]);
            request.max_tokens = Some(512);
            if random.percent(50) {
                request.family = random.below(4);
                request.shared_tokens = prompt / 2;
            }
            request
        })
        .collect()
}

fn adversarial() -> Vec<SimulatedRequest> {
    let mut requests = Vec::new();
    let mut add = |count: u64, from: u64, every: u64, prompt, output, class: RequestPriority| {
        requests.extend((0..count).map(|n| {
            let mut request = SimulatedRequest::new(from + n * every, prompt, output);
            request.priority = class;
            request.family = 1 + class as u32;
            request.shared_tokens = prompt / 2;
            request
        }));
    };
    // Tied in lockstep: one step, one length.
    add(16, 1, 0, 33, 200, Low);
    // One High after another takes a seat for a moment.
    add(150, 20, 8, 20, 4, High);
    // Their blocks run out together, again and again.
    add(40, 100, 25, 100, 150, Normal);
    // Prompts that take nearly the whole pool.
    add(6, 150, 200, 900, 20, Low);
    add(4, 300, 250, 800, 20, High);
    // Arrival is in the order of steps; the sort is stable, so that equal steps keep this order.
    requests.sort_by_key(|request| request.step);
    requests
}

fn sustained() -> Vec<SimulatedRequest> {
    let of = |step, class| SimulatedRequest::new(step, 5, 20).priority(class);
    let lows = (0..10).map(|_| of(1, Low));
    let highs = (0..4000).map(|n| of(1 + n * 5, High));
    let mut requests: Vec<_> = lows.chain(highs).collect();
    // The sort is stable: the Lows come before the first High.
    requests.sort_by_key(|request| request.step);
    requests
}
