//! The environment variables that say where models are and where they come from.

use std::path::PathBuf;

use super::HubError;

/// What the environment says; every variable is optional.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `LOCKSTEP_CACHE`: Lockstep's own cache.
    pub lockstep_cache: Option<PathBuf>,
    /// `XDG_CACHE_HOME`: where the user's caches are.
    pub xdg_cache_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `HF_HUB_CACHE`: where the Hugging Face hub's repositories are kept.
    pub hf_hub_cache: Option<PathBuf>,
    /// `HF_HOME`: the parent of that cache.
    pub hf_home: Option<PathBuf>,
    /// `HF_ENDPOINT`: another hub than <https://huggingface.co>.
    pub hf_endpoint: Option<String>,
    /// `HF_TOKEN`: what is sent to the hub as bearer token.
    pub hf_token: Option<String>,
    /// `HF_HUB_OFFLINE`: whether the hub may not be asked.
    pub hf_offline: bool,
    /// `LOCKSTEP_PYTHON`: the interpreter whose pip fetches packages; else `python3`.
    pub python: Option<PathBuf>,
}

impl Environment {
    /// What the process was started with; an empty variable counts as absent.
    pub fn of_process() -> Self {
        let path = |name| {
            std::env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let truth =
            |value: String| !matches!(value.to_lowercase().as_str(), "0" | "false" | "no" | "off");
        Self {
            lockstep_cache: path("LOCKSTEP_CACHE"),
            xdg_cache_home: path("XDG_CACHE_HOME"),
            home: path("HOME"),
            hf_hub_cache: path("HF_HUB_CACHE"),
            hf_home: path("HF_HOME"),
            hf_endpoint: text("HF_ENDPOINT"),
            hf_token: text("HF_TOKEN"),
            hf_offline: text("HF_HUB_OFFLINE").is_some_and(truth),
            python: path("LOCKSTEP_PYTHON"),
        }
    }

    /// Where models with a short name are kept:
    /// `${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-~/.cache}/lockstep}/models`.
    ///
    /// # Errors
    /// [`HubError::NoHome`] if none of the variables is set.
    pub fn models_dir(&self) -> Result<PathBuf, HubError> {
        let own = match &self.lockstep_cache {
            Some(cache) => cache.clone(),
            None => self.cache_home()?.join("lockstep"),
        };
        Ok(own.join("models"))
    }

    /// Where the Hugging Face hub's repositories are kept:
    /// `${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}/hub}`.
    ///
    /// # Errors
    /// [`HubError::NoHome`] if none of the variables is set.
    pub fn hub_cache(&self) -> Result<PathBuf, HubError> {
        match (&self.hf_hub_cache, &self.hf_home) {
            (Some(cache), _) => Ok(cache.clone()),
            (None, Some(home)) => Ok(home.join("hub")),
            (None, None) => Ok(self.cache_home()?.join("huggingface").join("hub")),
        }
    }

    /// The hub to ask, without a slash at the end.
    pub fn endpoint(&self) -> &str {
        let endpoint = self
            .hf_endpoint
            .as_deref()
            .unwrap_or("https://huggingface.co");
        endpoint.trim_end_matches('/')
    }

    fn cache_home(&self) -> Result<PathBuf, HubError> {
        match (&self.xdg_cache_home, &self.home) {
            (Some(cache), _) => Ok(cache.clone()),
            (None, Some(home)) => Ok(home.join(".cache")),
            (None, None) => Err(HubError::NoHome),
        }
    }
}
