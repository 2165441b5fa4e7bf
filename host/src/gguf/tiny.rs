//! A Llama model of random weights, small enough to build in a test.
//!
//! It answers nonsense, deterministically, through every part that a real model goes through:
//! a byte-level BPE vocabulary with a few merges, control tokens, a ChatML template, grouped
//! query attention, tied embeddings, F32, F16 and Q8_0 tensors.

use half::f16;

use super::write::Writer;
use super::{GgmlType, Value};
use crate::tokenizer::byte_level;

/// Texts of the control tokens, in the order of their ids from 0; the second is the beginning of
/// a turn, the third its end and the end of a sequence.
pub const CONTROL_TOKENS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Pairs that merge, most urgent first; ids follow those of the 256 bytes.
pub const MERGES: [(&str, &str); 5] = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("i", "n"),
    ("Ġ", "a"),
];

/// How many tokens the vocabulary has.
pub const VOCABULARY: u32 = 3 + 256 + 5;

/// Elements of an embedding.
const WIDTH: u64 = 64;
const FEED_FORWARD: u64 = 96;
const LAYERS: u32 = 2;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD_WIDTH: u32 = 16;
const KV_WIDTH: u64 = (KV_HEADS * HEAD_WIDTH) as u64;

/// The template of its chats.
const CHAT_TEMPLATE: &str = "{% for message in messages %}\
     {{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}\
     {% endfor %}\
     {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// The file of a Llama model of about 150 kB, with a context of 512 tokens; equal seeds give equal
/// bytes.
pub fn tiny_llama(seed: u64) -> Vec<u8> {
    tiny_llama_with(seed, |file| file)
}

/// The same with what `more` adds to its metadata.
pub fn tiny_llama_with(seed: u64, more: impl FnOnce(Writer) -> Writer) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    let mut file = Writer::new()
        .metadata("general.architecture", "llama")
        .metadata("general.name", "Tiny")
        .metadata("llama.block_count", LAYERS)
        .metadata("llama.context_length", 512_u32)
        .metadata("llama.embedding_length", WIDTH as u32)
        .metadata("llama.feed_forward_length", FEED_FORWARD as u32)
        .metadata("llama.attention.head_count", HEADS)
        .metadata("llama.attention.head_count_kv", KV_HEADS)
        .metadata("llama.rope.dimension_count", HEAD_WIDTH)
        .metadata("llama.rope.freq_base", 10_000_f32)
        .metadata("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .metadata("llama.vocab_size", VOCABULARY);
    file = vocabulary(more(file));
    file = matrix(
        file,
        &mut random,
        "token_embd.weight",
        [WIDTH, VOCABULARY.into()],
        GgmlType::F16,
    );
    for layer in 0..LAYERS {
        file = block(file, &mut random, layer);
    }
    vector(file, &mut random, "output_norm.weight").finish()
}

fn vocabulary(file: Writer) -> Writer {
    let bytes = (0..=255_u8).map(|byte| byte_level::symbol(byte).to_string());
    let merged = MERGES.iter().map(|(left, right)| format!("{left}{right}"));
    let control = CONTROL_TOKENS.iter().map(ToString::to_string);
    let tokens: Vec<Box<str>> = control.chain(bytes).chain(merged).map(Into::into).collect();
    let merges: Vec<Box<str>> = MERGES
        .iter()
        .map(|(l, r)| format!("{l} {r}").into())
        .collect();
    let types: Vec<i32> = (0..VOCABULARY as i32)
        .map(|id| if id < 3 { 3 } else { 1 })
        .collect();
    file.metadata("tokenizer.ggml.model", "gpt2")
        .metadata("tokenizer.ggml.pre", "smollm")
        .metadata("tokenizer.ggml.tokens", tokens)
        .metadata("tokenizer.ggml.token_type", types)
        .metadata("tokenizer.ggml.merges", merges)
        .metadata("tokenizer.ggml.bos_token_id", 1_u32)
        .metadata("tokenizer.ggml.eos_token_id", 2_u32)
        .metadata("tokenizer.ggml.padding_token_id", 2_u32)
        .metadata("tokenizer.ggml.add_bos_token", false)
        .metadata("tokenizer.chat_template", Value::from(CHAT_TEMPLATE))
}

fn block(mut file: Writer, random: &mut SplitMix64, layer: u32) -> Writer {
    let matrices = [
        ("attn_q", [WIDTH, WIDTH]),
        ("attn_k", [WIDTH, KV_WIDTH]),
        ("attn_v", [WIDTH, KV_WIDTH]),
        ("attn_output", [WIDTH, WIDTH]),
        ("ffn_gate", [WIDTH, FEED_FORWARD]),
        ("ffn_up", [WIDTH, FEED_FORWARD]),
        ("ffn_down", [FEED_FORWARD, WIDTH]),
    ];
    for (name, dims) in matrices {
        let name = format!("blk.{layer}.{name}.weight");
        file = matrix(file, random, &name, dims, GgmlType::Q8_0);
    }
    for name in ["attn_norm", "ffn_norm"] {
        file = vector(file, random, &format!("blk.{layer}.{name}.weight"));
    }
    file
}

/// Weights around 1, as those of a norm are.
fn vector(file: Writer, random: &mut SplitMix64, name: &str) -> Writer {
    let data = (0..WIDTH)
        .flat_map(|_| (1.0 + 0.1 * random.signed()).to_le_bytes())
        .collect();
    file.tensor(name, &[WIDTH], GgmlType::F32, data)
}

fn matrix(
    file: Writer,
    random: &mut SplitMix64,
    name: &str,
    dims: [u64; 2],
    ggml_type: GgmlType,
) -> Writer {
    let [row, rows] = dims;
    let elements = row * rows;
    let data = match ggml_type {
        GgmlType::F16 => (0..elements)
            .flat_map(|_| f16::from_f32(random.signed()).to_le_bytes())
            .collect(),
        _ => (0..elements / 32)
            .flat_map(|_| q8_0_block(random))
            .collect(),
    };
    file.tensor(name, &dims, ggml_type, data)
}

/// 32 values in about -0.25..0.25: a scale, then the integers.
fn q8_0_block(random: &mut SplitMix64) -> Vec<u8> {
    let scale = f16::from_f32(0.002 * (1.0 + 0.1 * random.signed()));
    let quants = (0..32).map(|_| (127.0 * random.signed()) as i8 as u8);
    scale.to_le_bytes().into_iter().chain(quants).collect()
}

/// Steele, Lea and Flood's generator: a counter through a mixing function.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in -1..1, a multiple of 2^-23.
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }
}
