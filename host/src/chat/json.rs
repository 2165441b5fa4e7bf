//! The `tojson` filter as Hugging Face defines it: Python's `json.dumps`, without escapes for HTML.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::marks;

/// How JSON is laid out.
struct Layout {
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

/// `value|tojson(ensure_ascii, indent, separators, sort_keys)`.
pub(super) fn filter(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => Some(indentation(&indent)?),
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        None => (item.into(), ": ".into()),
        Some(_) => return Err(invalid("separators must be two texts")),
    };
    let ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let layout = Layout {
        indent,
        item_separator,
        key_separator,
        ensure_ascii,
        sort_keys,
    };
    let mut out = String::new();
    layout.write(&mut out, value, 0)?;
    Ok(out)
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// A number of spaces, or the text itself.
fn indentation(indent: &Value) -> Result<String, Error> {
    match indent.as_str() {
        Some(text) => Ok(text.into()),
        None => {
            let width = usize::try_from(indent.clone())?;
            if width > 64 {
                Err(invalid("indent is more than 64"))
            } else {
                Ok(" ".repeat(width))
            }
        }
    }
}

impl Layout {
    fn write(&self, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(out, value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.list(out, "[]", &items, depth, |out, item| {
                    self.write(out, item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort_by_key(ToString::to_string);
                }
                self.list(out, "{}", &keys, depth, |out, key| {
                    self.string(out, &key.to_string());
                    out.push_str(&self.key_separator);
                    self.write(out, &value.get_item(key)?, depth + 1)
                })?;
            }
            _ => return Err(invalid("a value that is no JSON")),
        }
        Ok(())
    }

    fn list(
        &self,
        out: &mut String,
        brackets: &str,
        items: &[Value],
        depth: usize,
        mut write: impl FnMut(&mut String, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (open, close) = brackets.split_at(1);
        out.push_str(open);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.line(out, depth + 1);
            write(out, item)?;
        }
        if !items.is_empty() {
            self.line(out, depth);
        }
        out.push_str(close);
        Ok(())
    }

    /// A new line, where there are lines.
    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' => escape(out, c),
                c if self.ensure_ascii && c > '~' && !marks::may_be_mark(c) => escape(out, c),
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

/// `\uXXXX`, twice for characters beyond the first plane.
fn escape(out: &mut String, character: char) {
    for unit in character.encode_utf16(&mut [0; 2]) {
        out.push_str(&format!("\\u{unit:04x}"));
    }
}

/// A float as Python prints it: the shortest digits that read back, with an exponent of at least
/// two digits below 1e-4 and from 1e16 on.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let magnitude = value.abs();
    if value == 0.0 || (1e-4..1e16).contains(&magnitude) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_python_prints_them() {
        let cases = [
            (0.0, "0.0"),
            (-1.5, "-1.5"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.25e-7, "-1.25e-07"),
            (1.5e300, "1.5e+300"),
            (0.1, "0.1"),
        ];
        for (value, expected) in cases {
            assert_eq!(float(value), expected);
        }
        assert_eq!(
            (float(f64::NAN), float(f64::NEG_INFINITY)),
            ("NaN".into(), "-Infinity".into())
        );
    }
}
