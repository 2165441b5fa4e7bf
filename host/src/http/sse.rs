//! Server-sent events: frames, keep-alive comments, and the end that every stream has.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame};
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::time::{Sleep, sleep};

use super::body::{Body, Reply};
use super::error::ApiError;
use super::generation::{Generation, Update};

/// Updates that are ready together share a write, up to about this many bytes.
const COALESCE_BYTES: usize = 16 << 10;
/// The comment that keeps a silent stream open.
pub(super) const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// How one endpoint writes its chunks.
pub(super) trait Format: Send + Unpin {
    /// Writes what comes before any update.
    fn open(&mut self, out: &mut EventWriter);
    /// Writes an update.
    fn update(&mut self, update: Update, out: &mut EventWriter);
    /// Writes what comes after the last.
    fn close(&mut self, generation: &Generation, out: &mut EventWriter);
    /// Writes a fault in mid-stream, and the end.
    fn fail(&mut self, error: &ApiError, out: &mut EventWriter) {
        out.data(&error.to_json());
        out.done();
    }
}

/// Frames of a stream under construction.
#[derive(Debug, Default)]
pub(super) struct EventWriter {
    bytes: Vec<u8>,
    numbering: Option<Numbering>,
}

/// The ids of the events of a stream that can be resumed.
#[derive(Debug)]
struct Numbering {
    name: String,
    next: usize,
    /// Where each event ends.
    ends: Vec<usize>,
}

impl EventWriter {
    /// A writer whose events have ids: the name, a slash, and their number from 0.
    pub(super) fn numbered(name: &str) -> Self {
        let numbering = Numbering {
            name: name.to_owned(),
            next: 0,
            ends: Vec::new(),
        };
        Self {
            bytes: Vec::new(),
            numbering: Some(numbering),
        }
    }

    /// The events of a numbered writer, one by one; it is empty then.
    pub(super) fn take_events(&mut self) -> impl Iterator<Item = Bytes> {
        let bytes = Bytes::from(std::mem::take(&mut self.bytes));
        let ends = self
            .numbering
            .as_mut()
            .map(|numbering| std::mem::take(&mut numbering.ends));
        let mut from = 0;
        ends.unwrap_or_default()
            .into_iter()
            .map(move |end| bytes.slice(std::mem::replace(&mut from, end)..end))
    }

    fn begin(&mut self) {
        if let Some(numbering) = &mut self.numbering {
            let id = format!("id: {}/{}\n", numbering.name, numbering.next);
            self.bytes.extend_from_slice(id.as_bytes());
            numbering.next += 1;
        }
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\n\n");
        if let Some(numbering) = &mut self.numbering {
            numbering.ends.push(self.bytes.len());
        }
    }

    /// An event that holds a value as JSON, on one line.
    pub(super) fn json(&mut self, value: &impl serde::Serialize) {
        self.begin();
        self.json_line(value);
        self.end();
    }

    /// An event with a name that holds a value as JSON.
    pub(super) fn named(&mut self, name: &str, value: &impl serde::Serialize) {
        self.begin();
        self.bytes.extend_from_slice(b"event: ");
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(b'\n');
        self.json_line(value);
        self.end();
    }

