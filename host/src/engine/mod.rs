//! The one loop: drain the door, step the scheduler, write the record, carry the plan out.

mod live;
mod outcome;
mod ranked;
mod repeat;
mod report;
mod stop;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::batch::{Batch, Forward, ForwardError};
use crate::clock;
use crate::intake::{Door, EngineState, Message, Submission};
use crate::journal::{Chronicle, JournalError, JournalWriter};
use crate::metrics::Metrics;
use crate::request::{Failure, RequestId};
use crate::sampler::Sampler;
use crate::scheduler::{Arrival, Inputs, Parameters, Plan, Scheduler};
use crate::tokenizer::Tokenizer;

pub use repeat::{RepeatError, TokenDifference, TokenReport, replay_tokens};

use live::Live;

/// What an engine is made of.
pub struct Parts {
    /// The door, on its inner side.
    pub door: Door,
    /// The scheduler, with nothing live.
    pub scheduler: Scheduler,
    /// The model on its backend.
    pub model: Box<dyn Forward>,
    /// The tokenizer of the model.
    pub tokenizer: Arc<Tokenizer>,
    /// Where records go, if anywhere.
    pub journal: Option<JournalWriter>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What happened to the latest requests, for whoever asks.
    pub chronicle: Arc<Mutex<Chronicle>>,
    /// Who sees the logits, if anyone.
    pub probe: Option<Box<dyn Probe>>,
}

/// Sees every row of logits before its token is drawn: for proofs, never for decisions.
pub trait Probe: Send {
    /// `logits` gives the token at absolute `position` of `request`.
    fn logits(&mut self, request: RequestId, position: usize, logits: &[f32]);
}

/// Everything behind the door: it owns the scheduler, the model and every live request.
pub struct Engine {
    parts: Parts,
    live: BTreeMap<RequestId, Live>,
    next_request: u64,
    draining: bool,
    sampler: Sampler,
    inputs: Inputs,
    plan: Plan,
    batch: Batch,
    logits: Vec<f32>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("live", &self.live.len())
            .finish_non_exhaustive()
    }
}

/// Why the engine ended before it was asked to. Every open stream has been told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The backend failed.
    Device(String),
    /// A record could not be written.
    Journal(String),
    /// A bug: the engine thread panicked.
    Panic(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(message) => write!(f, "the device failed: {message}"),
            Self::Journal(message) => write!(f, "the journal could not be written: {message}"),
            Self::Panic(message) => write!(f, "a bug in the engine: {message}"),
        }
    }
}

impl std::error::Error for EngineError {}

impl From<JournalError> for EngineError {
    fn from(error: JournalError) -> Self {
        Self::Journal(error.to_string())
    }
}

