//! API keys: digests only, compared in constant time.

use std::fmt;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HeaderMap};

use super::error::ApiError;

/// The keys that open the API; none means that it is open.
///
/// Only digests are kept, and neither `Debug` nor an error message shows anything of them.
#[derive(Clone, Default)]
pub struct ApiKeys {
    digests: Vec<blake3::Hash>,
}

impl ApiKeys {
    /// No key: everyone may call.
    pub fn open() -> Self {
        Self::default()
    }

    /// These keys; blank ones are left out.
    pub fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Self {
        let mut added = Self::default();
        added.extend(keys);
        added
    }

    /// The keys of a file's text: one a line; blank lines and lines that start with `#` are none.
    pub fn from_lines(text: &str) -> Self {
        Self::new(
            text.lines()
                .filter(|line| !line.trim_start().starts_with('#')),
        )
    }

    /// Adds keys.
    pub fn extend<K: AsRef<str>>(&mut self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            let key = key.as_ref().trim();
            if !key.is_empty() {
                self.digests.push(blake3::hash(key.as_bytes()));
            }
        }
    }

    /// Adds the keys of another set.
    pub fn merge(&mut self, other: Self) {
        self.digests.extend(other.digests);
    }

    /// Whether a key is needed at all.
    pub fn required(&self) -> bool {
        !self.digests.is_empty()
    }

    /// Checks the `Authorization: Bearer` header of a request.
    ///
    /// # Errors
    /// 401 where a key is needed and none of them is given.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if !self.required() {
            return Ok(());
        }
        let given = headers
            .get(AUTHORIZATION)
            .and_then(|value| bearer(value.as_bytes()));
        match given {
            Some(key) if self.contains(key) => Ok(()),
            _ => Err(ApiError::new(
                StatusCode::UNAUTHORIZED,
                "a valid API key is needed in the header Authorization: Bearer",
            )
            .code("invalid_api_key")),
        }
    }

    /// Every digest is compared, each in constant time (`blake3::Hash` compares so), so that the
    /// time tells neither how much of a key was right nor which key it was.
    fn contains(&self, key: &[u8]) -> bool {
        let digest = blake3::hash(key);
        self.digests
            .iter()
            .fold(false, |found, own| found | (*own == digest))
    }
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({} hidden)", self.digests.len())
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = value.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| key.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, value.parse().unwrap());
        headers
    }

    #[test]
    fn any_of_the_keys_opens_and_nothing_else_does() {
        let keys = ApiKeys::from_lines("# team\nalpha\n\n  beta  \n");
        assert!(keys.check(&with("Bearer alpha")).is_ok());
        assert!(keys.check(&with("bearer   beta ")).is_ok());
        for wrong in [
            "Bearer alph",
            "Bearer alphaa",
            "Bearer ",
            "Basic alpha",
            "alpha",
            "Bearer # team",
        ] {
            assert_eq!(keys.check(&with(wrong)).unwrap_err().status, 401, "{wrong}");
        }
        assert!(keys.check(&HeaderMap::new()).is_err());
        assert!(ApiKeys::open().check(&HeaderMap::new()).is_ok());
    }

    #[test]
    fn keys_are_not_shown() {
        let shown = format!("{:?}", ApiKeys::new(["secret-key"]));
        assert_eq!(shown, "ApiKeys(1 hidden)");
    }
}
