//! The body of `/v1/chat/completions`.

use serde_json::{Map, Value};

use super::common::Common;
use super::constraint::take_constraint;
use super::fields::{self, Fields};
use super::message::read_messages;
use super::{Bounds, parse_object};
use crate::http::error::ApiError;
use crate::http::text::ChatPrompt;
use crate::http::tools::{Calls, forced};
use crate::structured::Constraint;

/// A conversation to be gone on with.
#[derive(Clone, Debug)]
pub(in crate::http) struct ChatRequest {
    pub(in crate::http) common: Common,
    pub(in crate::http) prompt: ChatPrompt,
    /// Alternatives per token, where logprobs are wanted.
    pub(in crate::http) logprobs: Option<u32>,
    pub(in crate::http) tool_choice: ToolChoice,
    /// Whether there may be several calls at once.
    pub(in crate::http) parallel_calls: bool,
    /// The constraint on the answer, with the path of the field that sets it.
    pub(in crate::http) constraint: Option<(String, Constraint)>,
    /// Whether the text of a final message that is gone on with starts the answer.
    pub(in crate::http) echo: bool,
}

/// Which tools the model may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::http) enum ToolChoice {
    /// None: tools are not shown to the model.
    #[default]
    None,
    /// The model's choice.
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

impl ChatRequest {
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

    /// How the calls of an answer are told from its text; `None` where there are none.
    pub(in crate::http) fn calls(&self) -> Option<Calls> {
        let name = |tool: &Value| tool.pointer("/function/name")?.as_str().map(str::to_owned);
        match &self.tool_choice {
            ToolChoice::None => None,
            ToolChoice::Auto => Some(Calls::Free(
                self.prompt.tools.iter().filter_map(name).collect(),
            )),
            ToolChoice::Required => Some(Calls::Listed),
            ToolChoice::Named(name) => Some(Calls::Arguments(name.clone())),
        }
    }

    /// The constraint on the answer, with the field that sets it.
    ///
    /// # Errors
    /// 400 where a forced call meets another constraint.
    pub(in crate::http) fn take_constraint(
        &mut self,
    ) -> Result<Option<(String, Constraint)>, ApiError> {
        let forced =
            forced::constraint(&self.tool_choice, &self.prompt.tools, self.parallel_calls)?;
        match (forced, self.constraint.take()) {
            (None, constraint) => Ok(constraint),
            (Some(forced), None) => Ok(Some(("tool_choice".to_owned(), forced))),
            (Some(_), Some((path, _))) => {
                let message =
                    format!("{path} cannot be kept beside a tool_choice that forces a call");
                Err(ApiError::field(path, message))
            }
        }
    }

    /// Takes the fields of a body; those that are left are unknown.
    ///
    /// # Errors
    /// 400 with the path of the field at fault.
    pub(in crate::http) fn take(fields: &mut Fields, bounds: Bounds<'_>) -> Result<Self, ApiError> {
        let limits = bounds.limits;
        let items = fields::list(
            fields.required("messages")?,
            "messages",
            limits.max_messages,
        )?;
        let messages = read_messages(items, "messages")?;
        let common = Common::take(fields, bounds)?;
        let tools = read_tools(fields.list("tools", limits.max_tools)?.unwrap_or_default())?;
        let tool_choice = take_tool_choice(fields, &tools)?;
        // Where nothing constrains the answer, this is the model's own matter.
        let parallel_calls = fields.bool("parallel_tool_calls")?.unwrap_or(true);
        refuse_other_outputs(fields)?;
        let (add_generation_prompt, continue_final_message) = take_turn(fields, &messages)?;
        let prompt = ChatPrompt {
            messages,
            tools: if tool_choice == ToolChoice::None {
                Vec::new()
            } else {
                tools
            },
            add_generation_prompt,
            continue_final_message,
            kwargs: take_kwargs(fields)?,
        };
        Ok(Self {
            common,
            prompt,
            logprobs: take_logprobs(fields, limits.max_logprobs)?,
            tool_choice,
            parallel_calls,
            constraint: take_constraint(fields)?,
            echo: fields.bool("echo")?.unwrap_or(false),
        })
    }
}

