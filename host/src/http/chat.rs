//! `/v1/chat/completions`.

use std::sync::Arc;

use super::body::{Reply, json_ok};
use super::call::Call;
use super::error::ApiError;
use super::generation::{Answer, Generation, Update, collect};
use super::prepare::{self, Wanted};
use super::sse::{EventWriter, Format};
use super::text::TextModel;
use super::tokens::TokenNames;
use super::tools::{Calls, Piece, ToolParser};
use super::wire::chat::ChatRequest;
use super::wire::output::{
    ChatChoice, ChatLogprobs, Delta, Envelope, Head, Message, PromptLogprobs, finish_name,
    stop_reason,
};
use crate::batch::TokenId;
use crate::request::{FinishReason, PositionLogprobs, StopCause};

/// What an answer shows beside its text.
#[derive(Clone, Debug)]
struct Shown {
    logprobs: bool,
    usage: bool,
    token_ids: bool,
    tokens_as_ids: bool,
    /// How calls are told from text.
    calls: Option<Calls>,
    /// Text of the prompt that starts the answer.
    echo: Option<String>,
}

/// Answers a chat completion.
///
/// # Errors
/// Whatever is wrong with the request; nothing has been sent then.
pub(super) async fn answer(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = Arc::clone(&call.server);
    let mut request = ChatRequest::read(&body, server.bounds())?;
    let body_bytes = body.len();
    // It would lie there for as long as the answer takes.
    let reservation = body.into_reservation();
    prepare::check_model(&server, request.common.model.as_deref())?;
    let shown = shown(&request);
    // Some formats mark a call by control tokens, which the parser has to see.
    request.common.skip_special_tokens &= shown.calls.is_none();
    let constraint = request.take_constraint()?;
    prepare::constrain(&server, constraint, &mut request.common).await?;
    let tokens = prepare::render_chat(&server, request.prompt, body_bytes).await?;
    let wanted = Wanted {
        logprobs: request.logprobs,
        prompt_logprobs: request.common.prompt_logprobs,
        may_be_empty: request.common.prompt_logprobs.is_some(),
        default_max_tokens: server.app.limits.default_max_tokens,
    };
    let (stream, choices) = (request.common.stream, request.common.choices);
    let resumable = request.common.resumable;
    let prepared = prepare::prepare(&server, &call.headers, request.common, vec![tokens], wanted)?;
    let object = if stream {
        "chat.completion.chunk"
    } else {
        "chat.completion"
    };
    let head = call.head("chatcmpl-", object, prepared.seed);
    let prompt = prepared
        .prompts
        .into_iter()
        .next()
        .filter(|_| shown.token_ids);
    let mut generation = call.submit(&head, prepared.requests, choices as usize)?;
    drop(reservation);
    let format = ChatFormat::new(head, Arc::clone(&server.app.text), shown, choices, prompt);
    if stream {
        return call.stream(generation, format, resumable);
    }
    let answers = collect(&mut generation).await?;
    format.whole(answers, &generation)
}

fn shown(request: &ChatRequest) -> Shown {
    let last = request
        .prompt
        .messages
        .last()
        .and_then(|message| message.get("content"));
    let last = last.and_then(serde_json::Value::as_str);
    let echo = request.echo && request.prompt.continue_final_message;
    Shown {
        logprobs: request.logprobs.is_some(),
        usage: request.common.include_usage,
        token_ids: request.common.return_token_ids,
        tokens_as_ids: request.common.tokens_as_ids,
        calls: request.calls(),
        echo: last.filter(|_| echo).map(str::to_owned),
    }
}

/// Writes chat answers, whole or in chunks.
struct ChatFormat {
    head: Head,
    text: Arc<dyn TextModel>,
    shown: Shown,
    choices: Vec<ChoiceState>,
    prompt: Option<Arc<[TokenId]>>,
}

