//! The thread that serves the API: connections, their limits, and slow peers.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::response::IntoResponse;
use axum::{Router, middleware};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::answers::{AnswerState, TrackedStream, UnsentAnswers};
use super::audit::{self, Auditor, Caller, Journal};
use super::connection_permit::{AddressSlots, ConnectionPermit};
use super::gate::{self, Guard};
use super::problem::{Code, Problem};
use super::secrecy::ReceivedParts;
use super::time_limit;
use super::tls::Credentials;

/// Maximum number of concurrent connections; more wait to be accepted. The number is small, so that
/// the connections fit into the descriptors that a server reserves for other uses than clients.
const CONNECTIONS_MAX: usize = 16;

/// Maximum time for a peer to send the head of a request, also after an earlier request.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// Maximum lifetime of a connection, which then ends after its current request.
const CONNECTION_MAX: Duration = Duration::from_secs(300);

/// Maximum time for the current request of a connection that exceeds [`CONNECTION_MAX`], including
/// the time to read its answer.
const LAST_MAX: Duration = Duration::from_secs(30);

/// Maximum number of bytes buffered for a connection.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// Pause after a failed accept (for example without a free descriptor).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An endpoint of the API: a socket that listens already.
#[derive(Debug)]
pub enum AdminListener {
    /// A Unix socket. Admits this user, who runs the server, and root.
    Unix(StdUnixListener, u32),
    /// A loopback port. Admits every process of this machine.
    Tcp(std::net::TcpListener),
    /// A port for other machines, with TLS. Admits holders of a token.
    Tls(std::net::TcpListener, Arc<Credentials>),
}

/// A handle on a running endpoint of the API, which goes on when the handle is dropped.
#[derive(Clone, Debug)]
pub struct EndpointHandle {
    is_held: Arc<watch::Sender<bool>>,
    answers: Arc<UnsentAnswers>,
}

impl EndpointHandle {
    /// Stops accepting connections (they wait in the kernel), or resumes. Existing connections go
    /// on.
    pub fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    /// Waits until the answers to all requested changes have been sent, at most for `limit`. For a
    /// process that ends.
    pub fn await_answers(&self, limit: Duration) {
        self.answers.wait(limit);
    }
}

/// Starts a thread that serves `endpoint` until the process ends. If `is_held`, the thread accepts
/// no connections until [`EndpointHandle::hold`] releases it.
///
/// # Errors
/// Fails if the system has no free thread or descriptor.
///
/// # Panics
/// Panics if the endpoint is [`AdminListener::Tcp`] and its socket is not on loopback.
pub fn start(router: Router, endpoint: AdminListener, is_held: bool) -> io::Result<EndpointHandle> {
    start_audited(router, endpoint, is_held, None, || {})
}

/// Starts the API like [`start`], with records of changes in `journal`, if there is one. The thread
/// calls `begin` first. Properties of the thread that `begin` sets are inherited by blocking work
/// and by scrapes.
///
/// # Errors
/// Fails if the system has no free thread or descriptor.
///
/// # Panics
/// Panics if the endpoint is [`AdminListener::Tcp`] and its socket is not on loopback.
pub fn start_audited(
    router: Router,
    endpoint: AdminListener,
    is_held: bool,
    journal: Option<Arc<dyn Journal>>,
    begin: fn(),
) -> io::Result<EndpointHandle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let auditor = Auditor::new(journal);
    let guard = match &endpoint {
        AdminListener::Tls(_, credentials) => Some(Guard::new(credentials.clone())),
        AdminListener::Unix(..) | AdminListener::Tcp(_) => None,
    };
    let guarded = |router: Router| {
        let router = router
            .layer(middleware::from_fn_with_state(auditor.clone(), audit::ready))
            .layer(middleware::from_fn(time_limit::in_time));
        let router = match &guard {
            None => router.layer(middleware::from_fn(gate::from_here)),
            Some(guard) => {
                router.layer(middleware::from_fn_with_state(guard.clone(), gate::by_token))
            }
        };
        router.layer(middleware::from_fn_with_state(auditor.clone(), audit::recorded))
    };
    let forbidden = Router::new().fallback(async || {
        let message = "this socket is for the user who runs the server, and for root";
        gate::last(Problem::new(Code::Forbidden, message).into_response())
    });
    let routers = Routers { open: guarded(router), forbidden: guarded(forbidden) };
    let entry = {
        let _context = runtime.enter();
        match endpoint {
            AdminListener::Unix(listener, owner) => {
                listener.set_nonblocking(true)?;
                Entry::Unix(UnixListener::from_std(listener)?, owner)
            }
            AdminListener::Tcp(listener) => {
                let address: SocketAddr = listener.local_addr()?;
                assert!(address.ip().is_loopback(), "the admin API is for this machine");
                listener.set_nonblocking(true)?;
                Entry::Tcp(TcpListener::from_std(listener)?)
            }
            AdminListener::Tls(listener, credentials) => {
                listener.set_nonblocking(true)?;
                Entry::Tls(TcpListener::from_std(listener)?, credentials)
            }
        }
    };
    let (sender, receiver) = watch::channel(is_held);
    let answers = Arc::new(UnsentAnswers::default());
    let own = answers.clone();
    let answering = move || {
        begin();
        runtime.block_on(accept_all(&entry, &routers, receiver, &own));
    };
    std::thread::Builder::new().name("admin".to_owned()).spawn(answering)?;
    Ok(EndpointHandle { is_held: Arc::new(sender), answers })
}

