//! Prompts from a fixed seed: the same load on every machine and against every server.

use super::super::drive::arbitrary_tokens;
use crate::batch::TokenId;

/// Ids below this are left out: vocabularies keep bytes and control tokens there.
const FIRST_TOKEN: u32 = 1000;

/// Words that are one token, with the space before them, in nearly every vocabulary.
const WORDS: [&str; 64] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "law",
    "city",
];

/// How prompts are written in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PromptForm {
    /// As text: the server's tokenizer is part of what is measured.
    Text,
    /// As token ids.
    Ids,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Words.
    Text(String),
    /// Ids.
    Ids(Vec<TokenId>),
}

/// What the prompts of a load have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptSource {
    /// Text or ids.
    pub(super) form: PromptForm,
    /// Ids are below this.
    pub(super) vocab_size: u32,
    /// Every prompt depends on it.
    pub(super) seed: u32,
}

impl PromptSource {
    /// The prompt with this number, of `tokens` tokens (as text: of as many words). Two prompts
    /// have no beginning in common that is long enough for a prefix cache.
    pub(super) fn prompt(&self, number: usize, tokens: usize) -> Prompt {
        let seed = self.seed.wrapping_add(1 + number as u32);
        match self.form {
            PromptForm::Ids => {
                let span = self.vocab_size.saturating_sub(FIRST_TOKEN).max(1);
                let first = FIRST_TOKEN.min(self.vocab_size.saturating_sub(1));
                let tokens = arbitrary_tokens(seed, tokens, span as usize);
                Prompt::Ids(tokens.into_iter().map(|token| first + token).collect())
            }
            PromptForm::Text => {
                let words = arbitrary_tokens(seed, tokens, WORDS.len());
                let words: Vec<&str> = words.into_iter().map(|i| WORDS[i as usize]).collect();
                Prompt::Text(words.join(" "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(form: PromptForm, vocab_size: u32) -> PromptSource {
        PromptSource {
            form,
            vocab_size,
            seed: 7,
        }
    }

    #[test]
    fn prompts_have_their_length_and_differ_early() {
        let text = |number| match source(PromptForm::Text, 0).prompt(number, 64) {
            Prompt::Text(text) => text,
            Prompt::Ids(_) => panic!("asked for text"),
        };
        assert_eq!(text(3).split(' ').count(), 64);
        assert_eq!(text(3), text(3));
        for (a, b) in (0..100).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let (a, b) = (text(a), text(b));
            let common = a.split(' ').zip(b.split(' ')).take_while(|(a, b)| a == b);
            assert!(common.count() < 16);
        }
    }

    #[test]
    fn ids_are_in_the_vocabulary_however_small() {
        for vocab_size in [1, 10, 1000, 1001, 49152] {
            match source(PromptForm::Ids, vocab_size).prompt(0, 200) {
                Prompt::Ids(ids) => assert!(ids.iter().all(|id| *id < vocab_size)),
                Prompt::Text(_) => panic!("asked for ids"),
            }
        }
    }
}
