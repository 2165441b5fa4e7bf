//! The server over TLS, before clients that check its certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lockstep::http::Tls;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::client::{Connection, PATIENCE};
use super::fixture::{Fixture, Setup};

/// A certificate for `localhost`, as files and as a client needs it to trust it.
struct Pair {
    cert: PathBuf,
    key: PathBuf,
    der: CertificateDer<'static>,
    folder: tempfile::TempDir,
}

impl Pair {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert_path, key) = (
            folder.path().join("cert.pem"),
            folder.path().join("key.pem"),
        );
        std::fs::write(&cert_path, cert.pem()).unwrap();
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        let der = cert.der().clone();
        Self {
            cert: cert_path,
            key,
            der,
            folder,
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    async fn serve(&self, change: impl FnOnce(&mut Setup)) -> Fixture {
        let mut setup = Setup::saying("hello over TLS");
        let tls = Tls::load(&self.cert, &self.key).unwrap();
        setup.change = Box::new(move |app| app.tls = Some(tls));
        change(&mut setup);
        setup.start().await
    }

    /// A handshake with a server, offering these protocols.
    async fn connect(
        &self,
        server: &Fixture,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let socket = TcpStream::connect(server.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, socket)
            .await
    }
}

/// Asks for something once, and reads until the server closes.
async fn ask(mut stream: TlsStream<TcpStream>, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let reading = stream.read_to_string(&mut text);
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the server answers")
        .expect("and closes as TLS is closed");
    text
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_client_that_trusts_the_certificate_is_served() {
    let pair = Pair::make();
    let server = pair.serve(|_| {}).await;
    let stream = pair.connect(&server, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let body = "{\"prompt\": \"a\", \"stream\": true}";
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text = ask(stream, &request).await;
    assert!(
        text.starts_with("HTTP/1.1 200") && text.contains("data: [DONE]"),
        "{text}"
    );
    // Who offers no protocol takes what there is.
    let stream = pair.connect(&server, &[]).await.unwrap();
    assert!(ask(stream, HEALTH).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn other_protocols_and_strangers_are_turned_away() {
    let pair = Pair::make();
    let server = pair.serve(|_| {}).await;
    assert!(pair.connect(&server, &[b"h2"]).await.is_err());
    assert!(Pair::make().connect(&server, &[]).await.is_err());
    let mut plain = Connection::open(server.address).await;
    plain.ask("GET", "/health", "").await;
    assert!(plain.closed().await);
    let stream = pair.connect(&server, &[]).await.unwrap();
    assert!(ask(stream, HEALTH).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_handshake_counts_as_a_connection_and_its_time_is_bounded() {
    let pair = Pair::make();
    let server = pair
        .serve(|setup| {
            setup.limits.max_connections = 1;
            setup.limits.header_timeout = Duration::from_millis(500);
        })
        .await;
    let mut silent = Connection::open(server.address).await;
    let open = |count: &'static str| {
        let wanted =
            format!("lockstep_http_connections{{model_name=\"tiny\",engine=\"0\"}} {count}");
        move |server: &Fixture| server.metrics.render().contains(&wanted)
    };
    server.until("the handshake counts", open("1")).await;
    let over = pair.connect(&server, &[]).await.unwrap();
    assert!(ask(over, "").await.starts_with("HTTP/1.1 503"));
    assert!(silent.closed().await);
    server.until("its place is free", open("0")).await;
    let stream = pair.connect(&server, &[]).await.unwrap();
    assert!(ask(stream, HEALTH).await.starts_with("HTTP/1.1 200"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let pair = Pair::make();
    let told = |cert: &Path, key: &Path| Tls::load(cert, key).unwrap_err().to_string();
    let missing = Path::new("no-such.pem");
    let text = told(missing, &pair.key);
    assert!(text.contains("--tls-cert no-such.pem"), "{text}");
    let text = told(&pair.cert, missing);
    assert!(text.contains("--tls-key no-such.pem"), "{text}");
    let empty = pair.write("empty.pem", "");
    let text = told(&empty, &pair.key);
    assert!(text.contains("holds no certificate"), "{text}");
    let text = told(&pair.cert, &pair.cert);
    assert!(text.contains("holds no private key"), "{text}");
    let broken = "-----BEGIN PRIVATE KEY-----\nhidden!\n-----END PRIVATE KEY-----\n";
    let text = told(&pair.cert, &pair.write("broken.pem", broken));
    assert!(
        text.contains("--tls-key") && !text.contains("hidden"),
        "{text}"
    );
    let other = KeyPair::generate().unwrap().serialize_pem();
    let text = told(&pair.cert, &pair.write("other.pem", &other));
    assert!(text.contains("cannot be used together"), "{text}");
}
