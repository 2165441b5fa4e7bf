//! What an answer may be, as a request says it and a record keeps it.

use llguidance::api::TopLevelGrammar;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// White space between the parts of JSON: some, but never without end.
const WHITE_SPACE: &str = r"[\x20\x0A\x0D\x09]{1,20}";

/// A constraint on the text of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema(Value),
    /// A text that a regular expression matches, whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A text of a grammar: Lark's syntax, or the library's own JSON.
    Grammar(String),
}

impl Constraint {
    /// The library's form of it.
    ///
    /// # Errors
    /// What is wrong with a grammar's text.
    pub(super) fn grammar(&self) -> Result<TopLevelGrammar, String> {
        Ok(match self {
            Self::JsonObject => json_schema(json!({"type": "object"})),
            Self::JsonSchema(schema) => json_schema(schema.clone()),
            Self::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Self::Choice(texts) => {
                let escaped: Vec<String> = texts.iter().map(|text| escape(text)).collect();
                TopLevelGrammar::from_regex(&escaped.join("|"))
            }
            Self::Grammar(text) => TopLevelGrammar::from_lark_or_grammar_list(text)
                .map_err(|error| error.to_string())?,
        })
    }
}

/// A schema's own `x-guidance` is kept; what it leaves open about white space is bounded.
fn json_schema(schema: Value) -> TopLevelGrammar {
    let mut map = match schema {
        Value::Object(map) => map,
        Value::Bool(true) => Map::new(),
        other => return TopLevelGrammar::from_json_schema(other),
    };
    let options = map.entry("x-guidance").or_insert_with(|| json!({}));
    if let Value::Object(options) = options
        && !options.contains_key("whitespace_flexible")
    {
        options
            .entry("whitespace_pattern")
            .or_insert_with(|| WHITE_SPACE.into());
    }
    TopLevelGrammar::from_json_schema(Value::Object(map))
}

/// A regular expression that matches this text alone.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
