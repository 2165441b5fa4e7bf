//! The bounded door between HTTP tasks and the engine thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::clock::{self, Moment};
use crate::request::{Event, Request, are_sound};

/// What the door checks every request against.
#[derive(Clone, Copy, Debug)]
pub struct IntakeLimits {
    /// Requests that may wait for their first seat.
    pub max_waiting: usize,
    /// The most tokens of prompt and answer together.
    pub max_model_len: u32,
    /// The size of the vocabulary: every id is below it.
    pub vocab_size: u32,
}

/// Why the door did not take a request. Nothing of it reached the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// As many wait as may wait: try again later.
    QueueFull {
        /// The limit that is reached.
        max_waiting: usize,
    },
    /// More choices in one request than may wait at all.
    TooManyChoices {
        /// How many there are.
        choices: usize,
        /// The limit.
        max_waiting: usize,
    },
    /// The server takes no more requests.
    Draining,
    /// The engine has ended.
    EngineDead,
    /// The prompt has no token.
    EmptyPrompt,
    /// Prompt and answer do not fit the context.
    TooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens asked for.
        max_tokens: u32,
        /// The limit of their sum.
        max_model_len: u32,
    },
    /// A parameter names a token outside the vocabulary, or is out of range.
    Unsound,
    /// A token id is outside the vocabulary.
    UnknownToken {
        /// The id.
        token: u32,
        /// Every id is below this.
        vocab_size: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { max_waiting } => {
                write!(
                    f,
                    "{max_waiting} requests are waiting, which is the limit; try again later"
                )
            }
            Self::TooManyChoices {
                choices,
                max_waiting,
            } => write!(
                f,
                "the request has {choices} choices, and at most {max_waiting} requests may wait"
            ),
            Self::Draining => f.write_str("the server is shutting down and takes no more requests"),
            Self::EngineDead => f.write_str("the engine has ended"),
            Self::EmptyPrompt => f.write_str("the prompt has no token"),
            Self::TooLong {
                prompt_tokens,
                max_tokens,
                max_model_len,
            } => write!(
                f,
                "the prompt's {prompt_tokens} tokens and max_tokens of {max_tokens} exceed the context of {max_model_len} tokens"
            ),
            Self::Unsound => {
                f.write_str("a parameter names a token outside the vocabulary, or is out of range")
            }
            Self::UnknownToken { token, vocab_size } => {
                write!(
                    f,
                    "token id {token} is outside the vocabulary of {vocab_size}"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// What passes the door.
#[derive(Debug)]
pub enum Message {
    /// The choices of one request: all of one prompt, class and salt.
    Submit(Vec<Submission>),
    /// The state has changed: look at it.
    Wake,
}

/// A request on its way to the engine.
#[derive(Debug)]
pub struct Submission {
    /// The request.
    pub request: Request,
    /// Where its events go; holds every event that it can have.
    pub events: mpsc::Sender<Event>,
    /// When it passed the door, for metrics and timeouts.
    pub submitted: Moment,
    /// Its place among the waiting; dropped at first admission or at the end.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// The state of the engine behind the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// It is starting.
    Loading,
    /// It takes requests.
    Ready,
    /// It finishes what it has and takes no more.
    Draining,
    /// It has ended.
    Dead,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    abort: AtomicBool,
}

/// The door, on the side of the HTTP tasks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    sender: mpsc::Sender<Message>,
    permits: Arc<Semaphore>,
    limits: IntakeLimits,
    shared: Arc<Shared>,
}

/// The door, on the side of the engine.
#[derive(Debug)]
pub struct Door {
    /// What passed, in order.
    pub messages: mpsc::Receiver<Message>,
    shared: Arc<Shared>,
}

/// The two sides of a door with these limits.
pub fn door(limits: IntakeLimits) -> (Intake, Door) {
    // One place more than permits, so that a wake finds room.
    let (sender, messages) = mpsc::channel(limits.max_waiting + 1);
    let shared = Arc::new(Shared {
        state: AtomicU8::new(EngineState::Loading as u8),
        abort: AtomicBool::new(false),
    });
    let permits = Arc::new(Semaphore::new(limits.max_waiting));
    (
        Intake {
            sender,
            permits,
            limits,
            shared: Arc::clone(&shared),
        },
        Door { messages, shared },
    )
}

impl Intake {
    /// Hands a request over; its events come through the receiver. Dropping the receiver cancels
    /// the request at the engine's next step.
    ///
    /// # Errors
    /// A [`Refusal`] that says what was wrong; nothing reached the engine.
    pub fn submit(&self, request: Request) -> Result<mpsc::Receiver<Event>, Refusal> {
        let mut receivers = self.submit_choices(vec![request])?;
        receivers.pop().ok_or(Refusal::EngineDead)
    }

    /// Hands over the choices of one request, which must have one prompt, class and salt: the
    /// prompt is computed once. One receiver per choice, in order; each takes a place among the
    /// waiting.
    ///
    /// # Errors
    /// A [`Refusal`] that says what was wrong; nothing reached the engine.
    pub fn submit_choices(
        &self,
        requests: Vec<Request>,
    ) -> Result<Vec<mpsc::Receiver<Event>>, Refusal> {
        requests
            .iter()
            .try_for_each(|request| self.check(request))?;
        let (choices, max_waiting) = (requests.len(), self.limits.max_waiting);
        if choices > max_waiting {
            return Err(Refusal::TooManyChoices {
                choices,
                max_waiting,
            });
        }
        match self.state() {
            EngineState::Dead => return Err(Refusal::EngineDead),
            EngineState::Draining => return Err(Refusal::Draining),
            EngineState::Loading | EngineState::Ready => {}
        }
        let full = Refusal::QueueFull {
            max_waiting: self.limits.max_waiting,
        };
        let mut submissions = Vec::with_capacity(requests.len());
        let mut receivers = Vec::with_capacity(requests.len());
        for request in requests {
            let permit = Arc::clone(&self.permits)
                .try_acquire_owned()
                .map_err(|_| full.clone())?;
            // Accepted, Started, one event per token, and the terminal one.
            let (events, receiver) = mpsc::channel(request.stop.max_tokens as usize + 3);
            submissions.push(Submission {
                request,
                events,
                submitted: clock::now(),
                permit: Some(permit),
            });
            receivers.push(receiver);
        }
        self.sender
            .try_send(Message::Submit(submissions))
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => full,
                mpsc::error::TrySendError::Closed(_) => Refusal::EngineDead,
            })?;
        Ok(receivers)
    }

    fn check(&self, request: &Request) -> Result<(), Refusal> {
        let limits = &self.limits;
        let prompt_tokens = request.prompt.len();
        if prompt_tokens == 0 {
            return Err(Refusal::EmptyPrompt);
        }
        if prompt_tokens as u64 + u64::from(request.stop.max_tokens)
            > u64::from(limits.max_model_len)
        {
            let max_tokens = request.stop.max_tokens;
            let max_model_len = limits.max_model_len;
            return Err(Refusal::TooLong {
                prompt_tokens,
                max_tokens,
                max_model_len,
            });
        }
        if !are_sound(&request.sampling, &request.stop, limits.vocab_size) {
            return Err(Refusal::Unsound);
        }
        match request
            .prompt
            .iter()
            .find(|&&token| token >= limits.vocab_size)
        {
            Some(&token) => Err(Refusal::UnknownToken {
                token,
                vocab_size: limits.vocab_size,
            }),
            None => Ok(()),
        }
    }

    /// What the door checks requests against.
    pub fn limits(&self) -> &IntakeLimits {
        &self.limits
    }

    /// The state of the engine.
    pub fn state(&self) -> EngineState {
        match self.shared.state.load(Ordering::Acquire) {
            0 => EngineState::Loading,
            1 => EngineState::Ready,
            2 => EngineState::Draining,
            _ => EngineState::Dead,
        }
    }

    /// Stops taking requests; the engine finishes those it has.
    pub fn drain(&self) {
        self.shared.advance_to(EngineState::Draining);
        self.wake();
    }

    /// Ends what still runs with [`crate::request::Failure::ShuttingDown`] at the next step.
    pub fn abort(&self) {
        self.shared.abort.store(true, Ordering::Release);
        self.drain();
    }

    /// An engine that waits at the door looks at the state; one that works does so at every step,
    /// so a full door loses nothing.
    fn wake(&self) {
        let _ = self.sender.try_send(Message::Wake);
    }

    /// Requests that wait for their first seat, those that the engine has not yet seen included.
    pub fn waiting(&self) -> usize {
        self.limits
            .max_waiting
            .saturating_sub(self.permits.available_permits())
    }
}

