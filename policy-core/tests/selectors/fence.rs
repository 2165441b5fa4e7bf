//! The fence: no hash container on any path, whichever crate it comes from.

use std::fs;
use std::path::{Path, PathBuf};

/// Containers whose iteration order is a hash's or a history's, and what seeds them.
const BANNED: [&str; 9] = [
    "HashMap",
    "HashSet",
    "RandomState",
    "hashbrown",
    "DashMap",
    "IndexMap",
    "IndexSet",
    "index_map",
    "index_set",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file under a folder, in the order of its path. A file `tests.rs` holds unit tests:
/// counter-examples may stand there, each under an `#[expect]` that clippy asks for.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            found.push(path);
        }
    }
    found
}

/// The banned names that a line of code uses; comments may speak of them.
fn banned_in(line: &str) -> Vec<&'static str> {
    let code = line.split("//").next().unwrap_or_default();
    let words: Vec<_> = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    let used = |name: &&str| words.contains(name);
    BANNED.into_iter().filter(used).collect()
}

#[test]
fn no_source_names_a_container_without_an_order() {
    let mut read = 0;
    let mut found = Vec::new();
    for folder in ["policy-core/src", "host/src", "simd/src", "kernels/src"] {
        for path in sources(&workspace().join(folder)) {
            read += 1;
            let text = fs::read_to_string(&path).expect("source");
            for (number, line) in text.lines().enumerate() {
                for name in banned_in(line) {
                    found.push(format!("{}:{}: {name}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(
        read > 20,
        "only {read} files were read: the fence has lost sight of the sources"
    );
    assert!(
        found.is_empty(),
        "see docs/code-guidelines.md:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_fence_sees_names_in_code_and_not_in_comments() {
    assert_eq!(banned_in("use std::collections::HashMap;"), ["HashMap"]);
    assert_eq!(
        banned_in("let ids: heapless::index_map::FnvIndexMap<_, _, 8>;"),
        ["index_map"]
    );
    assert_eq!(
        banned_in("fn f(m: &hashbrown::HashSet<u8>) {} // an order"),
        ["HashSet", "hashbrown"]
    );
    assert!(banned_in("// a HashMap would not do").is_empty());
    assert!(banned_in("struct MyHashMapLike;").is_empty());
}

#[test]
fn clippy_bans_the_standard_containers_and_the_ban_is_an_error() {
    let clippy = fs::read_to_string(workspace().join("clippy.toml")).expect("clippy.toml");
    for path in [
        "std::collections::HashMap",
        "std::collections::HashSet",
        "std::collections::hash_map::RandomState",
    ] {
        let entry = clippy
            .lines()
            .find(|line| line.contains(&format!("\"{path}\"")));
        let entry = entry.unwrap_or_else(|| panic!("clippy.toml does not ban {path}"));
        assert!(
            entry.contains("reason ="),
            "the ban on {path} has no reason"
        );
    }
    let manifest = fs::read_to_string(workspace().join("Cargo.toml")).expect("Cargo.toml");
    assert!(manifest.contains("disallowed_types = \"deny\""));
    for member in ["policy-core", "host", "simd", "kernels"] {
        let path = workspace().join(member).join("Cargo.toml");
        let manifest = fs::read_to_string(path).expect("Cargo.toml");
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{member} leaves the lints out"
        );
    }
}
