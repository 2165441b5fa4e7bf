//! From a checked body to requests that the engine can take.

use std::sync::Arc;

use hyper::header::HeaderMap;
use policy_core::RequestPriority;

use super::error::ApiError;
use super::seeds::choice_seed;
use super::server::Server;
use super::text::{ChatPrompt, TextError, TextModel};
use super::wire::common::{Common, priority_from_word};
use super::wire::completion::Prompt;
use crate::batch::TokenId;
use crate::intake::Refusal;
use crate::request::Request;
use crate::structured::{Constraint, GrammarError};

/// Texts from this size on are tokenized on a blocking thread, so that other calls go on.
const LONG_TEXT: usize = 16 << 10;

/// What a call asks of the engine.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The requests: `n` per prompt, prompt after prompt.
    pub(super) requests: Vec<Request>,
    /// Their prompts.
    pub(super) prompts: Vec<Arc<[TokenId]>>,
    /// The seed of each choice 0.
    pub(super) seed: u64,
}

/// What an endpoint adds to the common fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Alternatives per token.
    pub(super) logprobs: Option<u32>,
    /// Alternatives per prompt token.
    pub(super) prompt_logprobs: Option<u32>,
    /// Whether an answer of no tokens means something.
    pub(super) may_be_empty: bool,
    /// The length of an answer whose request names none.
    pub(super) default_max_tokens: Option<u32>,
}

/// Builds the requests of a call. Nothing has been handed over yet when it fails.
///
/// # Errors
/// 400 where a prompt does not fit the context, or a field does not fit another.
pub(super) fn prepare(
    server: &Server,
    headers: &HeaderMap,
    mut common: Common,
    prompts: Vec<Vec<TokenId>>,
    wanted: Wanted,
) -> Result<Prepared, ApiError> {
    let app = &server.app;
    let priority = priority_of(&common, headers)?;
    let seed = common.seed.unwrap_or_else(|| app.seeds.next_seed());
    common.sampling.bad_words = bad_words(app.text.as_ref(), &common.bad_words)?;
    let prompts: Vec<Arc<[TokenId]>> = prompts.into_iter().map(Arc::from).collect();
    let mut requests = Vec::with_capacity(prompts.len() * common.choices as usize);
    for (position, prompt) in prompts.iter().enumerate() {
        let max_tokens = answer_length(server, prompt, &common, wanted)
            .map_err(|error| of_prompt(error, position, prompts.len()))?;
        for choice in 0..common.choices {
            let mut request = Request {
                prompt: Arc::clone(prompt),
                priority,
                sampling: common.sampling.clone(),
                stop: common.stop.clone(),
                logprobs: wanted.logprobs,
                prompt_logprobs: wanted.prompt_logprobs,
                cache_salt: common.cache_salt.clone(),
                timeout: common.timeout.or(app.limits.request_timeout),
                queue_timeout: common.queue_timeout.or(app.limits.queue_timeout),
                matcher: common.matcher.clone(),
            };
            request.sampling.seed = choice_seed(seed, choice);
            request.stop.max_tokens = max_tokens;
            request.stop.skip_special_tokens = common.skip_special_tokens;
            requests.push(request);
        }
    }
    Ok(Prepared {
        requests,
        prompts,
        seed,
    })
}

/// Names the prompt of a batch that is at fault.
fn of_prompt(error: ApiError, position: usize, prompts: usize) -> ApiError {
    let blamed = matches!(error.code, Some("empty_prompt" | "context_length_exceeded"));
    if !blamed || prompts == 1 {
        return error;
    }
    let path = format!("prompt[{position}]");
    let message = format!("{path}: {}", error.message);
    ApiError { message, ..error }.at(path)
}

/// The body's priority, or else that of the header `X-Priority`.
fn priority_of(common: &Common, headers: &HeaderMap) -> Result<RequestPriority, ApiError> {
    match (common.priority, headers.get("x-priority")) {
        (Some(priority), _) => Ok(priority),
        (None, None) => Ok(RequestPriority::default()),
        (None, Some(value)) => priority_from_word(value.to_str().unwrap_or("")),
    }
}

/// The most tokens of an answer: what was asked for, or what the context leaves.
fn answer_length(
    server: &Server,
    prompt: &[TokenId],
    common: &Common,
    wanted: Wanted,
) -> Result<u32, ApiError> {
    let app = &server.app;
    let context = app.intake.limits().max_model_len;
    if prompt.is_empty() {
        return Err(Refusal::EmptyPrompt.into());
    }
    let used = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
    let left = context.saturating_sub(used);
    let default = wanted.default_max_tokens.unwrap_or(u32::MAX);
    // An answer has at least one token, so a prompt that leaves no room for it is too long.
    let max_tokens = common
        .max_tokens
        .unwrap_or_else(|| default.min(left).max(1));
    if max_tokens > left {
        return Err(Refusal::TooLong {
            prompt_tokens: prompt.len(),
            max_tokens,
            max_model_len: context,
        }
        .into());
    }
    if max_tokens == 0 && !wanted.may_be_empty {
        let field = common.max_tokens_field;
        return Err(ApiError::field(
            field,
            format!("{field} is 0; it must be at least 1, except with echo or prompt_logprobs"),
        ));
    }
    let min_tokens = common.stop.min_tokens;
    if min_tokens > max_tokens {
        let message =
            format!("min_tokens is {min_tokens}; it must be at most max_tokens, {max_tokens}");
        return Err(ApiError::field("min_tokens", message));
    }
    Ok(max_tokens)
}

