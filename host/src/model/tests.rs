//! The forward pass of a small model: no bit of a sequence's logits depends on anything but its
//! tokens.

use super::*;
use crate::batch::{Batch, BatchSequence, Forward, ForwardError};
use crate::gguf::tiny::{tiny_llama, tiny_llama_with};
use crate::gguf::write::Writer;
use crate::gguf::{GgmlType, Gguf, Value};

const LENGTH: usize = 300;

fn file() -> Gguf {
    Gguf::from_bytes(tiny_llama(1)).expect("a whole file")
}

fn options() -> ModelOptions {
    ModelOptions {
        num_blocks: 128,
        max_rows: 400,
        ..ModelOptions::default()
    }
}

fn tokens(seed: u32, count: usize) -> Vec<u32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % crate::gguf::tiny::VOCABULARY
    };
    (0..count).map(|_| next()).collect()
}

/// Appends `chunk`, beginning at `position`, of a sequence with blocks `table`, logits of its last
/// row wanted.
fn append(batch: &mut Batch, chunk: &[u32], position: usize, table: &[u32], size: usize) {
    batch.sequences.push(BatchSequence {
        first_row: batch.rows() as u32,
        rows: chunk.len() as u32,
        first_block: batch.block_tables.len() as u32,
        blocks: table.len() as u32,
    });
    batch.block_tables.extend(table);
    for (position, token) in (position..).zip(chunk) {
        batch.token_ids.push(*token);
        batch.positions.push(position as u32);
        batch
            .slots
            .push(table[position / size] * size as u32 + (position % size) as u32);
    }
    batch.sampling_rows.push(batch.rows() as u32 - 1);
}

fn table(model: &Model, first: u32, stride: u32, length: usize) -> Vec<u32> {
    let blocks = length.div_ceil(model.options().block_size as usize) as u32;
    (0..blocks).map(|i| first + i * stride).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

fn forward(model: &mut Model, batch: &Batch) -> Vec<f32> {
    let mut logits = vec![f32::NAN; batch.sampling_rows.len() * model.vocab_size()];
    model.forward(batch, &mut logits).expect("finite rows");
    logits
}

/// The last token's logits, the sequence computed in chunks of `chunk`.
fn alone(model: &mut Model, tokens: &[u32], chunk: usize) -> Vec<u32> {
    let (table, size) = (
        table(model, 0, 1, tokens.len()),
        model.options().block_size as usize,
    );
    let mut last = Vec::new();
    for (i, piece) in tokens.chunks(chunk).enumerate() {
        let mut batch = Batch::default();
        append(&mut batch, piece, i * chunk, &table, size);
        last = forward(model, &batch);
    }
    bits(&last)
}

#[test]
fn logits_do_not_depend_on_chunks_threads_blocks_or_instructions() {
    let (file, tokens) = (file(), tokens(1, LENGTH));
    for kv_dtype in [KvDtype::F16, KvDtype::F32] {
        let base = ModelOptions {
            kv_dtype,
            ..options()
        };
        let mut model = Model::load(&file, base).expect("a model");
        let expected = alone(&mut model, &tokens, LENGTH);
        for chunk in [1, 7, 64] {
            assert_eq!(
                alone(&mut model, &tokens, chunk),
                expected,
                "chunks of {chunk}"
            );
        }
        for threads in 1..=4 {
            let mut model = Model::load(&file, ModelOptions { threads, ..base }).expect("a model");
            assert_eq!(
                alone(&mut model, &tokens, 100),
                expected,
                "{threads} threads"
            );
        }
        for block_size in [32, 48, 128] {
            let mut model =
                Model::load(&file, ModelOptions { block_size, ..base }).expect("a model");
            assert_eq!(
                alone(&mut model, &tokens, 33),
                expected,
                "blocks of {block_size}"
            );
        }
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let isa = Some(isa);
            let mut model = Model::load(&file, ModelOptions { isa, ..base }).expect("a model");
            assert_eq!(alone(&mut model, &tokens, 50), expected, "{isa:?}");
        }
    }
}

