//! The first half of a step: the inputs change what is live.

use super::inputs::{Advance, Arrival, Finish, Inputs};
use super::plan::{Plan, RejectReason, Release, ReleaseCause};
use super::sequence::Sequence;
use super::{InFlight, Scheduler};

impl Scheduler {
    pub(super) fn apply(&mut self, inputs: &Inputs, plan: &mut Plan) {
        self.apply_advances(&inputs.advances, plan);
        for arrival in &inputs.arrivals {
            self.apply_arrival(arrival, plan);
        }
        let cancels = inputs.cancels.iter().map(|r| (r, ReleaseCause::Cancelled));
        let expiries = inputs.expiries.iter().map(|r| (r, ReleaseCause::Expired));
        for (request, cause) in cancels.chain(expiries) {
            if let Some(index) = self.live.find(*request) {
                self.release(index, cause, plan);
            }
        }
        self.draining |= inputs.drain;
    }

    /// The chunks of the last plan are computed: notes it, and takes their outcomes.
    fn apply_advances(&mut self, advances: &[Advance], plan: &mut Plan) {
        let mut advances = advances.iter().peekable();
        self.filled.clear();
        for at in 0..self.in_flight.len() {
            let chunk = self.in_flight[at];
            let advance = advances.next_if(|advance| advance.sequence == chunk.sequence);
            self.apply_advance(chunk, advance, plan);
        }
        self.in_flight.clear();
    }

    fn apply_advance(&mut self, chunk: InFlight, advance: Option<&Advance>, plan: &mut Plan) {
        let finished = advance.and_then(|advance| advance.finished);
        if finished != Some(Finish::NonFinite) {
            self.publish_computed(chunk);
        }
        let Some(advance) = advance else { return };
        let sequence = self.live.at_mut(chunk.index);
        if let Some(token) = advance.token {
            sequence.push(token);
        }
        if let Some(finish) = finished {
            self.release(chunk.index, ReleaseCause::Finished(finish), plan);
        } else if self.config.enable_prefix_caching {
            let before = sequence.content_ids.len();
            sequence.extend_content_ids(self.config.block_size);
            let filled = &sequence.content_ids[before..];
            self.filled
                .extend(filled.iter().map(|id| (chunk.sequence, *id)));
        }
    }

    /// Counts a chunk as computed; the blocks that it filled can be found from here on.
    fn publish_computed(&mut self, chunk: InFlight) {
        let size = self.config.block_size;
        let sequence = self.live.at_mut(chunk.index);
        let before = sequence.num_computed_tokens / size;
        sequence.num_computed_tokens += chunk.len;
        let after = sequence.num_computed_tokens / size;
        if !self.config.enable_prefix_caching {
            return;
        }
        for index in before as usize..after as usize {
            self.pool.publish(
                sequence.blocks[index],
                sequence.content_ids[index],
                sequence.parent(index),
                sequence.block_tokens(index, size),
                index as u32,
            );
        }
    }

    fn apply_arrival(&mut self, arrival: &Arrival, plan: &mut Plan) {
        let request = arrival.request;
        self.last_request = Some(request);
        if let Some(reason) = self.reject_reason(arrival) {
            plan.releases.push(Release {
                request,
                cause: ReleaseCause::Rejected(reason),
                generated_tokens: 0,
                cached_tokens: 0,
                preemptions: 0,
            });
            return;
        }
        let importance = self.aging.importance(policy_core::Arrival {
            priority: arrival.priority,
            step: self.step,
            number: request.number(),
        });
        let mut sequence = Sequence::new(arrival, importance, self.step);
        sequence.sibling_of = arrival
            .sibling_of
            .filter(|first| self.shares_prompt(*first, &sequence));
        let place = self.live.insert(sequence);
        self.enqueue(place);
    }

    fn reject_reason(&self, arrival: &Arrival) -> Option<RejectReason> {
        let most = arrival.prompt.len() as u64 + u64::from(arrival.max_tokens);
        if self.draining {
            Some(RejectReason::Draining)
        } else if arrival.prompt.is_empty() {
            Some(RejectReason::EmptyPrompt)
        } else if most > u64::from(self.config.max_model_len) {
            Some(RejectReason::TooLong)
        } else {
            None
        }
    }

    /// Whether `first` is live and begins with all that a new sequence has.
    fn shares_prompt(&self, first: crate::request::RequestId, sequence: &Sequence) -> bool {
        self.live.find(first).is_some_and(|index| {
            let first = self.live.at(index);
            first.root == sequence.root
                && first.priority == sequence.priority
                && first.num_prompt_tokens == sequence.num_prompt_tokens
                && first.tokens().starts_with(sequence.tokens())
        })
    }

    /// Ends a live request.
    fn release(&mut self, index: u32, cause: ReleaseCause, plan: &mut Plan) {
        let sequence = self.live.at(index);
        if sequence.id.is_some() {
            let at = self.running_position(sequence.importance);
            self.running.remove(at);
            self.release_blocks(index);
        } else {
            let at = self
                .waiting
                .binary_search_by_key(&sequence.importance, |place| place.importance)
                .expect("a waiting sequence is queued");
            self.waiting.remove(at);
        }
        let sequence = self.live.remove(index);
        plan.releases.push(Release {
            request: sequence.request,
            cause,
            generated_tokens: sequence.generated_tokens(),
            cached_tokens: sequence.cached_tokens,
            preemptions: sequence.preemptions,
        });
    }
}
