//! A device that fails: every stream ends with an error, the journal is whole, and the process says
//! what the driver said.

use crate::program::{Place, ask, text};

const LIMITS: [&str; 6] = [
    "--device",
    "cuda",
    "--num-blocks",
    "40",
    "--max-model-len",
    "128",
];

/// A kernel that fails in the middle of three answers ends each of them with an error.
#[test]
fn every_stream_ends_with_an_error_when_the_device_fails() {
    let place = Place::with_stand_in();
    for (code, name) in [
        (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
        (719, "CUDA_ERROR_LAUNCH_FAILED"),
    ] {
        let journal = place.path(&format!("journal-{code}"));
        let journal = journal.to_str().expect("it is text");
        // Some three hundred kernels a step of the first answers.
        let launch = format!("300:{code}");
        let server = place.serve(
            &[&LIMITS[..], &["--journal", journal]].concat(),
            &[("CUDA_STAND_IN_FAIL_LAUNCH", &launch)],
        );
        let streams: Vec<_> = (0..3)
            .map(|number| {
                let address = server.address();
                let body = format!(
                    r#"{{"model": "tiny", "prompt": "the heat {number}", "max_tokens": 60, "stream": true, "ignore_eos": true}}"#
                );
                std::thread::spawn(move || ask(&address, "POST", "/v1/completions", &body))
            })
            .collect();
        for stream in streams {
            let (_, body) = stream.join().expect("it answers");
            assert!(body.contains("\"error\""), "{body}");
            assert!(!body.contains("finish_reason\":\"length"), "{body}");
        }
        let (status, log) = server.ended();
        assert!(!status.success(), "{log}");
        assert!(log.contains(&format!("{name} ({code}): ")), "{log}");
        let replay = place.run(&["replay", journal], &[]);
        assert!(replay.status.success(), "{}", text(&replay));
        assert!(!text(&replay).contains("cut short"), "{}", text(&replay));
    }
}

#[test]
fn no_memory_is_an_error_with_the_drivers_words() {
    let place = Place::with_stand_in();
    for number in ["1", "20", "45"] {
        let environment = [("CUDA_STAND_IN_FAIL_ALLOCATION", number)];
        let run = place.run(&[&["run", "hat"], &LIMITS[..]].concat(), &environment);
        let said = text(&run);
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains("cuMemAllocAsync of "), "{said}");
        assert!(
            said.contains("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"),
            "{said}"
        );
    }
    let environment = [("CUDA_STAND_IN_MEMORY", "100000")];
    let arguments = ["run", "hat", "--device", "cuda"];
    let run = place.run(&arguments, &environment);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(
        text(&run).contains("--gpu-memory-utilization"),
        "{}",
        text(&run)
    );
}

#[test]
fn a_text_that_does_not_compile_is_an_error_with_the_compilers_log() {
    let place = Place::with_stand_in();
    let environment = [("CUDA_STAND_IN_FAIL_JIT", "1")];
    let run = place.run(&[&["run", "hat"], &LIMITS[..]].concat(), &environment);
    let said = text(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("CUDA_ERROR_INVALID_PTX (218)"), "{said}");
    assert!(
        said.contains("the driver's compiler says:\nptxas application ptx input"),
        "{said}"
    );
}
