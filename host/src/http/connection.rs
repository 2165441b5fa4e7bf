//! A connection's time limits: a head that dribbles in, a client that does not read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const BUSY: u8 = 2;

/// What a connection is doing; shared by its socket and the call on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// A call is being answered.
    pub(super) fn busy(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }

    /// The answer is done.
    pub(super) fn idle(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }

    fn at(&self, phase: u8) -> bool {
        self.0.load(Ordering::Relaxed) == phase
    }
}

/// A socket that fails with `TimedOut` when a head takes longer than `header_timeout` from its
/// first byte on, or when no byte could be written for `write_timeout`.
pub(super) struct TimedIo<S> {
    socket: S,
    phase: Phase,
    header_timeout: Duration,
    write_timeout: Duration,
    head_deadline: Option<Pin<Box<Sleep>>>,
    write_deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedIo<S> {
    /// A socket with these limits.
    pub(super) fn new(
        socket: S,
        phase: Phase,
        header_timeout: Duration,
        write_timeout: Duration,
    ) -> Self {
        Self {
            socket,
            phase,
            header_timeout,
            write_timeout,
            head_deadline: None,
            write_deadline: None,
        }
    }

    fn check_head(&mut self, cx: &mut Context<'_>, received: bool) -> Poll<()> {
        if received && self.phase.at(IDLE) {
            self.phase.0.store(HEAD, Ordering::Relaxed);
            self.head_deadline = Some(Box::pin(sleep(self.header_timeout)));
        }
        if !self.phase.at(HEAD) {
            self.head_deadline = None;
        }
        match &mut self.head_deadline {
            Some(deadline) => deadline.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Passes a write's outcome on, but turns waiting for too long into an error.
    fn check_write<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.write_deadline = None;
            return outcome;
        }
        let limit = self.write_timeout;
        let deadline = self
            .write_deadline
            .get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.socket).poll_read(cx, buffer);
        let received = buffer.filled().len() > before;
        match self.check_head(cx, received) {
            Poll::Ready(()) if outcome.is_pending() => {
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            _ => outcome,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.check_write(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.check_write(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_flush(cx);
        self.check_write(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.check_write(cx, outcome)
    }
}
