//! Starts without a driver, with a broken one, and with devices that do not suit.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Output;

use crate::program::{Place, stand_in, text};

/// The least of a run.
fn run(place: &Place, device: &str, environment: &[(&str, &str)]) -> Output {
    let arguments = [
        "run",
        "hat",
        "--max-tokens",
        "2",
        "--num-blocks",
        "32",
        "--device",
        device,
    ];
    place.run(&arguments, environment)
}

/// `auto` computes on the CPU and says why; `cuda` is an error that says why.
fn falls_back(place: &Place, environment: &[(&str, &str)], why: &str) {
    let log = [&[("RUST_LOG", "info")], environment].concat();
    let auto = run(place, "auto", &log);
    let said = text(&auto);
    assert!(auto.status.success(), "{said}");
    assert!(
        said.contains(&format!("computing on the CPU: {why}")),
        "{said}"
    );
    let cuda = run(place, "cuda", environment);
    let said = text(&cuda);
    assert_eq!(cuda.status.code(), Some(1), "{said}");
    let refused = "lockstep: no GPU for --device cuda:0 (--device cpu needs none): ";
    assert!(said.contains(&format!("{refused}{why}")), "{said}");
}

/// A shared library that is no driver: the C library, which this process has mapped.
fn not_a_driver() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a process has a map");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let found = paths.find(|path| path.contains("/libc.so") || path.contains("/libc-"));
    found.expect("a test links the C library").into()
}

/// Whether this machine has a driver of its own, which is found where a test hides none.
fn has_a_driver() -> bool {
    lockstep::backend::cuda::devices().is_ok()
}

#[test]
fn without_a_driver() {
    if has_a_driver() {
        println!("skipped: this machine has a driver");
        return;
    }
    falls_back(
        &Place::new(None),
        &[],
        "no NVIDIA driver (libcuda.so.1) can be loaded",
    );
}

#[test]
fn with_an_empty_file_as_the_driver() {
    if has_a_driver() {
        println!("skipped: this machine has a driver");
        return;
    }
    let place = Place::new(None);
    let empty = place.path("empty");
    std::fs::write(&empty, "").expect("room for a file");
    falls_back(
        &Place::new(Some(&empty)),
        &[],
        "no NVIDIA driver (libcuda.so.1) can be loaded",
    );
}

#[test]
fn with_a_library_that_is_no_driver() {
    let place = Place::new(Some(&not_a_driver()));
    falls_back(
        &place,
        &[],
        "libcuda.so.1 has no cuCtxGetCurrent: it is no NVIDIA driver, or one older",
    );
}

#[test]
fn with_a_driver_that_does_not_initialise() {
    let place = Place::with_stand_in();
    let known = [("CUDA_STAND_IN_FAIL_INIT", "803")];
    falls_back(
        &place,
        &known,
        "the NVIDIA driver does not work: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
    );
    // A driver's stub library fails like this, and knows no names.
    let stub = [("CUDA_STAND_IN_FAIL_INIT", "34")];
    falls_back(
        &place,
        &stub,
        "the NVIDIA driver does not work: cuInit: CUDA_ERROR_STUB_LIBRARY (34): this library is the toolkit's stub",
    );
}

#[test]
fn with_devices_that_do_not_suit() {
    let place = Place::with_stand_in();
    let none = [("CUDA_STAND_IN_DEVICES", "0")];
    let finds_none = "the NVIDIA driver finds no GPU";
    falls_back(&place, &none, finds_none);
    // So a driver says it where it has no device at all.
    let at_once = [("CUDA_STAND_IN_FAIL_INIT", "100")];
    falls_back(&place, &at_once, finds_none);
    let old = [("CUDA_STAND_IN_CAPABILITY", "75")];
    falls_back(
        &place,
        &old,
        "cuda:0: PTX interpreter (not a GPU), compute capability 7.5",
    );
    let run = run(&place, "cuda:99", &[]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(
        text(&run).contains("there is no device cuda:99: the last one is cuda:0"),
        "{}",
        text(&run)
    );
}

/// What a device has no room for is refused before anything is loaded, with the numbers; `auto` then
/// warns and computes on the CPU.
#[test]
fn with_too_little_memory_and_with_shapes_that_no_launch_takes() {
    let place = Place::with_stand_in();
    let memory = [("CUDA_STAND_IN_MEMORY", "3000000")];
    let blocks = ["run", "hat", "--max-tokens", "2", "--num-blocks", "4000"];
    let refused = "the model and 4000 KV blocks need 17.";
    let on = |device| place.run(&[&blocks[..], &["--device", device]].concat(), &memory);
    let said = text(&on("cuda"));
    assert!(said.contains(refused), "{said}");
    assert!(said.contains("MiB are free: see --num-blocks"), "{said}");
    let auto = on("auto");
    let said = text(&auto);
    assert!(auto.status.success(), "{said}");
    // Without RUST_LOG, warnings are shown.
    assert!(said.contains("WARN"), "{said}");
    assert!(said.contains(refused), "{said}");
    let rows = ["run", "hat", "--max-num-batched-tokens", "65536"];
    let run = place.run(&[&rows[..], &["--device", "cuda"]].concat(), &[]);
    let said = text(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(
        said.contains("max_num_batched_tokens is 65536: it may be at most 65535 on a device"),
        "{said}"
    );
}

#[test]
fn fast_numerics_without_a_gpu_say_what_would_do() {
    let place = Place::with_stand_in();
    let none = [("CUDA_STAND_IN_DEVICES", "0")];
    let run = place.run(&["run", "hat", "--numerics", "fast"], &none);
    let said = text(&run);
    assert_eq!(run.status.code(), Some(1), "{said}");
    let refused =
        "no GPU for --numerics fast (--numerics portable needs none): the NVIDIA driver finds";
    assert!(said.contains(refused), "{said}");
}

#[test]
fn a_choice_that_is_none_is_refused_by_every_command() {
    let place = Place::with_stand_in();
    for command in ["serve", "run", "bench", "doctor", "inspect"] {
        for device in ["cuda:x", "cuda:-1", "gpu", "cuda:99999999999999999999", ""] {
            let output = place.run(&[command, "--device", device], &[]);
            assert_eq!(output.status.code(), Some(2), "{command} {device:?}");
            assert!(
                text(&output).contains("is no device: auto, cpu, cuda or cuda:N"),
                "{command}"
            );
        }
    }
    for share in ["0", "1.1", "-0.5", "nan", "inf", "x"] {
        let output = place.run(&["run", "hat", "--gpu-memory-utilization", share], &[]);
        assert_eq!(output.status.code(), Some(2), "{share}");
    }
}

#[test]
fn the_stand_in_is_found_only_by_its_link() {
    if has_a_driver() {
        println!("skipped: this machine has a driver");
        return;
    }
    let place = Place::new(None);
    let own_name = place.drivers().join("libcuda_stand_in.so");
    symlink(stand_in(), own_name).expect("room for a link");
    let said = text(&place.run(&["doctor", "--prompt", "20", "--device", "cpu"], &[]));
    assert!(
        said.contains("GPU:           none: no NVIDIA driver"),
        "{said}"
    );
}