/// A word is barred at the start of a text and after a space: both are different tokens.
fn bad_words(text: &dyn TextModel, words: &[String]) -> Result<Arc<[Vec<TokenId>]>, ApiError> {
    let mut sequences = Vec::with_capacity(words.len() * 2);
    for word in words {
        let bare = word.trim_start();
        for form in [bare.to_owned(), format!(" {bare}")] {
            let tokens = text
                .encode(&form, false, false)
                .map_err(text_error("bad_words"))?;
            if !tokens.is_empty() && !sequences.contains(&tokens) {
                sequences.push(tokens);
            }
        }
    }
    Ok(sequences.into())
}

/// The tokens of a conversation.
///
/// # Errors
/// 400 with the template's own message.
pub(super) async fn render_chat(
    server: &Server,
    chat: ChatPrompt,
    body_bytes: usize,
) -> Result<Vec<TokenId>, ApiError> {
    let text = Arc::clone(&server.app.text);
    let work = move || text.render_chat(&chat);
    run(body_bytes, work).await?.map_err(text_error("messages"))
}

/// The tokens of a text.
///
/// # Errors
/// 400 where the tokenizer cannot take it.
pub(super) async fn encode(
    server: &Server,
    text: String,
    add_special: bool,
    param: &'static str,
) -> Result<Vec<TokenId>, ApiError> {
    let model = Arc::clone(&server.app.text);
    let bytes = text.len();
    // Whoever writes the whole prompt may write control tokens in it.
    let work = move || model.encode(&text, add_special, true);
    run(bytes, work).await?.map_err(text_error(param))
}

/// The tokens of a completion's prompts.
///
/// # Errors
/// 400 where the tokenizer cannot take one.
pub(super) async fn encode_prompts(
    server: &Server,
    prompts: Vec<Prompt>,
    add_special: bool,
) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let mut encoded = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        encoded.push(match prompt {
            Prompt::Tokens(tokens) => tokens,
            Prompt::Text(text) => encode(server, text, add_special, "prompt").await?,
        });
    }
    Ok(encoded)
}

async fn run<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if bytes < LONG_TEXT {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        let status = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        ApiError::new(status, "the text could not be tokenized")
    })
}

fn text_error(param: &'static str) -> impl Fn(TextError) -> ApiError {
    move |error| ApiError::field(param, error.to_string())
}

/// The model that a body names must be the one that is served; none is that one.
///
/// # Errors
/// 404, naming what is served.
pub(super) fn check_model(server: &Server, named: Option<&str>) -> Result<(), ApiError> {
    let card = &server.app.model;
    match named {
        Some(name) if !card.answers_to(name) => Err(ApiError::new(
            hyper::StatusCode::NOT_FOUND,
            format!(
                "the named model is not served here; this server has {}",
                card.id
            ),
        )
        .at("model")
        .code("model_not_found")),
        _ => Ok(()),
    }
}

/// Compiles the constraint of a request into its sampling. Constraints are never ignored.
///
/// # Errors
/// 400 where it is too large, cannot be compiled, or allows no first token.
pub(super) async fn constrain(
    server: &Server,
    constraint: Option<(String, Constraint)>,
    common: &mut Common,
) -> Result<(), ApiError> {
    let Some((path, constraint)) = constraint else {
        return Ok(());
    };
    let Some(grammars) = server.app.grammars.clone() else {
        let message = "this server does not offer structured output";
        return Err(ApiError::unsupported(path, message));
    };
    let bytes = serde_json::to_vec(&constraint).map_or(0, |text| text.len());
    let max = server.app.limits.max_grammar_bytes;
    if bytes > max {
        let message = format!("{path} has {bytes} bytes; the limit is {max}");
        return Err(ApiError::field(path, message));
    }
    let constraint = Arc::new(constraint);
    common.sampling.constraint = Some(Arc::clone(&constraint));
    // Closed only with the server itself.
    let _permit = server.compiling.acquire().await;
    let compiled = run(usize::MAX, move || grammars.compile(&constraint)).await?;
    let refused =
        |error: GrammarError| ApiError::field(path, error.to_string()).code("invalid_grammar");
    common.matcher = Some(compiled.map_err(refused)?);
    Ok(())
}
