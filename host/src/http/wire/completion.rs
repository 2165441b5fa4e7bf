//! The body of `/v1/completions`.

use serde_json::Value;

use super::common::Common;
use super::constraint::take_constraint;
use super::fields::{self, Fields};
use super::{Bounds, parse_object};
use crate::batch::TokenId;
use crate::http::error::ApiError;
use crate::structured::Constraint;

/// Texts to be gone on with.
#[derive(Clone, Debug)]
pub(in crate::http) struct CompletionRequest {
    pub(in crate::http) common: Common,
    pub(in crate::http) prompts: Vec<Prompt>,
    /// Alternatives per token, where logprobs are wanted.
    pub(in crate::http) logprobs: Option<u32>,
    pub(in crate::http) echo: bool,
    pub(in crate::http) add_special_tokens: bool,
    pub(in crate::http) constraint: Option<(String, Constraint)>,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::http) enum Prompt {
    /// A text.
    Text(String),
    /// Its tokens.
    Tokens(Vec<TokenId>),
}

impl CompletionRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// 400 with the path of the field at fault.
    pub(in crate::http) fn read(body: &[u8], bounds: Bounds<'_>) -> Result<Self, ApiError> {
        let mut fields = parse_object(body, bounds.limits)?;
        let request = Self::take(&mut fields, bounds)?;
        fields.finish();
        Ok(request)
    }

    fn take(fields: &mut Fields, bounds: Bounds<'_>) -> Result<Self, ApiError> {
        refuse_unsupported(fields)?;
        let prompts = read_prompts(fields.required("prompt")?, bounds)?;
        let common = Common::take(fields, bounds)?;
        let limits = bounds.limits;
        let choices = prompts.len() * common.choices as usize;
        if choices > limits.max_batch_choices {
            let max = limits.max_batch_choices;
            let message = format!("prompts times n are {choices}; the limit is {max}");
            return Err(ApiError::field("n", message));
        }
        if let Some(best_of) = fields
            .count("best_of", 0..=u32::MAX)?
            .filter(|&best| best > common.choices)
        {
            let message =
                format!("best_of is {best_of}, above n: choosing the best is not supported");
            return Err(ApiError::unsupported("best_of", message));
        }
        Ok(Self {
            common,
            prompts,
            logprobs: fields.count("logprobs", 0..=limits.max_logprobs)?,
            echo: fields.bool("echo")?.unwrap_or(false),
            add_special_tokens: fields.bool("add_special_tokens")?.unwrap_or(true),
            constraint: take_constraint(fields)?,
        })
    }
}

fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.string("suffix")? {
        None => {}
        Some(suffix) if suffix.is_empty() => {}
        Some(_) => {
            let message = "suffix is not supported: this model only goes on with a text";
            return Err(ApiError::unsupported("suffix", message));
        }
    }
    if fields.any("prompt_embeds").is_some() {
        return Err(ApiError::unsupported(
            "prompt_embeds",
            "prompt_embeds are not supported",
        ));
    }
    Ok(())
}

/// A text, a list of texts, a list of token ids, or a list of such lists.
fn read_prompts(value: Value, bounds: Bounds<'_>) -> Result<Vec<Prompt>, ApiError> {
    let items = match value {
        Value::String(text) => return Ok(vec![Prompt::Text(text)]),
        Value::Array(items) => items,
        other => {
            let wanted = "a string, a list of strings, a list of token ids or a list of such lists";
            return Err(fields::wrong_type("prompt", wanted, &other));
        }
    };
    match items.first() {
        None => Err(ApiError::field("prompt", "prompt must not be empty").code("empty_prompt")),
        Some(Value::Number(_)) => Ok(vec![Prompt::Tokens(fields::token_ids(
            &items,
            "prompt",
            bounds.vocab_size,
        )?)]),
        Some(_) => read_batch(items, bounds),
    }
}

fn read_batch(items: Vec<Value>, bounds: Bounds<'_>) -> Result<Vec<Prompt>, ApiError> {
    let items = fields::list(
        Value::Array(items),
        "prompt",
        bounds.limits.max_batch_prompts,
    )?;
    let mut prompts = Vec::with_capacity(items.len());
    for (position, item) in items.into_iter().enumerate() {
        let path = format!("prompt[{position}]");
        prompts.push(match item {
            Value::String(text) => Prompt::Text(text),
            Value::Array(ids) => Prompt::Tokens(fields::token_ids(&ids, &path, bounds.vocab_size)?),
            other => {
                return Err(fields::wrong_type(
                    &path,
                    "a string or a list of token ids",
                    &other,
                ));
            }
        });
    }
    Ok(prompts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::limits::HttpLimits;

    fn read(body: Value) -> Result<CompletionRequest, ApiError> {
        let limits = HttpLimits::default();
        let bounds = Bounds {
            limits: &limits,
            vocab_size: 100,
            max_model_len: 1000,
        };
        CompletionRequest::read(body.to_string().as_bytes(), bounds)
    }

    #[test]
    fn a_prompt_has_four_shapes() {
        let text = |text: &str| Prompt::Text(text.into());
        let cases = [
            (json!("a"), vec![text("a")]),
            (json!(["a", "b"]), vec![text("a"), text("b")]),
            (json!([1, 2]), vec![Prompt::Tokens(vec![1, 2])]),
            (
                json!([[1], [2, 3]]),
                vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])],
            ),
            (json!(["a", [1]]), vec![text("a"), Prompt::Tokens(vec![1])]),
        ];
        for (prompt, expected) in cases {
            assert_eq!(read(json!({"prompt": prompt})).unwrap().prompts, expected);
        }
    }

    #[test]
    fn wrong_prompts_and_unsupported_fields_are_refused() {
        let cases = [
            (json!({}), "prompt"),
            (json!({"prompt": []}), "prompt"),
            (json!({"prompt": {}}), "prompt"),
            (json!({"prompt": [1, "a"]}), "prompt[1]"),
            (json!({"prompt": [1, 100]}), "prompt[1]"),
            (json!({"prompt": [[1], [-1]]}), "prompt[1][0]"),
            (json!({"prompt": [[1.5]]}), "prompt[0][0]"),
            (json!({"prompt": [null]}), "prompt[0]"),
            (json!({"prompt": vec!["a"; 257]}), "prompt"),
            (json!({"prompt": vec!["a"; 100], "n": 3}), "n"),
            (json!({"prompt": "a", "suffix": "b"}), "suffix"),
            (json!({"prompt": "a", "best_of": 2}), "best_of"),
            (
                json!({"prompt": "a", "logprobs": 1_000_000_000_u64}),
                "logprobs",
            ),
            (json!({"prompt": "a", "logprobs": true}), "logprobs"),
        ];
        for (body, param) in cases {
            let error = read(body.clone()).expect_err(&body.to_string());
            assert_eq!(
                (error.status.as_u16(), error.param.as_deref()),
                (400, Some(param)),
                "{body}"
            );
        }
    }
}
