//! Tool calls in the text of an answer: read from the model's own format, passed on as deltas.
//!
//! | form | looks like |
//! |---|---|
//! | Hermes, Qwen 2.5 and 3 | `<tool_call>{"name": …, "arguments": {…}}</tool_call>` |
//! | Qwen 3 Coder | `<tool_call><function=f><parameter=x>1</parameter></function></tool_call>` |
//! | Llama 3 | `{"name": …, "parameters": {…}}` as the whole answer, or after `<\|python_tag\|>` |
//! | Mistral | `[TOOL_CALLS][{"name": …, "arguments": {…}}]` or `[TOOL_CALLS]f[ARGS]{…}` |
//!
//! What merely looks like a call is text, and no text is lost. The whole answer and the sum of the
//! deltas are the same, because both come out of the same parser.

use std::sync::Arc;

use serde_json::Value;

use super::wire::output::{FunctionCall, ToolCall};

pub(super) mod forced;
mod function_tags;
mod scanner;

use scanner::CallScanner;

const HERMES: &str = "<tool_call>";
const HERMES_END: &str = "</tool_call>";
const FUNCTION: &str = "<function=";
const LLAMA: &str = "<|python_tag|>";
const MISTRAL: &str = "[TOOL_CALLS]";
const MISTRAL_ARGUMENTS: &str = "[ARGS]";
const MARKERS: [(&str, Form); 3] = [
    (HERMES, Form::Hermes),
    (LLAMA, Form::Llama),
    (MISTRAL, Form::Mistral),
];
/// The longest name that a call in Mistral's short form can have.
const MAX_NAME: usize = 256;

/// What comes out of a text: text for the reader, or (part of) a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text that is no call.
    Text(String),
    /// A call, or what is added to one.
    Call(ToolCall),
}

/// How calls are told from text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// By their form; these are the names of the tools on offer.
    Free(Arc<[String]>),
    /// The answer is a list of calls: a constraint holds it to that.
    Listed,
    /// The answer is the arguments of one call: a constraint holds it to that.
    Arguments(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Hermes,
    Llama,
    /// JSON that the answer starts with.
    Bare,
    Mistral,
    /// Mistral's name before the arguments.
    MistralShort,
}

#[derive(Debug)]
enum State {
    /// Nothing but white space so far.
    Start,
    Text,
    /// A marker was read.
    Open(Form),
    /// A call in JSON is being read.
    Call {
        form: Form,
        scanner: CallScanner,
        sent: Option<usize>,
    },
    /// A call is complete.
    After(Form),
}

/// Finds calls in a text that comes bit by bit.
#[derive(Debug)]
pub(super) struct ToolParser {
    state: State,
    pending: String,
    pieces: Vec<Piece>,
    calls: u32,
    id: String,
    names: Arc<[String]>,
}

impl ToolParser {
    /// A parser for one choice of the answer `id`.
    pub(super) fn new(id: &str, choice: u32, calls: &Calls) -> Self {
        let digits = id.rsplit(['-', '_']).next().unwrap_or(id);
        let mut parser = Self {
            state: State::Start,
            pending: String::new(),
            pieces: Vec::new(),
            calls: 0,
            id: format!("call_{digits}{choice:02}"),
            names: Arc::from([]),
        };
        match calls {
            Calls::Free(names) => parser.names = Arc::clone(names),
            Calls::Listed => parser.state = State::Open(Form::Mistral),
            Calls::Arguments(name) => parser.state = parser.arguments_of(name),
        }
        parser
    }

    /// Tells a call of this name; the object that follows is its arguments alone.
    fn arguments_of(&mut self, name: &str) -> State {
        self.header(name);
        let mut scanner = CallScanner::default();
        "{\"arguments\":"
            .chars()
            .for_each(|character| scanner.push(character));
        State::Call {
            form: Form::MistralShort,
            scanner,
            sent: Some(0),
        }
    }

