//! The request fields that every generating endpoint has.

use std::sync::Arc;
use std::time::Duration;

use policy_core::RequestPriority;
use serde_json::Value;

use super::Bounds;
use super::fields::{self, Fields};
use crate::batch::TokenId;
use crate::http::error::ApiError;
use crate::request::{SamplingParams, StopConditions};
use crate::structured::Matcher;

/// Below this temperature the draw is greedy: dividing by less would overflow the logits.
const SEEDS: std::ops::RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;

/// What a request asks of the engine, whatever its endpoint.
#[derive(Clone, Debug)]
pub(in crate::http) struct Common {
    pub(in crate::http) model: Option<String>,
    pub(in crate::http) stream: bool,
    pub(in crate::http) include_usage: bool,
    /// Whether the stream outlives its connection.
    pub(in crate::http) resumable: bool,
    /// `n`: choices per prompt.
    pub(in crate::http) choices: u32,
    /// `None` asks for the default length.
    pub(in crate::http) max_tokens: Option<u32>,
    /// The field that named it.
    pub(in crate::http) max_tokens_field: &'static str,
    /// The seed is unset: `seed` holds it.
    pub(in crate::http) sampling: SamplingParams,
    pub(in crate::http) seed: Option<u64>,
    /// `max_tokens` is unset.
    pub(in crate::http) stop: StopConditions,
    /// Words that are still to be tokenized into `sampling.bad_words`.
    pub(in crate::http) bad_words: Vec<String>,
    pub(in crate::http) prompt_logprobs: Option<u32>,
    pub(in crate::http) cache_salt: Option<Arc<str>>,
    pub(in crate::http) priority: Option<RequestPriority>,
    pub(in crate::http) timeout: Option<Duration>,
    pub(in crate::http) queue_timeout: Option<Duration>,
    pub(in crate::http) return_token_ids: bool,
    pub(in crate::http) skip_special_tokens: bool,
    pub(in crate::http) tokens_as_ids: bool,
    /// The compiled constraint, once there is one.
    pub(in crate::http) matcher: Option<Matcher>,
}

impl Common {
    /// Takes the common fields out of a body.
    pub(in crate::http) fn take(fields: &mut Fields, bounds: Bounds<'_>) -> Result<Self, ApiError> {
        let limits = bounds.limits;
        let (stream, include_usage, resumable) = take_stream(fields)?;
        let (sampling, seed) = take_sampling(fields, bounds)?;
        let bad_words = take_texts(fields, "bad_words", limits.max_bad_words, bounds)?;
        let salt = fields.string("cache_salt")?;
        if salt.as_ref().is_some_and(String::is_empty) {
            return Err(ApiError::field(
                "cache_salt",
                "cache_salt must not be empty",
            ));
        }
        refuse_unsupported(fields)?;
        let (max_tokens, max_tokens_field) = take_max_tokens(fields)?;
        Ok(Self {
            model: fields.string("model")?,
            stream,
            include_usage,
            resumable,
            choices: fields.count("n", 1..=limits.max_choices)?.unwrap_or(1),
            max_tokens,
            max_tokens_field,
            sampling,
            seed,
            stop: take_stop(fields, bounds)?,
            bad_words,
            prompt_logprobs: fields.count("prompt_logprobs", 0..=limits.max_logprobs)?,
            cache_salt: salt.map(Arc::from),
            priority: take_priority(fields)?,
            timeout: take_seconds(fields, "timeout")?,
            queue_timeout: take_seconds(fields, "queue_timeout")?,
            return_token_ids: fields.bool("return_token_ids")?.unwrap_or(false),
            skip_special_tokens: fields.bool("skip_special_tokens")?.unwrap_or(true),
            tokens_as_ids: fields.bool("return_tokens_as_token_ids")?.unwrap_or(false),
            matcher: None,
        })
    }
}

fn take_stream(fields: &mut Fields) -> Result<(bool, bool, bool), ApiError> {
    let stream = fields.bool("stream")?.unwrap_or(false);
    let (mut include_usage, mut resumable) = (false, false);
    if let Some(mut options) = fields.fields("stream_options")? {
        include_usage = options.bool("include_usage")?.unwrap_or(false);
        resumable = options.bool("resumable")?.unwrap_or(false);
        options.finish();
    }
    Ok((stream, include_usage, resumable))
}

/// The times that a request may name, in seconds: up to a day.
const SECONDS: std::ops::RangeInclusive<f64> = 1.0..=86_400.0;

fn take_seconds(fields: &mut Fields, name: &str) -> Result<Option<Duration>, ApiError> {
    let seconds = fields.float(name, SECONDS)?;
    Ok(seconds.map(Duration::from_secs_f32))
}