#[derive(Debug, Default)]
struct ChoiceState {
    parser: Option<ToolParser>,
    called: bool,
}

impl ChatFormat {
    fn new(
        head: Head,
        text: Arc<dyn TextModel>,
        shown: Shown,
        choices: u32,
        prompt: Option<Arc<[TokenId]>>,
    ) -> Self {
        let state = |choice| ChoiceState {
            parser: shown
                .calls
                .as_ref()
                .map(|calls| ToolParser::new(&head.id, choice, calls)),
            called: false,
        };
        let choices = (0..choices).map(state).collect();
        Self {
            head,
            text,
            shown,
            choices,
            prompt,
        }
    }

    fn names(&self) -> TokenNames<'_> {
        TokenNames {
            text: self.text.as_ref(),
            as_ids: self.shown.tokens_as_ids,
        }
    }

    fn logprobs(&self, positions: &[PositionLogprobs]) -> Option<ChatLogprobs> {
        let names = self.names();
        self.shown.logprobs.then(|| ChatLogprobs {
            content: positions
                .iter()
                .map(|position| names.chat(position))
                .collect(),
        })
    }

    fn whole(mut self, answers: Vec<Answer>, generation: &Generation) -> Result<Reply, ApiError> {
        let mut prompt_logprobs = None;
        let mut choices = Vec::with_capacity(answers.len());
        for (index, answer) in (0..).zip(answers) {
            if index == 0 && !answer.prompt_logprobs.is_empty() {
                prompt_logprobs = Some(self.names().prompt(&answer.prompt_logprobs));
            }
            choices.push(self.whole_choice(index, answer));
        }
        let envelope = Envelope::new(&self.head, &choices)
            .usage(Some(generation.usage()))
            .prompt(self.prompt.as_deref(), prompt_logprobs.as_ref());
        json_ok(&envelope)
    }

    fn whole_choice(&mut self, index: u32, answer: Answer) -> ChatChoice {
        let mut text = self.shown.echo.clone().unwrap_or_default();
        text.push_str(&answer.text);
        let mut calls = Vec::new();
        if let Some(state) = self.choices.get_mut(index as usize)
            && let Some(parser) = state.parser.take()
        {
            (text, calls) = parser.whole(&text);
            state.called = !calls.is_empty();
        }
        let message = Message {
            role: "assistant",
            content: (calls.is_empty() || !text.is_empty()).then_some(text),
            refusal: None,
            tool_calls: calls,
        };
        ChatChoice {
            index,
            message: Some(message),
            delta: None,
            logprobs: self.logprobs(&answer.logprobs),
            finish_reason: self.finish(index as usize, answer.reason),
            stop_reason: stop_reason(answer.stop),
            token_ids: self.shown.token_ids.then_some(answer.tokens),
        }
    }

    /// A stop after a call is told as such.
    fn finish(&self, choice: usize, reason: Option<FinishReason>) -> Option<&'static str> {
        let called = self.choices.get(choice).is_some_and(|state| state.called);
        match reason? {
            FinishReason::Stop if called => Some("tool_calls"),
            reason => Some(finish_name(reason)),
        }
    }

    fn write(&self, choice: ChatChoice, out: &mut EventWriter) {
        self.write_with_prompt(choice, None, None, out);
    }

    fn write_with_prompt(
        &self,
        choice: ChatChoice,
        token_ids: Option<&[TokenId]>,
        logprobs: Option<&PromptLogprobs>,
        out: &mut EventWriter,
    ) {
        let choices = [choice];
        let envelope = Envelope::new(&self.head, &choices).prompt(token_ids, logprobs);
        if self.shown.usage {
            out.json(&envelope.usage(None));
        } else {
            out.json(&envelope);
        }
    }

    /// What a text adds to a choice's message. Tool calls come out of the parser as deltas.
    fn deltas(&mut self, choice: usize, text: String, end: bool) -> Vec<Delta> {
        let content = |content: String| Delta {
            content: Some(content),
            ..Delta::default()
        };
        let Some(state) = self.choices.get_mut(choice) else {
            return Vec::new();
        };
        let Some(parser) = &mut state.parser else {
            return if text.is_empty() {
                Vec::new()
            } else {
                vec![content(text)]
            };
        };
        let mut pieces = parser.push(&text);
        if end {
            pieces.extend(parser.finish());
        }
        let delta = |piece| match piece {
            Piece::Text(text) => content(text),
            Piece::Call(call) => {
                state.called = true;
                Delta {
                    tool_calls: vec![call],
                    ..Delta::default()
                }
            }
        };
        pieces.into_iter().map(delta).collect()
    }

    fn write_token(
        &mut self,
        choice: usize,
        token: crate::request::TokenEvent,
        out: &mut EventWriter,
    ) {
        let mut deltas = self.deltas(choice, token.text, false);
        let logprobs = token.logprobs.as_slice();
        let shows = self.shown.token_ids || (self.shown.logprobs && !logprobs.is_empty());
        if deltas.is_empty() && shows {
            deltas.push(Delta {
                content: Some(String::new()),
                ..Delta::default()
            });
        }
        for (position, delta) in deltas.into_iter().enumerate() {
            let first = position == 0;
            let chunk = ChatChoice {
                index: choice as u32,
                delta: Some(delta),
                logprobs: self
                    .logprobs(logprobs)
                    .filter(|_| first && !logprobs.is_empty()),
                token_ids: (self.shown.token_ids && first).then(|| vec![token.token]),
                ..ChatChoice::default()
            };
            self.write(chunk, out);
        }
    }

    fn write_finish(
        &mut self,
        choice: usize,
        reason: FinishReason,
        stop: Option<StopCause>,
        text: String,
        out: &mut EventWriter,
    ) {
        for delta in self.deltas(choice, text, true) {
            let chunk = ChatChoice {
                index: choice as u32,
                delta: Some(delta),
                ..ChatChoice::default()
            };
            self.write(chunk, out);
        }
        let chunk = ChatChoice {
            index: choice as u32,
            delta: Some(Delta::default()),
            finish_reason: self.finish(choice, Some(reason)),
            stop_reason: stop_reason(stop),
            ..ChatChoice::default()
        };
        self.write(chunk, out);
    }
}

