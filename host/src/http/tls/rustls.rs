//! TLS by rustls.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{Error as PemError, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Socket, TlsError};

const CERT: &str = "--tls-cert";
const KEY: &str = "--tls-key";

/// A certificate with its key, ready to be shown to clients.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Loads a certificate, or a chain of them with the server's first, and its key, both in PEM form.
    ///
    /// # Errors
    /// A [`TlsError`] that names the file at fault.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let chain = read_chain(cert)?;
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| unusable_file(KEY, key, "private key", &error))?;
        let unusable = |why: String| TlsError::Unusable {
            cert: cert.to_owned(),
            key: key.to_owned(),
            why,
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, private)
            .map_err(|error| unusable(error.to_string()))?;
        // A client that speaks only another protocol is told so in the handshake.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Shakes hands; bounding its time is the caller's.
    ///
    /// # Errors
    /// Where the client does not speak TLS, or none that is offered.
    pub(in crate::http) async fn accept(
        &self,
        socket: Box<dyn Socket>,
    ) -> io::Result<Box<dyn Socket>> {
        let stream = self.0.accept(socket).await?;
        Ok(Box::new(stream))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(hidden)")
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wanted = "certificate";
    let file = |error: PemError| unusable_file(CERT, path, wanted, &error);
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(file)?
        .collect::<Result<_, _>>()
        .map_err(file)?;
    if chain.is_empty() {
        return Err(unusable_file(CERT, path, wanted, &PemError::NoItemsFound));
    }
    Ok(chain)
}

fn unusable_file(
    flag: &'static str,
    path: &Path,
    wanted: &'static str,
    error: &PemError,
) -> TlsError {
    let path = path.to_owned();
    match error {
        PemError::NoItemsFound => TlsError::Empty { flag, path, wanted },
        PemError::Io(error) => TlsError::Unreadable {
            flag,
            path,
            why: error.to_string(),
        },
        // Not its text: it may be that of a key.
        _ => TlsError::Unreadable {
            flag,
            path,
            why: "it is not in PEM form".to_owned(),
        },
    }
}
