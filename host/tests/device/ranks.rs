//! Requests for which the highest logits are enough: those alone are copied down, and the tokens are
//! the CPU's.

use lockstep::gguf::{Gguf, tiny::tiny_llama};
use serde_json::{Value, json};

use crate::program::{Place, Server, ask, choices};

const LIMITS: [&str; 6] = [
    "--num-blocks",
    "12",
    "--max-model-len",
    "80",
    "--max-chunk-tokens",
    "16",
];

/// A prompt, and how its tokens are drawn.
fn completion(number: usize, more: &Value) -> Value {
    let word = ["heat", "road", "hat", "rain"][number % 4];
    let mut body = json!({
        "model": "tiny", "prompt": format!("The {word} of it"), "max_tokens": 16, "seed": number,
        "return_token_ids": true, "ignore_eos": true
    });
    let (Some(body_fields), Some(more)) = (body.as_object_mut(), more.as_object()) else {
        panic!("both are objects");
    };
    body_fields.extend(more.clone());
    body
}

/// Answers to requests that are made at once.
fn answers(server: &Server, draws: &[Value]) -> Vec<Value> {
    let threads: Vec<_> = draws
        .iter()
        .enumerate()
        .map(|(number, draw)| {
            let (address, body) = (server.address(), completion(number, draw).to_string());
            std::thread::spawn(move || ask(&address, "POST", "/v1/completions", &body))
        })
        .collect();
    let joined = threads.into_iter().map(|thread| thread.join());
    joined
        .map(|answer| choices(&answer.expect("it answers")))
        .collect()
}

fn greedy() -> Vec<Value> {
    vec![json!({"temperature": 0}); 5]
}

fn top_k() -> Vec<Value> {
    let draw = |k: u32, p: f32| json!({"temperature": 1.3, "top_k": k, "top_p": p, "min_p": 0.01});
    vec![draw(5, 1.0)]
        .into_iter()
        .chain([draw(40, 0.9), draw(1, 1.0), draw(62, 0.8)])
        .collect()
}

/// Some that ranks are enough for, beside others that read or change every logit.
fn mixed() -> Vec<Value> {
    let others = [
        json!({"temperature": 1.0}),
        json!({"temperature": 0, "logprobs": 3}),
        json!({"temperature": 0, "logit_bias": {"70": 50}}),
        json!({"temperature": 0, "min_tokens": 4, "ignore_eos": false}),
        json!({"temperature": 0, "repetition_penalty": 1.2}),
        json!({"temperature": 0.8, "top_k": 200}),
    ];
    greedy()
        .into_iter()
        .zip(others)
        .flat_map(|(a, b)| [a, b])
        .chain(top_k())
        .collect()
}

#[test]
fn tokens_from_ranks_are_the_cpus() {
    let place = Place::with_stand_in();
    let cpu = place.serve(&[&LIMITS[..], &["--device", "cpu"]].concat(), &[]);
    for more in [
        &["--device", "cuda"][..],
        &["--device", "cuda", "--enforce-eager"],
    ] {
        let device = place.serve(&[&LIMITS[..], more].concat(), &[]);
        for draws in [greedy(), top_k(), mixed()] {
            let (found, expected) = (answers(&device, &draws), answers(&cpu, &draws));
            assert_eq!(found, expected, "{more:?}");
            assert_eq!(found[0][0]["token_ids"].as_array().map(Vec::len), Some(16));
        }
    }
}

/// A token that may not end the answer yet is the best one, and ranks would not tell the next best.
#[test]
fn a_token_that_would_end_the_answer_too_early_is_not_drawn_from_ranks() {
    let place = Place::with_stand_in();
    let start = |device| place.serve(&[&LIMITS[..], &["--device", device]].concat(), &[]);
    let (cpu, device) = (start("cpu"), start("cuda"));
    let first = answers(&cpu, &greedy()[..1]);
    let token = first[0][0]["token_ids"][0].clone();
    let held = [json!({"temperature": 0, "stop_token_ids": [token], "min_tokens": 4})];
    let expected = answers(&cpu, &held);
    assert_ne!(expected[0][0]["token_ids"][0], token);
    assert_eq!(answers(&device, &held), expected);
}

/// The tiny model with every second row of its embedding, and so every second logit, equal to the one
/// before.
fn in_pairs() -> Vec<u8> {
    let mut bytes = tiny_llama(1);
    let file = Gguf::from_bytes(bytes.clone()).expect("a valid file");
    let embedding = file.tensor("token_embd.weight").expect("it has one");
    let rows = file.tensor_data(embedding);
    let at = bytes.windows(rows.len()).position(|window| window == rows);
    let at = at.expect("the file holds its tensor");
    let row = rows.len() / embedding.rows() as usize;
    for pair in bytes[at..at + rows.len()].chunks_exact_mut(2 * row) {
        pair.copy_within(..row, row);
    }
    bytes
}

/// Where the last rank that is found ties with the last that is wanted, one that is not found could
/// come before it.
#[test]
fn ranks_that_end_in_a_tie_are_not_drawn_from() {
    let place = Place::with_stand_in();
    std::fs::write(place.model(), in_pairs()).expect("room for a model");
    let draw = |k: u32| json!({"temperature": 1.5, "top_k": k});
    let start = |device: &str, environment: &[(&str, &str)]| {
        place.serve(&[&LIMITS[..], &["--device", device]].concat(), environment)
    };
    let (cpu, device) = (start("cpu", &[]), start("cuda", &[]));
    // Two rows of logits are beside the ranked ones, whose places are then not the first.
    let draws = [draw(63), draw(0), draw(62), draw(63), draw(0)];
    assert_eq!(answers(&device, &draws), answers(&cpu, &draws));
    // With 62 ranks the 62nd ties with none behind; with 63 the row is read in full.
    let few = start("cuda", &[("CUDA_STAND_IN_MOST_DOWN", "512")]);
    answers(&few, &[draw(62)]);
    let (status, said) = few.ask(
        "POST",
        "/v1/completions",
        &completion(0, &draw(63)).to_string(),
    );
    assert_ne!(status, 200, "{said}");
}

/// A row of logits has 1056 bytes, and its 64 ranks 512.
#[test]
fn no_logits_are_copied_where_ranks_are_enough() {
    let place = Place::with_stand_in();
    let most = [("CUDA_STAND_IN_MOST_DOWN", "512")];
    let start = || place.serve(&[&LIMITS[..], &["--device", "cuda"]].concat(), &most);
    let device = start();
    answers(&device, &greedy());
    for draw in top_k() {
        answers(&device, &[draw]);
    }
    for draw in [
        json!({"temperature": 1.0}),
        json!({"temperature": 0, "logprobs": 1}),
    ] {
        let device = start();
        let body = completion(0, &draw).to_string();
        let (status, said) = device.ask("POST", "/v1/completions", &body);
        assert_ne!(status, 200, "{draw}: {said}");
        let (ended, log) = device.ended();
        assert!(
            !ended.success() && log.contains("cuMemcpyDtoHAsync"),
            "{log}"
        );
    }
}
