//! Failures of device, disk and code: every stream ends with one terminal event, and the engine
//! says why it ended.

use std::io::Read;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lockstep::engine::EngineError;
use lockstep::intake::{EngineState, Refusal};
use lockstep::request::Failure;
use lockstep_tests::{Fault, Rig, RigOptions, Stream, Want};

/// Five requests, more than have a seat.
fn load(rig: &Rig) -> Vec<Stream> {
    let prompts = ["One", "Two and two", "Three", "Four is more", "Five"];
    prompts
        .map(|prompt| rig.submit(&Want::greedy(prompt, 12)))
        .into()
}

fn crowded(fault: Option<Fault>) -> RigOptions {
    let mut options = RigOptions {
        fault,
        ..RigOptions::default()
    };
    options.scheduler.max_num_seqs = 3;
    options
}

/// Every stream of a failed engine ended with this failure, and the door is shut.
fn all_told(rig: &Rig, streams: &mut [Stream], error: &EngineError) -> u32 {
    let expected = Failure::Engine(error.to_string());
    let mut tokens = 0;
    for stream in streams {
        let (failure, before) = rig.failure(stream);
        assert_eq!(failure, expected);
        tokens += before;
    }
    assert_eq!(rig.intake().state(), EngineState::Dead);
    assert!(matches!(
        rig.try_submit(&Want::greedy("Late", 1)),
        Err(Refusal::EngineDead)
    ));
    tokens
}

#[test]
fn a_device_error_ends_every_stream() {
    let mut rig = Rig::new(&crowded(Some(Fault::Device(4))));
    let mut streams = load(&rig);
    let error = rig.run().unwrap_err();
    assert_eq!(
        error,
        EngineError::Device("device failure: it is gone".to_owned())
    );
    assert_eq!(
        all_told(&rig, &mut streams, &error),
        12,
        "four passes of three tokens"
    );
}

#[test]
fn a_panic_of_the_engine_ends_every_stream() {
    let mut rig = Rig::new(&crowded(Some(Fault::Panic(4))));
    let mut streams = load(&rig);
    let error = rig.run().unwrap_err();
    assert_eq!(error, EngineError::Panic("a planted bug".to_owned()));
    assert_eq!(
        all_told(&rig, &mut streams, &error),
        12,
        "four passes of three tokens"
    );
}

/// A named pipe stands for a disk that takes the header and nothing after it.
fn pipe(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("journal");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    path
}

#[test]
fn a_journal_that_cannot_be_written_ends_every_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = pipe(&directory);
    let reading = path.clone();
    let reader = std::thread::spawn(move || {
        let mut file = std::fs::File::open(reading).unwrap();
        let mut byte = [0];
        while byte != *b"\n" {
            file.read_exact(&mut byte).unwrap();
        }
    });
    let mut rig = Rig::new(&RigOptions {
        journal: Some(path),
        ..crowded(None)
    });
    reader.join().unwrap();
    let mut streams = load(&rig);
    let error = rig.run().unwrap_err();
    assert!(matches!(error, EngineError::Journal(_)), "{error:?}");
    all_told(&rig, &mut streams, &error);
}

#[test]
fn a_drain_finishes_what_runs_and_an_abort_tells_the_rest() {
    let mut rig = Rig::new(&crowded(None));
    let mut streams = load(&rig);
    rig.turns(3);
    rig.intake().abort();
    rig.run().unwrap();
    for stream in &mut streams {
        assert_eq!(rig.failure(stream).0, Failure::ShuttingDown);
    }
}

/// What is over its time at once: deadlines are tested without waiting for one.
#[test]
fn a_deadline_that_passes_is_an_input_that_replays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let mut rig = Rig::new(&RigOptions {
        journal: Some(path.clone()),
        ..crowded(None)
    });
    let want = Want::greedy("One", 12);
    let now = Some(Duration::ZERO);
    let mut patient = rig.submit(&want);
    let mut late = rig.submit(&Want {
        timeout: now,
        ..want.clone()
    });
    let mut queued = rig.submit(&Want {
        queue_timeout: now,
        ..want.clone()
    });
    let mut generous = rig.submit(&Want {
        timeout: Some(Duration::from_secs(3600)),
        ..want
    });
    rig.finish();
    assert_eq!(rig.failure(&mut late), (Failure::Expired, 0));
    assert_eq!(rig.failure(&mut queued), (Failure::Expired, 0));
    assert_eq!(rig.answer(&mut patient).0, rig.answer(&mut generous).0);
    rig.close();
    let journal = std::fs::read_to_string(&path).unwrap();
    assert!(
        journal.contains("\"expiries\":[1,2]"),
        "the expiry is recorded"
    );
    assert_eq!(lockstep::journal::replay(&path).unwrap().difference, None);
}

#[test]
fn a_token_replay_draws_every_token_again_and_names_one_that_differs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let options = RigOptions {
        journal: Some(path.clone()),
        ..crowded(None)
    };
    let mut rig = Rig::new(&options);
    let mut streams = load(&rig);
    streams.push(rig.submit(&Want::drawn("Six", 12, 6)));
    rig.finish();
    let drawn: usize = streams
        .iter_mut()
        .map(|stream| rig.answer(stream).0.tokens.len())
        .sum();
    rig.close();

    let again = Rig::new(&crowded(None)).into_engine();
    let report = lockstep::engine::replay_tokens(&path, again).unwrap();
    assert_eq!((report.tokens, report.difference), (drawn as u64, None));

    let other = Rig::new(&crowded(Some(Fault::Skew(5)))).into_engine();
    let difference = lockstep::engine::replay_tokens(&path, other)
        .unwrap()
        .difference
        .unwrap();
    assert_eq!(
        (difference.step, difference.drawn),
        (6, Some(7)),
        "{difference}"
    );
}
