//! `/v1/completions`.

use std::sync::Arc;

use super::body::{Reply, json_ok};
use super::call::Call;
use super::error::ApiError;
use super::generation::{Answer, Generation, Update, collect};
use super::prepare::{self, Wanted};
use super::sse::{EventWriter, Format};
use super::text::TextModel;
use super::tokens::TokenNames;
use super::wire::completion::CompletionRequest;
use super::wire::output::{Envelope, Head, TextChoice, TextLogprobs, finish_name, stop_reason};
use crate::batch::TokenId;
use crate::request::{PositionLogprobs, TokenEvent};

/// The length of an answer whose request names none: what OpenAI's API has here.
const DEFAULT_MAX_TOKENS: u32 = 16;

/// What an answer shows beside its text.
#[derive(Clone, Copy, Debug)]
struct Shown {
    echo: bool,
    logprobs: bool,
    prompt_logprobs: bool,
    usage: bool,
    token_ids: bool,
    tokens_as_ids: bool,
    special: bool,
}

/// Answers a completion.
///
/// # Errors
/// Whatever is wrong with the request; nothing has been sent then.
pub(super) async fn answer(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = Arc::clone(&call.server);
    let request = CompletionRequest::read(&body, server.bounds())?;
    // It would lie there for as long as the answer takes.
    let reservation = body.into_reservation();
    prepare::check_model(&server, request.common.model.as_deref())?;
    let mut common = request.common;
    prepare::constrain(&server, request.constraint, &mut common).await?;
    let shown = Shown {
        echo: request.echo,
        logprobs: request.logprobs.is_some(),
        prompt_logprobs: common.prompt_logprobs.is_some(),
        usage: common.include_usage,
        token_ids: common.return_token_ids,
        tokens_as_ids: common.tokens_as_ids,
        special: !common.skip_special_tokens,
    };
    let echoed = request.logprobs.filter(|_| request.echo);
    let wanted = Wanted {
        logprobs: request.logprobs,
        prompt_logprobs: common.prompt_logprobs.max(echoed),
        may_be_empty: request.echo || common.prompt_logprobs.is_some(),
        default_max_tokens: Some(DEFAULT_MAX_TOKENS),
    };
    let (stream, choices) = (common.stream, common.choices as usize);
    let resumable = common.resumable;
    let special = request.add_special_tokens;
    let prompts = prepare::encode_prompts(&server, request.prompts, special).await?;
    let prepared = prepare::prepare(&server, &call.headers, common, prompts, wanted)?;
    let head = call.head("cmpl-", "text_completion", prepared.seed);
    let mut generation = call.submit(&head, prepared.requests, choices)?;
    drop(reservation);
    let text = Arc::clone(&server.app.text);
    let mut format = TextFormat::new(head, text, shown, prepared.prompts, choices);
    if stream {
        return call.stream(generation, format, resumable);
    }
    let answers = collect(&mut generation).await?;
    format.whole(answers, &generation)
}

/// Writes completions, whole or in chunks.
struct TextFormat {
    head: Head,
    text: Arc<dyn TextModel>,
    shown: Shown,
    prompts: Vec<Arc<[TokenId]>>,
    per_prompt: usize,
    /// Where the next token of each choice starts, in characters.
    offsets: Vec<usize>,
}

impl TextFormat {
    fn new(
        head: Head,
        text: Arc<dyn TextModel>,
        shown: Shown,
        prompts: Vec<Arc<[TokenId]>>,
        per_prompt: usize,
    ) -> Self {
        let offsets = vec![0; prompts.len() * per_prompt];
        Self {
            head,
            text,
            shown,
            prompts,
            per_prompt,
            offsets,
        }
    }

