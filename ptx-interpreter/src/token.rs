//! The text of a module as tokens with their lines.

use crate::fault::ParseError;

/// One token and the line it stands on, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

/// Cuts `source` into words, quoted strings and single punctuation characters; comments go.
///
/// # Errors
/// A comment or a string without an end, or a character that PTX does not have.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, ParseError> {
    let bytes = source.as_bytes();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let length = match byte {
            b'/' if rest.starts_with(b"//") => until(rest, b"\n").unwrap_or(rest.len()),
            b'/' if rest.starts_with(b"/*") => {
                2 + until(&rest[2..], b"*/")
                    .ok_or_else(|| ParseError::new(line, "a comment without an end"))?
                    + 2
            }
            b'"' => {
                1 + until(&rest[1..], b"\"")
                    .ok_or_else(|| ParseError::new(line, "a string without an end"))?
                    + 1
            }
            _ if byte.is_ascii_whitespace() => 1,
            _ if is_word(byte) => rest.iter().take_while(|b| is_word(**b)).count(),
            b',' | b';' | b':' | b'(' | b')' | b'{' | b'}' | b'[' | b']' | b'+' | b'-' | b'@'
            | b'!' | b'|' | b'<' | b'>' | b'=' => 1,
            _ => {
                return Err(ParseError::new(
                    line,
                    format!("unexpected byte {byte:#04x}"),
                ));
            }
        };
        let comment = byte == b'/';
        if !comment && !byte.is_ascii_whitespace() {
            out.push(Token {
                text: &source[at..at + length],
                line,
            });
        }
        line += rest[..length].iter().filter(|b| **b == b'\n').count();
        at += length;
    }
    Ok(out)
}

fn until(bytes: &[u8], end: &[u8]) -> Option<usize> {
    bytes.windows(end.len()).position(|window| window == end)
}
