//! The tokenizer of the tiny model, and of files that are wrong.

use super::*;
use crate::gguf::GgmlType;
use crate::gguf::tiny::{CONTROL_TOKENS, VOCABULARY, tiny_llama};
use crate::gguf::write::Writer;

const PLAIN: Encoding = Encoding {
    add_special: false,
    parse_special: false,
};
const SPECIAL: Encoding = Encoding {
    add_special: false,
    parse_special: true,
};

fn tiny() -> Tokenizer {
    let file = Gguf::from_bytes(tiny_llama(1)).expect("a valid file");
    Tokenizer::from_gguf(&file).expect("a valid vocabulary")
}

fn texts(tokens: &[&str]) -> Vec<Box<str>> {
    tokens.iter().map(|token| Box::from(*token)).collect()
}

/// A vocabulary of three letters and one merge, with what a test adds to it.
fn letters() -> Writer {
    Writer::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "gpt-2")
        .metadata(
            "tokenizer.ggml.tokens",
            texts(&["a", "b", "c", "ab", "<s>", "<u>"]),
        )
        .metadata("tokenizer.ggml.token_type", vec![1, 1, 1, 1, 3, 4])
}

fn from(file: Writer) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_gguf(&Gguf::from_bytes(file.finish()).expect("a valid file"))
}

fn error(file: Writer) -> String {
    from(file).expect_err("a wrong vocabulary").to_string()
}

#[test]
fn merges_apply_one_after_the_other() {
    let tokenizer = tiny();
    let byte = |byte: u8| u32::from(byte) + 3;
    // " the" needs three merges, "thin" two side by side.
    assert_eq!(tokenizer.encode(" the", PLAIN).unwrap(), [261]);
    assert_eq!(tokenizer.encode("thin", PLAIN).unwrap(), [259, 262]);
    assert_eq!(
        tokenizer.encode("a1 a", PLAIN).unwrap(),
        [byte(b'a'), byte(b'1'), 263]
    );
}

#[test]
fn of_two_merges_the_one_that_stands_first_wins() {
    let file = |merges: &[&str]| {
        Writer::new()
            .metadata("tokenizer.ggml.model", "gpt2")
            .metadata("tokenizer.ggml.pre", "gpt-2")
            .metadata("tokenizer.ggml.tokens", texts(&["a", "b", "c", "ab", "bc"]))
            .metadata("tokenizer.ggml.merges", texts(merges))
    };
    let encode = |merges: &[&str]| from(file(merges)).unwrap().encode("abc", PLAIN).unwrap();
    assert_eq!(encode(&["a b", "b c"]), [3, 2]);
    assert_eq!(encode(&["b c", "a b"]), [0, 4]);
}

#[test]
fn every_text_comes_back() {
    let tokenizer = tiny();
    for text in [
        "",
        "the then thin",
        "日本\u{0} \r\n\t 😀",
        "<|im_end|>",
        "\u{85}\u{ad}",
    ] {
        for how in [PLAIN, SPECIAL] {
            let ids = tokenizer.encode(text, how).unwrap();
            assert_eq!(tokenizer.decode(&ids, false), text);
        }
    }
}

#[test]
fn control_tokens_are_tokens_only_where_asked_for() {
    let tokenizer = tiny();
    assert_eq!(tokenizer.encode("<|im_end|>", SPECIAL).unwrap(), [2]);
    let plain = tokenizer.encode("a<|im_end|>", PLAIN).unwrap();
    assert_eq!(plain.len(), 11);
    assert!(plain.iter().all(|id| !tokenizer.is_control(*id)));
}

#[test]
fn a_prompt_keeps_the_words_of_users_apart_from_its_structure() {
    let tokenizer = tiny();
    let text = "<|im_start|>u<|im_end|><|im_end|>".to_string();
    let literal = vec![text.find("<|im_end|>").unwrap()];
    let ids = tokenizer
        .encode_prompt(&Prompt {
            text: text.clone(),
            literal,
        })
        .unwrap();
    assert_eq!((ids.first(), ids.last()), (Some(&1), Some(&2)));
    assert_eq!(
        ids.iter().filter(|id| tokenizer.is_control(**id)).count(),
        2
    );
    assert_eq!(tokenizer.decode(&ids, false), text);
}

#[test]
fn skipped_control_tokens_leave_no_text() {
    let tokenizer = tiny();
    let ids = tokenizer
        .encode("<|im_start|>a<|im_end|>", SPECIAL)
        .unwrap();
    assert_eq!(tokenizer.decode(&ids, true), "a");
    assert_eq!(tokenizer.text_bytes(2, true), Some(&b""[..]));
    assert_eq!(tokenizer.text_bytes(2, false), Some(&b"<|im_end|>"[..]));
}

