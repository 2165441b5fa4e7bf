//! Where model files come from: what a `--model` argument names, and how `pull` fetches it.
//!
//! [`resolve`] looks on this machine only and never downloads. [`pull`] fetches what is missing.
//! Both take the same words:
//!
//! | spec | meaning |
//! |---|---|
//! | `smollm2-135m` | an alias of the table in [`alias`] |
//! | `./model.gguf` | a path, if a file is there |
//! | `org/name` | the only GGUF file of a repository in the Hugging Face cache |
//! | `org/name:Q4_K_M` | its file of this quantisation |
//! | `org/name:model.gguf` | its file of this name |

use std::path::PathBuf;

pub mod alias;

mod download;
mod environment;
mod error;
mod progress;
mod pull;
mod repository;
mod wheel;

pub use environment::Environment;
pub use error::HubError;
pub use pull::{pull, pull_model};

use repository::RepositorySpec;

/// The file that `spec` names, found on this machine.
///
/// # Errors
/// [`HubError::NotPulled`] if an alias was not pulled yet, [`HubError::NotFound`] if there is no
/// such file, [`HubError::Ambiguous`] if a repository holds several and none was chosen.
pub fn resolve(spec: &str) -> Result<PathBuf, HubError> {
    resolve_in(&Environment::of_process(), spec)
}

/// [`resolve`] in an environment that is given.
///
/// # Errors
/// As [`resolve`].
pub fn resolve_in(environment: &Environment, spec: &str) -> Result<PathBuf, HubError> {
    if let Some(model) = alias::find(spec) {
        let path = environment.models_dir()?.join(model.file);
        return if path.is_file() {
            Ok(path)
        } else {
            Err(HubError::NotPulled {
                alias: spec.into(),
                path,
            })
        };
    }
    let path = PathBuf::from(spec);
    if path.is_file() {
        return Ok(path);
    }
    match RepositorySpec::parse(spec) {
        Some(repository) => repository.find(&environment.hub_cache()?),
        None => Err(HubError::NotFound { spec: spec.into() }),
    }
}

#[cfg(test)]
mod loopback;
#[cfg(test)]
mod pull_tests;
#[cfg(test)]
mod tests;
