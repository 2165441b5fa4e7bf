//! Token ids of the real model against an independent implementation, on a page of hard text.
//!
//! `tests/reference/tokenize_gguf.py` made the golden ids and says how to make them anew.

use lockstep::gguf::Gguf;
use lockstep::tokenizer::{DecodeStream, Encoding, Tokenizer};
use serde_json::Value;

use lockstep_tests::real_model;

const TEXTS: &str = include_str!("data/hard-text.json");
const GOLDEN: &str = include_str!("data/hard-text.smollm2.json");
const PLAIN: Encoding = Encoding {
    add_special: false,
    parse_special: false,
};
const SPECIAL: Encoding = Encoding {
    add_special: false,
    parse_special: true,
};

fn tokenizer() -> Tokenizer {
    let file = Gguf::open(&real_model()).expect("a valid file");
    Tokenizer::from_gguf(&file).expect("a valid vocabulary")
}

fn array(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("an array")
}

fn ids(case: &Value, key: &str) -> Vec<u32> {
    let ids = case[key].as_array().expect("ids");
    ids.iter()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect()
}

#[test]
fn token_ids_equal_those_of_the_reference() {
    let tokenizer = tokenizer();
    let (texts, golden) = (array(TEXTS), array(GOLDEN));
    assert_eq!(texts.len(), golden.len());
    assert!(texts.len() > 50, "the page is not whole");
    for (text, golden) in texts.iter().zip(&golden) {
        assert_eq!(text["name"], golden["name"]);
        let text = text["text"].as_str().expect("a text");
        for (key, how) in [("plain", PLAIN), ("special", SPECIAL)] {
            let found = tokenizer.encode(text, how).expect("ids");
            assert_eq!(found, ids(golden, key), "{} {key}", golden["name"]);
        }
    }
}

#[test]
fn hard_text_comes_back_whole_and_streamed() {
    let tokenizer = tokenizer();
    for case in array(TEXTS) {
        let text = case["text"].as_str().expect("a text");
        let ids = tokenizer.encode(text, SPECIAL).expect("ids");
        let decoded = tokenizer.decode(&ids, false);
        // Its vocabulary lacks some bytes, among them F1 and F2, which begin no assigned character.
        if case["name"] != "control characters that have none" {
            assert_eq!(decoded, text, "{}", case["name"]);
        }
        let mut stream = DecodeStream::new();
        let mut streamed = String::new();
        for id in ids {
            streamed += &stream.push(tokenizer.token_bytes(id).expect("bytes"));
        }
        streamed += &stream.flush();
        assert_eq!(streamed, decoded, "{}", case["name"]);
    }
}

#[test]
fn the_real_vocabulary_is_read_whole() {
    let tokenizer = tokenizer();
    assert_eq!((tokenizer.len(), tokenizer.vocab_size()), (49_152, 49_152));
    assert_eq!((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2)));
    assert_eq!(tokenizer.end_of_generation(), [0, 2]);
    assert_eq!(tokenizer.control_texts().count(), 17);
    assert!(!tokenizer.adds_bos());
}