#[test]
fn logits_depend_on_every_token_before() {
    let mut model = Model::load(&file(), options()).expect("a model");
    let mut tokens = tokens(1, LENGTH);
    let expected = alone(&mut model, &tokens, LENGTH);
    tokens[0] ^= 1;
    assert_ne!(alone(&mut model, &tokens, LENGTH), expected);
}

#[test]
fn a_row_sees_no_further_than_the_sliding_window() {
    const WINDOW: usize = 40;
    let windowed = |window: u32| {
        let bytes = tiny_llama_with(1, |file| {
            file.metadata("llama.attention.sliding_window", window)
        });
        Gguf::from_bytes(bytes).expect("a whole file")
    };
    let file = windowed(WINDOW as u32);
    let mut model = Model::load(&file, options()).expect("a model");
    let tokens = tokens(1, LENGTH);
    let expected = alone(&mut model, &tokens, LENGTH);
    // Each of the two layers looks back by a window less the row itself.
    let reach = 2 * (WINDOW - 1);
    let with_another = |model: &mut Model, distance: usize| {
        let mut tokens = tokens.clone();
        tokens[LENGTH - 1 - distance] ^= 1;
        alone(model, &tokens, LENGTH)
    };
    assert_ne!(with_another(&mut model, reach), expected);
    assert_eq!(with_another(&mut model, reach + 1), expected);
    for (chunk, threads, block_size) in [(1, 1, 16), (7, 2, 48), (64, 3, 128)] {
        let options = ModelOptions {
            threads,
            block_size,
            ..options()
        };
        let mut model = Model::load(&file, options).expect("a model");
        assert_eq!(alone(&mut model, &tokens, chunk), expected, "{chunk}");
    }
    let mut wide = Model::load(&windowed(LENGTH as u32), options()).expect("a model");
    let mut whole = Model::load(&self::file(), options()).expect("a model");
    let unmasked = alone(&mut whole, &tokens, LENGTH);
    assert_eq!(alone(&mut wide, &tokens, LENGTH), unmasked);
    assert_ne!(unmasked, expected);
    let endless = Model::load(&windowed(u32::MAX), options());
    assert!(matches!(endless, Err(ModelError::BadValue { .. })));
}

#[test]
fn batch_mates_change_nothing() {
    let options = ModelOptions {
        num_blocks: 192,
        ..options()
    };
    let mut model = Model::load(&file(), options).expect("a model");
    let sequences: Vec<Vec<u32>> = (0..9).map(|i| tokens(i, 20 + 31 * i as usize)).collect();
    let expected: Vec<Vec<u32>> = sequences.iter().map(|s| alone(&mut model, s, 64)).collect();
    // Everyone together, interleaved blocks: first all but the last token, by chunks of unequal
    // lengths, then the last tokens in one batch.
    let tables: Vec<Vec<u32>> = (0..9)
        .map(|i| table(&model, i, 9, sequences[i as usize].len()))
        .collect();
    let mut done = [0; 9];
    for step in 0.. {
        let mut batch = Batch::default();
        for (i, sequence) in sequences.iter().enumerate() {
            let chunk = (1 + (step * 7 + i * 5) % 40).min(sequence.len() - 1 - done[i]);
            if chunk > 0 {
                append(
                    &mut batch,
                    &sequence[done[i]..done[i] + chunk],
                    done[i],
                    &tables[i],
                    16,
                );
                done[i] += chunk;
            }
        }
        if batch.rows() == 0 {
            break;
        }
        forward(&mut model, &batch);
    }
    let mut batch = Batch::default();
    for (i, sequence) in sequences.iter().enumerate() {
        append(&mut batch, &sequence[done[i]..], done[i], &tables[i], 16);
    }
    let together = bits(&forward(&mut model, &batch));
    assert_eq!(together, expected.concat());
}

