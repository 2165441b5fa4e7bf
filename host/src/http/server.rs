//! Listening, accepting, and the order in which everything ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::App;
use super::connection::{Phase, TimedIo};
use super::inflight::InFlight;
use super::received::BodyBudget;
use super::resumable::Resumables;
use super::router;
use super::tls::Socket;

/// How long aborted streams have to send their last event, and connections to close.
const CLOSING_TIME: Duration = Duration::from_secs(3);
/// How long a connection over the limit may take to hear so.
const REFUSING_TIME: Duration = Duration::from_secs(1);
/// What a connection over the limit is told.
const OVERLOADED: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    retry-after: 1\r\nconnection: close\r\ncontent-length: 141\r\n\r\n\
    {\"error\":{\"message\":\"the server has as many connections as it may have\",\
    \"type\":\"service_unavailable_error\",\"param\":null,\"code\":\"overloaded\"}}";
/// Constraints that are compiled at a time: the engine needs the processors too.
const MAX_COMPILING: usize = 2;
/// Connections over the limit that are told so at a time; further ones are just closed.
const MAX_REFUSED: usize = 64;

/// Where the server listens.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

/// What every call sees.
pub(super) struct Server {
    pub(super) app: App,
    pub(super) in_flight: InFlight,
    pub(super) ids: super::ids::IdSource,
    pub(super) resumables: Arc<Resumables>,
    /// What the bodies of requests may take together.
    pub(super) bodies: Arc<BodyBudget>,
    /// Constraints that are compiled at a time.
    pub(super) compiling: Semaphore,
    pub(super) started: u64,
}

/// Serves the API until `shutdown` resolves, then drains.
///
/// Draining: the door takes no more requests (they are told 503, and `/ready` says so), the running
/// ones go on for [`super::HttpLimits::drain_timeout`], what is left then is aborted at the engine
/// and hears a terminal event, and connections close. When this returns, nothing of it is left, and
/// the last clone of the intake that it held is gone.
///
/// # Errors
/// What the listener says when it cannot accept at all.
pub async fn serve(
    listener: Listener,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let server = Arc::new(Server::new(app));
    let (stop, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let draining = drain(shutdown, &server);
    tokio::pin!(draining);
    loop {
        tokio::select! {
            socket = accept(&listener) => admit(socket?, &server, &stopped, &mut connections),
            Some(_) = connections.join_next() => {}
            () = &mut draining => break,
        }
    }
    drop(listener);
    // Nobody listens any more if every connection has closed already.
    let _ = stop.send(true);
    let closing = async { while connections.join_next().await.is_some() {} };
    if timeout(CLOSING_TIME, closing).await.is_err() {
        connections.shutdown().await;
    }
    Ok(())
}

impl Server {
    fn new(app: App) -> Self {
        let started = crate::clock::unix_seconds();
        let ids = super::ids::IdSource::new(app.seeds.next_seed(), started);
        let bodies = BodyBudget::new(app.limits.max_bodies_bytes);
        Self {
            app,
            bodies,
            in_flight: InFlight::default(),
            ids,
            resumables: Arc::default(),
            compiling: Semaphore::new(MAX_COMPILING),
            started,
        }
    }
}

async fn drain(shutdown: impl Future<Output = ()>, server: &Server) {
    shutdown.await;
    let intake = &server.app.intake;
    intake.drain();
    let allowed = server.app.limits.drain_timeout;
    log::info!("draining: {} calls in flight", server.in_flight.len());
    if timeout(allowed, server.in_flight.none_left())
        .await
        .is_err()
    {
        log::warn!(
            "{} calls are ended after {allowed:?}",
            server.in_flight.len()
        );
        intake.abort();
        let _ = timeout(CLOSING_TIME, server.in_flight.none_left()).await;
    }
}

async fn accept(listener: &Listener) -> io::Result<Box<dyn Socket>> {
    loop {
        let accepted = match listener {
            Listener::Tcp(tcp) => tcp.accept().await.map(|(socket, _)| {
                // A frame is sent as it is written: latency is what streams are for.
                let _ = socket.set_nodelay(true);
                Box::new(socket) as Box<dyn Socket>
            }),
            Listener::Unix(unix) => {
                let accepted = unix.accept().await;
                accepted.map(|(socket, _)| Box::new(socket) as Box<dyn Socket>)
            }
        };
        match accepted {
            Ok(socket) => return Ok(socket),
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                // Out of file descriptors, or a client that left before it was accepted.
                log::warn!("a connection was not accepted: {error}");
                sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

fn is_fatal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected
    )
}

fn admit(
    socket: Box<dyn Socket>,
    server: &Arc<Server>,
    stopped: &watch::Receiver<bool>,
    connections: &mut JoinSet<()>,
) {
    let open = server.app.metrics.connections();
    let max = server.app.limits.max_connections;
    let number = open.load(Ordering::Relaxed);
    if number >= max.saturating_add(MAX_REFUSED) {
        return;
    }
    open.fetch_add(1, Ordering::Relaxed);
    let server = Arc::clone(server);
    let stopped = stopped.clone();
    connections.spawn(async move {
        let _open = Open(&server);
        if number >= max {
            // A client that does not listen is not owed more.
            let _ = timeout(REFUSING_TIME, refuse(socket, &server)).await;
        } else if let Some(socket) = encrypt(socket, &server).await {
            converse(socket, Arc::clone(&server), stopped).await;
        }
    });
}

/// Counts a connection as open.
struct Open<'a>(&'a Arc<Server>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0
            .app
            .metrics
            .connections()
            .fetch_sub(1, Ordering::Relaxed);
    }
}

/// Says why, then reads a little: closing over unread bytes would reset the answer away.
async fn refuse(socket: Box<dyn Socket>, server: &Server) -> io::Result<()> {
    let Some(mut socket) = encrypt(socket, server).await else {
        return Ok(());
    };
    socket.write_all(OVERLOADED.as_bytes()).await?;
    socket.shutdown().await?;
    let mut scrap = [0; 4096];
    while socket.read(&mut scrap).await? > 0 {}
    Ok(())
}

/// The socket as requests come over it; `None` where a handshake fails or takes longer than a head
/// may.
async fn encrypt(socket: Box<dyn Socket>, server: &Server) -> Option<Box<dyn Socket>> {
    let Some(tls) = &server.app.tls else {
        return Some(socket);
    };
    let limit = server.app.limits.header_timeout;
    match timeout(limit, tls.accept(socket)).await {
        Ok(Ok(socket)) => Some(socket),
        Ok(Err(error)) => {
            log::debug!("a TLS handshake failed: {error}");
            None
        }
        Err(_) => {
            log::debug!("a TLS handshake took longer than {limit:?}");
            None
        }
    }
}

async fn converse(
    socket: Box<dyn Socket>,
    server: Arc<Server>,
    mut stopped: watch::Receiver<bool>,
) {
    let phase = Phase::default();
    let limits = &server.app.limits;
    let io = TimedIo::new(
        socket,
        phase.clone(),
        limits.header_timeout,
        limits.write_timeout,
    );
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_headers(limits.max_headers)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(limits.max_header_bytes.max(64 << 10));
    let answering = Arc::clone(&server);
    let service = service_fn(move |request| {
        let answer = router::answer(Arc::clone(&answering), phase.clone(), request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let stop = async move { drop(stopped.wait_for(|&stop| stop).await) };
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        log::debug!("a connection ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_a_whole_answer() {
        let (head, body) = OVERLOADED.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", body.len())),
            "{}",
            body.len()
        );
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(json["error"]["code"], "overloaded");
    }
}
