//! One call in JSON, read character by character.

/// How deep a call's arguments may nest.
const MAX_DEPTH: usize = 64;

/// Reads `{"name": …, "arguments": {…}}` as it comes: the name is known as soon as it is there, and
/// arguments are passed on while they are still being written.
#[derive(Debug, Default)]
pub(super) struct CallScanner {
    raw: String,
    depth: usize,
    in_string: bool,
    escaped: bool,
    string_start: usize,
    key: Option<String>,
    in_value: bool,
    name: Option<String>,
    arguments: Arguments,
    first_key: Option<String>,
    complete: bool,
}

#[derive(Debug, Default)]
enum Arguments {
    #[default]
    None,
    /// An object, as a range of the raw text.
    Object { start: usize, end: Option<usize> },
    /// A text that holds the object.
    Text(String),
}

impl CallScanner {
    /// Takes the next character.
    pub(super) fn push(&mut self, character: char) {
        self.raw.push(character);
        if self.in_string {
            self.push_in_string(character);
            return;
        }
        match character {
            '"' => {
                self.in_string = true;
                self.string_start = self.raw.len() - 1;
            }
            '{' | '[' => self.open(character),
            '}' | ']' => self.close(),
            ':' if self.depth == 1 => self.in_value = true,
            ',' if self.depth == 1 => {
                self.in_value = false;
                self.key = None;
            }
            _ => {}
        }
    }

    fn push_in_string(&mut self, character: char) {
        match character {
            _ if self.escaped => self.escaped = false,
            '\\' => self.escaped = true,
            '"' => {
                self.in_string = false;
                if self.depth == 1 {
                    self.end_string();
                }
            }
            _ => {}
        }
    }

    fn end_string(&mut self) {
        let text = self.raw.get(self.string_start..).unwrap_or("");
        let Ok(text) = serde_json::from_str::<String>(text) else {
            return;
        };
        if !self.in_value {
            self.first_key.get_or_insert_with(|| text.clone());
            self.key = Some(text);
        } else if self.key.as_deref() == Some("name") {
            self.name = Some(text);
        } else if self.in_arguments() {
            self.arguments = Arguments::Text(text);
        }
    }

    fn open(&mut self, character: char) {
        self.depth += 1;
        if character == '{' && self.depth == 2 && self.in_value && self.in_arguments() {
            let start = self.raw.len() - 1;
            self.arguments = Arguments::Object { start, end: None };
        }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 1
            && self.in_arguments()
            && let Arguments::Object {
                end: end @ None, ..
            } = &mut self.arguments
        {
            *end = Some(self.raw.len());
        }
        self.complete = self.depth == 0;
    }

    fn in_arguments(&self) -> bool {
        matches!(self.key.as_deref(), Some("arguments" | "parameters"))
    }

    /// Whether the object is closed.
    pub(super) fn complete(&self) -> bool {
        self.complete
    }

    /// Whether this cannot become a call of one of `names` (any name where there are none).
    pub(super) fn hopeless(&self, names: Option<&[String]>) -> bool {
        let known = |name: &String| names.is_none_or(|names| names.contains(name));
        let odd = |key: &str| !["name", "type", "id", "arguments", "parameters"].contains(&key);
        self.depth > MAX_DEPTH
            || self.complete && self.name.is_none()
            || self.name.as_ref().is_some_and(|name| !known(name))
            || names.is_some() && self.first_key.as_deref().is_some_and(odd)
    }

    /// The function's name, once it is there.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The arguments as far as they are there. They only grow.
    pub(super) fn arguments(&self) -> &str {
        match &self.arguments {
            Arguments::Object { start, end } => self
                .raw
                .get(*start..end.unwrap_or(self.raw.len()))
                .unwrap_or(""),
            // Some models write the object as a text; nothing at all is an empty object.
            Arguments::Text(text) if self.complete && text.trim().is_empty() => "{}",
            Arguments::Text(text) if self.complete => text,
            Arguments::None if self.complete => "{}",
            Arguments::Text(_) | Arguments::None => "",
        }
    }

    /// Whether the arguments are an object that is closed.
    pub(super) fn arguments_complete(&self) -> bool {
        matches!(self.arguments, Arguments::Object { end: Some(_), .. })
    }

    /// Everything that was read.
    pub(super) fn raw(&self) -> &str {
        &self.raw
    }
}