#[test]
fn copied_blocks_hold_what_they_were_copied_from() {
    let mut model = Model::load(&file(), options()).expect("a model");
    let tokens = tokens(3, 40);
    let expected = alone(&mut model, &tokens, 40);
    model
        .copy_blocks(&[(0, 60), (1, 61), (2, 62)])
        .expect("blocks");
    let mut batch = Batch::default();
    append(&mut batch, &tokens[39..], 39, &[60, 61, 62], 16);
    assert_eq!(bits(&forward(&mut model, &batch)), expected);
    assert!(matches!(
        model.copy_blocks(&[(0, 128)]),
        Err(ForwardError::Device(_))
    ));
}

/// The small model with the embedding of one token turned into infinities.
fn file_with_infinite_token(token: u32) -> Gguf {
    let mut bytes = tiny_llama(1);
    let whole = Gguf::from_bytes(bytes.clone()).expect("a whole file");
    let tensor = whole.tensor("token_embd.weight").expect("an embedding");
    let width = tensor.row_len() as usize * 2;
    let first = tensor.offset() as usize + token as usize * width;
    for element in bytes[first..first + width].chunks_exact_mut(2) {
        element.copy_from_slice(&half::f16::INFINITY.to_le_bytes());
    }
    Gguf::from_bytes(bytes).expect("a whole file")
}

#[test]
fn a_sequence_that_is_not_finite_is_named_and_its_neighbours_are_unharmed() {
    // The embedding is the output projection too: the token's own logit is compared with nothing.
    let mut model = Model::load(&file_with_infinite_token(5), options()).expect("a model");
    let neighbours = [[7, 8, 9], [10, 11, 12]];
    let mut batch = Batch::default();
    append(&mut batch, &neighbours[0], 0, &[0], 16);
    append(&mut batch, &[6, 5], 0, &[1], 16);
    append(&mut batch, &neighbours[1], 0, &[2], 16);
    // Logits of token 5 are infinite for everyone, so none is sampled here.
    batch.sampling_rows.clear();
    let outcome = model.forward(&batch, &mut []);
    assert_eq!(outcome, Err(ForwardError::NonFinite { sequences: vec![1] }));
    batch.sampling_rows.push(0);
    let mut logits = vec![0.0; model.vocab_size()];
    let outcome = model.forward(&batch, &mut logits);
    assert_eq!(
        outcome,
        Err(ForwardError::NonFinite {
            sequences: vec![0, 1]
        })
    );
}

#[test]
fn wrong_batches_are_refused_before_memory_is_touched() {
    let mut model = Model::load(&file(), options()).expect("a model");
    let mut good = Batch::default();
    append(&mut good, &[1, 2, 3], 0, &[4], 16);
    let mut logits = vec![0.0; model.vocab_size()];
    assert_eq!(model.forward(&good, &mut logits), Ok(()));
    let wrongs: [fn(&mut Batch); 10] = [
        |b| b.token_ids[1] = u32::MAX,
        |b| b.positions[1] = 7,
        |b| b.slots[2] += 1,
        |b| b.slots[0] = 0,
        |b| b.sequences[0].rows = 2,
        |b| b.sequences[0].first_block = 9,
        |b| b.sequences[0].blocks = 2,
        |b| b.block_tables[0] = 128,
        |b| b.sampling_rows[0] = 3,
        |b| b.sampling_rows.push(0),
    ];
    for (i, wrong) in wrongs.into_iter().enumerate() {
        let mut batch = good.clone();
        wrong(&mut batch);
        let outcome = model.forward(&batch, &mut logits);
        assert!(
            matches!(outcome, Err(ForwardError::Device(_))),
            "wrong batch {i}: {outcome:?}"
        );
    }
}