/// The listener of an endpoint, registered with the asynchronous runtime.
enum Entry {
    Unix(UnixListener, u32),
    Tcp(TcpListener),
    Tls(TcpListener, Arc<Credentials>),
}

/// The routers for admitted callers and for all others.
struct Routers {
    open: Router,
    forbidden: Router,
}

async fn accept_all(
    entry: &Entry,
    routers: &Routers,
    mut is_held: watch::Receiver<bool>,
    answers: &Arc<UnsentAnswers>,
) {
    let slots = Arc::new(AddressSlots::default());
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = permits.clone().acquire_owned().await.expect("it is never closed");
        // A dropped sender means that the API is never held again.
        while *is_held.borrow_and_update() && is_held.changed().await.is_ok() {}
        let answer = AnswerState::new(answers.clone());
        let accepting = async {
            match entry {
                Entry::Unix(listener, owner) => listener.accept().await.and_then(|(stream, _)| {
                    let peer = stream.peer_cred()?;
                    let is_let_in = gate::may_use(peer.uid(), *owner);
                    let router = if is_let_in { &routers.open } else { &routers.forbidden };
                    let caller = Caller::Process { uid: peer.uid(), pid: peer.pid() };
                    let (stream, seat) =
                        (TrackedStream::new(stream, answer), ConnectionPermit::of(permit, None));
                    tokio::spawn(serve(stream, router.clone(), caller, seat));
                    Ok(())
                }),
                Entry::Tcp(listener) => listener.accept().await.map(|(stream, address)| {
                    let caller = Caller::Address { address, token: None };
                    let (stream, seat) =
                        (TrackedStream::new(stream, answer), ConnectionPermit::of(permit, None));
                    tokio::spawn(serve(stream, routers.open.clone(), caller, seat));
                }),
                Entry::Tls(listener, credentials) => {
                    listener.accept().await.map(|(stream, address)| {
                        // Without a free place, the connection ends here.
                        if let Some(slot) = AddressSlots::take(&slots, address.ip()) {
                            let (acceptor, router) = (credentials.acceptor(), routers.open.clone());
                            let seat = ConnectionPermit::of(permit, Some(slot));
                            let stream = TrackedStream::new(stream, answer);
                            tokio::spawn(shake_hands(stream, address, acceptor, router, seat));
                        }
                    })
                }
            }
        };
        let held = async {
            if is_held.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let Some(accepted) = first(accepting, held).await else { continue };
        if let Err(error) = accepted {
            tracing::warn!(%error, "the admin API cannot accept");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Returns the output of `one`, or `None` if `other` ends first.
async fn first<T>(one: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut one, mut other) = (std::pin::pin!(one), std::pin::pin!(other));
    std::future::poll_fn(|context| match other.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => one.as_mut().poll(context).map(Some),
    })
    .await
}

/// Serves one connection from another machine.
async fn shake_hands(
    stream: TrackedStream<TcpStream>,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    seat: ConnectionPermit,
) {
    let answer = stream.answer();
    let shaken = tokio::time::timeout(HEAD_MAX, acceptor.accept(stream)).await;
    if let Ok(Ok(stream)) = shaken {
        let caller = Caller::Address { address, token: None };
        serve_noted(stream, answer, router, caller, seat).await;
    }
}

/// Serves one connection of this machine.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: TrackedStream<S>,
    router: Router,
    caller: Caller,
    seat: ConnectionPermit,
) {
    let answer = stream.answer();
    serve_noted(stream, answer, router, caller, seat).await;
}

