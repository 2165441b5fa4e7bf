//! A last line without its end: cut short by a crash, or something else that was put there.

use super::chain::{Chain, split};
use super::replay::Difference;

/// What a last line is that no crash of the writer leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It does not begin as the next record does.
    Beginning,
    /// It holds bytes that no record holds.
    Bytes,
    /// It is a whole record but for its end, and its chain does not hold.
    Chain,
}

/// Whether `tail` may be the beginning of the record of `step` after the chain `before`.
///
/// What is missing of a line cannot be checked: this says no only where it is certain.
pub(super) fn check(tail: &[u8], before: Chain, step: u64) -> Result<(), Foreign> {
    let beginning = format!("{{\"step\":{step},\"inputs\":{{");
    let length = tail.len().min(beginning.len());
    if tail[..length] != beginning.as_bytes()[..length] {
        return Err(Foreign::Beginning);
    }
    // Within a character it may be cut.
    let cut_text = |error: std::str::Utf8Error| error.error_len().is_none();
    let text = std::str::from_utf8(tail).map_or_else(cut_text, |_| true);
    if !text || tail.iter().any(u8::is_ascii_control) {
        return Err(Foreign::Bytes);
    }
    match split(tail) {
        Some((content, digits)) if before.next(content).hex().as_bytes() != digits => {
            Err(Foreign::Chain)
        }
        _ => Ok(()),
    }
}

/// The difference that such a line is.
pub(super) fn difference(found: Foreign, line: u64, step: u64) -> Difference {
    let (field, recorded, expected) = match found {
        Foreign::Beginning => (
            "the record",
            "not the beginning of one",
            "that of this step",
        ),
        Foreign::Bytes => ("the record", "bytes that no record holds", "text"),
        Foreign::Chain => ("chain", "another", "the hash of the line"),
    };
    Difference {
        step,
        line,
        field: field.to_owned(),
        recorded: recorded.to_owned(),
        expected: expected.to_owned(),
        chained: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_of_a_record_is_torn_and_nothing_else() {
        let before = Chain::default();
        let mut line = "{\"step\":7,\"inputs\":{\"salt\":\"é\"},\"plan\":{}"
            .as_bytes()
            .to_vec();
        before.seal(&mut line);
        for length in 1..line.len() {
            assert_eq!(check(&line[..length], before, 7), Ok(()), "{length}");
        }
        let whole = &line[..line.len() - 1];
        assert_eq!(check(whole, before, 8), Err(Foreign::Beginning));
        assert_eq!(check(b"rubbish", before, 7), Err(Foreign::Beginning));
        assert_eq!(check(&[0; 512], before, 7), Err(Foreign::Beginning));
        let other = before.next(b"x");
        assert_eq!(check(whole, other, 7), Err(Foreign::Chain));
        let mut zeros = line[..30].to_vec();
        zeros.extend([0; 100]);
        assert_eq!(check(&zeros, before, 7), Err(Foreign::Bytes));
        let mut bad = line[..30].to_vec();
        bad.extend(b"\xff\xfe and more");
        assert_eq!(check(&bad, before, 7), Err(Foreign::Bytes));
    }
}
