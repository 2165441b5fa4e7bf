//! Logits and perplexity against an independent implementation in numpy.
//!
//! `LOCKSTEP_PYTHON` names an interpreter with the packages of `tests/requirements.txt`, which
//! `make test` installs.

use std::path::Path;
use std::process::Command;

use lockstep::backend::decode;
use lockstep::batch::{Batch, BatchSequence, Forward};
use lockstep::gguf::{GgmlType, Gguf};
use lockstep::model::{KvDtype, Model, ModelOptions};
use lockstep::tokenizer::{Encoding, Tokenizer};
use lockstep_tests::real_model;
use serde_json::Value;

const PAGE: &str = include_str!("data/page.txt");
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/reference");
const PLAIN: Encoding = Encoding {
    add_special: false,
    parse_special: false,
};

/// The interpreter; none where a developer runs the tests without `make test`, never so in CI.
fn python() -> Option<String> {
    let named = std::env::var("LOCKSTEP_PYTHON").ok();
    let ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty());
    assert!(
        named.is_some() || !ci,
        "LOCKSTEP_PYTHON is not set: `make test` sets it"
    );
    if named.is_none() {
        eprintln!("SKIPPED: LOCKSTEP_PYTHON is not set, so nothing was compared; use `make test`");
    }
    named
}

/// Runs the reference over some formats; the perplexities that it found.
fn reference(python: &str, model: &Path, tokens: &[u32], out: &Path, names: &[&str]) -> Value {
    let ids = out.join("tokens.json");
    std::fs::write(&ids, serde_json::to_string(tokens).expect("numbers")).expect("room");
    let mut arguments = vec![model, &ids, out];
    arguments.extend(names.iter().map(Path::new));
    serde_json::from_slice(&run(python, "parity.py", &arguments)).expect("an object")
}

/// Runs a script of the reference; what it printed.
fn run(python: &str, script: &str, arguments: &[&Path]) -> Vec<u8> {
    let script = Path::new(SCRIPTS).join(script);
    let run = Command::new(python).arg(&script).args(arguments).output();
    let run = run.unwrap_or_else(|error| panic!("{python}: {error}"));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{}: {errors}", script.display());
    run.stdout
}

fn floats(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("the reference wrote it");
    let numbers = bytes.chunks_exact(4);
    numbers
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}

/// The logits of every position.
fn logits(path: &Path, tokens: &[u32], kv_dtype: KvDtype) -> Vec<f32> {
    let file = Gguf::open(path).expect("a valid file");
    let rows = tokens.len() as u32;
    let blocks = rows.div_ceil(16);
    let options = ModelOptions {
        kv_dtype,
        num_blocks: blocks,
        max_rows: tokens.len(),
        ..ModelOptions::default()
    };
    let mut model = Model::load(&file, options).expect("a supported model");
    let batch = Batch {
        token_ids: tokens.to_vec(),
        positions: (0..rows).collect(),
        slots: (0..rows).collect(),
        sequences: vec![BatchSequence {
            first_row: 0,
            rows,
            first_block: 0,
            blocks,
        }],
        block_tables: (0..blocks).collect(),
        sampling_rows: (0..rows).collect(),
        ..Batch::default()
    };
    let mut logits = vec![f32::NAN; tokens.len() * model.vocab_size()];
    model.forward(&batch, &mut logits).expect("finite logits");
    logits
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|v| v * v).sum::<f64>().sqrt()
}

/// The relative error of each position's vector of logits.
fn relative_errors(found: &[f32], expected: &[f32], positions: usize) -> Vec<f64> {
    assert_eq!(found.len(), expected.len());
    let width = found.len() / positions;
    let rows = found.chunks_exact(width).zip(expected.chunks_exact(width));
    let error = |(found, expected): (&[f32], &[f32])| {
        let pairs = found.iter().zip(expected);
        let difference = norm(pairs.map(|(f, e)| f64::from(*f) - f64::from(*e)));
        difference / norm(expected.iter().map(|e| f64::from(*e)))
    };
    rows.map(error).collect()
}

fn perplexity(logits: &[f32], tokens: &[u32]) -> f64 {
    let rows = logits.chunks_exact(logits.len() / tokens.len());
    let surprise = |(row, next): (&[f32], &u32)| {
        let max = row.iter().fold(f32::NEG_INFINITY, |max, x| max.max(*x));
        let sum: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
        sum.ln() - f64::from(row[*next as usize] - max)
    };
    let total: f64 = rows.zip(&tokens[1..]).map(surprise).sum();
    (total / (tokens.len() - 1) as f64).exp()
}