#[test]
fn ids_outside_the_vocabulary_have_nothing() {
    let tokenizer = tiny();
    for id in [VOCABULARY, u32::MAX] {
        assert_eq!(tokenizer.token_bytes(id), None);
        assert_eq!(tokenizer.text_bytes(id, true), None);
        assert_eq!(tokenizer.kind(id), None);
        assert!(!tokenizer.is_control(id));
    }
    assert_eq!(tokenizer.decode(&[VOCABULARY, 68], false), "A");
}

#[test]
fn tokens_have_raw_bytes() {
    let tokenizer = tiny();
    for byte in 0..=255_u8 {
        assert_eq!(
            tokenizer.token_bytes(u32::from(byte) + 3),
            Some(&[byte][..])
        );
    }
    assert_eq!(tokenizer.token_bytes(261), Some(&b" the"[..]));
    let all: usize = (0..VOCABULARY)
        .map(|id| tokenizer.token_bytes(id).unwrap().len())
        .sum();
    assert_eq!(all, 13 + 12 + 10 + 256 + 2 + 3 + 4 + 2 + 2);
}

#[test]
fn a_streamed_text_equals_the_whole() {
    let tokenizer = tiny();
    let ids = tokenizer
        .encode("héllo 👩🏽‍💻 <|im_end|>\u{fffd}", SPECIAL)
        .unwrap();
    let mut stream = DecodeStream::new();
    let mut text = String::new();
    for id in &ids {
        text += &stream.push(tokenizer.text_bytes(*id, true).unwrap());
        assert!(!text.ends_with('\u{fffd}') || *id == *ids.last().unwrap());
    }
    text += &stream.flush();
    assert_eq!(text, tokenizer.decode(&ids, true));
    assert!(!stream.is_holding());
}

#[test]
fn ends_of_generation_are_those_named_and_those_known() {
    assert_eq!(tiny().end_of_generation(), [0, 2]);
    assert_eq!((tiny().bos(), tiny().eos()), (Some(1), Some(2)));
    let named = letters()
        .metadata("tokenizer.ggml.merges", texts(&[]))
        .metadata("tokenizer.ggml.eos_token_id", 4_u32)
        .metadata("tokenizer.ggml.eot_token_id", 2_u32);
    assert_eq!(from(named).unwrap().end_of_generation(), [2, 4]);
}

#[test]
fn a_normal_token_that_looks_like_an_end_is_none() {
    let file = Writer::new()
        .metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "gpt-2")
        .metadata("tokenizer.ggml.tokens", texts(&["</s>", "<|end|>"]))
        .metadata("tokenizer.ggml.token_type", vec![1, 3])
        .metadata("tokenizer.ggml.merges", texts(&[]));
    assert_eq!(from(file).unwrap().end_of_generation(), [1]);
}

#[test]
fn beginnings_and_ends_are_added_where_the_model_wants_them() {
    let how = Encoding {
        add_special: true,
        parse_special: false,
    };
    let file = letters()
        .metadata("tokenizer.ggml.merges", texts(&["a b"]))
        .metadata("tokenizer.ggml.bos_token_id", 4_u32)
        .metadata("tokenizer.ggml.eos_token_id", 5_u32);
    assert_eq!(
        from(file.clone()).unwrap().encode("abc", how).unwrap(),
        [3, 2]
    );
    let file = file
        .metadata("tokenizer.ggml.add_bos_token", true)
        .metadata("tokenizer.ggml.add_eos_token", true);
    let tokenizer = from(file).unwrap();
    assert!(tokenizer.adds_bos());
    assert_eq!(tokenizer.encode("abc", how).unwrap(), [4, 3, 2, 5]);
    assert_eq!(tokenizer.encode("abc", PLAIN).unwrap(), [3, 2]);
}

#[test]
fn user_defined_tokens_are_tokens_in_any_text() {
    let tokenizer = from(letters().metadata("tokenizer.ggml.merges", texts(&[]))).unwrap();
    assert_eq!(tokenizer.encode("a<u>b", PLAIN).unwrap(), [0, 5, 1]);
    assert_eq!(
        (tokenizer.special_id("<u>"), tokenizer.special_id("a")),
        (Some(5), None)
    );
    assert_eq!(tokenizer.control_texts().collect::<Vec<_>>(), ["<s>"]);
    assert_eq!(tiny().control_texts().collect::<Vec<_>>(), CONTROL_TOKENS);
}

