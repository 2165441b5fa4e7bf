//! Stop texts: found wherever token borders fall, and never partly emitted.

/// Watches an answer's text for its stop texts and holds back what might begin one.
///
/// The rule does not depend on how the text is cut into pieces: the stop text that ends first
/// wins, and of those that end together the longest.
#[derive(Debug)]
pub(super) struct StopMatcher {
    stops: Vec<String>,
    include_stop: bool,
    held: String,
}

/// What became of a piece of text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Released {
    /// Text that certainly belongs to the answer.
    pub(super) text: String,
    /// The stop text that ended the answer, if one did.
    pub(super) stop: Option<String>,
}

impl StopMatcher {
    /// A matcher for these texts, none of them empty; `include_stop` keeps the stop text.
    pub(super) fn new(stops: Vec<String>, include_stop: bool) -> Self {
        Self {
            stops,
            include_stop,
            held: String::new(),
        }
    }

    /// Takes the next piece of the answer. O(held and new text, times the stop texts' length).
    pub(super) fn push(&mut self, piece: &str) -> Released {
        let old = self.held.len();
        self.held.push_str(piece);
        match self.first_match(old) {
            Some((start, end)) => self.cut(start, end),
            None => {
                let keep = self.longest_beginning();
                let rest = self.held.split_off(self.held.len() - keep);
                let text = std::mem::replace(&mut self.held, rest);
                Released { text, stop: None }
            }
        }
    }

    /// Releases `piece` and whatever is held, without looking for a stop text.
    pub(super) fn pass(&mut self, piece: &str) -> Released {
        self.held.push_str(piece);
        Released {
            text: self.flush(),
            stop: None,
        }
    }

    /// What is still held; it belongs to the answer, since no stop text came of it.
    pub(super) fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The match that ends first, and of those the longest, among matches that end after `old`.
    fn first_match(&self, old: usize) -> Option<(usize, usize)> {
        let found = self.stops.iter().filter_map(|stop| {
            let from = (old + 1).saturating_sub(stop.len());
            let from = (0..=from)
                .rev()
                .find(|&at| self.held.is_char_boundary(at))?;
            let start = from + self.held[from..].find(stop.as_str())?;
            Some((start + stop.len(), start))
        });
        found.min().map(|(end, start)| (start, end))
    }

    fn cut(&mut self, start: usize, end: usize) -> Released {
        let stop = self.held[start..end].to_owned();
        self.held
            .truncate(if self.include_stop { end } else { start });
        Released {
            text: self.flush(),
            stop: Some(stop),
        }
    }

    /// The length of the longest tail of the held text that a stop text begins with.
    fn longest_beginning(&self) -> usize {
        let longest = |stop: &String| {
            let most = (stop.len() - 1).min(self.held.len());
            (1..=most)
                .rev()
                .find(|&n| self.held.as_bytes().ends_with(&stop.as_bytes()[..n]))
        };
        let keep = self.stops.iter().filter_map(longest).max().unwrap_or(0);
        // A stop text starts with a whole character, so the tail that equals its beginning does too.
        debug_assert!(self.held.is_char_boundary(self.held.len() - keep));
        keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quickcheck::quickcheck;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let stops = stops.iter().map(|s| (*s).to_owned()).collect();
        let mut matcher = StopMatcher::new(stops, false);
        let mut texts = Vec::new();
        for piece in pieces {
            let released = matcher.push(piece);
            texts.push(released.text);
            if released.stop.is_some() {
                return (texts, released.stop);
            }
        }
        texts.push(matcher.flush());
        (texts, None)
    }

    #[test]
    fn a_stop_text_across_pieces_is_cut_exactly() {
        let (texts, stop) = run(&["</end>"], &["abc<", "/en", "d>xyz"]);
        assert_eq!(texts, ["abc", "", ""]);
        assert_eq!(stop.as_deref(), Some("</end>"));
    }

    #[test]
    fn a_mere_beginning_is_released_on_mismatch_and_at_the_end() {
        let (texts, stop) = run(&["</end>"], &["a</", "en", "x</e"]);
        assert_eq!(texts, ["a", "", "</enx", "</e"]);
        assert_eq!(stop, None);
    }

    #[test]
    fn the_first_to_end_wins_then_the_longest() {
        assert_eq!(run(&["bcd", "c"], &["abcd"]).1.as_deref(), Some("c"));
        assert_eq!(
            run(&["c", "abc"], &["xabc"]),
            (vec!["x".to_owned()], Some("abc".to_owned()))
        );
    }

    #[test]
    fn wide_characters_are_never_split() {
        let (texts, stop) = run(&["é!", "日本"], &["né", "e日", "x日", "本"]);
        assert_eq!(texts.concat(), "née日x");
        assert_eq!(stop.as_deref(), Some("日本"));
    }

    #[test]
    fn the_stop_text_stays_when_asked_for() {
        let mut matcher = StopMatcher::new(vec!["ab".into()], true);
        assert_eq!(matcher.push("xa").text, "x");
        assert_eq!(
            matcher.push("bc"),
            Released {
                text: "ab".into(),
                stop: Some("ab".into())
            }
        );
    }

    /// The answer and its stop text, character by character.
    fn whole(stops: &[&str], text: &str) -> (String, Option<String>) {
        let pieces: Vec<String> = text.chars().map(String::from).collect();
        let (texts, stop) = run(
            stops,
            &pieces.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        (texts.concat(), stop)
    }

    quickcheck! {
        fn how_the_text_is_cut_changes_nothing(choices: Vec<u8>, cuts: Vec<u8>) -> bool {
            let alphabet = ['a', 'b', 'é', 'c'];
            let text: Vec<char> = choices.iter().map(|c| alphabet[usize::from(c % 4)]).collect();
            let stops = ["ab", "bé", "éab", "cc"];
            let mut pieces = Vec::new();
            let (mut at, mut cuts) = (0, cuts.iter().cycle());
            while at < text.len() {
                let step = cuts.next().map_or(1, |c| 1 + usize::from(c % 5)).min(text.len() - at);
                pieces.push(text[at..at + step].iter().collect::<String>());
                at += step;
            }
            let (texts, stop) = run(&stops, &pieces.iter().map(String::as_str).collect::<Vec<_>>());
            (texts.concat(), stop) == whole(&stops, &text.iter().collect::<String>())
        }
    }
}
