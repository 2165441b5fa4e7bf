//! What a spec names, in caches made for the purpose.

use std::fs;
use std::path::Path;

use super::*;

/// A cache with one repository of these files, and an environment that points to it.
fn cached(files: &[&str]) -> (tempfile::TempDir, Environment) {
    let root = tempfile::tempdir().expect("a directory");
    let repository = root.path().join("hub").join("models--org--name");
    for file in files {
        write(&repository.join("snapshots").join("c0ffee").join(file));
    }
    fs::create_dir_all(repository.join("refs")).expect("made");
    fs::write(repository.join("refs").join("main"), "c0ffee\n").expect("written");
    let environment = Environment {
        hf_home: Some(root.path().into()),
        lockstep_cache: Some(root.path().join("own")),
        ..Environment::default()
    };
    (root, environment)
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, "x").expect("written");
}

fn name(found: Result<PathBuf, HubError>) -> String {
    found
        .expect("found")
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned()
}

#[test]
fn the_only_file_of_a_repository_needs_no_name() {
    let (_root, environment) = cached(&["model.Q4_0.gguf", "README.md"]);
    assert_eq!(
        name(resolve_in(&environment, "org/name")),
        "model.Q4_0.gguf"
    );
}

#[test]
fn one_of_several_files_is_chosen_by_quantisation_or_by_name() {
    let files = [
        "m-Q4_K_M.gguf",
        "m-Q4_K.gguf",
        "m-IQ4_K_M.gguf",
        "sub/m-Q8_0.gguf",
    ];
    let (_root, environment) = cached(&files);
    let find = |spec| resolve_in(&environment, spec);
    assert_eq!(name(find("org/name:q4_k_m")), "m-Q4_K_M.gguf");
    assert_eq!(name(find("org/name:Q4_K")), "m-Q4_K.gguf");
    assert_eq!(name(find("org/name:Q8_0")), "m-Q8_0.gguf");
    assert_eq!(name(find("org/name:sub/m-Q8_0.gguf")), "m-Q8_0.gguf");
    let error = find("org/name").unwrap_err();
    assert!(
        matches!(&error, HubError::Ambiguous { found, .. } if found.len() == 4),
        "{error}"
    );
    let error = find("org/name:Q2_K").unwrap_err().to_string();
    assert!(
        error.starts_with("org/name has no Q2_K (it has m-IQ4_K_M.gguf, "),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn links_into_blobs_are_followed_and_broken_ones_are_not_files() {
    let (root, environment) = cached(&[]);
    let repository = root.path().join("hub/models--org--name");
    write(&repository.join("blobs/abc"));
    let snapshot = repository.join("snapshots/c0ffee");
    fs::create_dir_all(&snapshot).unwrap();
    std::os::unix::fs::symlink("../../blobs/abc", snapshot.join("a.gguf")).unwrap();
    std::os::unix::fs::symlink("../../blobs/gone", snapshot.join("b.gguf")).unwrap();
    assert_eq!(name(resolve_in(&environment, "org/name")), "a.gguf");
}

#[test]
fn the_snapshot_of_main_counts_and_not_an_older_one() {
    let (root, environment) = cached(&["new.gguf"]);
    write(
        &root
            .path()
            .join("hub/models--org--name/snapshots/aaaa/old.gguf"),
    );
    assert_eq!(name(resolve_in(&environment, "org/name")), "new.gguf");
    fs::write(
        root.path().join("hub/models--org--name/refs/main"),
        "../aaaa",
    )
    .unwrap();
    resolve_in(&environment, "org/name").expect_err("a commit that is a path");
}

#[test]
fn specs_that_name_nothing() {
    let (_root, environment) = cached(&["a.gguf"]);
    let find = |spec| resolve_in(&environment, spec).unwrap_err();
    for spec in [
        "",
        "nothing",
        "a/b/c",
        "../name",
        "org/..",
        "org/name:../x.gguf",
        "org/name:",
    ] {
        assert!(
            matches!(find(spec), HubError::NotFound { .. }),
            "{spec}: {}",
            find(spec)
        );
    }
    assert!(matches!(find("org/other"), HubError::NotInCache { .. }));
    assert!(find("nothing").to_string().contains("smollm2-135m"));
}

#[test]
fn a_path_names_its_file_and_an_alias_the_file_that_was_pulled() {
    let (root, environment) = cached(&["a.gguf"]);
    let path = root
        .path()
        .join("hub/models--org--name/snapshots/c0ffee/a.gguf");
    let found = resolve_in(&environment, path.to_str().unwrap()).unwrap();
    assert_eq!(found, path);
    let error = resolve_in(&environment, "smollm2-135m").unwrap_err();
    assert!(
        error.to_string().contains("`lockstep pull smollm2-135m`"),
        "{error}"
    );
    let pulled = root
        .path()
        .join("own/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    write(&pulled);
    assert_eq!(resolve_in(&environment, "smollm2-135m").unwrap(), pulled);
}

#[test]
fn caches_are_where_the_variables_say() {
    let home = Environment {
        home: Some("/h".into()),
        ..Environment::default()
    };
    assert_eq!(
        home.models_dir().unwrap(),
        Path::new("/h/.cache/lockstep/models")
    );
    assert_eq!(
        home.hub_cache().unwrap(),
        Path::new("/h/.cache/huggingface/hub")
    );
    let xdg = Environment {
        xdg_cache_home: Some("/x".into()),
        ..home
    };
    assert_eq!(xdg.models_dir().unwrap(), Path::new("/x/lockstep/models"));
    let own = Environment {
        lockstep_cache: Some("/l".into()),
        hf_home: Some("/f".into()),
        ..xdg
    };
    assert_eq!(own.models_dir().unwrap(), Path::new("/l/models"));
    assert_eq!(own.hub_cache().unwrap(), Path::new("/f/hub"));
    let hub = Environment {
        hf_hub_cache: Some("/c".into()),
        ..own
    };
    assert_eq!(hub.hub_cache().unwrap(), Path::new("/c"));
    let none = Environment::default().models_dir().unwrap_err();
    assert!(matches!(none, HubError::NoHome));
}