/// A file like the small model's, with metadata and tensors changed on the way.
fn rewritten(
    metadata: impl Fn(&str, &Value) -> Option<Value>,
    tensor: impl Fn(&str, &[u64], GgmlType) -> Option<(Vec<u64>, GgmlType)>,
) -> Gguf {
    let whole = file();
    let mut writer = Writer::new();
    for (key, value) in whole.metadata() {
        if let Some(value) = metadata(key, value) {
            writer = writer.metadata(key, value);
        }
    }
    for info in whole.tensors() {
        if let Some((dims, ggml_type)) = tensor(info.name(), info.dims(), info.ggml_type()) {
            let elements: u64 = dims.iter().product();
            let bytes = elements as usize / ggml_type.block_len() * ggml_type.block_bytes();
            writer = writer.tensor(info.name(), &dims, ggml_type, vec![0; bytes]);
        }
    }
    Gguf::from_bytes(writer.finish()).expect("a whole file")
}

#[test]
fn files_that_do_not_fit_their_metadata_are_refused_by_name() {
    let keep = |_: &str, value: &Value| Some(value.clone());
    let load = |file: Gguf| {
        Model::load(&file, options())
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    let change = |key: &'static str, to: Value| {
        rewritten(
            move |k, v| Some(if k == key { to.clone() } else { v.clone() }),
            |_, dims, t| Some((dims.to_vec(), t)),
        )
    };
    assert_eq!(
        load(rewritten(keep, |_, dims, t| Some((dims.to_vec(), t)))),
        Ok(())
    );
    for (key, value) in [
        ("general.architecture", Value::from("mamba")),
        ("llama.block_count", Value::from(0_u32)),
        ("llama.block_count", Value::from(u32::MAX)),
        ("llama.embedding_length", Value::from(80_u32)),
        ("llama.attention.head_count", Value::from(0_u32)),
        ("llama.attention.head_count", Value::from(3_u32)),
        ("llama.attention.head_count_kv", Value::from(3_u32)),
        ("llama.rope.freq_base", Value::from(f32::NAN)),
        ("llama.rope.dimension_count", Value::from(8_u32)),
        ("llama.feed_forward_length", Value::from(u32::MAX)),
    ] {
        let error = load(change(key, value.clone())).expect_err(key);
        assert!(
            error.contains("llama") || error.contains("mamba"),
            "{key} {value:?}: {error}"
        );
    }
    let name = "blk.1.ffn_up.weight";
    for (dims, ggml_type) in [
        (vec![64, 95], GgmlType::Q8_0),
        (vec![96, 64], GgmlType::Q8_0),
        (vec![64, 96, 2], GgmlType::Q8_0),
    ] {
        let dims = &dims;
        let file = rewritten(keep, move |n, d, t| {
            Some(if n == name {
                (dims.clone(), ggml_type)
            } else {
                (d.to_vec(), t)
            })
        });
        assert!(load(file).expect_err("a wrong shape").contains(name));
    }
    let missing = rewritten(keep, |n, d, t| (n != name).then(|| (d.to_vec(), t)));
    assert!(load(missing).expect_err("a missing tensor").contains(name));
}

#[test]
fn the_footprint_counts_what_is_taken() {
    let footprint = Footprint::of(&file(), &options()).expect("a model");
    let pool = footprint
        .items
        .iter()
        .find(|item| item.name == "KV pool")
        .expect("a pool");
    // 2 layers, keys and values, 2 heads of 16, 128 blocks of 16, 2 bytes.
    assert_eq!(pool.bytes, 2 * 2 * 2 * 16 * 128 * 16 * 2);
    assert!(footprint.total() > pool.bytes);
}

#[test]
fn options_outside_their_ranges_are_refused() {
    let file = file();
    let bad = [
        ModelOptions {
            threads: 0,
            ..options()
        },
        ModelOptions {
            num_blocks: 0,
            ..options()
        },
        ModelOptions {
            block_size: 24,
            ..options()
        },
        ModelOptions {
            max_rows: 0,
            ..options()
        },
        ModelOptions {
            max_positions: 0,
            ..options()
        },
    ];
    for options in bad {
        assert!(matches!(
            Model::load(&file, options),
            Err(ModelError::BadOption { .. })
        ));
    }
}
