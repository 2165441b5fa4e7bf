//! Chat templates: from messages to the text that a model was trained on.
//!
//! A template is a small program from the model file, in Jinja. It runs as Hugging Face runs it,
//! with bounds on its work and its output, and cannot tell a user's words from its own structure;
//! [`Prompt`] can: what a message spells stays text.

use std::collections::BTreeMap;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Value};
use serde_json::{Map, Value as Json};

use crate::gguf::Gguf;
use crate::tokenizer::{Prompt, Tokenizer};

mod clean;
mod date;
mod error;
mod json;
mod marks;
mod output;
mod source;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;

pub use error::ChatError;

use marks::{ControlTexts, Marks};
use output::Bounded;

/// Fuel of one rendering: about as many instructions, or 64 times as many bytes of values.
const FUEL: u64 = 1_000_000;
/// The longest text that a template may write, in bytes.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

/// The template for files that have none, if it is asked for: OpenAI's ChatML.
const CHATML: &str = "{% for message in messages %}\
     {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
     {% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// A model's chat template, compiled and tried.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    has_tool_template: bool,
    control: ControlTexts,
    bos: String,
    eos: String,
}

/// What is rendered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conversation<'a> {
    /// The messages as they came: objects with `role`, `content` (text, parts or null) and
    /// whatever else the template knows, such as `tool_calls`.
    pub messages: &'a [Json],
    /// The tools that may be called, as they came.
    pub tools: &'a [Json],
    /// Whether the beginning of an answer is written at the end.
    pub add_generation_prompt: bool,
    /// Whether the last message is left open, to be continued.
    pub continue_final_message: bool,
    /// `chat_template_kwargs`: more variables for the template.
    pub kwargs: Option<&'a Map<String, Json>>,
    /// What `strftime_now` tells the template, in seconds since 1970 (UTC); without it the
    /// template has no such function.
    pub now: Option<u64>,
}

impl ChatTemplate {
    /// The template of a model file.
    ///
    /// # Errors
    /// [`ChatError::NoTemplate`] if it has none, or what is wrong with it: it is compiled, and
    /// tried on a short conversation.
    pub fn from_gguf(file: &Gguf, tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        let source = file
            .str("tokenizer.chat_template")?
            .ok_or(ChatError::NoTemplate)?;
        let tools = file.str("tokenizer.chat_template.tool_use")?;
        Self::compile(source, tools, tokenizer)
    }

    /// A template from its text, instead of the file's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_source(source: &str, tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        Self::compile(source, None, tokenizer)
    }

    /// ChatML, for a file without a template.
    ///
    /// # Errors
    /// [`ChatError::NoTemplate`] if the vocabulary does not have ChatML's tokens.
    pub fn chatml(tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        let known = |text| tokenizer.special_id(text).is_some();
        if !known("<|im_start|>") || !known("<|im_end|>") {
            return Err(ChatError::NoTemplate);
        }
        Self::compile(CHATML, None, tokenizer)
    }

    fn compile(
        source: &str,
        tools: Option<&str>,
        tokenizer: &Tokenizer,
    ) -> Result<Self, ChatError> {
        let mut environment = environment();
        let mut add = |name: &'static str, source: &str| {
            environment
                .add_template_owned(name, source::without_generation_tags(source))
                .map_err(|error| ChatError::Syntax {
                    message: error::describe(&error),
                })
        };
        add("chat", source)?;
        if let Some(tools) = tools {
            add("tools", tools)?;
        }
        let text = |id: Option<u32>| {
            let bytes = id
                .and_then(|id| tokenizer.token_bytes(id))
                .unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let template = Self {
            environment,
            has_tool_template: tools.is_some(),
            control: ControlTexts::new(tokenizer.control_texts()),
            bos: text(tokenizer.bos()),
            eos: text(tokenizer.eos()),
        };
        template.probe()?;
        Ok(template)
    }

    /// Renders a short conversation, so that a template that cannot work is known at start-up.
    ///
    /// A template may refuse the conversation in words of its own: then it works.
    fn probe(&self) -> Result<(), ChatError> {
        let messages = [serde_json::json!({"role": "user", "content": "Hello"})];
        let now = Some(0);
        let probe = Conversation {
            messages: &messages,
            add_generation_prompt: true,
            now,
            ..Default::default()
        };
        match self.render(&probe) {
            Ok(_) | Err(ChatError::Raised { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The text of a conversation, with the places where messages spell control tokens.
    ///
    /// # Errors
    /// What is wrong with the conversation, or what the template says of it.
    pub fn render(&self, conversation: &Conversation<'_>) -> Result<Prompt, ChatError> {
        if conversation.continue_final_message && conversation.add_generation_prompt {
            return Err(ChatError::ContinueAndGenerate);
        }
        let mut messages = clean::messages(conversation.messages)?;
        let marks = Marks::unused_in(conversation).ok_or(ChatError::NoMarkLeft)?;
        if conversation.continue_final_message {
            marks.open_end(&mut messages)?;
        }
        let variables = self.variables(conversation, &messages, &marks);
        let has_tools = !conversation.tools.is_empty();
        let name = if self.has_tool_template && has_tools {
            "tools"
        } else {
            "chat"
        };
        let text = self.run(name, variables)?;
        if conversation.continue_final_message {
            return marks.finish(marks.cut_at_open_end(&text)?);
        }
        marks.finish(&text)
    }

    /// What the template sees; a caller's variables never replace the template's own.
    fn variables(
        &self,
        conversation: &Conversation<'_>,
        messages: &[Json],
        marks: &Marks,
    ) -> Value {
        let none = Value::from(());
        let tools = match conversation.tools {
            [] => none.clone(),
            tools => marks.protect_all(tools, &self.control),
        };
        let mut variables: BTreeMap<String, Value> = BTreeMap::new();
        for (name, value) in conversation.kwargs.into_iter().flatten() {
            variables.insert(name.clone(), marks.protect(value, &self.control));
        }
        let own = [
            ("messages", marks.protect_all(messages, &self.control)),
            ("tools", tools),
            ("documents", none),
            (
                "add_generation_prompt",
                conversation.add_generation_prompt.into(),
            ),
            ("bos_token", (&*self.bos).into()),
            ("eos_token", (&*self.eos).into()),
        ];
        variables.extend(own.map(|(name, value)| (name.into(), value)));
        if let Some(now) = conversation.now {
            variables.insert("strftime_now".into(), date::function(now));
        }
        Value::from(variables)
    }

    fn run(&self, name: &str, variables: Value) -> Result<String, ChatError> {
        let template = self.environment.get_template(name);
        let template = template.map_err(|error| error::of_rendering(&error))?;
        let mut output = Bounded::new(MAX_OUTPUT_BYTES);
        let rendered = template
            .render_captured_to(variables, &mut output)
            .map(drop);
        if output.is_over() {
            return Err(ChatError::TooLong {
                limit: MAX_OUTPUT_BYTES,
            });
        }
        rendered.map_err(|error| error::of_rendering(&error))?;
        output.into_text().ok_or(ChatError::NoMarkLeft)
    }
}

/// The environment that templates run in, as Hugging Face sets it up.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    // Only custom delimiters can make the builder fail, and none are set.
    environment.set_syntax(syntax.unwrap_or_default());
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_fuel(Some(FUEL));
    environment.add_filter("tojson", json::filter);
    environment.add_function("raise_exception", error::raise);
    environment
}
