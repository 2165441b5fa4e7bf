//! The highest logits of rows, as the forward pass finds them: the sampler's order of the CPU's logits.

use half::f16;
use lockstep::backend::device::Device;
use lockstep::batch::{Batch, Forward, Ranked};
use lockstep::gguf::{GgmlType, Gguf, write::Writer};
use lockstep::model::{KvDtype, Model, ModelOptions, OnDevice};
use lockstep::sampler::Sampler;

use crate::interpreter::Interpreter;
use crate::{batch, logits, options};

/// So many that ranking takes three rounds.
const VOCABULARY: u64 = 17_003;
const WIDTH: u64 = 64;

/// One layer, and so many tokens that many of their logits are equal: rows of the embedding repeat.
fn file() -> Gguf {
    let mut seed = 5_u64;
    let mut q8 = |dims: [u64; 2]| -> Vec<u8> {
        let block = |_| {
            let mut bytes = f16::from_f32(0.004).to_le_bytes().to_vec();
            while bytes.len() < 34 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                bytes.push((seed >> 40) as u8);
            }
            bytes
        };
        (0..dims[0] * dims[1] / 32).flat_map(block).collect()
    };
    let mut writer = Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("llama.block_count", 1_u32)
        .metadata("llama.context_length", 64_u32)
        .metadata("llama.embedding_length", WIDTH as u32)
        .metadata("llama.feed_forward_length", 64_u32)
        .metadata("llama.attention.head_count", 2_u32)
        .metadata("llama.attention.head_count_kv", 2_u32)
        .metadata("llama.rope.freq_base", 10_000_f32)
        .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .metadata("llama.vocab_size", VOCABULARY as u32);
    let some = q8([WIDTH, 6000]);
    let all = some.iter().copied().cycle();
    let embedding = all.take(VOCABULARY as usize * 68).collect();
    writer = writer.tensor(
        "token_embd.weight",
        &[WIDTH, VOCABULARY],
        GgmlType::Q8_0,
        embedding,
    );
    for part in [
        "attn_q",
        "attn_k",
        "attn_v",
        "attn_output",
        "ffn_gate",
        "ffn_up",
        "ffn_down",
    ] {
        let (name, dims) = (format!("blk.0.{part}.weight"), [WIDTH, WIDTH]);
        let data = q8(dims);
        writer = writer.tensor(&name, &dims, GgmlType::Q8_0, data);
    }
    let norm = || 1_f32.to_le_bytes().repeat(WIDTH as usize);
    for name in [
        "blk.0.attn_norm.weight",
        "blk.0.ffn_norm.weight",
        "output_norm.weight",
    ] {
        writer = writer.tensor(name, &[WIDTH], GgmlType::F32, norm());
    }
    Gguf::from_bytes(writer.finish()).unwrap_or_else(|error| panic!("{error}"))
}

/// What the sampler makes of a row of logits: tokens, and the bits of their logits.
fn expected(row: &[u32], ranks: usize) -> Vec<(u32, u32)> {
    let row: Vec<f32> = row.iter().map(|bits| f32::from_bits(*bits) + 0.0).collect();
    let top = Sampler::default().logprobs(&row, 0, ranks as u32).top;
    let tokens = top.iter().map(|entry| entry.token);
    tokens
        .map(|token| (token, row[token as usize].to_bits()))
        .collect()
}

/// Every second row of these is ranked.
fn steps() -> Vec<Batch> {
    let (a, b, c): (Vec<u32>, Vec<u32>, Vec<u32>) =
        ((3..20).collect(), (900..906).collect(), (1..9).collect());
    vec![
        batch(&[
            (&a[..7], 0, &[5, 2]),
            (&b[..3], 0, &[7]),
            (&c[..2], 0, &[1]),
        ]),
        batch(&[
            (&a[..8], 7, &[5, 2]),
            (&b[..4], 3, &[7]),
            (&c[..3], 2, &[1]),
        ]),
        batch(&[(&a[..9], 8, &[5, 2]), (&b[..5], 4, &[7])]),
        batch(&[(&a[..10], 9, &[5, 2])]),
    ]
}

fn check<D: Device>(file: &Gguf, options: ModelOptions, device: D) {
    let mut cpu = Model::load(file, options).unwrap_or_else(|error| panic!("{error}"));
    let mut device =
        OnDevice::load(file, options, device).unwrap_or_else(|error| panic!("{error}"));
    let vocabulary = VOCABULARY as usize;
    for (number, whole) in steps().into_iter().enumerate() {
        let all = logits(&mut cpu, &whole);
        let mut all = all.chunks_exact(vocabulary);
        for wanted in [1, 21] {
            let mut mixed = whole.clone();
            mixed.ranks = wanted;
            (mixed.ranked_rows, mixed.sampling_rows) = (Vec::new(), Vec::new());
            for (index, row) in whole.sampling_rows.iter().enumerate() {
                match (index + number) % 2 {
                    0 => mixed.ranked_rows.push(*row),
                    _ => mixed.sampling_rows.push(*row),
                }
            }
            let full = logits(&mut device, &mixed);
            let mut full = full.chunks_exact(vocabulary);
            let mut rows = all.clone().enumerate();
            for index in 0..mixed.ranked_rows.len() {
                // Rows between are read in full.
                let row = loop {
                    let (at, row) = rows.next().expect("a ranked row has logits");
                    if (at + number) % 2 == 0 {
                        break row;
                    }
                    assert_eq!(full.next(), Some(row), "step {number}");
                };
                let found: Vec<Ranked> = device.ranked(index).to_vec();
                let bits: Vec<_> = found.iter().map(|r| (r.token, r.logit.to_bits())).collect();
                assert!(bits.len() >= wanted as usize, "step {number}");
                assert_eq!(bits, expected(row, bits.len()), "step {number}");
                let mut after = vec![0.0; vocabulary];
                let read = device.ranked_logits(index, &mut after);
                read.unwrap_or_else(|error| panic!("{error}"));
                let after: Vec<u32> = after.iter().map(|logit| logit.to_bits()).collect();
                assert_eq!(after, row, "step {number}");
            }
        }
        all.by_ref().for_each(drop);
    }
    let mut batch = steps().remove(0);
    (batch.ranked_rows, batch.ranks) = (std::mem::take(&mut batch.sampling_rows), 65);
    let refused = device.forward(&batch, &mut []).expect_err("64 are found");
    assert!(refused.to_string().contains("ranks"), "{refused}");
    assert!(cpu.forward(&batch, &mut []).is_err(), "a CPU finds none");
}

#[test]
fn ranks_are_the_samplers_of_the_cpus_logits() {
    let file = file();
    for enforce_eager in [false, true] {
        let options = ModelOptions {
            enforce_eager,
            ..options(KvDtype::F16)
        };
        check(&file, options, Interpreter::new());
    }
}