    /// Takes the next bit of text.
    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        self.pending.push_str(text);
        while self.advance() {}
        std::mem::take(&mut self.pieces)
    }

    /// The text is over: what was withheld is text after all.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Open(form) => self.text(marker(form)),
            State::Call {
                form,
                scanner,
                sent: None,
            } => {
                self.text(marker(form));
                self.text(scanner.raw());
            }
            State::Call { .. } => self.pending.clear(),
            State::After(_) if self.pending.trim().is_empty() => self.pending.clear(),
            State::After(_) | State::Start | State::Text => {}
        }
        let rest = std::mem::take(&mut self.pending);
        self.text(&rest);
        std::mem::take(&mut self.pieces)
    }

    /// Text and calls of a whole answer.
    pub(super) fn whole(mut self, text: &str) -> (String, Vec<ToolCall>) {
        let mut pieces = self.push(text);
        pieces.extend(self.finish());
        let (mut text, mut calls) = (String::new(), Vec::<ToolCall>::new());
        for piece in pieces {
            match piece {
                Piece::Text(more) => text.push_str(&more),
                Piece::Call(call) if call.id.is_some() => {
                    calls.push(ToolCall {
                        index: None,
                        ..call
                    });
                }
                Piece::Call(more) => {
                    if let Some(call) = calls.last_mut() {
                        call.function.arguments.push_str(&more.function.arguments);
                    }
                }
            }
        }
        (text, calls)
    }

    /// One step of the machine; `false`: more text is needed.
    fn advance(&mut self) -> bool {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Start => self.start(),
            State::Text => self.plain(),
            State::Open(form) => self.opened(form),
            State::Call {
                form,
                scanner,
                sent,
            } => self.call(form, scanner, sent),
            State::After(form) => self.after(form),
        }
    }

    fn go(&mut self, state: State, on: bool) -> bool {
        self.state = state;
        on
    }

    fn text(&mut self, text: &str) {
        match self.pieces.last_mut() {
            _ if text.is_empty() => {}
            Some(Piece::Text(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Text(text.to_owned())),
        }
    }

    fn start(&mut self) -> bool {
        match self.pending.trim_start().chars().next() {
            None => self.go(State::Start, false),
            Some('{') => {
                self.skip_space();
                let scanner = CallScanner::default();
                self.go(
                    State::Call {
                        form: Form::Bare,
                        scanner,
                        sent: None,
                    },
                    true,
                )
            }
            Some(_) => self.go(State::Text, true),
        }
    }

    fn plain(&mut self) -> bool {
        let found = MARKERS
            .iter()
            .filter_map(|&(marker, form)| Some((self.pending.find(marker)?, marker, form)))
            .min_by_key(|&(at, ..)| at);
        if let Some((at, marker, form)) = found {
            let rest = self.pending.split_off(at + marker.len());
            let mut before = std::mem::replace(&mut self.pending, rest);
            before.truncate(at);
            self.text(&before);
            return self.go(State::Open(form), true);
        }
        let held = MARKERS
            .iter()
            .map(|(marker, _)| overlap(&self.pending, marker))
            .max();
        let rest = self
            .pending
            .split_off(self.pending.len() - held.unwrap_or(0));
        let text = std::mem::replace(&mut self.pending, rest);
        self.text(&text);
        false
    }

    fn opened(&mut self, form: Form) -> bool {
        self.skip_space();
        let call = |form| State::Call {
            form,
            scanner: CallScanner::default(),
            sent: None,
        };
        match self.pending.chars().next() {
            None => self.go(State::Open(form), false),
            Some('{') => self.go(call(form), true),
            Some('[') if form == Form::Mistral => {
                self.pending.remove(0);
                self.go(State::Open(form), true)
            }
            Some('<') if form == Form::Hermes => self.function_tags(),
            Some(_) if form == Form::Mistral => self.short_name(),
            Some(_) => {
                self.text(marker(form));
                self.go(State::Text, true)
            }
        }
    }

    /// Qwen's tags are read once they are all there: their arguments are no JSON to be passed on.
    fn function_tags(&mut self) -> bool {
        if !self.pending.starts_with(FUNCTION) && !FUNCTION.starts_with(&self.pending) {
            self.text(HERMES);
            return self.go(State::Text, true);
        }
        let Some(end) = self.pending.find(HERMES_END) else {
            return self.go(State::Open(Form::Hermes), false);
        };
        let rest = self.pending.split_off(end);
        let tags = std::mem::replace(&mut self.pending, rest);
        match function_tags::read(&tags) {
            Some((name, arguments)) => {
                self.header(&name);
                self.fragment(&Value::Object(arguments).to_string());
                self.go(State::After(Form::Hermes), true)
            }
            None => {
                self.text(HERMES);
                self.text(&tags);
                self.go(State::Text, true)
            }
        }
    }

    fn short_name(&mut self) -> bool {
        let Some(end) = self.pending.find('{') else {
            let too_long = self.pending.len() > MAX_NAME;
            if too_long {
                self.text(MISTRAL);
            }
            let state = if too_long {
                State::Text
            } else {
                State::Open(Form::Mistral)
            };
            return self.go(state, too_long);
        };
        let rest = self.pending.split_off(end);
        let head = std::mem::replace(&mut self.pending, rest);
        let name = head.split(['[', ' ', '\n']).next().unwrap_or("");
        if name.is_empty() || !head.ends_with(MISTRAL_ARGUMENTS) && head.contains('[') {
            self.text(MISTRAL);
            self.text(&head);
            return self.go(State::Text, true);
        }
        let name = name.to_owned();
        let state = self.arguments_of(&name);
        self.go(state, true)
    }

    fn call(&mut self, form: Form, mut scanner: CallScanner, mut sent: Option<usize>) -> bool {
        let names = Arc::clone(&self.names);
        let known = (form == Form::Bare).then_some(&*names);
        let mut used = 0;
        let short = form == Form::MistralShort;
        for character in self.pending.chars() {
            scanner.push(character);
            used += character.len_utf8();
            if short && scanner.arguments_complete() {
                scanner.push('}');
            }
            if scanner.complete() || scanner.hopeless(known) {
                break;
            }
        }
        self.pending.drain(..used);
        if sent.is_none() && scanner.hopeless(known) {
            self.text(marker(form));
            self.text(scanner.raw());
            return self.go(State::Text, true);
        }
        if let (None, Some(name)) = (sent, scanner.name()) {
            self.header(name);
            sent = Some(0);
        }
        if let Some(from) = &mut sent {
            let arguments = scanner.arguments();
            self.fragment(arguments.get(*from..).unwrap_or(""));
            *from = arguments.len();
        }
        if scanner.complete() {
            return self.go(State::After(form), true);
        }
        self.go(
            State::Call {
                form,
                scanner,
                sent,
            },
            false,
        )
    }

    fn after(&mut self, form: Form) -> bool {
        self.skip_space();
        if self.pending.is_empty() {
            return self.go(State::After(form), false);
        }
        let separators: &[(&str, State)] = match form {
            Form::Hermes => &[(HERMES_END, State::After(Form::Llama))],
            Form::Llama | Form::Bare => &[(";", State::Open(Form::Llama))],
            Form::Mistral => &[(",", State::Open(Form::Mistral)), ("]", State::Text)],
            Form::MistralShort => &[],
        };
        for (separator, next) in separators {
            if self.pending.starts_with(separator) {
                self.pending.drain(..separator.len());
                let next = match next {
                    State::Open(form) => State::Open(*form),
                    State::After(form) => State::After(*form),
                    _ => State::Text,
                };
                return self.go(next, true);
            }
            if separator.starts_with(&self.pending) {
                return self.go(State::After(form), false);
            }
        }
        self.go(State::Text, true)
    }

    fn skip_space(&mut self) {
        let space = self.pending.len() - self.pending.trim_start().len();
        self.pending.drain(..space);
    }

    fn header(&mut self, name: &str) {
        self.calls += 1;
        let index = self.calls - 1;
        self.pieces.push(Piece::Call(ToolCall {
            index: Some(index),
            id: Some(format!("{}{index:03}", self.id)),
            kind: Some("function"),
            function: FunctionCall {
                name: Some(name.to_owned()),
                arguments: String::new(),
            },
        }));
    }

    fn fragment(&mut self, arguments: &str) {
        if arguments.is_empty() {
            return;
        }
        self.pieces.push(Piece::Call(ToolCall {
            index: Some(self.calls.saturating_sub(1)),
            function: FunctionCall {
                name: None,
                arguments: arguments.to_owned(),
            },
            ..ToolCall::default()
        }));
    }
}

/// What was read before a call of this form.
fn marker(form: Form) -> &'static str {
    match form {
        Form::Hermes => HERMES,
        Form::Llama => LLAMA,
        Form::Mistral | Form::MistralShort => MISTRAL,
        Form::Bare => "",
    }
}

/// The length of the longest end of `text` that `marker` starts with.
fn overlap(text: &str, marker: &str) -> usize {
    let longest = text.len().min(marker.len() - 1);
    (1..=longest)
        .rev()
        .find(|&length| text.as_bytes().ends_with(&marker.as_bytes()[..length]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
