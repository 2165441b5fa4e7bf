//! The running choices of one call: their events merged, and their end made certain.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::StatusCode;
use tokio::sync::mpsc;

use super::account::Account;
use super::error::ApiError;
use super::inflight::Place;
use super::server::Server;
use super::wire::output::UsageBody;
use crate::intake::Refusal;
use crate::request::{
    Event, Failure, FinishReason, PositionLogprobs, Request, StopCause, TokenEvent,
};

/// The choices of one call, in order: those of the first prompt, those of the second, and so on.
/// Dropping it cancels what still runs.
pub(super) struct Generation {
    choices: Vec<Option<mpsc::Receiver<Event>>>,
    per_prompt: usize,
    open: usize,
    next: usize,
    usage: UsageBody,
    place: Place,
    account: Arc<Account>,
}

/// What happened next.
#[derive(Debug)]
pub(super) enum Update {
    /// A choice has its seat.
    Started {
        /// The choice.
        choice: usize,
        /// The logprobs of its prompt, if they were asked for.
        prompt_logprobs: Vec<PositionLogprobs>,
    },
    /// A choice has a token.
    Token {
        /// The choice.
        choice: usize,
        /// The token.
        token: TokenEvent,
    },
    /// A choice is whole.
    Finished {
        /// The choice.
        choice: usize,
        /// Why.
        reason: FinishReason,
        /// What stopped it.
        stop: Option<StopCause>,
        /// The last of its text.
        text: String,
    },
}

impl Generation {
    /// Hands the requests to the engine: all of them, or none goes on.
    ///
    /// # Errors
    /// What the door said to the first that it refused.
    pub(super) fn submit(
        server: &Server,
        requests: Vec<Request>,
        per_prompt: usize,
        place: Place,
        account: Arc<Account>,
    ) -> Result<Self, ApiError> {
        let (choices, max_waiting) = (requests.len(), server.app.intake.limits().max_waiting);
        if choices > max_waiting {
            return Err(Refusal::TooManyChoices {
                choices,
                max_waiting,
            }
            .into());
        }
        for request in &requests {
            account.submitted(request.prompt.len());
        }
        let per_prompt = per_prompt.max(1);
        let mut choices = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let of_prompt = requests.by_ref().take(per_prompt).collect();
            let events = server.app.intake.submit_choices(of_prompt);
            choices.extend(
                events
                    .map_err(|refusal| {
                        server.app.metrics.rejected();
                        ApiError::from(refusal)
                    })?
                    .into_iter()
                    .map(Some),
            );
        }
        Ok(Self {
            open: choices.len(),
            choices,
            per_prompt,
            next: 0,
            usage: UsageBody::default(),
            place,
            account,
        })
    }

    /// What the choices took so far.
    pub(super) fn usage(&self) -> UsageBody {
        self.usage
    }

    /// The next update of any choice; `None` once every choice is whole. After an error there is
    /// nothing more to come.
    pub(super) async fn update(&mut self) -> Option<Result<Update, ApiError>> {
        poll_fn(|cx| self.poll_update(cx)).await
    }

    /// The same, as a poll.
    pub(super) fn poll_update(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Update, ApiError>>> {
        if self.open == 0 {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Ok(())) = Pin::new(&mut self.place.aborted).poll(cx) {
            self.stop();
            return Poll::Ready(Some(Err(aborted())));
        }
        let count = self.choices.len();
        for offset in 0..count {
            let choice = (self.next + offset) % count;
            let Some(Some(events)) = self.choices.get_mut(choice) else {
                continue;
            };
            loop {
                match events.poll_recv(cx) {
                    Poll::Pending => break,
                    Poll::Ready(Some(Event::Accepted { request })) if choice == 0 => {
                        self.place.accepted(request);
                    }
                    Poll::Ready(Some(Event::Accepted { .. })) => {}
                    Poll::Ready(event) => {
                        self.next = (choice + 1) % count;
                        return Poll::Ready(Some(self.take(choice, event)));
                    }
                }
            }
        }
        Poll::Pending
    }

    fn take(&mut self, choice: usize, event: Option<Event>) -> Result<Update, ApiError> {
        match event {
            Some(Event::Started {
                prompt_logprobs, ..
            }) => Ok(Update::Started {
                choice,
                prompt_logprobs,
            }),
            Some(Event::Token(token)) => {
                self.account.token();
                Ok(Update::Token { choice, token })
            }
            Some(Event::Finished {
                reason,
                stop,
                text,
                usage,
            }) => {
                self.usage
                    .add(&usage, choice.is_multiple_of(self.per_prompt));
                self.account.preempted(usage.preemptions);
                self.open -= 1;
                if let Some(slot) = self.choices.get_mut(choice) {
                    *slot = None;
                }
                Ok(Update::Finished {
                    choice,
                    reason,
                    stop,
                    text,
                })
            }
            Some(Event::Failed(failure)) => {
                self.account.failed();
                self.stop();
                Err(failure.into())
            }
            // Every stream ends with a terminal event: this engine died before it could send one.
            Some(Event::Accepted { .. }) | None => {
                self.account.failed();
                self.stop();
                Err(Failure::Engine("it ended without an answer".into()).into())
            }
        }
    }

    /// Cancels what still runs.
    fn stop(&mut self) {
        self.choices.clear();
        self.open = 0;
    }
}

fn aborted() -> ApiError {
    ApiError::new(
        StatusCode::BAD_REQUEST,
        "the request was aborted by a call of /abort",
    )
    .code("aborted")
}

/// A choice, whole.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) tokens: Vec<u32>,
    pub(super) logprobs: Vec<PositionLogprobs>,
    pub(super) prompt_logprobs: Vec<PositionLogprobs>,
    pub(super) reason: Option<FinishReason>,
    pub(super) stop: Option<StopCause>,
}

/// Waits for every choice of a call.
///
/// # Errors
/// The first failure: an answer is whole or it is none.
pub(super) async fn collect(generation: &mut Generation) -> Result<Vec<Answer>, ApiError> {
    let mut answers: Vec<Answer> = Vec::new();
    answers.resize_with(generation.choices.len(), Answer::default);
    while let Some(update) = generation.update().await {
        match update? {
            Update::Started {
                choice,
                prompt_logprobs,
            } => {
                if let Some(answer) = answers.get_mut(choice) {
                    answer.prompt_logprobs = prompt_logprobs;
                }
            }
            Update::Token { choice, token } => {
                if let Some(answer) = answers.get_mut(choice) {
                    answer.text.push_str(&token.text);
                    answer.tokens.push(token.token);
                    answer.logprobs.extend(token.logprobs);
                }
            }
            Update::Finished {
                choice,
                reason,
                stop,
                text,
            } => {
                if let Some(answer) = answers.get_mut(choice) {
                    answer.text.push_str(&text);
                    answer.reason = Some(reason);
                    answer.stop = stop;
                }
            }
        }
    }
    Ok(answers)
}
