//! The call format of Qwen 3 Coder: tags around names and values.

use serde_json::{Map, Value};

/// Name and arguments of `<function=f><parameter=x>1</parameter></function>`. A value that is JSON
/// is taken as such, any other is a text.
pub(super) fn read(tags: &str) -> Option<(String, Map<String, Value>)> {
    let rest = tags.trim().strip_prefix("<function=")?;
    let (name, mut rest) = rest.split_once('>')?;
    let mut arguments = Map::new();
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let (key, value) = parameter.split_once('>')?;
        let (value, after) = value.split_once("</parameter>")?;
        arguments.insert(key.trim().to_owned(), read_value(value));
        rest = after;
    }
    rest.contains("</function>")
        .then(|| (name.trim().to_owned(), arguments))
}

fn read_value(text: &str) -> Value {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}
