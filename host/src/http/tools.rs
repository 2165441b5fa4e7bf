//! Tool calls in the text of an answer.

use super::wire::output::ToolCall;

/// What comes out of a text: text for the reader, or (part of) a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text that is no call.
    Text(String),
    /// A call, or what is added to one.
    Call(ToolCall),
}

/// Finds calls in a text that comes bit by bit.
#[derive(Debug)]
pub(super) struct ToolParser {}

impl ToolParser {
    /// A parser for one choice of an answer.
    pub(super) fn new(_id: &str, _choice: u32) -> Self {
        Self {}
    }

    /// Takes the next bit of text.
    pub(super) fn push(&mut self, text: &str) -> Vec<Piece> {
        if text.is_empty() {
            Vec::new()
        } else {
            vec![Piece::Text(text.to_owned())]
        }
    }

    /// The text is over.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        Vec::new()
    }

    /// Text and calls of a whole answer.
    pub(super) fn whole(self, text: &str) -> (String, Vec<ToolCall>) {
        (text.to_owned(), Vec::new())
    }
}
