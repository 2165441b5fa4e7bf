//! Cases of the highest logits: the sampler's own ranks, on ties, both zeros and impossible tokens.

use lockstep::sampler::Sampler;
use lockstep_kernels::{Shape, TOP_K_LIMIT};

use crate::case::{Case, Value, in_f32, written};
use crate::random::Random;

/// Entries that a block takes.
const CHUNK: usize = 1024;
/// Stands for no token.
const ABSENT: u64 = u64::MAX;

pub(crate) fn cases() -> Vec<Case> {
    let limit = TOP_K_LIMIT as usize;
    let shapes = [
        (1, 1, 1),
        (1021, 1, 64),
        (1025, 2, 5),
        (2200, 1, limit),
        (7, 3, limit),
        (40, 1, 64),
    ];
    let cases = shapes.map(|(n, rows, k)| [from_logits(n, rows, k), from_keys(n, rows, k)]);
    cases.concat()
}

/// Rows with many equal logits, zeros of both signs, and tokens that cannot be drawn.
fn rows(n: usize, rows: usize) -> Vec<Vec<f32>> {
    let mut random = Random::new((n * rows) as u64);
    let mut logit = || match random.below(20) {
        0 => random.edgy(),
        1 => random.float().round(),
        2 | 3 => [0.0, -0.0][random.below(2) as usize],
        _ => f32::NEG_INFINITY,
    };
    let mut row = || {
        let mut row: Vec<f32> = (0..n).map(|_| logit()).collect();
        // A thread holds entries 512 apart: its second, in either order, is among the first.
        if n > 512 {
            row[512] = 1e3;
            row[n - 513] = 2e3;
        }
        row
    };
    (0..rows).map(|_| row()).collect()
}

/// The sampler's first `k` tokens of these logits.
fn ranked(logits: &[f32], k: usize) -> Vec<u32> {
    let top = Sampler::default().logprobs(logits, 0, k as u32).top;
    top.iter().map(|entry| entry.token).collect()
}

/// What stands for a token, and ascends as the rank does.
fn key(token: u32, logit: f32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    u64::from(!ascending) << 32 | u64::from(token)
}

fn keys_of(logits: &[f32], tokens: &[u32], k: usize) -> Vec<u64> {
    let mut keys: Vec<u64> = tokens
        .iter()
        .map(|token| key(*token, logits[*token as usize]))
        .collect();
    keys.resize(k, ABSENT);
    keys
}

fn bytes(keys: &[u64]) -> Vec<u8> {
    keys.iter().flat_map(|key| key.to_le_bytes()).collect()
}

fn shape(n: usize, rows: usize) -> Shape {
    Shape {
        rows: rows as u32,
        elements: n as u32,
        ..Shape::default()
    }
}

fn from_logits(n: usize, count: usize, k: usize) -> Case {
    let rows = rows(n, count);
    let mut expected = Vec::new();
    for row in &rows {
        for chunk in (0..n).step_by(CHUNK) {
            // The sampler ranks all of a row: what is not of this chunk, it is told to leave out.
            let of_chunk = chunk..n.min(chunk + CHUNK);
            let mut masked = vec![f32::NEG_INFINITY; n];
            masked[of_chunk.clone()].copy_from_slice(&row[of_chunk]);
            expected.extend(keys_of(row, &ranked(&masked, k), k));
        }
    }
    let values = vec![
        in_f32(&rows.concat()),
        Value::Out(written(bytes(&expected))),
        Value::U32(n as u32),
        Value::U32(k as u32),
    ];
    let name = format!("{k} of {count} rows of {n}");
    Case::new("top_k_logits", name, shape(n, count), values)
}

/// A second round: keys in an order that no first round gives, so that each chunk has to be sorted.
fn from_keys(n: usize, count: usize, k: usize) -> Case {
    let (mut keys, mut expected) = (Vec::new(), Vec::new());
    for row in rows(n, count) {
        let of_row: Vec<u64> = (0..n as u32)
            .rev()
            .map(|token| match row[token as usize] {
                f32::NEG_INFINITY => ABSENT,
                logit => key(token, logit),
            })
            .collect();
        for chunk in of_row.chunks(CHUNK) {
            let mut first = chunk.to_vec();
            first.sort_unstable();
            first.resize(k, ABSENT);
            expected.extend(first);
        }
        keys.extend(of_row);
    }
    let values = vec![
        Value::In(bytes(&keys)),
        Value::Out(written(bytes(&expected))),
        Value::U32(n as u32),
        Value::U32(k as u32),
    ];
    let name = format!("{k} of {count} rows of {n}");
    Case::new("top_k_keys", name, shape(n, count), values)
}
