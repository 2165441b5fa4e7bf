//! What the engine tells callers and metrics of each step.

use std::time::Duration;

use policy_core::Need;

use crate::clock::{self, Moment};
use crate::metrics::{EndReason, Metrics, RequestSample, StepSample};
use crate::request::Usage;
use crate::scheduler::{Finish, ReleaseCause};

use super::Engine;

/// The moments of a request's life, for metrics alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) submitted: Moment,
    seated: Option<Moment>,
    first_token: Option<Moment>,
    last_token: Option<Moment>,
}

impl Timing {
    /// The life of a request that passed the door at `submitted`.
    pub(super) fn new(submitted: Moment) -> Self {
        Self {
            submitted,
            seated: None,
            first_token: None,
            last_token: None,
        }
    }

    /// Notes the first seat.
    pub(super) fn seated(&mut self, metrics: &Metrics) {
        let now = clock::now();
        if self.seated.replace(now).is_none() {
            metrics.admitted(now.since(self.submitted));
        }
    }

    /// Notes a token.
    pub(super) fn token(&mut self, metrics: &Metrics) {
        let now = clock::now();
        match self.last_token.replace(now) {
            Some(last) => metrics.inter_token(now.since(last)),
            None => {
                self.first_token = Some(now);
                metrics.first_token(now.since(self.submitted));
            }
        }
    }

    fn sample(&self, reason: EndReason, usage: Usage, max_tokens: u32) -> RequestSample {
        let between = |from: Option<Moment>, to: Option<Moment>| match (from, to) {
            (Some(from), Some(to)) => to.since(from),
            _ => Duration::ZERO,
        };
        RequestSample {
            reason,
            usage,
            total: self.submitted.elapsed(),
            prefill: between(self.seated, self.first_token),
            decode: between(self.first_token, self.last_token),
            max_tokens,
        }
    }
}

impl Engine {
    /// Sends the terminal event of every request that this step released.
    pub(super) fn tell_releases(&mut self) {
        let aborted = self.parts.door.aborted();
        for release in &self.plan.releases {
            let Some(live) = self.live.remove(&release.request) else {
                continue;
            };
            let (timing, max_tokens) = (live.timing, live.request.stop.max_tokens);
            let usage = live.release(release, aborted);
            let sample = timing.sample(end_reason(release.cause), usage, max_tokens);
            self.parts.metrics.ended(&sample);
        }
    }

    /// Frees the places among the waiting of those that got their first seat.
    pub(super) fn tell_admissions(&mut self) {
        for admission in &self.plan.admissions {
            if let Some(live) = self.live.get_mut(&admission.request)
                && admission.preemptions == 0
            {
                live.timing.seated(&self.parts.metrics);
                live.admitted(admission.cached_tokens);
            }
        }
    }

    /// Counts the step.
    pub(super) fn report_step(&mut self, duration: Duration) {
        let recomputed_tokens = self.count_recomputed();
        let scheduler = &self.parts.scheduler;
        let plan = &self.plan;
        let pool = scheduler.pool();
        let preempted = |need| plan.preemptions.iter().filter(|p| p.need == need).count() as u64;
        let sampled = plan.chunks.iter().filter(|chunk| chunk.sample).count() as u64;
        let scheduled = plan.num_tokens() as u64;
        self.parts.metrics.step(&StepSample {
            running: scheduler.num_running(),
            waiting: scheduler.num_waiting(),
            used_blocks: pool.num_blocks() - pool.num_available(),
            waiting_uncached_tokens: self.waiting_tokens(),
            scheduled_tokens: scheduled,
            prompt_tokens: self.prompts_admitted(),
            generated_tokens: sampled,
            recomputed_tokens,
            preempted_for_seat: preempted(Need::Seat),
            preempted_for_blocks: preempted(Need::Blocks),
            prefix_queries: self.prefix_queries(),
            prefix_hits: plan
                .admissions
                .iter()
                .map(|a| u64::from(a.cached_tokens))
                .sum(),
            journal_lag: self
                .parts
                .journal
                .as_ref()
                .map_or(0, |journal| journal.lag()),
            duration,
        });
    }

    /// Rows of this step that had been computed before a preemption.
    fn count_recomputed(&mut self) -> u64 {
        let mut recomputed = 0;
        for chunk in &self.plan.chunks {
            if let Some(live) = self.live.get_mut(&chunk.request) {
                let end = chunk.start + chunk.len;
                recomputed += u64::from(live.computed.min(end).saturating_sub(chunk.start));
                live.computed = live.computed.max(end);
            }
        }
        recomputed
    }

    /// Prompt tokens of the requests that got their first seat, those found in the cache included.
    fn prompts_admitted(&self) -> u64 {
        let first = self
            .plan
            .admissions
            .iter()
            .filter(|admission| admission.preemptions == 0);
        first
            .filter_map(|a| self.live.get(&a.request))
            .map(|l| l.request.prompt.len() as u64)
            .sum()
    }

    /// Tokens that the waiting still have to compute, if nothing of them is found in the cache.
    fn waiting_tokens(&self) -> usize {
        if self.parts.scheduler.num_waiting() == 0 {
            return 0;
        }
        let waiting = self
            .parts
            .scheduler
            .live()
            .filter(|live| live.sequence.is_none());
        waiting.map(|live| live.num_tokens as usize).sum()
    }

    fn prefix_queries(&self) -> u64 {
        let tokens = |request| self.parts.scheduler.tokens(request).map_or(0, <[_]>::len);
        self.plan
            .admissions
            .iter()
            .map(|a| tokens(a.request) as u64)
            .sum()
    }
}

fn end_reason(cause: ReleaseCause) -> EndReason {
    match cause {
        ReleaseCause::Finished(Finish::Stop) => EndReason::Stop,
        ReleaseCause::Finished(Finish::Length) => EndReason::Length,
        ReleaseCause::Cancelled => EndReason::Abort,
        ReleaseCause::Finished(Finish::NonFinite | Finish::NoToken)
        | ReleaseCause::Expired
        | ReleaseCause::Rejected(_) => EndReason::Error,
    }
}
