//! Every kind of damage gives its own error, and no bytes whatever give a panic.

use quickcheck::{Arbitrary, Gen, QuickCheck};

use super::write::Writer;
use super::*;

fn small() -> Writer {
    Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("answer", 42_u32)
        .metadata("names", vec![Box::from("a"), Box::from("bc")])
        .metadata(
            "nested",
            Array::Array(vec![Array::U8(vec![1, 2]), Array::Bool(vec![true])]),
        )
        .tensor("first", &[4, 2], GgmlType::F32, (0..32).collect())
        .tensor("second", &[32], GgmlType::Q8_0, vec![7; 34])
}

fn error(file: Writer) -> GgufError {
    Gguf::from_bytes(file.finish()).expect_err("the file is damaged")
}

/// `bytes` with those at `offset` replaced.
fn patched(mut bytes: Vec<u8>, offset: usize, patch: &[u8]) -> Vec<u8> {
    bytes[offset..offset + patch.len()].copy_from_slice(patch);
    bytes
}

fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes
        .windows(needle.len())
        .position(|w| w == needle)
        .expect("the needle is there")
}

#[test]
fn a_whole_file_reads_back() {
    for version in [2, 3] {
        let file = Gguf::from_bytes(small().version(version).finish()).expect("a valid file");
        assert_eq!(file.version(), version);
        assert_eq!(file.str("general.architecture").unwrap(), Some("llama"));
        assert_eq!(file.u32("answer").unwrap(), Some(42));
        assert_eq!(file.u32("absent").unwrap(), None);
        assert_eq!(file.strings("names").unwrap().unwrap()[1], Box::from("bc"));
        let nested = Array::Array(vec![Array::U8(vec![1, 2]), Array::Bool(vec![true])]);
        assert_eq!(file.value("nested"), Some(&Value::Array(nested)));
        let first = file.tensor("first").unwrap();
        assert_eq!(
            (first.dims(), first.rows(), first.elements()),
            (&[4, 2][..], 2, 8)
        );
        assert_eq!(first.offset() % 32, 0);
        assert_eq!(file.tensor_data(first), (0..32).collect::<Vec<u8>>());
        assert_eq!(file.tensor_data(file.tensor("second").unwrap()), [7; 34]);
        assert!(file.tensor("third").is_none());
    }
}

#[test]
fn every_value_type_reads_back() {
    let values = [
        Value::U8(200),
        Value::I8(-3),
        Value::U16(60_000),
        Value::I16(-300),
        Value::U32(4_000_000_000),
        Value::I32(-70_000),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F32(1.5),
        Value::F64(-2.25),
        Value::Bool(true),
        Value::String("é".into()),
        Value::Array(Array::U16(vec![1, 2, 3])),
        Value::Array(Array::I8(vec![-1])),
        Value::Array(Array::I16(vec![-2])),
        Value::Array(Array::U32(vec![9])),
        Value::Array(Array::U64(vec![])),
        Value::Array(Array::I64(vec![-5, 5])),
        Value::Array(Array::F64(vec![0.5])),
        Value::from(vec![1.0_f32]),
        Value::from(vec![-1_i32]),
    ];
    let mut writer = Writer::new();
    for (i, value) in values.iter().enumerate() {
        writer = writer.metadata(&format!("k{i:02}"), value.clone());
    }
    let file = Gguf::from_bytes(writer.finish()).expect("a valid file");
    let read: Vec<Value> = file.metadata().map(|(_, value)| value.clone()).collect();
    assert_eq!(read, values);
}

#[test]
fn another_alignment_moves_the_data() {
    let file = Gguf::from_bytes(small().alignment(128).finish()).expect("a valid file");
    assert_eq!(file.tensor("second").unwrap().offset() % 128, 0);
    assert_eq!(file.tensor_data(file.tensor("second").unwrap()), [7; 34]);
}

#[test]
fn a_value_of_another_type_is_an_error_that_names_both() {
    let file = Gguf::from_bytes(small().finish()).expect("a valid file");
    let message = file.u32("general.architecture").unwrap_err().to_string();
    assert_eq!(
        message,
        "metadata \"general.architecture\" is of type string, not u32"
    );
    assert!(file.str("answer").is_err() && file.strings("answer").is_err());
    for outside in [Value::I32(-1), Value::U64(1 << 32), Value::F32(1.0)] {
        let file = Writer::new().metadata("n", outside).finish();
        assert!(Gguf::from_bytes(file).unwrap().u32("n").is_err());
    }
}

