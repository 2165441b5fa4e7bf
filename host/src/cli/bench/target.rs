//! Whom a load is for: a server over HTTP, or an engine without one.

use crate::clock::{self, Moment};
use crate::intake::Intake;
use crate::request::{Event, Request, SamplingParams, StopConditions};
use policy_core::RequestPriority;
use std::time::Duration;

use super::client::HttpClient;
use super::prompts::Prompt;

/// One request of a load.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// What is asked.
    pub(super) prompt: Prompt,
    /// Tokens to generate, no more and, with `ignore_eos`, no fewer.
    pub(super) output_tokens: u32,
}

/// What was seen of one request. Times count from the load's beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    /// When it was sent.
    pub(super) sent: Duration,
    /// When each token came; over HTTP, each chunk with text.
    pub(super) tokens: Vec<Duration>,
    /// When the answer had ended.
    pub(super) ended: Duration,
    /// Tokens of the prompt, as the server counts.
    pub(super) prompt_tokens: u64,
    /// Tokens of the answer, as the server counts; chunks, where it does not.
    pub(super) output_tokens: u64,
    /// Why it failed, if it did.
    pub(super) error: Option<String>,
}

/// Whom the load is for.
#[derive(Debug)]
pub(super) enum Target {
    /// A server.
    Http(HttpClient),
    /// An engine's door.
    Intake(Intake),
}

impl Target {
    /// Sends a request and hears its answer to the end. `begun` is the load's beginning.
    pub(super) async fn send(&self, work: Work, begun: Moment) -> Timeline {
        let mut timeline = Timeline {
            sent: clock::now().since(begun),
            ..Timeline::default()
        };
        let heard = match self {
            Self::Http(client) => client.send(&work, begun, &mut timeline).await,
            Self::Intake(intake) => send_inside(intake, work, begun, &mut timeline).await,
        };
        timeline.ended = clock::now().since(begun);
        if let Err(error) = heard {
            timeline.error = Some(error);
        }
        timeline
    }
}

async fn send_inside(
    intake: &Intake,
    work: Work,
    begun: Moment,
    timeline: &mut Timeline,
) -> Result<(), String> {
    let Prompt::Ids(prompt) = work.prompt else {
        return Err("an engine takes token ids".to_owned());
    };
    let mut events = intake
        .submit(greedy(prompt, work.output_tokens))
        .map_err(|refusal| refusal.to_string())?;
    while let Some(event) = events.recv().await {
        match event {
            Event::Token(_) => timeline.tokens.push(clock::now().since(begun)),
            Event::Finished { usage, .. } => {
                timeline.prompt_tokens = usage.prompt_tokens.into();
                timeline.output_tokens = usage.completion_tokens.into();
                return Ok(());
            }
            Event::Failed(failure) => return Err(failure.to_string()),
            Event::Accepted { .. } | Event::Started { .. } => {}
        }
    }
    Err("the engine has gone".to_owned())
}

fn greedy(prompt: Vec<u32>, max_tokens: u32) -> Request {
    Request {
        prompt: prompt.into(),
        priority: RequestPriority::Normal,
        sampling: SamplingParams {
            temperature: 0.0,
            ..SamplingParams::default()
        },
        stop: StopConditions {
            max_tokens,
            ignore_eos: true,
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