/// Serves one connection. Its end, or the stream that carries it, notes when `answer` was sent.
async fn serve_noted(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: Arc<AnswerState>,
    router: Router,
    caller: Caller,
    seat: ConnectionPermit,
) {
    let router = TowerToHyperService::new(router);
    // It is dropped after the connection, which shares its memory.
    let received = ReceivedParts::default();
    let bodies = received.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller.clone());
        request.extensions_mut().insert(seat.clone());
        answer.open(request.method());
        let (answer, answered) =
            (answer.clone(), router.call(request.map(|body| bodies.follow(body))));
        async move {
            let answered = answered.await;
            answer.know();
            answered
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // The manner of its end does not matter: every request was processed or answered.
    if within(CONNECTION_MAX, connection.as_mut()).await {
        return;
    }
    connection.as_mut().graceful_shutdown();
    within(LAST_MAX, connection).await;
}

/// Awaits the future for at most `limit`. Returns `true` if it ended by then.
async fn within(limit: Duration, future: impl Future) -> bool {
    tokio::time::timeout(limit, future).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a peer that guesses tokens and does not wait for the answer gets no further
    /// tries.
    #[test]
    fn a_request_holds_its_seat_though_its_peer_has_gone() {
        use std::io::Write;

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let permits = Arc::new(Semaphore::new(1));
        let (asked, answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (has_asked, may_answer) = (asked.clone(), answer.clone());
        let router = Router::new().fallback(async move |request: axum::extract::Request| {
            has_asked.add_permits(1);
            let _ = may_answer.acquire().await;
            drop(request);
        });
        let recorded = middleware::from_fn_with_state(Auditor::default(), audit::recorded);
        let router = router.layer(recorded);
        runtime.block_on(async {
            let (mut peer, stream) = std::os::unix::net::UnixStream::pair().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::UnixStream::from_std(stream).unwrap();
            let seat = ConnectionPermit::of(permits.clone().try_acquire_owned().unwrap(), None);
            let caller = Caller::Process { uid: 0, pid: None };
            let stream = TrackedStream::new(stream, AnswerState::new(Arc::default()));
            let served = tokio::spawn(serve(stream, router, caller, seat));
            peer.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            asked.acquire().await.unwrap().forget();
            drop(peer);
            served.await.unwrap();
            assert_eq!(permits.available_permits(), 0, "its request has not ended");
            answer.add_permits(1);
            let freed = tokio::time::timeout(LAST_MAX, permits.acquire()).await;
            assert!(freed.is_ok());
        });
    }

    /// Tests that the wait for answers to changes lasts until such an answer was sent, and does not
    /// wait for a followed document.
    #[test]
    fn an_answer_to_a_change_is_open_until_it_has_left() {
        use std::io::{Read, Write};

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answers = Arc::new(UnsentAnswers::default());
        let permits = Arc::new(Semaphore::new(1));
        let has_asked = Arc::new(Semaphore::new(0));
        let (may_answer, asked) = (Arc::new(Semaphore::new(0)), has_asked.clone());
        let answer = may_answer.clone();
        let router = Router::new().fallback(async move || {
            asked.add_permits(1);
            answer.acquire().await.unwrap().forget();
        });
        runtime.block_on(async {
            let (mut peer, stream) = std::os::unix::net::UnixStream::pair().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::UnixStream::from_std(stream).unwrap();
            let stream = TrackedStream::new(stream, AnswerState::new(answers.clone()));
            let seat = ConnectionPermit::of(permits.clone().try_acquire_owned().unwrap(), None);
            let caller = Caller::Process { uid: 0, pid: None };
            let served = tokio::spawn(serve(stream, router, caller, seat));
            for (method, is_open) in [("GET", false), ("POST", true)] {
                write!(peer, "{method} / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
                has_asked.acquire().await.unwrap().forget();
                assert_eq!(answers.are_open(), is_open);
                may_answer.add_permits(1);
                // The peer has no answer before, and waits for one with this thread.
                while answers.are_open() {
                    tokio::task::yield_now().await;
                }
            }
            let mut answered = [0; 12];
            peer.read_exact(&mut answered).unwrap();
            assert_eq!(&answered, b"HTTP/1.1 200");
            drop(peer);
            served.await.unwrap();
            answers.wait(LAST_MAX);
        });
    }
}
