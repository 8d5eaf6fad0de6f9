//! The resource `/metrics`: a text that is written while it is sent, so that it is never whole in
//! memory, however many tenants there are.

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
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;
use utoipa::OpenApi;

use super::asked::Query;
use super::problem::Failure;
use crate::metrics::{self, Snapshot};

/// Bytes of a piece of the text.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait to be sent.
const PIECES_MAX: usize = 4;

/// How long a scrape may take to be read, but for the last pieces: a reader that stops holds up others
/// for less than they may [wait](super::gate::REQUEST_MAX).
const SCRAPE_MAX: Duration = Duration::from_secs(5);

/// What the handler has.
#[derive(Clone)]
struct Scraped {
    tenants: crate::Tenants,
    tenants_max: usize,
    /// One scrape at a time, by whatever door: a router that is cloned has the same.
    turn: Arc<Semaphore>,
}

/// The resource as a service. So many tenants at most have series of their own.
pub fn scrape_router(tenants: crate::Tenants, tenants_max: usize) -> Router {
    let turn = Arc::new(Semaphore::new(1));
    let scraped = Scraped { tenants, tenants_max, turn };
    Router::new().route("/metrics", get(scrape)).with_state(scraped)
}

/// What may be asked.
#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct Asked {
    /// Fewer tenants with series of their own.
    tenants: Option<usize>,
}

/// What is counted, for Prometheus: text in the format of OpenMetrics (docs/metrics.md).
#[utoipa::path(
    get,
    path = "/metrics",
    params(Asked),
    responses(
        (status = 200, description = "The metrics", body = String, content_type = metrics::CONTENT_TYPE),
        (status = 400, description = "What stands behind the question mark makes no sense", body = Failure),
        (status = 503, description = "There is no thread for it"),
    )
)]
async fn scrape(State(scraped): State<Scraped>, Query(asked): Query<Asked>) -> Response {
    let Ok(permit) = scraped.turn.clone().acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let tenants_max = asked.tenants.unwrap_or(usize::MAX).min(scraped.tenants_max);
    let (sender, receiver) = channel(PIECES_MAX);
    let is_whole = Arc::new(AtomicBool::new(false));
    let body = Body::new(Text { receiver, is_whole: is_whole.clone() });
    let (runtime, until) = (Handle::current(), Instant::now() + SCRAPE_MAX);
    let writing = move || {
        let _next_may_begin_then = permit;
        let snapshot = Snapshot::take(&scraped.tenants, tenants_max);
        let mut pieces = Pieces { text: String::new(), sender, runtime, until };
        // An error: whoever asked is gone, or reads too slowly.
        if metrics::write(snapshot, &mut pieces).is_ok() && pieces.flush().is_ok() {
            is_whole.store(true, Ordering::Release);
        }
    };
    let started = std::thread::Builder::new().name("scrape".to_owned()).spawn(writing);
    if let Err(error) = started {
        tracing::warn!(%error, "no thread for a scrape");
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], body).into_response()
}

/// The part of the document.
#[derive(OpenApi)]
#[openapi(paths(scrape))]
pub(super) struct Document;

/// Where the text is written to.
struct Pieces {
    text: String,
    sender: Sender<Bytes>,
    /// It knows the time.
    runtime: Handle,
    until: Instant,
}

impl Pieces {
    fn flush(&mut self) -> fmt::Result {
        let piece = std::mem::replace(&mut self.text, String::with_capacity(PIECE_BYTES + 1024));
        let sent =
            async { tokio::time::timeout_at(self.until, self.sender.send(piece.into())).await };
        self.runtime.block_on(sent).map_err(|_| fmt::Error)?.map_err(|_| fmt::Error)
    }
}

impl fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        if self.text.len() < PIECE_BYTES { Ok(()) } else { self.flush() }
    }
}

/// The text as a body.
struct Text {
    receiver: Receiver<Bytes>,
    /// All of it was written.
    is_whole: Arc<AtomicBool>,
}

impl hyper::body::Body for Text {
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