    fn names(&self) -> TokenNames<'_> {
        TokenNames {
            text: self.text.as_ref(),
            as_ids: self.shown.tokens_as_ids,
        }
    }

    fn prompt(&self, choice: usize) -> Arc<[TokenId]> {
        let prompt = self.prompts.get(choice / self.per_prompt.max(1));
        prompt.map_or_else(|| Arc::from([]), Arc::clone)
    }

    /// What is told of a choice's prompt, once it has been read.
    fn prompt_part(&mut self, choice: usize, positions: &[PositionLogprobs]) -> TextChoice {
        let prompt = self.prompt(choice);
        let mut part = TextChoice {
            index: choice as u32,
            prompt_token_ids: self.shown.token_ids.then(|| prompt.to_vec()),
            ..TextChoice::default()
        };
        if self.shown.prompt_logprobs {
            part.prompt_logprobs = Some(self.names().prompt(positions));
        }
        if self.shown.echo {
            part.text = self.text.decode(&prompt, !self.shown.special);
            if self.shown.logprobs {
                part.logprobs = Some(self.echoed(choice, &prompt, positions));
            }
        }
        part
    }

    fn echoed(
        &mut self,
        choice: usize,
        prompt: &[TokenId],
        positions: &[PositionLogprobs],
    ) -> TextLogprobs {
        let mut logprobs = TextLogprobs::default();
        let mut offset = 0;
        let positions = std::iter::once(None).chain(positions.iter().map(Some));
        for (&token, position) in prompt.iter().zip(positions) {
            self.names()
                .push_text(&mut logprobs, &mut offset, token, position);
        }
        if let Some(slot) = self.offsets.get_mut(choice) {
            *slot = offset;
        }
        logprobs
    }

    /// Adds the logprobs of drawn tokens.
    fn push_drawn<'a>(
        &mut self,
        choice: usize,
        logprobs: &mut Option<TextLogprobs>,
        positions: impl Iterator<Item = &'a PositionLogprobs>,
    ) {
        if !self.shown.logprobs {
            return;
        }
        let mut offset = self.offsets.get(choice).copied().unwrap_or(0);
        let logprobs = logprobs.get_or_insert_default();
        for position in positions {
            let token = position.chosen.token;
            self.names()
                .push_text(logprobs, &mut offset, token, Some(position));
        }
        if let Some(slot) = self.offsets.get_mut(choice) {
            *slot = offset;
        }
    }

    fn whole(&mut self, answers: Vec<Answer>, generation: &Generation) -> Result<Reply, ApiError> {
        let mut choices = Vec::with_capacity(answers.len());
        for (choice, answer) in answers.into_iter().enumerate() {
            let mut part = self.prompt_part(choice, &answer.prompt_logprobs);
            part.text.push_str(&answer.text);
            let mut logprobs = part.logprobs.take();
            self.push_drawn(choice, &mut logprobs, answer.logprobs.iter());
            part.logprobs = logprobs;
            part.finish_reason = answer.reason.map(finish_name);
            part.stop_reason = stop_reason(answer.stop);
            part.token_ids = self.shown.token_ids.then_some(answer.tokens);
            choices.push(part);
        }
        json_ok(&Envelope::new(&self.head, &choices).usage(Some(generation.usage())))
    }

    fn write(&self, choice: TextChoice, out: &mut EventWriter) {
        let choices = [choice];
        let envelope = Envelope::new(&self.head, &choices);
        if self.shown.usage {
            out.json(&envelope.usage(None));
        } else {
            out.json(&envelope);
        }
    }

    fn write_token(&mut self, choice: usize, token: TokenEvent, out: &mut EventWriter) {
        let mut logprobs = None;
        self.push_drawn(choice, &mut logprobs, token.logprobs.iter());
        if token.text.is_empty() && logprobs.is_none() && !self.shown.token_ids {
            return;
        }
        let chunk = TextChoice {
            index: choice as u32,
            text: token.text,
            logprobs,
            token_ids: self.shown.token_ids.then(|| vec![token.token]),
            ..TextChoice::default()
        };
        self.write(chunk, out);
    }
}

impl Format for TextFormat {
    fn open(&mut self, _out: &mut EventWriter) {}

    fn update(&mut self, update: Update, out: &mut EventWriter) {
        match update {
            Update::Started {
                choice,
                prompt_logprobs,
            } => {
                let shown = self.shown;
                if shown.echo || shown.token_ids || shown.prompt_logprobs {
                    let part = self.prompt_part(choice, &prompt_logprobs);
                    self.write(part, out);
                }
            }
            Update::Token { choice, token } => self.write_token(choice, token, out),
            Update::Finished {
                choice,
                reason,
                stop,
                text,
            } => {
                let chunk = TextChoice {
                    index: choice as u32,
                    text,
                    finish_reason: Some(finish_name(reason)),
                    stop_reason: stop_reason(stop),
                    ..TextChoice::default()
                };
                self.write(chunk, out);
            }
        }
    }

    fn close(&mut self, generation: &Generation, out: &mut EventWriter) {
        if self.shown.usage {
            let none: [TextChoice; 0] = [];
            out.json(&Envelope::new(&self.head, &none).usage(Some(generation.usage())));
        }
        out.done();
    }
}
