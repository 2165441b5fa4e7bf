//! Running recorded inputs through the model again: every token of a journal, drawn anew.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::mpsc;

use super::live::Live;
use super::{Engine, EngineError};
use crate::batch::TokenId;
use crate::clock;
use crate::intake::Submission;
use crate::journal::{self, ReadError, ReplayReport};
use crate::request::{Request, are_sound};
use crate::scheduler::{Advance, Arrival, Inputs};
use crate::structured::{GrammarError, Grammars};

/// What a replay of tokens found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenReport {
    /// What the replay of the plans found, up to the first token that differs.
    pub plans: ReplayReport,
    /// Tokens that were drawn again and found equal.
    pub tokens: u64,
    /// The first token that differs.
    pub difference: Option<TokenDifference>,
}

/// The first token that a journal has otherwise than the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TokenDifference {
    /// The step whose plan drew it.
    pub step: u64,
    /// The sequence, by its number.
    pub sequence: u64,
    /// What the journal says; `None` where it says that the answer ended without a token.
    pub recorded: Option<TokenId>,
    /// What the model gives.
    pub drawn: Option<TokenId>,
    /// Whether they differ in the end of the answer that comes with it.
    pub end_differs: bool,
}

impl fmt::Display for TokenDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |token: Option<TokenId>| token.map_or("none".to_owned(), |id| id.to_string());
        let (recorded, drawn) = (name(self.recorded), name(self.drawn));
        let Self { step, sequence, .. } = self;
        write!(
            f,
            "step {step}: sequence {sequence} drew token {recorded}, and should have drawn {drawn}"
        )?;
        if self.end_differs {
            f.write_str(", and its answer ends otherwise")?;
        }
        Ok(())
    }
}

/// Why the tokens of a journal cannot be drawn again.
#[derive(Debug)]
pub enum RepeatError {
    /// The file cannot be read as a journal.
    Read(ReadError),
    /// The engine failed.
    Engine(EngineError),
    /// A record has no parameters to draw with: the journal was written without contents.
    NoParameters(PathBuf),
    /// A record asks for what no door lets through.
    Unsound(PathBuf),
    /// A recorded constraint cannot be compiled.
    Constraint(GrammarError),
}

impl fmt::Display for RepeatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Engine(error) => error.fmt(f),
            Self::NoParameters(path) => write!(
                f,
                "{} records no tokens and parameters (--journal-content=ids): only its plans replay",
                path.display()
            ),
            Self::Unsound(path) => write!(
                f,
                "{}: a request names tokens outside the vocabulary, or parameters out of range",
                path.display()
            ),
            Self::Constraint(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RepeatError {}

/// Replays plans and tokens of a journal on `engine`, which has the journal's limits and nothing
/// live, up to the first difference of either.
///
/// # Errors
/// Where the journal cannot be replayed at all.
pub fn replay_tokens(path: &Path, engine: Engine) -> Result<TokenReport, RepeatError> {
    let mut repeat = Repeat {
        grammars: None,
        engine,
        drawn: Vec::new(),
        tokens: 0,
        difference: None,
        failure: None,
    };
    let plans = journal::replay_with(path, |inputs, plan| repeat.step(path, inputs, plan.step))
        .map_err(RepeatError::Read)?;
    match repeat.failure {
        Some(failure) => Err(failure),
        None => Ok(TokenReport {
            plans,
            tokens: repeat.tokens,
            difference: repeat.difference,
        }),
    }
}

struct Repeat {
    grammars: Option<Grammars>,
    engine: Engine,
    drawn: Vec<Advance>,
    tokens: u64,
    difference: Option<TokenDifference>,
    failure: Option<RepeatError>,
}

impl Repeat {
    /// Compares what the last step drew with what these inputs say it drew, then takes their step.
    fn step(&mut self, path: &Path, inputs: &Inputs, step: u64) {
        if self.difference.is_some() || self.failure.is_some() {
            return;
        }
        self.difference = self.compare(&inputs.advances, step.saturating_sub(1));
        if self.difference.is_none() {
            match self.take(path, inputs) {
                Ok(drawn) => self.drawn = drawn,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    fn compare(&mut self, recorded: &[Advance], step: u64) -> Option<TokenDifference> {
        let count = recorded.len().max(self.drawn.len());
        for index in 0..count {
            let (recorded, drawn) = (recorded.get(index), self.drawn.get(index));
            if recorded != drawn {
                let sequence = recorded.or(drawn)?.sequence.number();
                let (recorded, drawn) = (recorded.copied(), drawn.copied());
                return Some(TokenDifference {
                    step,
                    sequence,
                    recorded: recorded.and_then(|a| a.token),
                    drawn: drawn.and_then(|a| a.token),
                    end_differs: recorded.map(|a| a.finished) != drawn.map(|a| a.finished),
                });
            }
            self.tokens += u64::from(drawn.is_some_and(|a| a.token.is_some()));
        }
        None
    }

    fn take(&mut self, path: &Path, inputs: &Inputs) -> Result<Vec<Advance>, RepeatError> {
        for arrival in &inputs.arrivals {
            let submission = self.submission(path, arrival)?;
            let live = Live::new(arrival.request, submission);
            self.engine.live.insert(arrival.request, live);
        }
        self.engine.inputs = inputs.clone();
        self.engine.step().map_err(RepeatError::Engine)?;
        Ok(std::mem::take(&mut self.engine.inputs.advances))
    }

    /// The request as it once passed the door; nobody hears its events.
    fn submission(&mut self, path: &Path, arrival: &Arrival) -> Result<Submission, RepeatError> {
        let parameters = arrival.parameters.as_ref();
        let parameters = parameters.ok_or_else(|| RepeatError::NoParameters(path.to_owned()))?;
        let vocab_size = self.engine.parts.tokenizer.len() as u32;
        let known = arrival.prompt.iter().all(|&token| token < vocab_size);
        if !known || !are_sound(&parameters.sampling, &parameters.stop, vocab_size) {
            return Err(RepeatError::Unsound(path.to_owned()));
        }
        let matcher = match &parameters.sampling.constraint {
            None => None,
            Some(constraint) => {
                let grammars = self.grammars()?;
                Some(
                    grammars
                        .compile(constraint)
                        .map_err(RepeatError::Constraint)?,
                )
            }
        };
        let request = Request {
            prompt: Arc::clone(&arrival.prompt),
            priority: arrival.priority,
            sampling: parameters.sampling.clone(),
            stop: parameters.stop.clone(),
            logprobs: None,
            prompt_logprobs: None,
            cache_salt: arrival.cache_salt.clone(),
            timeout: None,
            queue_timeout: None,
            matcher,
        };
        Ok(Submission {
            request,
            events: mpsc::channel(1).0,
            submitted: clock::now(),
            permit: None,
        })
    }

    fn grammars(&mut self) -> Result<&Grammars, RepeatError> {
        match &mut self.grammars {
            Some(grammars) => Ok(grammars),
            none => {
                let grammars = Grammars::new(&self.engine.parts.tokenizer);
                Ok(none.insert(grammars.map_err(RepeatError::Constraint)?))
            }
        }
    }
}