impl Format for ChatFormat {
    fn open(&mut self, out: &mut EventWriter) {
        for index in 0..self.choices.len() {
            let delta = Delta {
                role: Some("assistant"),
                content: Some(self.shown.echo.clone().unwrap_or_default()),
                tool_calls: Vec::new(),
            };
            let chunk = ChatChoice {
                index: index as u32,
                delta: Some(delta),
                ..ChatChoice::default()
            };
            let prompt = self.prompt.as_deref().filter(|_| index == 0);
            self.write_with_prompt(chunk, prompt, None, out);
        }
    }

    fn update(&mut self, update: Update, out: &mut EventWriter) {
        match update {
            Update::Started {
                choice: 0,
                prompt_logprobs,
            } if !prompt_logprobs.is_empty() => {
                let logprobs = self.names().prompt(&prompt_logprobs);
                let chunk = ChatChoice {
                    delta: Some(Delta::default()),
                    ..ChatChoice::default()
                };
                self.write_with_prompt(chunk, None, Some(&logprobs), out);
            }
            Update::Started { .. } => {}
            Update::Token { choice, token } => self.write_token(choice, token, out),
            Update::Finished {
                choice,
                reason,
                stop,
                text,
            } => {
                self.write_finish(choice, reason, stop, text, out);
            }
        }
    }

    fn close(&mut self, generation: &Generation, out: &mut EventWriter) {
        if self.shown.usage {
            let none: [ChatChoice; 0] = [];
            out.json(&Envelope::new(&self.head, &none).usage(Some(generation.usage())));
        }
        out.done();
    }
}