/// The most tokens, and the field that says so. A length over the context is told with the prompt's
/// length, once that is known.
fn take_max_tokens(fields: &mut Fields) -> Result<(Option<u32>, &'static str), ApiError> {
    let [newer, older] = ["max_completion_tokens", "max_tokens"];
    let newest = fields.count(newer, 0..=u32::MAX)?;
    let oldest = fields.count(older, 0..=u32::MAX)?;
    Ok(match newest {
        Some(_) => (newest, newer),
        None => (oldest, older),
    })
}

fn take_sampling(
    fields: &mut Fields,
    bounds: Bounds<'_>,
) -> Result<(SamplingParams, Option<u64>), ApiError> {
    let defaults = SamplingParams::default();
    let temperature = fields
        .float("temperature", 0.0..=100.0)?
        .unwrap_or(defaults.temperature);
    let sampling = SamplingParams {
        temperature: if temperature < SamplingParams::LEAST_TEMPERATURE {
            0.0
        } else {
            temperature
        },
        top_k: take_top_k(fields)?,
        top_p: take_top_p(fields)?,
        min_p: fields.float("min_p", 0.0..=1.0)?.unwrap_or(defaults.min_p),
        seed: 0,
        presence_penalty: fields.float("presence_penalty", -2.0..=2.0)?.unwrap_or(0.0),
        frequency_penalty: fields
            .float("frequency_penalty", -2.0..=2.0)?
            .unwrap_or(0.0),
        repetition_penalty: take_repetition_penalty(fields)?,
        logit_bias: take_logit_bias(fields, bounds)?,
        allowed_token_ids: take_allowed(fields, bounds)?,
        bad_words: Arc::from([]),
        constraint: None,
    };
    // Negative seeds are the same 64 bits.
    let seed = fields.integer("seed", SEEDS)?.map(|seed| seed as u64);
    Ok((sampling, seed))
}

/// -1 and 0 both mean all.
fn take_top_k(fields: &mut Fields) -> Result<u32, ApiError> {
    let top_k = fields.integer("top_k", -1..=i128::from(i32::MAX))?;
    Ok(top_k
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(0))
}

fn take_top_p(fields: &mut Fields) -> Result<f32, ApiError> {
    let zero = fields.peek("top_p").as_f64() == Some(0.0);
    let top_p = fields.float("top_p", 0.0..=1.0)?.unwrap_or(1.0);
    if zero {
        let message = "top_p is 0; it must be above 0 and at most 1";
        return Err(ApiError::field("top_p", message));
    }
    // What is above 0 stays so as the sampler's shorter number: the most likely token is kept.
    Ok(top_p.max(f32::MIN_POSITIVE))
}

fn take_repetition_penalty(fields: &mut Fields) -> Result<f32, ApiError> {
    Ok(fields
        .float("repetition_penalty", 0.01..=100.0)?
        .unwrap_or(1.0))
}

fn take_logit_bias(
    fields: &mut Fields,
    bounds: Bounds<'_>,
) -> Result<Vec<(TokenId, f32)>, ApiError> {
    let Some(map) = fields.object("logit_bias")? else {
        return Ok(Vec::new());
    };
    let max = bounds.limits.max_logit_bias;
    if map.len() > max {
        let message = format!("logit_bias has {} entries; the limit is {max}", map.len());
        return Err(ApiError::field("logit_bias", message));
    }
    let mut bias = Vec::with_capacity(map.len());
    for (key, value) in &map {
        let id = logit_bias_id(key, bounds.vocab_size)?;
        bias.push((
            id,
            fields::float(value, &format!("logit_bias.{id}"), -100.0..=100.0)?,
        ));
    }
    // "7" and "07" are one id; the last one written counts, as with equal keys.
    bias.sort_by_key(|&(id, _)| id);
    bias.reverse();
    bias.dedup_by_key(|entry| entry.0);
    bias.reverse();
    Ok(bias)
}

fn logit_bias_id(key: &str, vocab_size: u32) -> Result<TokenId, ApiError> {
    let digits = key.len() <= 20 && key.bytes().all(|byte| byte.is_ascii_digit());
    let number = key.parse::<u64>().ok().filter(|_| digits).ok_or_else(|| {
        ApiError::field(
            "logit_bias",
            "the keys of logit_bias must be token ids in digits",
        )
    })?;
    match u32::try_from(number) {
        Ok(id) if id < vocab_size => Ok(id),
        _ => Err(ApiError::field(
            "logit_bias",
            format!("logit_bias: token id {number} is outside the vocabulary of {vocab_size}"),
        )
        .code("unknown_token")),
    }
}

