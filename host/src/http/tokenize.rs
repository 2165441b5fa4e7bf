//! Text to tokens and back, without generating: `/tokenize`, `/detokenize`, `/tokenizer_info`, and
//! the `/render` endpoints.

use std::sync::Arc;

use serde_json::{Value, json};

use super::body::{Reply, json_ok};
use super::call::Call;
use super::error::ApiError;
use super::prepare;
use super::server::Server;
use super::tokens::TokenNames;
use super::wire::chat::ChatRequest;
use super::wire::completion::CompletionRequest;
use super::wire::{Fields, fields, parse_object};
use crate::batch::TokenId;

/// Answers `/tokenize`: the tokens of a `prompt`, or of `messages` as a chat renders them.
///
/// # Errors
/// 400 for a malformed body.
pub(super) async fn tokenize(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = &call.server;
    let mut fields = parse_object(&body, &server.app.limits)?;
    check_model(server, &mut fields)?;
    let with_names = fields.bool("return_token_strs")?.unwrap_or(false);
    let tokens = match fields.string("prompt")? {
        Some(text) => {
            let add_special = fields.bool("add_special_tokens")?.unwrap_or(true);
            fields.finish();
            prepare::encode(server, text, add_special, "prompt").await?
        }
        None => {
            let request = ChatRequest::read(&body, server.bounds())?;
            prepare::render_chat(server, request.prompt, body.len()).await?
        }
    };
    let mut answer = json!({
        "count": tokens.len(),
        "max_model_len": server.app.intake.limits().max_model_len,
        "tokens": tokens,
    });
    if with_names {
        answer["token_strs"] = token_names(server, &tokens).into();
    }
    json_ok(&answer)
}

/// Answers `/detokenize`: the text of `tokens`, control tokens included.
///
/// # Errors
/// 400 for a malformed body or an id outside the vocabulary.
pub(super) async fn detokenize(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = &call.server;
    let mut fields = parse_object(&body, &server.app.limits)?;
    check_model(server, &mut fields)?;
    let items = fields::list(fields.required("tokens")?, "tokens", usize::MAX)?;
    let tokens = fields::token_ids(&items, "tokens", server.bounds().vocab_size)?;
    let skip_special = fields.bool("skip_special_tokens")?.unwrap_or(false);
    fields.finish();
    json_ok(&json!({"prompt": server.app.text.decode(&tokens, skip_special)}))
}

/// Answers `/tokenizer_info`.
///
/// # Errors
/// None of its own.
pub(super) fn info(server: &Server) -> Result<Reply, ApiError> {
    let info = server.app.text.describe();
    json_ok(&json!({
        "tokenizer_class": "LockstepTokenizer",
        "vocab_size": info.vocab_size,
        "model_max_length": server.app.intake.limits().max_model_len,
        "bos_token": info.bos_token,
        "eos_token": info.eos_token,
        "pad_token": info.pad_token,
        "unk_token": info.unk_token,
        "eos_token_id": info.eos_token_id,
        "chat_template": info.chat_template,
    }))
}

/// Answers `/v1/chat/completions/render`: the tokens that a chat completion would read.
///
/// # Errors
/// What the completion itself would say before it is handed over.
pub(super) async fn render_chat(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = Arc::clone(&call.server);
    let request = ChatRequest::read(&body, server.bounds())?;
    prepare::check_model(&server, request.common.model.as_deref())?;
    let tokens = prepare::render_chat(&server, request.prompt, body.len()).await?;
    json_ok(&rendered(&server, &tokens))
}

/// Answers `/v1/completions/render`: the tokens that a completion would read, prompt by prompt.
///
/// # Errors
/// What the completion itself would say before it is handed over.
pub(super) async fn render_completion(call: Call) -> Result<Reply, ApiError> {
    let (call, body) = call.read_body().await?;
    let server = Arc::clone(&call.server);
    let request = CompletionRequest::read(&body, server.bounds())?;
    prepare::check_model(&server, request.common.model.as_deref())?;
    let special = request.add_special_tokens;
    let prompts = prepare::encode_prompts(&server, request.prompts, special).await?;
    let rendered: Vec<Value> = prompts
        .iter()
        .map(|tokens| rendered(&server, tokens))
        .collect();
    json_ok(&rendered)
}

fn rendered(server: &Server, tokens: &[TokenId]) -> Value {
    json!({
        "model": server.app.model.id,
        "token_ids": tokens,
        "prompt": server.app.text.decode(tokens, false),
    })
}

fn check_model(server: &Server, fields: &mut Fields) -> Result<(), ApiError> {
    prepare::check_model(server, fields.string("model")?.as_deref())
}

fn token_names(server: &Server, tokens: &[TokenId]) -> Vec<String> {
    let names = TokenNames {
        text: server.app.text.as_ref(),
        as_ids: false,
    };
    tokens.iter().map(|&token| names.name(token)).collect()
}
