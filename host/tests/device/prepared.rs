//! A step's inputs are prepared while the device computes the step before: what is left to write then is
//! little.

use crate::program::{Place, text};

/// Words that each step had to write, by the log.
fn rewritten(log: &str) -> Vec<u32> {
    let lines = log
        .lines()
        .filter(|line| line.contains("had not been prepared"));
    let number = |line: &str| {
        line.split_once("words")
            .map(|(before, _)| before.to_owned())
    };
    let before = lines.filter_map(number);
    before
        .filter_map(|text| text.split_whitespace().rev().nth(2)?.parse().ok())
        .collect()
}

#[test]
fn a_decode_step_writes_its_token_and_a_new_block() {
    let place = Place::with_stand_in();
    let arguments = [
        "run",
        "the rain",
        "--max-tokens",
        "40",
        "--temperature",
        "0",
        "--num-blocks",
        "8",
        "--max-model-len",
        "96",
        "--device",
        "cuda",
    ];
    let log = [("RUST_LOG", "lockstep::model::on_device=trace")];
    let said = text(&place.run(&arguments, &log));
    let rewritten = rewritten(&said);
    assert!(rewritten.len() >= 40, "{said}");
    // After the prompt's step, which prepares nothing, and the first that is prepared for.
    let decodes = &rewritten[2..];
    // A new block is an entry of the table and a slot, beside the token.
    assert!(decodes.iter().all(|words| *words <= 3), "{decodes:?}");
    let only_token = decodes.iter().filter(|words| **words <= 1).count();
    assert!(only_token >= 35, "{decodes:?}");
}