fn take_allowed(
    fields: &mut Fields,
    bounds: Bounds<'_>,
) -> Result<Option<Arc<[TokenId]>>, ApiError> {
    let max = bounds.vocab_size as usize;
    let Some(items) = fields.list("allowed_token_ids", max)? else {
        return Ok(None);
    };
    let mut ids = fields::token_ids(&items, "allowed_token_ids", bounds.vocab_size)?;
    if ids.is_empty() {
        let message = "allowed_token_ids must name at least one token";
        return Err(ApiError::field("allowed_token_ids", message));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(Some(ids.into()))
}

fn take_stop(fields: &mut Fields, bounds: Bounds<'_>) -> Result<StopConditions, ApiError> {
    let max = bounds.limits.max_stop;
    let ids = fields.list("stop_token_ids", max * 16)?.unwrap_or_default();
    Ok(StopConditions {
        max_tokens: 0,
        min_tokens: fields
            .count("min_tokens", 0..=bounds.max_model_len)?
            .unwrap_or(0),
        stop: take_texts(fields, "stop", max, bounds)?,
        stop_token_ids: fields::token_ids(&ids, "stop_token_ids", bounds.vocab_size)?,
        ignore_eos: fields.bool("ignore_eos")?.unwrap_or(false),
        include_stop_str_in_output: fields.bool("include_stop_str_in_output")?.unwrap_or(false),
        skip_special_tokens: true,
    })
}

/// A text or a list of texts; each of bounded length and not empty.
fn take_texts(
    fields: &mut Fields,
    name: &str,
    max: usize,
    bounds: Bounds<'_>,
) -> Result<Vec<String>, ApiError> {
    let items = match fields.any(name) {
        None => return Ok(Vec::new()),
        Some(Value::String(text)) => vec![Value::String(text)],
        Some(Value::Array(items)) => fields::list(Value::Array(items), name, max)?,
        Some(other) => {
            return Err(fields::wrong_type(
                name,
                "a string or a list of strings",
                &other,
            ));
        }
    };
    let max_bytes = bounds.limits.max_stop_bytes;
    let mut texts = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        let path = format!("{name}[{position}]");
        match item {
            Value::String(text) if text.is_empty() => {
                return Err(ApiError::field(
                    path.clone(),
                    format!("{path} must not be empty"),
                ));
            }
            Value::String(text) if text.len() > max_bytes => {
                let len = text.len();
                let message = format!("{path} has {len} bytes; the limit is {max_bytes}");
                return Err(ApiError::field(path, message));
            }
            Value::String(text) => texts.push(text),
            other => return Err(fields::wrong_type(&path, "a string", &other)),
        }
    }
    Ok(texts)
}

fn take_priority(fields: &mut Fields) -> Result<Option<RequestPriority>, ApiError> {
    let Some(value) = fields.any("priority") else {
        return Ok(None);
    };
    match &value {
        Value::String(word) => priority_from_word(word).map(Some),
        Value::Number(_) => {
            let range = i128::from(i64::MIN)..=i128::from(i64::MAX);
            let number = fields::integer(&value, "priority", range)?;
            Ok(Some(priority_from_number(number)))
        }
        other => Err(fields::wrong_type(
            "priority",
            "low, normal, high or a whole number",
            other,
        )),
    }
}

/// The class that a number names: lower is more urgent, 0 is normal.
fn priority_from_number(number: i128) -> RequestPriority {
    match number {
        ..=-1 => RequestPriority::High,
        0 => RequestPriority::Normal,
        1.. => RequestPriority::Low,
    }
}

/// The class that a word names, in the body or in the header `X-Priority`; digits work too.
pub(in crate::http) fn priority_from_word(word: &str) -> Result<RequestPriority, ApiError> {
    let word = word.trim();
    for (name, priority) in [
        ("low", RequestPriority::Low),
        ("normal", RequestPriority::Normal),
        ("high", RequestPriority::High),
    ] {
        if word.eq_ignore_ascii_case(name) {
            return Ok(priority);
        }
    }
    match word.parse::<i64>() {
        Ok(number) => Ok(priority_from_number(number.into())),
        Err(_) => Err(ApiError::field(
            "priority",
            "priority must be low, normal, high or a whole number (lower is more urgent)",
        )),
    }
}

/// Fields that change the answer in ways this server does not offer: saying nothing would be a lie.
fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["use_beam_search", "early_stopping"] {
        if fields.bool(name)? == Some(true) {
            return Err(ApiError::unsupported(
                name,
                format!("{name} is not supported"),
            ));
        }
    }
    if fields.any("logits_processors").is_some() {
        return Err(ApiError::unsupported(
            "logits_processors",
            "logits_processors are not supported",
        ));
    }
    fields.ignore(&[
        "user",
        "metadata",
        "store",
        "service_tier",
        "length_penalty",
        "request_id",
    ]);
    Ok(())
}