impl Door {
    /// Says how far the engine is; a state is never left for an earlier one.
    pub fn set_state(&self, state: EngineState) {
        self.shared.advance_to(state);
    }

    /// Whether no more requests are taken.
    pub fn draining(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) >= EngineState::Draining as u8
    }

    /// Whether what still runs is to be ended.
    pub fn aborted(&self) -> bool {
        self.shared.abort.load(Ordering::Acquire)
    }
}

impl Shared {
    fn advance_to(&self, state: EngineState) {
        self.state.fetch_max(state as u8, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{SamplingParams, StopConditions};
    use policy_core::RequestPriority;

    const LIMITS: IntakeLimits = IntakeLimits {
        max_waiting: 2,
        max_model_len: 16,
        vocab_size: 10,
    };

    fn request(prompt: &[u32], max_tokens: u32) -> Request {
        Request {
            prompt: prompt.into(),
            priority: RequestPriority::Normal,
            sampling: SamplingParams::default(),
            stop: StopConditions {
                max_tokens,
                ..StopConditions::default()
            },
            logprobs: None,
            prompt_logprobs: None,
            cache_salt: None,
            timeout: None,
            queue_timeout: None,
            matcher: None,
        }
    }

    fn refusal(intake: &Intake, request: Request) -> Refusal {
        intake.submit(request).unwrap_err()
    }

    #[test]
    fn a_place_is_taken_until_the_first_seat() {
        let (intake, mut door) = door(LIMITS);
        let _receivers = [
            intake.submit(request(&[1], 1)),
            intake.submit(request(&[1], 1)),
        ];
        let full = Refusal::QueueFull { max_waiting: 2 };
        assert_eq!(refusal(&intake, request(&[1], 1)), full);
        let Some(Message::Submit(mut taken)) = door.messages.blocking_recv() else {
            panic!("a request passed");
        };
        assert_eq!(
            refusal(&intake, request(&[1], 1)),
            full,
            "it has no seat yet"
        );
        taken[0].permit = None;
        assert!(intake.submit(request(&[1], 1)).is_ok());
    }

    #[test]
    fn wrong_requests_do_not_pass() {
        let (intake, door) = door(LIMITS);
        assert_eq!(refusal(&intake, request(&[], 1)), Refusal::EmptyPrompt);
        let unknown = Refusal::UnknownToken {
            token: 10,
            vocab_size: 10,
        };
        assert_eq!(refusal(&intake, request(&[9, 10], 1)), unknown);
        let too_long = refusal(&intake, request(&[1; 8], 9));
        assert!(matches!(
            too_long,
            Refusal::TooLong {
                prompt_tokens: 8,
                ..
            }
        ));
        let mut unsound = request(&[1], 1);
        unsound.sampling.logit_bias = vec![(10, 1.0)];
        assert_eq!(refusal(&intake, unsound), Refusal::Unsound);
        let three = vec![request(&[1], 1); 3];
        let many = Refusal::TooManyChoices {
            choices: 3,
            max_waiting: 2,
        };
        assert_eq!(intake.submit_choices(three).unwrap_err(), many);
        assert_eq!(intake.waiting(), 0);
        intake.drain();
        assert_eq!(refusal(&intake, request(&[1], 1)), Refusal::Draining);
        door.set_state(EngineState::Dead);
        assert_eq!(refusal(&intake, request(&[1], 1)), Refusal::EngineDead);
    }
}