#[test]
fn a_text_without_tokens_gives_none() {
    let tokenizer = from(letters().metadata("tokenizer.ggml.merges", texts(&["a b"]))).unwrap();
    assert_eq!(tokenizer.encode("xay", PLAIN).unwrap(), [0]);
    assert!(tokenizer.encode("", PLAIN).unwrap().is_empty());
}

#[test]
fn the_embedding_may_have_more_rows_than_there_are_tokens_but_not_fewer() {
    let rows = |rows: u64| {
        letters()
            .metadata("tokenizer.ggml.merges", texts(&[]))
            .tensor(
                "token_embd.weight",
                &[1, rows],
                GgmlType::F32,
                vec![0; 4 * rows as usize],
            )
    };
    let tokenizer = from(rows(8)).unwrap();
    assert_eq!((tokenizer.len(), tokenizer.vocab_size()), (6, 8));
    assert_eq!(
        error(rows(5)),
        "the file has 5 rows in token_embd.weight, but 6 are needed"
    );
}

#[test]
fn vocabularies_that_are_wrong() {
    let missing = error(letters());
    assert_eq!(
        missing,
        "the file has no metadata \"tokenizer.ggml.merges\""
    );
    let merge = error(letters().metadata("tokenizer.ggml.merges", texts(&["a b", "b c"])));
    assert_eq!(
        merge,
        "merge 1, \"b c\", does not join two tokens to a third"
    );
    let outside = letters()
        .metadata("tokenizer.ggml.merges", texts(&[]))
        .metadata("tokenizer.ggml.eos_token_id", 6_u32);
    assert_eq!(
        error(outside),
        "tokenizer.ggml.eos_token_id is 6, but there are 6 tokens"
    );
    let head = |pre: &str| {
        Writer::new()
            .metadata("tokenizer.ggml.model", "gpt2")
            .metadata("tokenizer.ggml.pre", pre)
    };
    let twice = head("gpt-2").metadata("tokenizer.ggml.tokens", texts(&["a", "a"]));
    assert_eq!(error(twice), "token \"a\" stands twice");
    let types = head("gpt-2")
        .metadata("tokenizer.ggml.tokens", texts(&["a", "b"]))
        .metadata("tokenizer.ggml.token_type", vec![1]);
    assert_eq!(error(types), "the file has 1 token types, but 2 are needed");
    assert!(
        error(head("never-heard-of")).starts_with("pre-tokenizer \"never-heard-of\" is unknown")
    );
    let spm = error(Writer::new().metadata("tokenizer.ggml.model", "llama"));
    assert!(
        spm.starts_with("tokenizer model \"llama\" is not supported"),
        "{spm}"
    );
}

/// The words that a pre-tokenizer cuts a text into.
fn words(name: &str, text: &str) -> Vec<String> {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};
    let pre = Pre::named(name).unwrap();
    let mut cut = PreTokenizedString::from(text);
    pre.pre_tokenizer.pre_tokenize(&mut cut).unwrap();
    let splits = cut.get_splits(OffsetReferential::Original, OffsetType::Byte);
    splits
        .into_iter()
        .map(|(_, (start, end), _)| text[start..end].to_string())
        .collect()
}

#[test]
fn families_cut_words_as_their_models_do() {
    let text = "I'm 12345 fooBar!\n\n  x";
    let cases = [
        ("gpt-2", "I|'m| 12345| fooBar|!|\n\n | x"),
        ("smollm", "I|'m| |1|2|3|4|5| fooBar|!|\n\n | x"),
        ("llama-bpe", "I|'m| |123|45| fooBar|!\n\n| | x"),
        ("qwen2", "I|'m| |1|2|3|4|5| fooBar|!\n\n| | x"),
        ("tekken", "I|'m| |1|2|3|4|5| foo|Bar|!\n\n| | x"),
        ("gpt-4o", "I'm| |123|45| foo|Bar|!\n\n| | x"),
    ];
    for (name, expected) in cases {
        assert_eq!(words(name, text).join("|"), expected, "{name}");
    }
}

#[test]
fn a_very_long_text_is_cut_like_a_short_one() {
    let end = |name: &str, unit: &str, times: usize| {
        let mut cut = words(name, &format!("{}x y", unit.repeat(times)));
        (
            cut.pop().unwrap(),
            cut.pop().unwrap().chars().rev().take(9).collect::<String>(),
        )
    };
    for name in ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o"] {
        for unit in [" ", "the ", "aaaa", "AAAA", "\n", " \n", "!!!!", "\u{301}"] {
            let (long, short) = (end(name, unit, 400_000), end(name, unit, 100));
            assert_eq!(long, short, "{name} {unit:?}");
        }
    }
}
