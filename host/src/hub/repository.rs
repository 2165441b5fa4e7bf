//! `org/name[:quant|file]`: repositories of the Hugging Face hub, and its cache on disk.
//!
//! The cache keeps `models--org--name/refs/main`, which names a commit, and
//! `models--org--name/snapshots/<commit>/`, which holds that commit's files.

use std::path::{Path, PathBuf};

use super::HubError;

/// A repository and, perhaps, which of its files is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepositorySpec {
    /// `org/name`.
    pub(super) repository: String,
    /// A quantisation or a file, as asked for.
    pub(super) wanted: Option<String>,
}

impl RepositorySpec {
    /// Reads `org/name[:quant|file]`; `None` if it is not of that form.
    pub(super) fn parse(spec: &str) -> Option<Self> {
        let (repository, wanted) = match spec.split_once(':') {
            Some((repository, wanted)) => (repository, Some(wanted)),
            None => (spec, None),
        };
        let (org, name) = repository.split_once('/')?;
        let sound = is_name(org) && is_name(name) && wanted.is_none_or(is_file);
        sound.then(|| Self {
            repository: repository.into(),
            wanted: wanted.map(Into::into),
        })
    }

    /// The repository's directory in a cache.
    pub(super) fn directory(&self, cache: &Path) -> PathBuf {
        cache.join(format!("models--{}", self.repository.replace('/', "--")))
    }

    /// The file in the cache at `cache`.
    pub(super) fn find(&self, cache: &Path) -> Result<PathBuf, HubError> {
        let directory = self.directory(cache);
        let Some(snapshot) = snapshot(&directory) else {
            return Err(self.not_in_cache(directory, Vec::new()));
        };
        let mut files = Vec::new();
        list(&snapshot, "", 0, &mut files);
        files.sort();
        let file = self.choose(&files).map_err(|error| match error {
            HubError::NotInCache { .. } => self.not_in_cache(directory, files.clone()),
            other => other,
        })?;
        Ok(snapshot.join(file))
    }

    /// The one of `files` (paths in the repository, in order) that is meant.
    ///
    /// A name must be a file's whole path; anything else is a quantisation, which must stand in
    /// the file's name as a word, in upper or lower case.
    pub(super) fn choose<'a>(&self, files: &'a [String]) -> Result<&'a String, HubError> {
        let fits = |file: &&String| match &self.wanted {
            None => true,
            Some(wanted) if wanted.ends_with(".gguf") => *file == wanted,
            Some(wanted) => has_word(file, wanted),
        };
        let fitting: Vec<&String> = files.iter().filter(fits).collect();
        match fitting[..] {
            [] => Err(self.not_in_cache(PathBuf::new(), files.to_vec())),
            [file] => Ok(file),
            _ => Err(HubError::Ambiguous {
                repository: self.repository.clone(),
                found: fitting.into_iter().cloned().collect(),
            }),
        }
    }

    fn not_in_cache(&self, directory: PathBuf, found: Vec<String>) -> HubError {
        let (repository, wanted) = (self.repository.clone(), self.wanted.clone());
        HubError::NotInCache {
            repository,
            wanted,
            directory,
            found,
        }
    }
}

/// One of the two parts of a repository's name: no separators, nothing hidden, no `..`.
pub(super) fn is_name(text: &str) -> bool {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 96 && !text.starts_with('.') && text.chars().all(sound)
}

/// A path in a repository, or a quantisation: never one that leads out of its directory.
pub(super) fn is_file(text: &str) -> bool {
    !text.contains('\\') && text.split('/').all(is_name)
}

/// Whether `word` stands in a file's name between characters that are not letters or digits.
fn has_word(file: &str, word: &str) -> bool {
    let (file, word) = (file.to_ascii_lowercase(), word.to_ascii_lowercase());
    let inner = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    file.match_indices(&word).any(|(at, found)| {
        let before = file.get(..at).and_then(|text| text.chars().next_back());
        let after = file
            .get(at + found.len()..)
            .and_then(|text| text.chars().next());
        !inner(before) && !inner(after)
    })
}

/// The snapshot that `refs/main` names, or the only one there is.
fn snapshot(directory: &Path) -> Option<PathBuf> {
    let snapshots = directory.join("snapshots");
    if let Ok(commit) = std::fs::read_to_string(directory.join("refs").join("main")) {
        let commit = commit.trim();
        let path = snapshots.join(commit);
        return (is_name(commit) && path.is_dir()).then_some(path);
    }
    let mut entries = std::fs::read_dir(snapshots).ok()?.flatten();
    match (entries.next(), entries.next()) {
        (Some(only), None) => Some(only.path()),
        _ => None,
    }
}

/// How deep files are looked for in a snapshot.
const MAX_DEPTH: usize = 4;

/// Paths of the GGUF files under `directory`, which is `prefix` in the repository.
fn list(directory: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // Links lead into `blobs`, so what they lead to is what counts.
        let path = entry.path();
        if path.is_file() && name.ends_with(".gguf") {
            files.push(format!("{prefix}{name}"));
        } else if path.is_dir() && depth < MAX_DEPTH {
            list(&path, &format!("{prefix}{name}/"), depth + 1, files);
        }
    }
}
