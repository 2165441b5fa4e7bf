//! Constraints over the vocabulary of the tiny model: bytes, a few merges, control tokens.

use serde_json::{Value, json};

use super::*;
use crate::gguf::Gguf;
use crate::gguf::tiny::tiny_llama;
use crate::tokenizer::Encoding;

fn tokenizer() -> Tokenizer {
    let file = Gguf::from_bytes(tiny_llama(1)).unwrap();
    Tokenizer::from_gguf(&file).unwrap()
}

fn allowed(mask: &[u32], token: TokenId) -> bool {
    mask[token as usize / 32] >> (token % 32) & 1 == 1
}

/// Whether the constraint lets this text through, token by token, and then lets it end.
fn accepts(
    grammars: &Grammars,
    tokenizer: &Tokenizer,
    constraint: &Constraint,
    text: &str,
) -> bool {
    let mut matcher = grammars.compile(constraint).unwrap();
    for token in tokenizer.encode(text, Encoding::default()).unwrap() {
        if !allowed(matcher.mask().unwrap(), token) {
            return false;
        }
        matcher.commit(token).unwrap();
    }
    let end = tokenizer.eos().unwrap();
    allowed(matcher.mask().unwrap(), end)
}

#[test]
fn each_kind_lets_through_what_it_should() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let schema = json!({
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
        "additionalProperties": false, "$schema": "https://json-schema.org/draft/2020-12/schema"
    });
    let cases = [
        (
            Constraint::JsonObject,
            vec!["{}", "{\"the\": [1, null]}"],
            vec!["[]", "the", "{", ""],
        ),
        (
            Constraint::JsonSchema(schema),
            vec!["{\"a\": 1}", "{\n  \"a\":-3\n}"],
            vec!["{}", "{\"a\": \"x\"}", "{\"b\": 1}"],
        ),
        (
            Constraint::Regex("[a-c]+the?".into()),
            vec!["abth", "cthe"],
            vec!["the", "ab"],
        ),
        (
            Constraint::Choice(vec!["in (a|b)".into(), "the.".into(), "ü/\"".into()]),
            vec!["in (a|b)", "the.", "ü/\""],
            vec!["in a", "the!", "the"],
        ),
        (
            Constraint::Grammar("start: \"the\" | \"in\" \" \" /[0-9]{2}/".into()),
            vec!["the", "in 42"],
            vec!["in 4", "th"],
        ),
    ];
    for (constraint, good, bad) in cases {
        for text in good {
            assert!(
                accepts(&grammars, &tokenizer, &constraint, text),
                "{constraint:?} {text}"
            );
        }
        for text in bad {
            assert!(
                !accepts(&grammars, &tokenizer, &constraint, text),
                "{constraint:?} {text}"
            );
        }
    }
}

#[test]
fn white_space_is_bounded() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let with = |spaces: usize| format!("{{{}}}", " ".repeat(spaces));
    assert!(accepts(
        &grammars,
        &tokenizer,
        &Constraint::JsonObject,
        &with(20)
    ));
    assert!(!accepts(
        &grammars,
        &tokenizer,
        &Constraint::JsonObject,
        &with(21)
    ));
}

#[test]
fn what_cannot_be_kept_is_refused_before_any_token() {
    let grammars = Grammars::new(&tokenizer()).unwrap();
    let cases: [Constraint; 8] = [
        Constraint::JsonSchema(json!({"$ref": "#"})),
        Constraint::JsonSchema(json!({"type": "secret"})),
        Constraint::JsonSchema(json!({"not": {"type": "string"}})),
        Constraint::JsonSchema(json!(false)),
        Constraint::JsonSchema(json!({"type": "string", "pattern": "(?=secret)"})),
        Constraint::Regex("(secret".into()),
        Constraint::Grammar("begin: secret".into()),
        Constraint::Grammar(String::new()),
    ];
    for constraint in cases {
        let error = grammars
            .compile(&constraint)
            .err()
            .unwrap_or_else(|| panic!("{constraint:?}"));
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn control_tokens_are_no_text() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut matcher = grammars.compile(&Constraint::Regex(".*".into())).unwrap();
    let begin = tokenizer.special_id("<|im_start|>").unwrap();
    let mask = matcher.mask().unwrap();
    assert!(!allowed(mask, begin));
    assert!(
        tokenizer
            .end_of_generation()
            .iter()
            .all(|&end| allowed(mask, end))
    );
}

#[test]
fn masks_are_equal_after_cloning_and_after_rebuilding() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let constraint = Constraint::JsonSchema(json!({
        "type": "object", "properties": {"the": {"type": "array", "items": {"type": "string"}}}
    }));
    let text = "{\"the\": [\"in\", \"a the\"]}";
    let tokens = tokenizer.encode(text, Encoding::default()).unwrap();
    let mut matcher = grammars.compile(&constraint).unwrap();
    for length in 0..=tokens.len() {
        let mask = matcher.mask().unwrap().to_vec();
        let mut clone = matcher.clone();
        assert_eq!(clone.mask().unwrap(), mask);
        let mut rebuilt = grammars.compile(&constraint).unwrap();
        rebuilt.replay(&tokens[..length]).unwrap();
        assert_eq!(rebuilt.mask().unwrap(), mask, "after {length} tokens");
        if let Some(&token) = tokens.get(length) {
            // What a clone goes through does not reach the original.
            clone.commit(token).unwrap();
            assert_eq!(matcher.mask().unwrap(), mask);
            matcher.commit(token).unwrap();
        }
    }
}

#[test]
fn a_token_that_the_mask_forbids_is_an_error() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let mut matcher = grammars.compile(&Constraint::JsonObject).unwrap();
    let token = tokenizer.encode("x", Encoding::default()).unwrap()[0];
    assert!(matches!(matcher.commit(token), Err(GrammarError::Step(_))));
    assert!(matcher.mask().is_err());
}

#[test]
fn constraints_survive_a_record() {
    for constraint in [
        Constraint::JsonObject,
        Constraint::JsonSchema(json!({"b": 1, "a": 2})),
        Constraint::Choice(vec!["x".into()]),
    ] {
        let written = serde_json::to_string(&constraint).unwrap();
        assert_eq!(
            serde_json::from_str::<Constraint>(&written).unwrap(),
            constraint
        );
    }
    let ordered = serde_json::to_string(&Constraint::JsonSchema(json!({"b": 1, "a": 2}))).unwrap();
    assert_eq!(ordered, "{\"json_schema\":{\"b\":1,\"a\":2}}");
    let _: Value = serde_json::from_str(&ordered).unwrap();
}
