//! Bytes of tokens to text, one token at a time, without ever splitting a character.

/// An incremental decoder: what has arrived of a character is held back until it is whole.
///
/// The concatenation of everything that [`push`](Self::push) and [`flush`](Self::flush) return
/// equals the decoding of all bytes at once: bytes that are not UTF-8 become U+FFFD, one for each
/// longest beginning of a character, as the Unicode standard recommends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DecodeStream {
    /// The beginning of a character: at most three bytes.
    pending: Vec<u8>,
}

impl DecodeStream {
    /// A decoder that has seen nothing.
    pub const fn new() -> Self {
        Self {
            pending: Vec::new(),
        }
    }

    /// Takes a token's bytes and returns the text that is certain with them: whole characters,
    /// possibly none.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let whole = self.pending.len() - incomplete(&self.pending);
        let bytes: Vec<u8> = self.pending.drain(..whole).collect();
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Ends the text: U+FFFD if a character was left incomplete, else nothing.
    pub fn flush(&mut self) -> String {
        let held = std::mem::take(&mut self.pending);
        if held.is_empty() {
            String::new()
        } else {
            char::REPLACEMENT_CHARACTER.into()
        }
    }

    /// Whether the beginning of a character is held back.
    pub const fn is_holding(&self) -> bool {
        !self.pending.is_empty()
    }
}

/// How many bytes at the end are the beginning of a character that more bytes could complete.
fn incomplete(bytes: &[u8]) -> usize {
    let last = bytes
        .utf8_chunks()
        .last()
        .map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use quickcheck::{Gen, QuickCheck};

    use super::*;

    fn decode(pieces: &[&[u8]]) -> (Vec<String>, String) {
        let mut stream = DecodeStream::new();
        let texts = pieces.iter().map(|bytes| stream.push(bytes)).collect();
        (texts, stream.flush())
    }

    #[test]
    fn a_character_split_over_tokens_comes_out_whole() {
        let (texts, rest) = decode(&[b"a\xf0", b"\x9f", b"\x98", b"\x80b"]);
        assert_eq!(
            (texts, rest),
            (
                vec!["a".into(), "".into(), "".into(), "😀b".into()],
                "".into()
            )
        );
    }

    #[test]
    fn an_incomplete_tail_is_one_replacement_character() {
        let (texts, rest) = decode(&[b"a\xf0\x9f", b"\x98"]);
        assert_eq!(
            (texts, rest.as_str()),
            (vec!["a".into(), "".to_string()], "\u{fffd}")
        );
    }

    #[test]
    fn bytes_that_begin_nothing_are_replaced_at_once() {
        let (texts, rest) = decode(&[b"\xff", b"\x80", b"\xc3", b"("]);
        assert_eq!(texts, ["\u{fffd}", "\u{fffd}", "", "\u{fffd}("]);
        assert_eq!(rest, "");
    }

    #[test]
    fn a_broken_character_before_another_beginning_is_not_held() {
        // E2 82 then F0 9F: the first can no longer be completed, the second still can.
        let (texts, rest) = decode(&[b"\xe2\x82\xf0\x9f", b"\x98\x80"]);
        assert_eq!(
            (texts, rest),
            (vec!["\u{fffd}".into(), "😀".to_string()], String::new())
        );
    }

    #[test]
    fn any_split_equals_decoding_all_at_once() {
        fn law(bytes: Vec<u8>, text: String, cuts: Vec<u8>) -> bool {
            let mut all = text.into_bytes();
            all.extend(bytes);
            let mut stream = DecodeStream::new();
            let (mut out, mut rest) = (String::new(), all.as_slice());
            for cut in cuts {
                let (head, tail) = rest.split_at(usize::from(cut % 5).min(rest.len()));
                out.push_str(&stream.push(head));
                rest = tail;
            }
            out.push_str(&stream.push(rest));
            out.push_str(&stream.flush());
            out == String::from_utf8_lossy(&all)
        }
        QuickCheck::new()
            .rng(Gen::from_size_and_seed(30, 3))
            .tests(20_000)
            .quickcheck(law as fn(Vec<u8>, String, Vec<u8>) -> bool);
    }
}