/// A model's weights in a format: the file's own where it is named [`PULLED`].
struct Case {
    name: &'static str,
    kv_dtype: KvDtype,
    /// How far off the vector of logits may be, the mean over positions.
    limit: f64,
}

const PULLED: &str = "as pulled";

const fn dense(name: &'static str) -> Case {
    Case {
        name,
        kv_dtype: KvDtype::F32,
        limit: DENSE_LIMIT,
    }
}

const fn quantised(name: &'static str) -> Case {
    Case {
        name,
        kv_dtype: KvDtype::F16,
        limit: 5e-2,
    }
}

/// Without quantised activations no single position is off by more either.
const DENSE_LIMIT: f64 = 1e-4;

fn compare(cases: &[Case], formats: &[&str]) {
    let Some(python) = python() else { return };
    let model = real_model();
    let tokenizer = Tokenizer::from_gguf(&Gguf::open(&model).expect("a valid file"));
    let tokens = tokenizer
        .expect("a vocabulary")
        .encode(PAGE, PLAIN)
        .expect("ids");
    assert!(
        tokens.len() >= 512,
        "the page has only {} tokens",
        tokens.len()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    let perplexities = reference(&python, &model, &tokens, out, formats);
    for case in cases {
        let (file, expected) = match case.name {
            PULLED => (model.clone(), "F32"),
            name => (out.join(format!("{name}.gguf")), name),
        };
        let found = logits(&file, &tokens, case.kv_dtype);
        let reference = floats(&out.join(format!("{expected}.f32")));
        let wanted = perplexities[expected].as_f64().expect("a number");
        case.check(&found, &reference, &tokens, wanted);
    }
}

impl Case {
    fn check(&self, found: &[f32], reference: &[f32], tokens: &[u32], wanted: f64) {
        let (name, kv_dtype, limit) = (self.name, self.kv_dtype, self.limit);
        let errors = relative_errors(found, reference, tokens.len());
        let worst = errors.iter().fold(0.0_f64, |worst, e| worst.max(*e));
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let perplexity = perplexity(found, tokens);
        println!(
            "{name}, {kv_dtype} KV: relative error {mean:.2e}, at worst {worst:.2e}; perplexity {perplexity:.4}, reference {wanted:.4}"
        );
        assert!(mean < limit, "{name}: relative error {mean}");
        assert!(
            limit > DENSE_LIMIT || worst < limit,
            "{name}: relative error {worst} at worst"
        );
        assert!(
            (perplexity / wanted - 1.0).abs() < 0.01,
            "{name}: perplexity {perplexity}"
        );
    }
}

#[test]
fn logits_and_perplexity_agree_with_an_independent_implementation() {
    let pulled = |kv_dtype| Case {
        kv_dtype,
        ..quantised(PULLED)
    };
    let cases = [
        dense("F32"),
        dense("F16"),
        dense("BF16"),
        quantised("Q4_0"),
        quantised("Q5_0"),
        quantised("Q5_1"),
        quantised("Q8_0"),
        pulled(KvDtype::F32),
        pulled(KvDtype::F16),
    ];
    let formats = ["F32", "F16", "BF16", "Q4_0", "Q5_0", "Q5_1", "Q8_0"];
    compare(&cases, &formats);
}

/// The model's rows are 576 and 1,536 long: super-blocks of 256 hold the latter, a fifth of the
/// weights.
#[test]
fn logits_and_perplexity_agree_in_the_rarer_formats() {
    let formats = [
        "IQ4_NL", "MXFP4", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS",
    ];
    compare(&formats.map(quantised), &formats);
}

#[test]
fn quantised_formats_decode_as_an_independent_decoder_decodes_them() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    run(&python, "decode.py", &[folder.path()]);
    let quantised = GgmlType::ALL.into_iter().filter(|t| t.is_quantised());
    for ggml_type in quantised {
        let file = |ending: &str| folder.path().join(format!("{ggml_type}.{ending}"));
        let bytes = std::fs::read(file("bin")).expect("the reference wrote it");
        let expected = floats(&file("f32"));
        let mut found = vec![f32::NAN; expected.len()];
        decode::row(ggml_type, &bytes, &mut found);
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            // The package's products of zeros differ in sign from one format to another.
            let zeros = *found == 0.0 && *expected == 0.0;
            let same = found.to_bits() == expected.to_bits() || zeros;
            assert!(same, "{ggml_type}, element {i}: {found} and not {expected}");
        }
    }
}