impl Engine {
    /// An engine of these parts, with nothing live.
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            live: BTreeMap::new(),
            next_request: 0,
            draining: false,
            sampler: Sampler::default(),
            inputs: Inputs::default(),
            plan: Plan::default(),
            batch: Batch::default(),
            logits: Vec::new(),
        }
    }

    /// Serves until the door drains and nothing is live. Every accepted request has then had its
    /// terminal event, whatever happened, and the journal is flushed.
    ///
    /// # Errors
    /// An [`EngineError`], after which the process must end.
    pub fn run(mut self) -> Result<(), EngineError> {
        self.parts.door.set_state(EngineState::Ready);
        let looped = std::panic::AssertUnwindSafe(|| {
            while self.turn()? {}
            Ok(())
        });
        let mut result = std::panic::catch_unwind(looped)
            .unwrap_or_else(|payload| Err(EngineError::Panic(message_of(payload.as_ref()))));
        self.parts.door.set_state(EngineState::Dead);
        self.fail_everything(result.as_ref().err());
        if let Some(journal) = self.parts.journal.take() {
            let closed = journal.close();
            result = result.and(closed.map_err(EngineError::from));
        }
        result
    }

    /// One turn of the loop: waits at the door if nothing is live, then takes one step. `false`
    /// once the door drains and nothing is live. [`run`](Self::run) takes turns; whoever wants to
    /// decide what arrives at which step takes them alone.
    ///
    /// # Errors
    /// An [`EngineError`], after which there must be no further turn.
    pub fn turn(&mut self) -> Result<bool, EngineError> {
        self.gather();
        if self.live.is_empty() && self.inputs.is_empty() {
            if self.parts.door.draining() {
                return Ok(false);
            }
            match self.parts.door.messages.blocking_recv() {
                Some(message) => self.take(message),
                None => return Ok(false),
            }
        }
        self.step()?;
        Ok(true)
    }

    /// Requests that are live.
    pub fn num_live(&self) -> usize {
        self.live.len()
    }

    /// Drains the door into the inputs. Advances are there already: the last step left them.
    fn gather(&mut self) {
        while let Ok(message) = self.parts.door.messages.try_recv() {
            self.take(message);
        }
        if self.parts.door.draining() && !self.draining {
            self.draining = true;
            self.inputs.drain = true;
        }
        let aborted = self.parts.door.aborted();
        for (&id, live) in &self.live {
            if live.is_abandoned() {
                self.inputs.cancels.push(id);
            } else if aborted || live.is_expired() {
                self.inputs.expiries.push(id);
            }
        }
    }

    fn take(&mut self, message: Message) {
        if let Message::Submit(choices) = message {
            let first = RequestId::new(self.next_request);
            for submission in choices {
                let id = RequestId::new(self.next_request);
                self.next_request += 1;
                let sibling_of = (id != first).then_some(first);
                self.inputs
                    .arrivals
                    .push(arrival(id, sibling_of, &submission));
                self.live.insert(id, Live::new(id, submission));
            }
        }
    }

    fn step(&mut self) -> Result<(), EngineError> {
        let started = clock::now();
        self.parts.scheduler.step(&self.inputs, &mut self.plan);
        if let Some(journal) = &mut self.parts.journal {
            journal.append(&self.inputs, &self.plan, &self.parts.scheduler)?;
            // The tokens of the last step are in this record: they leave once it is durable.
            journal.wait_durable()?;
        }
        let chronicle = self.parts.chronicle.lock();
        chronicle
            .unwrap_or_else(PoisonError::into_inner)
            .record(&self.inputs, &self.plan);
        self.flush_events();
        self.inputs.clear();
        self.tell_releases();
        self.tell_admissions();
        if !self.plan.chunks.is_empty() {
            self.compute()?;
        }
        self.report_step(started.elapsed());
        Ok(())
    }

    /// Runs the model over the plan; its outcomes are the advances of the next step.
    fn compute(&mut self) -> Result<(), EngineError> {
        if !self.plan.copies.is_empty() {
            self.parts
                .model
                .copy_blocks(&self.plan.copies)
                .map_err(device)?;
        }
        self.parts.scheduler.fill_batch(&self.plan, &mut self.batch);
        self.want_prompt_logits();
        self.want_ranks();
        let wanted = self.batch.sampling_rows.len() * self.parts.model.vocab_size();
        if self.logits.len() < wanted {
            self.logits.resize(wanted, 0.0);
        }
        let bad = match self
            .parts
            .model
            .forward(&self.batch, &mut self.logits[..wanted])
        {
            Ok(()) => Vec::new(),
            Err(ForwardError::NonFinite { sequences }) => sequences,
            Err(error) => return Err(device(error)),
        };
        self.draw_tokens(&bad)?;
        if self
            .parts
            .journal
            .as_ref()
            .is_none_or(|journal| !journal.holds_tokens_back())
        {
            self.flush_events();
        }
        Ok(())
    }

    fn flush_events(&mut self) {
        self.live.values_mut().for_each(Live::flush);
    }

    /// Ends every stream that is still open, those at the door included.
    fn fail_everything(&mut self, error: Option<&EngineError>) {
        self.parts.door.messages.close();
        // A message on its way in as the door closes is waited for: nothing passes unheard.
        while let Some(message) = self.parts.door.messages.blocking_recv() {
            self.take(message);
        }
        let failure = match error {
            Some(error) => Failure::Engine(error.to_string()),
            None => Failure::ShuttingDown,
        };
        let held = |journal: &JournalWriter| journal.holds_tokens_back();
        let unrecorded = self.parts.journal.as_ref().is_some_and(held) && error.is_some();
        for mut live in std::mem::take(&mut self.live).into_values() {
            if unrecorded {
                live.forget_unsent();
            }
            live.fail(failure.clone());
        }
    }
}

fn arrival(id: RequestId, sibling_of: Option<RequestId>, submission: &Submission) -> Arrival {
    let request = &submission.request;
    Arrival {
        request: id,
        priority: request.priority,
        prompt: Arc::clone(&request.prompt),
        max_tokens: request.stop.max_tokens,
        structured: request.matcher.is_some(),
        cache_salt: cache_salt(id, submission),
        sibling_of,
        parameters: Some(Arc::new(Parameters {
            sampling: request.sampling.clone(),
            stop: request.stop.clone(),
        })),
    }
}

/// A request that asks for its prompt's logprobs needs every row computed, so it shares nothing:
/// its salt is its own: no caller can name it, since theirs all begin otherwise.
fn cache_salt(id: RequestId, submission: &Submission) -> Option<Arc<str>> {
    match submission.request.prompt_logprobs {
        Some(_) => Some(Arc::from(format!("request {id}"))),
        None => {
            let salt = submission.request.cache_salt.as_ref()?;
            Some(Arc::from(format!("salt {salt}")))
        }
    }
}

fn device(error: ForwardError) -> EngineError {
    EngineError::Device(error.to_string())
}

fn message_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
