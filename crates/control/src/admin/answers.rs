//! The count of requests for changes whose answers are not sent yet. A process that ends waits for
//! these answers.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The count of requests for changes whose answers have not been sent.
#[derive(Debug, Default)]
pub(super) struct UnsentAnswers {
    open: Mutex<usize>,
    /// Notified when the number of open answers becomes zero.
    all_left: Condvar,
}

impl UnsentAnswers {
    /// Waits until all answers have been sent, at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let open = self.open.lock().expect("no holder panics");
        let waited = self.all_left.wait_timeout_while(open, limit, |open| *open > 0);
        drop(waited.expect("no holder panics"));
    }

    #[cfg(test)]
    pub(super) fn are_open(&self) -> bool {
        *self.open.lock().unwrap() > 0
    }

    fn add(&self) {
        *self.open.lock().expect("no holder panics") += 1;
    }

    fn remove(&self) {
        let mut open = self.open.lock().expect("no holder panics");
        *open -= 1;
        if *open == 0 {
            self.all_left.notify_all();
        }
    }
}

/// The state of a connection's answer to a request for a change. At most one answer of a connection
/// is open.
#[derive(Debug)]
pub(super) struct AnswerState {
    of: Arc<UnsentAnswers>,
    is_open: AtomicBool,
    /// `true` if the answer is complete and will be sent with the next flush.
    is_known: AtomicBool,
}

impl AnswerState {
    pub(super) fn new(of: Arc<UnsentAnswers>) -> Arc<AnswerState> {
        Arc::new(AnswerState {
            of,
            is_open: AtomicBool::new(false),
            is_known: AtomicBool::new(false),
        })
    }

    /// Counts the request's answer as open until it is sent, if the method may change something.
    /// Reads do not count, since the answer to a reader that follows a document has no end.
    pub(super) fn open(&self, method: &Method) {
        if !method.is_safe() && !self.is_open.swap(true, Ordering::AcqRel) {
            self.of.add();
        }
    }

    /// Records that the answer to the open request is ready to be sent with the next flush.
    pub(super) fn know(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Counts the answer as sent if it was ready, after a flush of the connection.
    fn leave(&self) {
        if self.is_known.swap(false, Ordering::AcqRel) {
            self.close();
        }
    }

    fn close(&self) {
        if self.is_open.swap(false, Ordering::AcqRel) {
            self.of.remove();
        }
    }
}

/// A connection's stream that closes its [`AnswerState`] with the first flush after the answer is
/// known, and when the stream is dropped.
pub(super) struct TrackedStream<S> {
    stream: S,
    answer: Arc<AnswerState>,
}

impl<S> TrackedStream<S> {
    pub(super) fn new(stream: S, answer: Arc<AnswerState>) -> TrackedStream<S> {
        TrackedStream { stream, answer }
    }

    /// Returns the answer that the stream closes.
    pub(super) fn answer(&self) -> Arc<AnswerState> {
        self.answer.clone()
    }
}

impl<S> Drop for TrackedStream<S> {
    fn drop(&mut self) {
        self.answer.close();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, room)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.answer.leave();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