/// `logprobs` is a truth value here, and `top_logprobs` a number that needs it.
fn take_logprobs(fields: &mut Fields, max: u32) -> Result<Option<u32>, ApiError> {
    let wanted = fields.bool("logprobs")?.unwrap_or(false);
    let top = fields.count("top_logprobs", 0..=max)?;
    match (wanted, top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(ApiError::field(
            "top_logprobs",
            "top_logprobs needs logprobs: true",
        )),
    }
}

fn take_turn(fields: &mut Fields, messages: &[Value]) -> Result<(bool, bool), ApiError> {
    let goes_on = fields.bool("continue_final_message")?.unwrap_or(false);
    let opens = fields.bool("add_generation_prompt")?;
    if goes_on && opens == Some(true) {
        return Err(ApiError::field(
            "continue_final_message",
            "continue_final_message and add_generation_prompt cannot both be true",
        ));
    }
    let last_role = messages.last().and_then(|message| message.get("role"));
    if goes_on && last_role.and_then(Value::as_str) != Some("assistant") {
        return Err(ApiError::field(
            "continue_final_message",
            "continue_final_message needs a last message of the assistant",
        ));
    }
    Ok((opens.unwrap_or(!goes_on), goes_on))
}

/// Variables that the rendering sets itself are not for callers to set.
fn take_kwargs(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let kwargs = fields.object("chat_template_kwargs")?.unwrap_or_default();
    let own = [
        "messages",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "chat_template",
    ];
    match own.into_iter().find(|name| kwargs.contains_key(*name)) {
        Some(name) => Err(ApiError::field(
            "chat_template_kwargs",
            format!("chat_template_kwargs cannot set {name}"),
        )),
        None => Ok(kwargs),
    }
}

/// The tools of a request: functions with a name.
pub(in crate::http) fn read_tools(items: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    for (position, item) in items.iter().enumerate() {
        let path = format!("tools[{position}]");
        let mut tool = Fields::new(item.clone(), &path)?;
        if tool.string("type")?.is_some_and(|kind| kind != "function") {
            let at = tool.path("type");
            return Err(ApiError::unsupported(
                at.clone(),
                format!("{at} must be function"),
            ));
        }
        let function = tool.required("function")?;
        let mut function = Fields::new(function, &tool.path("function"))?;
        let path = function.path("name");
        match function.required("name")? {
            Value::String(name) if !name.is_empty() => {}
            Value::String(_) => {
                let message = format!("{path} must not be empty");
                return Err(ApiError::field(path, message));
            }
            other => return Err(fields::wrong_type(&path, "a string", &other)),
        }
        function.object("parameters")?;
    }
    Ok(items)
}

fn take_tool_choice(fields: &mut Fields, tools: &[Value]) -> Result<ToolChoice, ApiError> {
    let choice = match fields.any("tool_choice") {
        None if tools.is_empty() => ToolChoice::None,
        None => ToolChoice::Auto,
        Some(Value::String(word)) => match word.as_str() {
            "none" => ToolChoice::None,
            "auto" if tools.is_empty() => ToolChoice::None,
            "auto" => ToolChoice::Auto,
            "required" | "any" => ToolChoice::Required,
            _ => {
                let message = "tool_choice must be none, auto, required or a function";
                return Err(ApiError::field("tool_choice", message));
            }
        },
        Some(value) => named_choice(value, tools)?,
    };
    if choice == ToolChoice::Required && tools.is_empty() {
        return Err(ApiError::field(
            "tool_choice",
            "tool_choice is required, but there are no tools",
        ));
    }
    Ok(choice)
}