    /// An event that holds these bytes, which have no line break.
    pub(super) fn data(&mut self, bytes: &[u8]) {
        self.begin();
        self.bytes.extend_from_slice(b"data: ");
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    fn json_line(&mut self, value: &impl serde::Serialize) {
        self.bytes.extend_from_slice(b"data: ");
        // The types of the wire format always serialise, and JSON has no line break in it.
        let _ = serde_json::to_writer(&mut self.bytes, value);
    }

    /// Forgets what was written.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The event that ends a stream.
    pub(super) fn done(&mut self) {
        self.data(b"[DONE]");
    }
}

/// A generation as a stream of events.
struct EventStream<F> {
    generation: Option<Generation>,
    format: F,
    opened: bool,
    interval: Duration,
    silence: Pin<Box<Sleep>>,
}

/// The answer that streams a generation. From here on its status is 200: everything that can be
/// wrong with a request has been checked.
pub(super) fn stream_reply(
    generation: Generation,
    format: impl Format + 'static,
    interval: Duration,
) -> Reply {
    event_stream_reply(Body::stream(EventStream {
        generation: Some(generation),
        format,
        opened: false,
        interval,
        silence: Box::pin(sleep(interval)),
    }))
}

/// An answer whose body is a stream of events.
pub(super) fn event_stream_reply(body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::OK;
    let headers = reply.headers_mut();
    headers.insert(
        hyper::header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer by default pass a stream through at once when they are told.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

impl<F: Format> EventStream<F> {
    /// Writes what is ready.
    fn write_ready(&mut self, cx: &mut Context<'_>, out: &mut EventWriter) {
        if !self.opened {
            self.opened = true;
            self.format.open(out);
        }
        while out.bytes.len() < COALESCE_BYTES {
            let Some(generation) = &mut self.generation else {
                return;
            };
            match generation.poll_update(cx) {
                Poll::Pending => return,
                Poll::Ready(Some(Ok(update))) => self.format.update(update, out),
                Poll::Ready(Some(Err(error))) => {
                    self.format.fail(&error, out);
                    self.generation = None;
                }
                Poll::Ready(None) => {
                    self.format.close(generation, out);
                    self.generation = None;
                }
            }
        }
    }

    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let silent = self.silence.as_mut().poll(cx);
        if silent.is_ready() {
            self.restart_silence();
        }
        silent
    }

    fn restart_silence(&mut self) {
        self.silence.set(sleep(self.interval));
    }
}

impl<F: Format> HttpBody for EventStream<F> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = &mut *self;
        let mut out = EventWriter::default();
        stream.write_ready(cx, &mut out);
        if !out.bytes.is_empty() {
            stream.restart_silence();
            return Poll::Ready(Some(Ok(Frame::data(out.bytes.into()))));
        }
        if stream.generation.is_none() {
            return Poll::Ready(None);
        }
        match stream.poll_silence(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE))))),
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of characters that have a meaning to some layer, from a fixed seed (SplitMix64).
    fn texts() -> impl Iterator<Item = String> {
        let alphabet = [
            '\n', '\r', ':', ' ', '"', '\\', '\0', '\u{2028}', 'd', 'é', '👩', '\u{200d}',
            '\u{fffd}',
        ];
        let mut state = 0x5eed_u64;
        let mut next = move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            crate::http::choice_seed(state, 1) as usize
        };
        (0..500).map(move |_| {
            let length = next() % 20;
            (0..length)
                .map(|_| alphabet[next() % alphabet.len()])
                .collect()
        })
    }

    #[test]
    fn any_text_is_one_line_of_one_event_and_comes_back_unchanged() {
        let mut plain = EventWriter::default();
        let mut numbered = EventWriter::numbered("name");
        let texts: Vec<String> = texts().collect();
        for text in &texts {
            plain.json(text);
            numbered.named("delta", text);
        }
        let whole = String::from_utf8(plain.bytes).unwrap();
        let frames: Vec<&str> = whole.split_terminator("\n\n").collect();
        assert_eq!(frames.len(), texts.len());
        let events: Vec<Bytes> = numbered.take_events().collect();
        assert_eq!(events.len(), texts.len());
        for (position, text) in texts.iter().enumerate() {
            let data = frames[position].strip_prefix("data: ").unwrap();
            assert!(!data.contains(['\n', '\r']), "{data:?}");
            assert_eq!(serde_json::from_str::<String>(data).unwrap(), *text);
            let expected = format!("id: name/{position}\nevent: delta\ndata: {data}\n\n");
            assert_eq!(events[position], expected.as_bytes());
        }
        assert_eq!(numbered.take_events().count(), 0);
    }
}
