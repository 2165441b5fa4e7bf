//! What stands for TLS in a build without it: nothing that could be made.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use super::{Socket, TlsError};

/// A certificate and its key; in this build there is none.
#[derive(Clone, Debug)]
pub struct Tls(Infallible);

impl Tls {
    /// Loads nothing.
    ///
    /// # Errors
    /// Always [`TlsError::NotBuilt`].
    pub fn load(_cert: &Path, _key: &Path) -> Result<Self, TlsError> {
        Err(TlsError::NotBuilt)
    }

    /// Never called: there is no value to call it on.
    #[cfg_attr(
        all(feature = "tls", test),
        expect(dead_code, reason = "the tests load only")
    )]
    pub(in crate::http) async fn accept(
        &self,
        _socket: Box<dyn Socket>,
    ) -> io::Result<Box<dyn Socket>> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_tls_says_so() {
        let path = Path::new("any.pem");
        let error = Tls::load(path, path).unwrap_err();
        assert!(error.to_string().contains("feature tls"), "{error}");
    }
}
