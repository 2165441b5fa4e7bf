//! The recorded decisions, which the firmware and the WebAssembly module are compared with.

#[path = "../../targets/decisions.rs"]
mod decide;

/// Made anew with
/// `cargo run --release --manifest-path policy-core/targets/Cargo.toml -p native >policy-core/targets/decisions.txt`.
const RECORDED: &str = include_str!("../../targets/decisions.txt");

#[test]
fn this_machine_decides_as_recorded() {
    let mut text = String::new();
    decide::decide(&mut text).expect("decisions");
    for (number, (line, recorded)) in text.lines().zip(RECORDED.lines()).enumerate() {
        assert_eq!(line, recorded, "line {} of decisions.txt", number + 1);
    }
    assert_eq!(text.lines().count(), RECORDED.lines().count());
}

#[test]
fn the_record_shows_preemption_for_a_seat_and_for_blocks_and_a_tie() {
    for what in [
        "preempt sequence",
        "blocks for sequence",
        ": id",
        ": priority",
        "evict blocks",
    ] {
        assert!(
            RECORDED.contains(what),
            "no line of decisions.txt has {what:?}"
        );
    }
}
