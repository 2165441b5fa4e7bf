//! Why a model was not found or not fetched.

use std::fmt;
use std::path::PathBuf;

/// Why a model file is not at hand.
#[derive(Debug)]
pub enum HubError {
    /// No variable says where caches are.
    NoHome,
    /// An alias whose file is not in the cache.
    NotPulled {
        /// The alias.
        alias: String,
        /// Where its file would be.
        path: PathBuf,
    },
    /// Neither an alias nor a file nor a repository.
    NotFound {
        /// What was asked for.
        spec: String,
    },
    /// The cache has no such repository, or nothing in it that fits.
    NotInCache {
        /// `org/name`.
        repository: String,
        /// The file or quantisation that was asked for.
        wanted: Option<String>,
        /// Where it was looked for.
        directory: PathBuf,
        /// The GGUF files that are there.
        found: Vec<String>,
    },
    /// Several files fit.
    Ambiguous {
        /// `org/name`.
        repository: String,
        /// The files.
        found: Vec<String>,
    },
    /// A file could not be read or written.
    Io {
        /// What was being done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Asking the Hugging Face hub is forbidden by `HF_HUB_OFFLINE`.
    Offline,
    /// A server could not be reached, or failed while sending.
    Transport {
        /// What was asked for.
        url: String,
        /// What went wrong.
        message: String,
    },
    /// A server answered with an error.
    Status {
        /// What was asked for.
        url: String,
        /// The status code.
        status: u16,
    },
    /// What a server sent makes no sense.
    BadAnswer {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        message: String,
    },
    /// What was fetched is not what was meant.
    Checksum {
        /// The SHA-256 that was expected.
        expected: String,
        /// The SHA-256 of what came.
        found: String,
    },
    /// Python or pip failed, or is not there.
    Python {
        /// What was run, in short.
        what: &'static str,
        /// What it said.
        message: String,
    },
    /// Every source failed.
    AllSources {
        /// Each source and why it failed.
        failures: Vec<(String, HubError)>,
    },
}

impl HubError {
    /// An I/O error with what was being done to which file.
    pub(super) fn io(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHome => f.write_str("none of LOCKSTEP_CACHE, XDG_CACHE_HOME and HOME is set"),
            Self::NotPulled { alias, path } => write!(
                f,
                "{alias} is not at {}; fetch it with `lockstep pull {alias}`",
                path.display()
            ),
            Self::NotFound { spec } => write!(
                f,
                "{spec:?} is neither a file nor an alias ({}) nor org/name[:quant|file]",
                super::alias::MODELS
                    .iter()
                    .map(|model| model.name)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Self::NotInCache { .. } | Self::Ambiguous { .. } => self.fmt_repository(f),
            Self::Io { what, path, source } => {
                write!(f, "cannot {what} {}: {source}", path.display())
            }
            Self::Offline => f.write_str("HF_HUB_OFFLINE forbids asking the hub"),
            Self::Transport { url, message } => write!(f, "{url}: {message}"),
            Self::Status {
                url,
                status: status @ (401 | 403),
            } => write!(
                f,
                "{url}: status {status}; a private or gated model needs HF_TOKEN"
            ),
            Self::Status { url, status } => write!(f, "{url}: status {status}"),
            Self::BadAnswer { url, message } => write!(f, "{url}: {message}"),
            Self::Checksum { expected, found } => {
                write!(f, "the file's SHA-256 is {found}, not {expected}")
            }
            Self::Python { what, message } => write!(f, "{what}: {message}"),
            Self::AllSources { failures } => {
                f.write_str("no source had the model")?;
                failures
                    .iter()
                    .try_for_each(|(source, why)| write!(f, "\n  {source}: {why}"))
            }
        }
    }
}

impl HubError {
    fn fmt_repository(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInCache {
                repository,
                wanted,
                directory,
                found,
            } if found.is_empty() => {
                let wanted = wanted.as_deref().unwrap_or("GGUF file");
                let directory = directory.display();
                write!(
                    f,
                    "no {wanted} of {repository} in the Hugging Face cache {directory}"
                )
            }
            Self::NotInCache {
                repository,
                wanted,
                found,
                ..
            } => write!(
                f,
                "{repository} has no {} (it has {})",
                wanted.as_deref().unwrap_or("GGUF file"),
                found.join(", ")
            ),
            Self::Ambiguous { repository, found } => write!(
                f,
                "{repository} has several files, choose one with {repository}:FILE: {}",
                found.join(", ")
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for HubError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
