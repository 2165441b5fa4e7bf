//! The engine's side of a live request: its stream of events, its text, and how it ends.

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Sender;

use crate::batch::TokenId;
use crate::intake::Submission;
use crate::request::{
    Event, Failure, FinishReason, PositionLogprobs, Request, RequestId, StopCause, TokenEvent,
    Usage,
};
use crate::scheduler::{Finish, Release, ReleaseCause};
use crate::tokenizer::{DecodeStream, Tokenizer};

use super::report::Timing;
use super::stop::StopMatcher;

/// A live request as the engine keeps it: all that the scheduler need not know.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) request: Request,
    pub(super) timing: Timing,
    /// Positions below this have been computed at least once.
    pub(super) computed: u32,
    pub(super) prompt_logprobs: Vec<PositionLogprobs>,
    events: Sender<Event>,
    unsent: Vec<Event>,
    permit: Option<OwnedSemaphorePermit>,
    started: bool,
    decode: DecodeStream,
    matcher: StopMatcher,
    generated: u32,
    cached_tokens: u32,
    ending: Option<Ending>,
    failure: Option<Failure>,
}

/// How an answer ends, known when its last token is drawn and told when it is released.
#[derive(Debug)]
struct Ending {
    reason: FinishReason,
    stop: Option<StopCause>,
    text: String,
}

impl Live {
    /// Takes a submission over and says so to its caller.
    pub(super) fn new(id: RequestId, submission: Submission) -> Self {
        let Submission {
            request,
            events,
            submitted,
            permit,
        } = submission;
        let decode = DecodeStream::default();
        let stop = &request.stop;
        let matcher = StopMatcher::new(stop.stop.clone(), stop.include_stop_str_in_output);
        let mut live = Self {
            request,
            timing: Timing::new(submitted),
            computed: 0,
            prompt_logprobs: Vec::new(),
            events,
            unsent: Vec::with_capacity(2),
            permit,
            started: false,
            decode,
            matcher,
            generated: 0,
            cached_tokens: 0,
            ending: None,
            failure: None,
        };
        live.send(Event::Accepted { request: id });
        live
    }

    /// Whether its caller has gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Whether its time is up.
    pub(super) fn is_expired(&self) -> bool {
        let passed = |limit| self.timing.submitted.elapsed() >= limit;
        let queue_timeout = self.request.queue_timeout.filter(|_| self.permit.is_some());
        self.request.timeout.is_some_and(passed) || queue_timeout.is_some_and(passed)
    }

    /// Notes the first seat: the place among the waiting is free.
    pub(super) fn admitted(&mut self, cached_tokens: u32) {
        if self.permit.take().is_some() {
            self.cached_tokens = cached_tokens;
            if self.request.prompt_logprobs.is_none() {
                self.start();
            }
        }
    }

    /// Tells the caller once that the prompt is being read (or, with its logprobs, has been).
    pub(super) fn start(&mut self) {
        if !std::mem::replace(&mut self.started, true) {
            let prompt_logprobs = std::mem::take(&mut self.prompt_logprobs);
            self.send(Event::Started {
                cached_tokens: self.cached_tokens,
                prompt_logprobs,
            });
        }
    }

    /// The tokens that may not be drawn next because they would end the answer too early.
    pub(super) fn ruled_out(&self, tokenizer: &Tokenizer) -> Vec<TokenId> {
        let stop = &self.request.stop;
        if self.generated >= stop.min_tokens {
            return Vec::new();
        }
        let mut ending = stop.stop_token_ids.clone();
        if !stop.ignore_eos {
            ending.extend_from_slice(tokenizer.end_of_generation());
        }
        ending
    }

