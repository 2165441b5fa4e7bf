//! A stream of server-sent events as it comes off a socket, and what its chunks say.
//!
//! Other servers than ours are read as well, so nothing is asked of a chunk but what is counted.

use serde_json::Value;

/// The longest line that is kept: a server that sends no line break is not owed memory.
const MAX_LINE: usize = 16 << 20;

/// Bytes in, the data of whole events out.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    line: Vec<u8>,
}

impl EventReader {
    /// Reads the next bytes of the stream and calls `each` with the data of every `data:` line that
    /// they complete. (Every server writes an event's JSON on one line.)
    pub(super) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.line.len() + part.len() <= MAX_LINE {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                let line = self.line.trim_ascii_end();
                if let Some(data) = line.strip_prefix(b"data:") {
                    each(data.trim_ascii_start());
                }
                self.line.clear();
            }
        }
    }
}

/// What one chunk of an answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Whether it brings text.
    pub(super) text: bool,
    /// Tokens of the prompt, where the chunk counts them.
    pub(super) prompt_tokens: Option<u64>,
    /// Tokens generated so far, where the chunk counts them.
    pub(super) completion_tokens: Option<u64>,
    /// The message of a fault.
    pub(super) error: Option<String>,
}

impl Chunk {
    /// Reads the data of an event, or a whole answer.
    pub(super) fn read(data: &[u8]) -> Self {
        if data == b"[DONE]" {
            return Self::default();
        }
        let Ok(json) = serde_json::from_slice::<Value>(data) else {
            let text = String::from_utf8_lossy(data);
            return Self {
                error: Some(format!("not JSON: {:.200}", text)),
                ..Self::default()
            };
        };
        let count = |name: &str| json.get("usage")?.get(name)?.as_u64();
        Self {
            text: json["choices"][0].as_object().is_some_and(brings_text),
            prompt_tokens: count("prompt_tokens"),
            completion_tokens: count("completion_tokens"),
            error: json.get("error").filter(|e| !e.is_null()).map(message),
        }
    }
}

/// Whether a choice has text: a completion's, a chat's, or a chat's reasoning.
fn brings_text(choice: &serde_json::Map<String, Value>) -> bool {
    let part = |name: &str| choice.get(name);
    let delta = part("delta").or_else(|| part("message"));
    let of_delta = ["content", "reasoning_content", "reasoning"]
        .map(|name| delta.and_then(|delta| delta.get(name)));
    let mut texts = of_delta.into_iter().chain([part("text")]).flatten();
    texts.any(|text| text.as_str().is_some_and(|text| !text.is_empty()))
}

fn message(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str);
    message.map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pieces: &[&[u8]]) -> Vec<String> {
        let (mut reader, mut found) = (EventReader::default(), Vec::new());
        for piece in pieces {
            reader.push(piece, |data| {
                found.push(String::from_utf8(data.to_vec()).unwrap())
            });
        }
        found
    }

    #[test]
    fn events_are_found_wherever_the_bytes_are_cut() {
        let stream = b": hello\n\nid: 1\ndata: {\"a\":1}\n\ndata:{\"b\":2}\r\n\r\ndata: [DONE]\n\n";
        let whole = ["{\"a\":1}", "{\"b\":2}", "[DONE]"];
        for cut in 0..stream.len() {
            let (head, tail) = stream.split_at(cut);
            assert_eq!(data(&[head, tail]), whole, "cut at {cut}");
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(data(&single), whole);
    }

    #[test]
    fn chunks_of_several_servers_are_understood() {
        let read = |text: &str| Chunk::read(text.as_bytes());
        assert!(read(r#"{"choices":[{"text":" a","index":0}]}"#).text);
        assert!(read(r#"{"choices":[{"delta":{"content":"a"}}]}"#).text);
        assert!(read(r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#).text);
        assert!(!read(r#"{"choices":[{"delta":{"role":"assistant","content":null}}]}"#).text);
        assert!(!read(r#"{"choices":[{"text":"","finish_reason":"length"}]}"#).text);
        let usage = read(r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#);
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (Some(3), Some(4))
        );
        assert_eq!(read("[DONE]"), Chunk::default());
        let error = read(r#"{"error":{"message":"no","code":500}}"#).error;
        assert_eq!(error.as_deref(), Some("no"));
        assert_eq!(read(r#"{"error":null,"choices":[]}"#).error, None);
        assert!(read("<html>").error.is_some());
    }
}
