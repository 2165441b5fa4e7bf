//! Streams that outlive their connection: asked for by `stream_options.resumable`, told apart by an
//! unguessable name, resumed with `Last-Event-ID`.
//!
//! A task writes the events; connections only read them. While nobody reads, a grace period runs,
//! after which the request is cancelled, or a finished stream forgotten.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::{Body as HttpBody, Bytes, Frame};
use hyper::header::{AUTHORIZATION, HeaderMap};
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};

use super::body::{Body, Reply};
use super::call::Call;
use super::error::ApiError;
use super::generation::Generation;
use super::server::Server;
use super::sse::{EventWriter, Format, KEEP_ALIVE, event_stream_reply};

/// The header by which a client says what it has.
const LAST_EVENT_ID: &str = "last-event-id";

/// The streams that can be resumed.
#[derive(Default)]
pub(super) struct Resumables {
    streams: Mutex<BTreeMap<String, Arc<Stream>>>,
}

/// A stream's events, and who waits for more.
struct Stream {
    name: String,
    /// The key of the request that opened it, hashed: no other resumes it.
    owner: blake3::Hash,
    state: Mutex<State>,
    readers_changed: Notify,
}

#[derive(Default)]
struct State {
    events: Vec<Bytes>,
    finished: bool,
    readers: usize,
    waiting: Vec<Waker>,
}

impl Resumables {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Stream>>> {
        // Nothing panics while it is held; if something did, the map would still be whole.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, stream: &Arc<Stream>, max: usize) -> Result<(), ApiError> {
        let mut streams = self.lock();
        if streams.len() >= max {
            let message = format!("{max} resumable streams are kept, which is the limit");
            return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
                .code("too_many_resumable_streams")
                .retry_after(5));
        }
        streams.insert(stream.name.clone(), Arc::clone(stream));
        Ok(())
    }
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, events: impl Iterator<Item = Bytes>, finished: bool) {
        let mut state = self.lock();
        state.events.extend(events);
        state.finished |= finished;
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Resolves once nobody has been reading for `grace`.
    async fn abandoned(&self, grace: Duration) {
        loop {
            let changed = self.readers_changed.notified();
            if self.lock().readers > 0 {
                changed.await;
                continue;
            }
            tokio::select! {
                () = changed => {}
                () = sleep(grace) => return,
            }
        }
    }
}

/// Starts a stream that can be resumed, and answers with it.
///
/// # Errors
/// 429 where as many are kept as may be.
pub(super) fn start(
    call: &Call,
    generation: Generation,
    format: impl Format + 'static,
) -> Result<Reply, ApiError> {
    let server = &call.server;
    let limits = &server.app.limits;
    let name = server.ids.secret("stream-").ok_or_else(|| {
        let message = "this system has no entropy to name a resumable stream with";
        ApiError::unsupported("stream_options.resumable", message)
    })?;
    let stream = Arc::new(Stream {
        name,
        owner: owner(&call.headers),
        state: Mutex::default(),
        readers_changed: Notify::new(),
    });
    server
        .resumables
        .insert(&stream, limits.max_resumable_streams)?;
    let reply = reply(&stream, 0, limits.keep_alive_interval);
    let grace = limits.resume_grace;
    // The task must not hold the server: that would keep the door open behind a drain.
    let kept = Arc::clone(&server.resumables);
    tokio::spawn(async move {
        tokio::select! {
            () = write(&stream, generation, format) => stream.abandoned(grace).await,
            () = stream.abandoned(grace) => {}
        }
        kept.lock().remove(&stream.name);
    });
    Ok(reply)
}

/// Answers `GET /v1/streams`: what comes after the event that `Last-Event-ID` names.
///
/// # Errors
/// 404 where there is no such stream, or it is another key's.
pub(super) fn resume(server: &Server, headers: &HeaderMap) -> Result<Reply, ApiError> {
    let unknown = || {
        let message = "no stream of that name can be resumed";
        ApiError::new(StatusCode::NOT_FOUND, message).code("unknown_stream")
    };
    let id = headers
        .get(LAST_EVENT_ID)
        .and_then(|value| value.to_str().ok());
    let (name, event) = id.and_then(|id| id.rsplit_once('/')).ok_or_else(unknown)?;
    let next = event
        .parse::<usize>()
        .ok()
        .and_then(|event| event.checked_add(1));
    let stream = server.resumables.lock().get(name).map(Arc::clone);
    match (stream, next) {
        (Some(stream), Some(next)) if stream.owner == owner(headers) => {
            Ok(reply(&stream, next, server.app.limits.keep_alive_interval))
        }
        _ => Err(unknown()),
    }
}

/// Who a request comes from. `blake3::Hash` compares in constant time.
fn owner(headers: &HeaderMap) -> blake3::Hash {
    blake3::hash(
        headers
            .get(AUTHORIZATION)
            .map_or(b"", |value| value.as_bytes()),
    )
}

/// Writes all events of a generation, whoever reads them.
async fn write(stream: &Stream, mut generation: Generation, mut format: impl Format) {
    let mut out = EventWriter::numbered(&stream.name);
    format.open(&mut out);
    loop {
        stream.append(out.take_events(), false);
        match generation.update().await {
            Some(Ok(update)) => format.update(update, &mut out),
            Some(Err(error)) => {
                format.fail(&error, &mut out);
                break;
            }
            None => {
                format.close(&generation, &mut out);
                break;
            }
        }
    }
    stream.append(out.take_events(), true);
}

fn reply(stream: &Arc<Stream>, next: usize, interval: Duration) -> Reply {
    stream.lock().readers += 1;
    stream.readers_changed.notify_one();
    event_stream_reply(Body::stream(Reader {
        stream: Arc::clone(stream),
        next,
        interval,
        silence: Box::pin(sleep(interval)),
    }))
}

/// One connection's reading of a stream.
struct Reader {
    stream: Arc<Stream>,
    next: usize,
    interval: Duration,
    silence: Pin<Box<Sleep>>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.lock().readers -= 1;
        self.stream.readers_changed.notify_one();
    }
}

impl HttpBody for Reader {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let reader = &mut *self;
        let mut state = reader.stream.lock();
        if let Some(event) = state.events.get(reader.next) {
            let event = event.clone();
            drop(state);
            reader.next += 1;
            reader.silence.set(sleep(reader.interval));
            return Poll::Ready(Some(Ok(Frame::data(event))));
        }
        if state.finished {
            return Poll::Ready(None);
        }
        if !state
            .waiting
            .iter()
            .any(|waker| waker.will_wake(cx.waker()))
        {
            state.waiting.push(cx.waker().clone());
        }
        drop(state);
        if reader.silence.as_mut().poll(cx).is_ready() {
            reader.silence.set(sleep(reader.interval));
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE)))));
        }
        Poll::Pending
    }
}