    /// Rules out what the constraint of the answer does not allow next.
    ///
    /// # Errors
    /// Why the answer cannot go on.
    pub(super) fn constrain(&mut self, logits: &mut [f32]) -> Result<(), Failure> {
        let Some(matcher) = &mut self.request.matcher else {
            return Ok(());
        };
        let mask = matcher
            .mask()
            .map_err(|error| Failure::Constraint(error.to_string()))?;
        for (token, logit) in logits.iter_mut().enumerate() {
            let word = mask.get(token / 32).copied().unwrap_or(0);
            if (word >> (token % 32)) & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Ends the answer because no token can follow.
    pub(super) fn give_up(&mut self, failure: Failure) -> Finish {
        self.failure = Some(failure);
        Finish::NoToken
    }

    /// Tells the constraint of the answer which token was drawn. The mask allowed it, so nothing
    /// but a bound on its work can be in the way: the next mask says so.
    pub(super) fn commit(&mut self, token: TokenId) {
        if let Some(matcher) = &mut self.request.matcher {
            let _ = matcher.commit(token);
        }
    }

    /// Takes the next token: its text goes out, and the answer's end is found.
    pub(super) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        token: TokenId,
        logprobs: Option<PositionLogprobs>,
    ) -> Option<Finish> {
        let index = self.generated;
        self.generated += 1;
        let end = self.end_token(tokenizer, token);
        let (text, stopped) = match &end {
            Some(StopCause::EndToken(_)) => (String::new(), None),
            Some(_) if !self.request.stop.include_stop_str_in_output => (String::new(), None),
            _ => self.text_of(tokenizer, token),
        };
        self.send(Event::Token(TokenEvent {
            index,
            token,
            text,
            logprobs,
        }));
        let stop = end.or(stopped.map(StopCause::Text));
        let reason = match stop {
            Some(_) => FinishReason::Stop,
            None if self.generated >= self.request.stop.max_tokens => FinishReason::Length,
            None => return None,
        };
        Some(self.end(reason, stop))
    }

    fn text_of(&mut self, tokenizer: &Tokenizer, token: TokenId) -> (String, Option<String>) {
        let bytes = tokenizer.text_bytes(token, self.request.stop.skip_special_tokens);
        let piece = self.decode.push(bytes.unwrap_or_default());
        // Below `min_tokens` a stop text is text like any other.
        let released = if self.generated <= self.request.stop.min_tokens {
            self.matcher.pass(&piece)
        } else {
            self.matcher.push(&piece)
        };
        (released.text, released.stop)
    }

    fn end_token(&self, tokenizer: &Tokenizer, token: TokenId) -> Option<StopCause> {
        let stop = &self.request.stop;
        if self.generated <= stop.min_tokens {
            None
        } else if stop.stop_token_ids.contains(&token) {
            Some(StopCause::StopToken(token))
        } else if !stop.ignore_eos && tokenizer.end_of_generation().contains(&token) {
            Some(StopCause::EndToken(token))
        } else {
            None
        }
    }

    /// Ends the answer without a further token.
    pub(super) fn end(&mut self, reason: FinishReason, stop: Option<StopCause>) -> Finish {
        let text = match stop {
            Some(StopCause::Text(_)) => String::new(),
            _ => {
                let tail = self.decode.flush();
                let mut text = self.matcher.flush();
                text.push_str(&tail);
                text
            }
        };
        self.ending = Some(Ending { reason, stop, text });
        match reason {
            FinishReason::Stop => Finish::Stop,
            FinishReason::Length => Finish::Length,
        }
    }

    /// The terminal event of a request that the scheduler has released.
    pub(super) fn release(mut self, release: &Release, aborted: bool) -> Usage {
        let usage = Usage {
            prompt_tokens: self.request.prompt.len() as u32,
            completion_tokens: release.generated_tokens,
            cached_tokens: release.cached_tokens,
            preemptions: release.preemptions,
        };
        match (release.cause, self.ending.take()) {
            (ReleaseCause::Finished(_), Some(Ending { reason, stop, text })) => {
                self.start();
                self.send(Event::Finished {
                    reason,
                    stop,
                    text,
                    usage,
                });
            }
            (ReleaseCause::Finished(_), None) => {
                let failure = self.failure.take();
                self.fail(failure.unwrap_or(Failure::NonFinite));
            }
            (ReleaseCause::Expired, _) if aborted => self.fail(Failure::ShuttingDown),
            (ReleaseCause::Expired, _) => self.fail(Failure::Expired),
            (ReleaseCause::Rejected(_), _) => self.fail(Failure::ShuttingDown),
            (ReleaseCause::Cancelled, _) => {}
        }
        self.flush();
        usage
    }

    /// The terminal event of a request that gets no further.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.send(Event::Failed(failure));
        self.flush();
    }

    /// Takes back what was not handed over: its record will never be durable.
    pub(super) fn forget_unsent(&mut self) {
        self.unsent.clear();
    }

    fn send(&mut self, event: Event) {
        self.unsent.push(event);
    }

    /// Hands over what there is to tell. The queue holds every event that a request can have, so
    /// the engine never waits; a caller that has gone hears nothing.
    pub(super) fn flush(&mut self) {
        for event in self.unsent.drain(..) {
            let _ = self.events.try_send(event);
        }
    }
}
