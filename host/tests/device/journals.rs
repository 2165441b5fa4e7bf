//! A journal that was written under `fast` numerics: who draws its tokens again, and who refuses.

use serde_json::Value;

use crate::program::{Place, text};

const LIMITS: [&str; 4] = ["--num-blocks", "32", "--max-model-len", "64"];

/// Writes the journal of a run on the stand-in.
fn record(place: &Place, name: &str, numerics: &str) -> String {
    let journal = place.path(name).to_str().expect("it is text").to_owned();
    let run = [
        "run",
        "in the rain",
        "--max-tokens",
        "8",
        "--device",
        "cuda",
        "--numerics",
        numerics,
        "--journal",
        &journal,
    ];
    let output = place.run(&[&run, &LIMITS[..]].concat(), &[]);
    assert!(output.status.success(), "{}", text(&output));
    journal
}

#[test]
fn a_journal_of_fast_numerics_is_replayed_on_its_kind_of_device_only() {
    let place = Place::with_stand_in();
    let journal = record(&place, "fast", "fast");
    let header = std::fs::read_to_string(&journal).expect("a journal is text");
    let header = header.lines().next().expect("a journal has a header");
    let named = "fast-1/PTX interpreter (not a GPU) kv-f16";
    assert!(header.contains(named), "{header}");

    let replay = |more: &[&str], environment: &[(&str, &str)]| {
        let output = place.run(&[&["replay", &journal], more].concat(), environment);
        (output.status.code(), text(&output))
    };
    // Plans need neither a device nor the model.
    let (code, said) = replay(&[], &[]);
    assert_eq!(code, Some(0), "{said}");
    for device in ["cuda", "auto"] {
        let (code, said) = replay(&["--tokens", "--device", device], &[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("drew 8 tokens again: every one is equal"),
            "{said}"
        );
    }
    let (code, said) = replay(&["--tokens", "--device", "cpu"], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(named), "{said}");
    assert!(said.contains("and this is \"cpu\""), "{said}");
    assert!(said.contains("without --tokens its plans replay"), "{said}");
    let none = [("CUDA_STAND_IN_DEVICES", "0")];
    let (code, said) = replay(&["--tokens"], &none);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("finds no GPU"), "{said}");

    // Another kind of device has other bits.
    let other = [("CUDA_STAND_IN_KIND", "of another kind")];
    let (code, said) = replay(&["--tokens", "--device", "cuda"], &other);
    assert_eq!(code, Some(1), "{said}");
    let this = "and this is \"PTX interpreter (not a GPU) of another kind\"";
    assert!(said.contains(named) && said.contains(this), "{said}");
}

#[test]
fn a_journal_of_portable_numerics_is_replayed_anywhere() {
    let place = Place::with_stand_in();
    let journal = record(&place, "portable", "portable");
    for device in ["cpu", "cuda"] {
        let output = place.run(&["replay", &journal, "--tokens", "--device", device], &[]);
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("every one is equal"), "{said}");
    }
}

#[test]
fn the_fingerprint_names_the_numerics() {
    let place = Place::with_stand_in();
    let fingerprint = |numerics: &str, device: &str| {
        let more = ["--numerics", numerics, "--device", device];
        let server = place.serve(&[&LIMITS[..], &more].concat(), &[]);
        let body = r#"{"model": "tiny", "prompt": "hat", "max_tokens": 1}"#;
        let (status, answer) = server.ask("POST", "/v1/completions", body);
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("an answer is JSON");
        let found = answer["system_fingerprint"].as_str();
        found.expect("it has a fingerprint").to_owned()
    };
    let portable = fingerprint("portable", "cpu");
    assert_eq!(portable, fingerprint("portable", "cuda"));
    assert_ne!(portable, fingerprint("fast", "cuda"));
}
