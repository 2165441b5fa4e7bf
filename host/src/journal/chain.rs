//! The hash that ties each line of a journal to all lines before it.
//!
//! ```text
//! chain(0) = 32 zero bytes
//! chain(n) = blake3(chain(n-1) ‖ the bytes of line n before its `,"chain":`)
//! ```

use std::fmt::Write as _;

/// Opens the last field of every line.
const FIELD: &[u8] = b",\"chain\":\"";
/// Hexadecimal digits of a hash.
const DIGITS: usize = 64;

/// The hash of the lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain([u8; 32]);

impl Chain {
    /// The chain with one more line, given the line's bytes before its chain field.
    pub fn next(&self, content: &[u8]) -> Self {
        let mut hasher = self.hasher();
        hasher.update(content);
        Self(*hasher.finalize().as_bytes())
    }

    /// A hasher that has taken in this chain.
    pub(super) fn hasher(&self) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher
    }

    /// Bytes that closing a line adds to it.
    pub(super) const FIELD_BYTES: usize = FIELD.len() + DIGITS + 3;

    /// Its 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        let mut hex = String::with_capacity(DIGITS);
        for byte in self.0 {
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    /// Closes a line that lacks its last field, and returns the chain with it.
    pub fn seal(&self, line: &mut Vec<u8>) -> Self {
        let next = self.next(line);
        line.extend_from_slice(FIELD);
        for byte in next.0 {
            for digit in [byte >> 4, byte & 15] {
                line.push(b"0123456789abcdef"[usize::from(digit)]);
            }
        }
        line.extend_from_slice(b"\"}\n");
        next
    }
}

/// Parts a line (without its end) into what is hashed and the digits of the hash. `None` where it
/// does not end in a chain field.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.len().checked_sub(FIELD.len() + DIGITS + 2)?;
    let (content, field) = line.split_at(at);
    let digits = field.strip_prefix(FIELD)?.strip_suffix(b"\"}")?;
    Some((content, digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_splits_into_its_content_and_its_chain() {
        let mut line = b"{\"step\":1".to_vec();
        let chain = Chain::default().seal(&mut line);
        let (content, digits) = split(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!(content, b"{\"step\":1");
        assert_eq!(digits, chain.hex().as_bytes());
        assert_ne!(chain, Chain::default().next(b"{\"step\":2"));
        assert_ne!(chain, chain.next(b"{\"step\":1"));
    }
}
