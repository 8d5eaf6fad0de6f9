//! The resource `/metrics`. The text is sent while it is written, so that memory never holds all of
//! it, however many tenants there are.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::{Bytes, Frame};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

use super::input::Query;
use super::problem::{Code, Problem};
use crate::metrics::{self, Snapshot};

/// Size in bytes from which the text written so far is sent as a piece of the answer.
const PIECE_BYTES: usize = 64 << 10;

/// Maximum number of pieces that wait to be sent.
const PIECES_MAX: usize = 4;

/// Maximum time to read a scrape, except its last pieces. A reader that stops delays others for
/// less than their [time limit](super::time_limit::REQUEST_MAX).
const SCRAPE_MAX: Duration = Duration::from_secs(5);

/// The state that all requests for the metrics share.
#[derive(Clone)]
struct ScrapeState {
    tenants: crate::Tenants,
    tenants_max: usize,
    /// Admits one scrape at a time, on all endpoints: clones of the router share the semaphore.
    turn: Arc<Semaphore>,
}

/// Returns the router of the resource. At most `tenants_max` tenants have series of their own.
pub fn scrape_router(tenants: crate::Tenants, tenants_max: usize) -> Router {
    let turn = Arc::new(Semaphore::new(1));
    let scraped = ScrapeState { tenants, tenants_max, turn };
    Router::new().route("/metrics", get(scrape)).with_state(scraped)
}

/// The parameters of a scrape.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScrapeQuery {
    /// Maximum number of tenants with series of their own; only lowers the server's limit.
    tenants: Option<usize>,
}

/// Answers with the metrics: text in the format of OpenMetrics.
async fn scrape(State(scraped): State<ScrapeState>, Query(asked): Query<ScrapeQuery>) -> Response {
    let Ok(permit) = scraped.turn.clone().acquire_owned().await else {
        return unavailable();
    };
    let tenants_max = asked.tenants.unwrap_or(usize::MAX).min(scraped.tenants_max);
    let (sender, receiver) = channel(PIECES_MAX);
    let is_whole = Arc::new(AtomicBool::new(false));
    let body = Body::new(MetricsBody { receiver, is_whole: is_whole.clone() });
    let (runtime, until) = (Handle::current(), Instant::now() + SCRAPE_MAX);
    let writing = move || {
        let _next_may_begin_then = permit;
        let snapshot = Snapshot::take(&scraped.tenants, tenants_max);
        let mut pieces = PieceWriter { text: String::new(), sender, runtime, until };
        // On an error, the reader is gone or too slow.
        if metrics::write(snapshot, &mut pieces).is_ok() && pieces.flush().is_ok() {
            is_whole.store(true, Ordering::Release);
        }
    };
    let started = std::thread::Builder::new().name("scrape".to_owned()).spawn(writing);
    if let Err(error) = started {
        tracing::warn!(%error, "no thread for a scrape");
        return unavailable();
    }
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], body).into_response()
}

fn unavailable() -> Response {
    let problem = Problem::new(Code::Internal, "there is no thread for it; try again");
    (StatusCode::SERVICE_UNAVAILABLE, problem).into_response()
}

/// A writer of the metrics' text, which sends it in pieces to the answer's body.
struct PieceWriter {
    text: String,
    sender: Sender<Bytes>,
    /// The runtime whose clock limits the time to send.
    runtime: Handle,
    until: Instant,
}

impl PieceWriter {
    fn flush(&mut self) -> fmt::Result {
        let piece = std::mem::replace(&mut self.text, String::with_capacity(PIECE_BYTES + 1024));
        let sent =
            async { tokio::time::timeout_at(self.until, self.sender.send(piece.into())).await };
        self.runtime.block_on(sent).map_err(|_| fmt::Error)?.map_err(|_| fmt::Error)
    }
}

impl fmt::Write for PieceWriter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        if self.text.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }
}

/// The body of the answer, which passes on the pieces of the text.
struct MetricsBody {
    receiver: Receiver<Bytes>,
    /// `true` once all of the text was written.
    is_whole: Arc<AtomicBool>,
}

impl hyper::body::Body for MetricsBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.receiver.poll_recv(context).map(|piece| match piece {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.is_whole.load(Ordering::Acquire) => None,
            None => Some(Err(io::ErrorKind::TimedOut.into())),
        })
    }
}
