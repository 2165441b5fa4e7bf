//! Names for places in a record: by two values that differ, or by a byte of its text.

use serde_json::Value;

/// The path of the first place where two values differ, in the order of their text, and what
/// stands there in each; `None` where they are equal.
pub(super) fn first_difference(a: &Value, b: &Value) -> Option<(String, String, String)> {
    let mut path = String::new();
    differ(a, b, &mut path).map(|(a, b)| (path, a, b))
}

fn differ(a: &Value, b: &Value, path: &mut String) -> Option<(String, String)> {
    let kept = path.len();
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x
                .keys()
                .chain(y.keys().filter(|key| !x.contains_key(key.as_str())));
            for key in keys {
                if kept > 0 {
                    path.push('.');
                }
                path.push_str(key);
                let found = differ_at(x.get(key), y.get(key), path);
                if found.is_some() {
                    return found;
                }
                path.truncate(kept);
            }
            None
        }
        (Value::Array(x), Value::Array(y)) => {
            for at in 0..x.len().max(y.len()) {
                path.push_str(&format!("[{at}]"));
                let found = differ_at(x.get(at), y.get(at), path);
                if found.is_some() {
                    return found;
                }
                path.truncate(kept);
            }
            None
        }
        _ if a == b => None,
        _ => Some((a.to_string(), b.to_string())),
    }
}

fn differ_at(a: Option<&Value>, b: Option<&Value>, path: &mut String) -> Option<(String, String)> {
    let absent = || "nothing".to_owned();
    match (a, b) {
        (Some(a), Some(b)) => differ(a, b, path),
        (a, b) => Some((
            a.map_or_else(absent, Value::to_string),
            b.map_or_else(absent, Value::to_string),
        )),
    }
}

/// The path of the value, or of the key, that holds byte `offset` of a JSON text.
pub(super) fn path_at(text: &[u8], offset: usize) -> String {
    let mut open: Vec<Level> = Vec::new();
    let mut at = 0;
    while at <= offset && at < text.len() {
        match text[at] {
            b'{' => open.push(Level::Object(String::new(), true)),
            b'[' => open.push(Level::Array(0)),
            b'}' | b']' if at < offset => {
                open.pop();
            }
            b':' => {
                if let Some(Level::Object(_, in_key)) = open.last_mut() {
                    *in_key = false;
                }
            }
            b',' if at < offset => match open.last_mut() {
                Some(Level::Object(_, in_key)) => *in_key = true,
                Some(Level::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let end = string_end(text, at);
                if let Some(Level::Object(key, true)) = open.last_mut() {
                    *key = String::from_utf8_lossy(&text[at + 1..end]).into_owned();
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
    join(&open)
}

enum Level {
    /// The key read last, and whether a key comes next.
    Object(String, bool),
    /// The index of the item.
    Array(usize),
}

fn join(open: &[Level]) -> String {
    let mut path = String::new();
    for level in open {
        match level {
            Level::Object(key, _) if path.is_empty() => path.push_str(key),
            Level::Object(key, _) if key.is_empty() => {}
            Level::Object(key, _) => {
                path.push('.');
                path.push_str(key);
            }
            Level::Array(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// The closing quote of the string that opens at `start`, or the end of the text.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_by_its_path() {
        let a = serde_json::json!({"step": 1, "plan": {"chunks": [[1, 2], [3, 4]]}});
        let b = serde_json::json!({"step": 1, "plan": {"chunks": [[1, 2], [3, 5, 6]]}});
        let found = first_difference(&a, &b).unwrap();
        assert_eq!(found, ("plan.chunks[1][1]".into(), "4".into(), "5".into()));
        let shorter = serde_json::json!({"step": 1, "plan": {}});
        let found = first_difference(&shorter, &a).unwrap();
        assert_eq!(
            (found.0.as_str(), found.1.as_str()),
            ("plan.chunks", "nothing")
        );
        assert_eq!(first_difference(&a, &a), None);
    }

    #[test]
    fn a_byte_is_named_by_the_value_that_holds_it() {
        let text = br#"{"step":17,"inputs":{"advances":[[3,40],[5,"a,b]"]],"drain":true}}"#;
        let at = |needle: &str| {
            let text = std::str::from_utf8(text).unwrap();
            path_at(text.as_bytes(), text.find(needle).unwrap())
        };
        assert_eq!(at("17"), "step");
        assert_eq!(at("40"), "inputs.advances[0][1]");
        assert_eq!(at("a,b]"), "inputs.advances[1][1]");
        assert_eq!(at("true"), "inputs.drain");
        assert_eq!(at("5,"), "inputs.advances[1][0]");
    }
}