#[test]
fn not_a_gguf_file() {
    for bytes in [&b""[..], b"GG", b"PK\x03\x04....", b"<!doctype html>"] {
        let error = Gguf::from_bytes(bytes.to_vec()).unwrap_err();
        assert!(matches!(error, GgufError::BadMagic { .. }), "{error}");
    }
}

#[test]
fn versions_that_are_not_read() {
    assert!(matches!(
        error(small().version(1)),
        GgufError::BadVersion { found: 1 }
    ));
    assert!(error(small().version(4)).to_string().contains("version 4"));
    let big_endian = error(small().version(3_u32.swap_bytes())).to_string();
    assert!(big_endian.contains("big-endian"), "{big_endian}");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let bytes = small().finish();
    for len in 0..bytes.len() {
        Gguf::from_bytes(bytes[..len].to_vec()).expect_err("a cut file");
    }
}

#[test]
fn counts_that_cannot_fit_are_refused_at_once() {
    let bytes = small().finish();
    let huge = u64::MAX.to_le_bytes();
    let array_count = find(&bytes, b"names") + 5 + 4 + 4;
    for (offset, what) in [
        (8, "tensors"),
        (16, "metadata pairs"),
        (array_count, "array elements"),
    ] {
        for count in [
            huge,
            1_000_000_u64.to_le_bytes(),
            (u64::MAX / 8).to_le_bytes(),
        ] {
            let error = Gguf::from_bytes(patched(bytes.clone(), offset, &count)).unwrap_err();
            let GgufError::CountTooLarge {
                what: found,
                offset: at,
                ..
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!((*found, *at), (what, offset));
        }
    }
}

#[test]
fn a_string_longer_than_the_file_is_refused() {
    let bytes = small().finish();
    let length = find(&bytes, b"llama") - 8;
    let error = Gguf::from_bytes(patched(bytes, length, &u64::MAX.to_le_bytes())).unwrap_err();
    assert!(
        matches!(
            error,
            GgufError::Truncated {
                needed: u64::MAX,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn damaged_keys_and_values() {
    assert!(matches!(
        error(small().metadata("", 1_u32)),
        GgufError::BadNameLength { length: 0, .. }
    ));
    let long = "k".repeat(65_536);
    assert!(matches!(
        error(small().metadata(&long, 1_u32)),
        GgufError::BadNameLength { .. }
    ));
    let twice = error(small().metadata("answer", 1_u32)).to_string();
    assert_eq!(twice, "the metadata key \"answer\" stands twice");
    let bytes = small().finish();
    let text = find(&bytes, b"llama");
    let error = Gguf::from_bytes(patched(bytes.clone(), text, &[0xff])).unwrap_err();
    assert!(
        matches!(error, GgufError::BadUtf8 { offset, .. } if offset == text),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("the metadata value at offset "),
        "{error}"
    );
    let type_id = find(&bytes, b"answer") + 6;
    let error = Gguf::from_bytes(patched(bytes, type_id, &[13])).unwrap_err();
    assert!(
        matches!(error, GgufError::BadValueType { type_id: 13, .. }),
        "{error}"
    );
    let bytes = Writer::new().metadata("flag", true).finish();
    let last = bytes.len() - 1;
    let error = Gguf::from_bytes(patched(bytes, last, &[2])).unwrap_err();
    assert!(
        matches!(error, GgufError::BadBool { value: 2, .. }),
        "{error}"
    );
}

#[test]
fn arrays_nest_to_a_bound() {
    let nest = |depth| (1..depth).fold(Array::U8(vec![1]), |inner, _| Array::Array(vec![inner]));
    Gguf::from_bytes(Writer::new().metadata("deep", nest(4)).finish()).expect("four are allowed");
    let error = error(Writer::new().metadata("deep", nest(5)));
    assert!(
        matches!(error, GgufError::NestedTooDeep { limit: 4, .. }),
        "{error}"
    );
}

#[test]
fn damaged_alignment() {
    for alignment in [0_u32, 3, 48] {
        let file = Writer::new().metadata("general.alignment", alignment);
        let error = error(file);
        assert!(
            matches!(error, GgufError::BadAlignment { value } if value == alignment),
            "{error}"
        );
    }
    let error = error(Writer::new().metadata("general.alignment", 32_u64));
    assert!(matches!(error, GgufError::WrongType { .. }), "{error}");
    let largest = Writer::new().metadata("general.alignment", 1_u32 << 31);
    Gguf::from_bytes(largest.finish()).expect("no tensor, no data");
}

#[test]
fn damaged_tensors() {
    let with = |name: &str, dims: &[u64], type_id, offset| {
        error(small().raw_tensor(name, dims, type_id, offset, vec![0; 64]))
    };
    let f32_id = GgmlType::F32.id();
    assert!(matches!(
        with("", &[1], f32_id, None),
        GgufError::BadNameLength { .. }
    ));
    assert!(matches!(
        with(&"n".repeat(65), &[1], f32_id, None),
        GgufError::BadNameLength { .. }
    ));
    assert!(matches!(
        with("first", &[1], f32_id, None),
        GgufError::Duplicate { .. }
    ));
    assert!(matches!(
        with("x", &[], f32_id, None),
        GgufError::BadRank { rank: 0, .. }
    ));
    assert!(matches!(
        with("x", &[1; 5], f32_id, None),
        GgufError::BadRank { rank: 5, .. }
    ));
    assert!(matches!(
        with("x", &[4, 0], f32_id, None),
        GgufError::ZeroDimension { .. }
    ));
    for dims in [&[1 << 32, 1 << 32][..], &[1 << 62, 4], &[u64::MAX]] {
        let error = with("x", dims, f32_id, None);
        assert!(
            matches!(error, GgufError::DimensionOverflow { .. }),
            "{error}"
        );
    }
    assert!(matches!(
        with("x", &[33], 8, None),
        GgufError::PartialBlock {
            row: 33,
            block: 32,
            ..
        }
    ));
    assert!(matches!(
        with("x", &[4], f32_id, Some(8)),
        GgufError::Misaligned { offset: 8, .. }
    ));
    for offset in [4096, 1 << 40, u64::MAX - 31] {
        let error = with("x", &[4], f32_id, Some(offset));
        assert!(matches!(error, GgufError::OutOfFile { .. }), "{error}");
    }
    let error = with("x", &[4], f32_id, Some(0));
    assert!(matches!(error, GgufError::Overlap { .. }), "{error}");
}

#[test]
fn a_huge_rank_does_not_read_on() {
    let bytes = small().finish();
    let rank = find(&bytes, b"second") + 6;
    let error = Gguf::from_bytes(patched(bytes, rank, &u32::MAX.to_le_bytes())).unwrap_err();
    assert!(
        matches!(error, GgufError::BadRank { rank: u32::MAX, .. }),
        "{error}"
    );
}

#[test]
fn an_unsupported_type_is_named_with_its_tensor() {
    let iq = error(small().raw_tensor("blk.0.x", &[256], 16, None, vec![0; 66])).to_string();
    assert_eq!(
        iq,
        "tensor \"blk.0.x\" has type IQ2_XXS (id 16), which is not supported"
    );
    let unknown = error(small().raw_tensor("y", &[256], 99, None, vec![])).to_string();
    assert_eq!(unknown, "tensor \"y\" has the unknown type id 99");
}

#[test]
fn a_part_of_a_split_model_is_refused() {
    let error = error(small().metadata("split.count", Value::U16(3)));
    assert!(matches!(error, GgufError::Split { parts: 3 }), "{error}");
    Gguf::from_bytes(small().metadata("split.count", Value::U16(1)).finish()).expect("one part");
}

#[test]
fn names_from_the_file_cannot_write_to_a_terminal() {
    let message = error(small().raw_tensor("\x1b[2J\n", &[0], 0, None, vec![])).to_string();
    assert!(!message.contains(['\x1b', '\n']), "{message:?}");
}

#[test]
fn paths_that_are_no_model_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = Gguf::open(directory.path()).unwrap_err();
    assert!(matches!(error, GgufError::NotRegularFile { .. }), "{error}");
    let error = Gguf::open(&directory.path().join("absent.gguf")).unwrap_err();
    assert!(matches!(error, GgufError::Open { .. }), "{error}");
    let empty = directory.path().join("empty.gguf");
    std::fs::write(&empty, b"").expect("written");
    let error = Gguf::open(&empty).unwrap_err();
    assert!(matches!(error, GgufError::BadMagic { .. }), "{error}");
}

#[test]
fn a_mapped_file_equals_its_bytes_and_its_digest_is_theirs() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("small.gguf");
    let bytes = small().finish();
    std::fs::write(&path, &bytes).expect("written");
    let file = Gguf::open(&path).expect("a valid file");
    assert_eq!(file.tensor_data(file.tensor("second").unwrap()), [7; 34]);
    assert_eq!(file.digest(), blake3::hash(&bytes));
    assert_eq!(file.file_bytes(), bytes.len() as u64);
}

#[test]
fn block_sizes_are_those_of_ggml() {
    // Bits per weight as ggml documents them.
    let bits = |t: GgmlType| t.block_bytes() as f64 * 8.0 / t.block_len() as f64;
    let expected = [
        32., 16., 16., 4.5, 5., 5.5, 6., 8.5, 2.625, 3.4375, 4.5, 5.5, 6.5625, 4.5, 4.25, 4.25,
    ];
    assert_eq!(GgmlType::ALL.map(bits), expected);
    assert_eq!(
        GgmlType::ALL.map(|t| GgmlType::from_id(t.id())),
        GgmlType::ALL.map(Some)
    );
}

#[test]
fn the_tiny_model_is_a_valid_file_and_a_function_of_its_seed() {
    let bytes = tiny::tiny_llama(1);
    assert_eq!(bytes, tiny::tiny_llama(1));
    assert_ne!(bytes, tiny::tiny_llama(2));
    assert!(bytes.len() < 200_000, "{}", bytes.len());
    let file = Gguf::from_bytes(bytes).expect("a valid file");
    assert_eq!(file.tensors().len(), 2 + 2 * 9);
    let tokens = file.strings("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(
        tokens.len() as u64,
        file.tensor("token_embd.weight").unwrap().rows()
    );
}

/// A way to damage a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip { at: u16, mask: u8 },
    Truncate { to: u16 },
    Insert { at: u16, bytes: Vec<u8> },
    Number { at: u16, value: u64 },
}

impl Arbitrary for Damage {
    fn arbitrary(g: &mut Gen) -> Self {
        let at = u16::arbitrary(g);
        match u8::arbitrary(g) % 4 {
            0 => Self::Flip {
                at,
                mask: u8::arbitrary(g),
            },
            1 => Self::Truncate { to: at },
            2 => Self::Insert {
                at,
                bytes: Vec::arbitrary(g),
            },
            _ => Self::Number {
                at,
                value: *g.choose(&[0, 1, 1 << 31, 1 << 63, u64::MAX]).unwrap(),
            },
        }
    }
}

fn apply(mut bytes: Vec<u8>, damage: &Damage) -> Vec<u8> {
    let place = |at: u16, len: usize| usize::from(at) % (len + 1);
    let len = bytes.len();
    match damage {
        Damage::Flip { at, mask } => {
            if let Some(byte) = bytes.get_mut(place(*at, len)) {
                *byte ^= mask;
            }
        }
        Damage::Truncate { to } => bytes.truncate(place(*to, len)),
        Damage::Insert {
            at,
            bytes: inserted,
        } => {
            let at = place(*at, len);
            bytes.splice(at..at, inserted.iter().copied());
        }
        Damage::Number { at, value } => {
            let tail = bytes.iter_mut().skip(place(*at, len));
            tail.zip(value.to_le_bytes())
                .for_each(|(byte, new)| *byte = new);
        }
    }
    bytes
}

#[test]
fn no_damage_makes_a_panic_or_a_tensor_outside_the_file() {
    fn law(damages: Vec<Damage>) -> bool {
        let bytes = damages.iter().take(4).fold(small().finish(), apply);
        match Gguf::from_bytes(bytes) {
            Ok(file) => file.tensors().iter().all(|tensor| {
                file.tensor_data(tensor).len() as u64 == tensor.bytes() && tensor.bytes() > 0
            }),
            Err(error) => !error.to_string().is_empty(),
        }
    }
    QuickCheck::new()
        .rng(Gen::from_size_and_seed(20, 7))
        .tests(20_000)
        .quickcheck(law as fn(Vec<Damage>) -> bool);
}