fn named_choice(value: Value, tools: &[Value]) -> Result<ToolChoice, ApiError> {
    let mut choice = Fields::new(value, "tool_choice")?;
    let name = match choice.fields("function")? {
        Some(mut function) => function.required("name")?,
        None => choice.required("name")?,
    };
    let known = |tool: &Value| tool.pointer("/function/name") == Some(&name);
    match name.as_str() {
        Some(wanted) if tools.iter().any(known) => Ok(ToolChoice::Named(wanted.to_owned())),
        _ => Err(ApiError::field(
            "tool_choice",
            "tool_choice names a function that is not in tools",
        )),
    }
}

fn refuse_other_outputs(fields: &mut Fields) -> Result<(), ApiError> {
    let modalities = fields.list("modalities", 16)?.unwrap_or_default();
    if modalities.iter().any(|kind| kind.as_str() != Some("text")) {
        return Err(ApiError::unsupported(
            "modalities",
            "modalities other than text are not supported",
        ));
    }
    for name in ["audio", "functions", "web_search_options"] {
        if fields.any(name).is_some() {
            return Err(ApiError::unsupported(
                name,
                format!("{name} is not supported"),
            ));
        }
    }
    fields.ignore(&[
        "function_call",
        "reasoning_effort",
        "verbosity",
        "prediction",
    ]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use policy_core::RequestPriority;
    use serde_json::json;

    use super::*;
    use crate::http::limits::HttpLimits;

    fn read(mut body: Value) -> Result<ChatRequest, ApiError> {
        let limits = HttpLimits::default();
        let messages = json!([{"role": "user", "content": "hi"}]);
        body.as_object_mut()
            .unwrap()
            .entry("messages")
            .or_insert(messages);
        let bounds = Bounds {
            limits: &limits,
            vocab_size: 100,
            max_model_len: 1000,
        };
        ChatRequest::read(body.to_string().as_bytes(), bounds)
    }

    #[test]
    fn every_optional_field_takes_null() {
        let names = [
            "model",
            "stream",
            "stream_options",
            "n",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "stop",
            "stop_token_ids",
            "ignore_eos",
            "min_tokens",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
            "bad_words",
            "allowed_token_ids",
            "logprobs",
            "top_logprobs",
            "prompt_logprobs",
            "return_token_ids",
            "priority",
            "user",
            "cache_salt",
            "response_format",
            "structured_outputs",
            "guided_json",
            "guided_regex",
            "guided_choice",
            "guided_grammar",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "continue_final_message",
            "add_generation_prompt",
            "chat_template_kwargs",
            "echo",
            "skip_special_tokens",
            "modalities",
            "audio",
        ];
        let body: Map<String, Value> = names
            .into_iter()
            .map(|name| (name.to_owned(), Value::Null))
            .collect();
        let with_nulls = read(Value::Object(body)).unwrap();
        assert_eq!(
            format!("{with_nulls:?}"),
            format!("{:?}", read(json!({})).unwrap())
        );
    }

    #[test]
    fn out_of_range_values_are_named_with_their_limits() {
        let cases = [
            (json!({"temperature": -0.1}), "temperature"),
            (json!({"temperature": "1"}), "temperature"),
            (json!({"top_p": 0}), "top_p"),
            (json!({"top_p": 1.01}), "top_p"),
            (json!({"top_k": -2}), "top_k"),
            (json!({"min_p": 2}), "min_p"),
            (json!({"n": 0}), "n"),
            (json!({"n": 17}), "n"),
            (json!({"n": 10_000_000_000_u64}), "n"),
            (json!({"max_tokens": -1}), "max_tokens"),
            (json!({"max_tokens": 1.5}), "max_tokens"),
            (
                json!({"top_logprobs": 21, "logprobs": true}),
                "top_logprobs",
            ),
            (json!({"top_logprobs": 2}), "top_logprobs"),
            (json!({"logprobs": 5}), "logprobs"),
            (json!({"prompt_logprobs": -1}), "prompt_logprobs"),
            (json!({"presence_penalty": 2.5}), "presence_penalty"),
            (json!({"repetition_penalty": 0}), "repetition_penalty"),
            (json!({"seed": 1.0e300}), "seed"),
            (json!({"seed": "x"}), "seed"),
            (json!({"logit_bias": {"100": 1}}), "logit_bias"),
            (json!({"logit_bias": {"-1": 1}}), "logit_bias"),
            (json!({"logit_bias": {"7": 101}}), "logit_bias.7"),
            (json!({"stop_token_ids": [100]}), "stop_token_ids[0]"),
            (json!({"allowed_token_ids": []}), "allowed_token_ids"),
            (json!({"allowed_token_ids": [-1]}), "allowed_token_ids[0]"),
            (json!({"stop": [""]}), "stop[0]"),
            (json!({"stop": vec!["x"; 17]}), "stop"),
            (json!({"stop": "x".repeat(1025)}), "stop[0]"),
            (json!({"stop": 3}), "stop"),
            (json!({"priority": "urgent"}), "priority"),
            (json!({"priority": 1.5}), "priority"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (
                json!({"tool_choice": {"function": {"name": "f"}}}),
                "tool_choice",
            ),
            (
                json!({"tools": [{"type": "function"}]}),
                "tools[0].function",
            ),
            (
                json!({"continue_final_message": true}),
                "continue_final_message",
            ),
            (
                json!({"chat_template_kwargs": {"messages": []}}),
                "chat_template_kwargs",
            ),
            (json!({"cache_salt": ""}), "cache_salt"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": "hi"}), "messages"),
            (json!({"use_beam_search": true}), "use_beam_search"),
        ];
        assert_refused(&cases);
    }

    fn assert_refused(cases: &[(Value, &str)]) {
        for (body, param) in cases {
            let error = read(body.clone()).expect_err(&body.to_string());
            assert_eq!(
                (error.status.as_u16(), error.param.as_deref()),
                (400, Some(*param)),
                "{body}"
            );
        }
    }

    #[test]
    fn malformed_tools_are_named_by_their_path() {
        assert_refused(&[
            (
                json!({"tools": [{"function": {"name": ""}}]}),
                "tools[0].function.name",
            ),
            (
                json!({"tools": [{"function": {"name": 3}}]}),
                "tools[0].function.name",
            ),
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [3]}), "tools[0]"),
        ]);
    }

    #[test]
    fn values_reach_the_engine_unchanged() {
        let request = read(json!({
            "temperature": 0.5, "top_k": -1, "seed": -1, "logit_bias": {"7": 1.5, "3": -2},
            "stop": "END", "priority": -3, "max_tokens": 5.0, "max_completion_tokens": 6,
            "allowed_token_ids": [9, 3, 9], "unknown": {"x": 1}, "top_p": 1e-300
        }))
        .unwrap();
        let common = request.common;
        assert_eq!(
            (common.sampling.temperature, common.sampling.top_k),
            (0.5, 0)
        );
        assert_eq!(common.sampling.top_p, f32::MIN_POSITIVE);
        assert_eq!(common.seed, Some(u64::MAX));
        assert_eq!(common.sampling.logit_bias, [(3, -2.0), (7, 1.5)]);
        assert_eq!(
            common.sampling.allowed_token_ids.as_deref(),
            Some(&[3, 9][..])
        );
        assert_eq!(common.stop.stop, ["END"]);
        assert_eq!(common.priority, Some(RequestPriority::High));
        assert_eq!(common.max_tokens, Some(6));
    }

    #[test]
    fn tools_are_shown_unless_the_choice_is_none() {
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let auto = read(json!({"tools": tools})).unwrap();
        assert_eq!(
            (auto.tool_choice, auto.prompt.tools.len()),
            (ToolChoice::Auto, 1)
        );
        let none = read(json!({"tools": tools, "tool_choice": "none"})).unwrap();
        assert_eq!(
            (none.tool_choice, none.prompt.tools.len()),
            (ToolChoice::None, 0)
        );
        let choice = json!({"type": "function", "function": {"name": "f"}});
        let named = read(json!({"tools": tools, "tool_choice": choice})).unwrap();
        assert_eq!(named.tool_choice, ToolChoice::Named("f".into()));
    }
}
