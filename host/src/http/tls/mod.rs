//! TLS over the listening socket, where a certificate is given.
//!
//! The feature `tls` (a default one) brings rustls with the provider that downloads use already.
//! Without it the flags are refused, and everything else is the same.

use std::fmt;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};

#[cfg(any(not(feature = "tls"), test))]
#[cfg_attr(
    feature = "tls",
    expect(unreachable_pub, reason = "here only its refusal is tested")
)]
mod absent;
#[cfg(feature = "tls")]
mod rustls;

#[cfg(not(feature = "tls"))]
pub use absent::Tls;
#[cfg(feature = "tls")]
pub use rustls::Tls;

/// A connection's two directions, in the clear or not.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// Why TLS cannot be offered.
#[derive(Debug)]
pub enum TlsError {
    /// This build has no TLS.
    NotBuilt,
    /// A file cannot be read.
    Unreadable {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file holds nothing of what it should.
    Empty {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
    },
    /// Certificate and key are not a pair, or of a kind that is not supported.
    Unusable {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong with them.
        why: String,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => f.write_str(
                "--tls-cert and --tls-key need a build with the feature tls, and this one has been built without it",
            ),
            Self::Unreadable { flag, path, why } => {
                write!(f, "cannot read {flag} {}: {why}", path.display())
            }
            Self::Empty { flag, path, wanted } => {
                write!(f, "{flag} {} holds no {wanted} in PEM form", path.display())
            }
            Self::Unusable { cert, key, why } => write!(
                f,
                "--tls-cert {} and --tls-key {} cannot be used together: {why}",
                cert.display(),
                key.display()
            ),
        }
    }
}

impl std::error::Error for TlsError {}
