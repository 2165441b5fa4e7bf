//! From one seed: the limits, the load, and everything that can happen to it.

use std::sync::Arc;

use policy_core::{PreemptionPolicy, RequestPriority};

use super::random::Random;
use super::workload::{SimulatedRequest, Workload};
use crate::scheduler::SchedulerConfig;

/// A configuration and a load of so many requests, both made from the seed.
///
/// Each seed switches features on or off as a whole (swarm testing: Groce and others, 2012), so
/// that some loads are all of one kind and others mix everything.
pub fn swarm(seed: u64, requests: u32) -> (SchedulerConfig, Workload) {
    let mut random = Random::new(seed);
    let config = swarm_config(&mut random);
    let options = Options::new(&mut random);
    let mut workload = Workload::default();
    let mut step = 1;
    while (workload.requests.len() as u32) < requests {
        if !random.percent(options.burst_percent) {
            step += u64::from(random.within(1, options.longest_gap));
        }
        let request = options.request(&mut random, step, &config);
        let first = workload.requests.len() as u32;
        let choices = if random.percent(options.choices_percent) {
            random.within(2, 4).min(requests - first)
        } else {
            1
        };
        for choice in 0..choices {
            let mut next = request.clone();
            if choice > 0 {
                next.sibling_of = Some(first);
                next.output_tokens = random.within(1, next.max_tokens());
                next.max_tokens = Some(request.max_tokens());
            }
            options.misfortunes(&mut random, step, &mut next);
            workload.requests.push(next);
        }
    }
    (config, workload)
}

fn swarm_config(random: &mut Random) -> SchedulerConfig {
    let block_size = random.pick(&[16, 16, 16, 32]);
    let num_blocks = random.pick(&[6, 8, 12, 16, 24, 40, 80]);
    let max_num_seqs = random.within(1, 8);
    let pool = num_blocks * block_size;
    let spare = random.pick(&[0, 1, 7, 30, 100, 300]);
    SchedulerConfig {
        max_num_seqs,
        max_num_batched_tokens: max_num_seqs + spare,
        max_chunk_tokens: random.pick(&[1, 7, 16, 33, 64, 512]),
        max_model_len: random.within(pool / 3, pool).max(40),
        block_size,
        num_blocks,
        enable_prefix_caching: random.percent(75),
        preemption_policy: random.pick(PreemptionPolicy::ALL),
        priority_aging_steps: random.pick(&[0, 0, 5, 50, 400]),
        seat_lease_steps: random.pick(&[0, 1, 4, 16]),
        worn_after_preemptions: random.within(0, 3),
        admission_headroom_blocks: random.within(0, 2),
    }
}

struct Options {
    longest_prompt: u32,
    longest_output: u32,
    longest_gap: u32,
    burst_percent: u32,
    classes: &'static [RequestPriority],
    families: u32,
    shared_percent: u32,
    structured_percent: u32,
    choices_percent: u32,
    salt_percent: u32,
    cancel_percent: u32,
    expire_percent: u32,
    non_finite_percent: u32,
}

impl Options {
    fn new(random: &mut Random) -> Self {
        use RequestPriority::{High, Low, Normal};
        let mut feature = |percent: u32| random.pick(&[0, 0, percent / 3, percent]);
        let [
            shared,
            structured,
            choices,
            salt,
            cancel,
            expire,
            non_finite,
        ] = [80, 40, 30, 50, 40, 30, 10].map(&mut feature);
        Self {
            longest_prompt: random.pick(&[4, 20, 60, 200]),
            longest_output: random.pick(&[1, 8, 30, 80]),
            longest_gap: random.pick(&[1, 3, 10, 40]),
            burst_percent: random.pick(&[0, 30, 70, 95]),
            classes: random.pick(&[
                [Normal].as_slice(),
                &[Low, High],
                &[Low, Normal, High],
                &[Low, Low, Low, High],
            ]),
            families: random.within(1, 4),
            shared_percent: shared,
            structured_percent: structured,
            choices_percent: choices,
            salt_percent: salt,
            cancel_percent: cancel,
            expire_percent: expire,
            non_finite_percent: non_finite,
        }
    }

    fn request(
        &self,
        random: &mut Random,
        step: u64,
        config: &SchedulerConfig,
    ) -> SimulatedRequest {
        let longest = config.max_model_len;
        let prompt = random.within(1, self.longest_prompt).min(longest - 1);
        let output = random.within(1, self.longest_output).min(longest - prompt);
        // Now and then far more than is used: nothing of it is reserved.
        let most = if random.percent(30) {
            longest - prompt
        } else {
            output
        };
        let mut request = SimulatedRequest::new(step, prompt, output);
        request.max_tokens = Some(most);
        request.priority = random.pick(self.classes);
        request.structured = random.percent(self.structured_percent);
        if random.percent(self.shared_percent) {
            request.family = random.below(self.families);
            request.shared_tokens = random.within(1, prompt);
        }
        if random.percent(self.salt_percent) {
            request.cache_salt = Some(Arc::from(random.pick(&["a", "b"])));
        }
        request
    }

    /// Cancels, expiries and failures at every moment: before, within and after the prefill, while
    /// preempted, in the step that finishes the request, and after it.
    fn misfortunes(&self, random: &mut Random, step: u64, request: &mut SimulatedRequest) {
        if random.percent(self.cancel_percent) {
            request.cancel_step = Some(step + u64::from(random.below(120)));
        }
        if random.percent(self.expire_percent) {
            request.expire_step = Some(step + u64::from(random.below(120)));
        }
        if random.percent(self.non_finite_percent) {
            request.non_finite_at = Some(random.below(request.output_tokens));
        }
    }
}
