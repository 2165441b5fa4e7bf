//! Finding whole tokens in text before it is cut into words.

use std::collections::BTreeMap;

use crate::batch::TokenId;

/// The tokens that stand in text as a whole, by their first byte.
#[derive(Debug)]
pub(super) struct Specials {
    by_first_byte: BTreeMap<u8, Vec<Special>>,
}

#[derive(Debug)]
struct Special {
    text: Box<str>,
    id: TokenId,
    control: bool,
}

/// A stretch of text: a token as it stands, or text to be cut and merged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stretch<'a> {
    Token(TokenId),
    Text(&'a str),
}

impl Specials {
    /// From (text, id, whether it is a control token); empty texts are left out.
    pub(super) fn new(tokens: impl Iterator<Item = (Box<str>, TokenId, bool)>) -> Self {
        let mut by_first_byte: BTreeMap<u8, Vec<Special>> = BTreeMap::new();
        for (text, id, control) in tokens {
            if let Some(first) = text.bytes().next() {
                by_first_byte
                    .entry(first)
                    .or_default()
                    .push(Special { text, id, control });
            }
        }
        for tokens in by_first_byte.values_mut() {
            // Longest first; equal lengths by id, of which no two are equal.
            tokens.sort_by_key(|token| (std::cmp::Reverse(token.text.len()), token.id));
        }
        Self { by_first_byte }
    }

    /// Cuts `text` at its whole tokens: the leftmost, and of those the longest.
    ///
    /// A control token counts only where `control_at` (a byte offset in `text`) allows it.
    pub(super) fn cut<'a>(
        &self,
        text: &'a str,
        control_at: impl Fn(usize) -> bool,
    ) -> Vec<Stretch<'a>> {
        let mut stretches = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            let Some(token) = self.at(text, at, &control_at) else {
                at += 1;
                continue;
            };
            push_text(&mut stretches, text, start, at);
            stretches.push(Stretch::Token(token.id));
            at += token.text.len();
            start = at;
        }
        push_text(&mut stretches, text, start, text.len());
        stretches
    }

    fn at(&self, text: &str, at: usize, control_at: impl Fn(usize) -> bool) -> Option<&Special> {
        let rest = text.as_bytes().get(at..)?;
        let candidates = self.by_first_byte.get(rest.first()?)?;
        candidates.iter().find(|token| {
            rest.starts_with(token.text.as_bytes()) && (!token.control || control_at(at))
        })
    }
}

fn push_text<'a>(stretches: &mut Vec<Stretch<'a>>, text: &'a str, start: usize, end: usize) {
    if let Some(piece) = text.get(start..end).filter(|piece| !piece.is_empty()) {
        stretches.push(Stretch::Text(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specials() -> Specials {
        let tokens = [
            ("<|a|>", 1, true),
            ("<|a|>b", 2, true),
            ("<u>", 3, false),
            ("é", 4, true),
        ];
        Specials::new(
            tokens
                .into_iter()
                .map(|(text, id, control)| (text.into(), id, control)),
        )
    }

    #[test]
    fn the_leftmost_and_longest_token_is_found() {
        let cut = specials().cut("x<|a|>b<|a|><u>éy", |_| true);
        let tokens = [2, 1, 3, 4].map(Stretch::Token);
        let [b, a, u, e] = tokens;
        assert_eq!(cut, [Stretch::Text("x"), b, a, u, e, Stretch::Text("y")]);
    }

    #[test]
    fn control_tokens_are_text_where_they_are_not_allowed() {
        let cut = specials().cut("<|a|><u><|a|>", |at| at > 0);
        assert_eq!(
            cut,
            [Stretch::Text("<|a|>"), Stretch::Token(3), Stretch::Token(1)]
        );
    }

    #[test]
    fn text_without_tokens_is_one_stretch_and_no_text_none() {
        assert_eq!(
            specials().cut("日本<|", |_| true),
            [Stretch::Text("日本<|")]
        );
        assert_eq!(specials().cut("", |_| true), []);
    }
}
