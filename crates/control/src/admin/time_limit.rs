//! The time limit of a request: for its body to arrive, then for its operation.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::{Instant, timeout_at};

use super::problem::{Code, Problem};

/// Maximum time for the body of a request to arrive and, of an operation that does not set its own
/// limit, to be carried out.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(10);

/// The part of its way on which a request is.
#[derive(Clone, Copy, Debug)]
enum RequestPhase {
    /// The request is let in, or has a handler that does not tell the parts of its way.
    Whole,
    /// The body arrives.
    Arriving,
    /// The operation is carried out.
    Running,
}

/// The time limit of one request, shared by the outermost layer, which enforces it, and the
/// operation, which tells on which part of its way the request is.
#[derive(Clone, Debug)]
pub(super) struct TimeLimit {
    arrival_max: Duration,
    now: Arc<Mutex<PhaseDeadline>>,
}

/// A part of a request's way, and the time by which it must end.
#[derive(Clone, Copy, Debug)]
struct PhaseDeadline {
    part: RequestPhase,
    most: Duration,
    until: Instant,
}

/// A mark of a response: the request was given up before its operation began.
#[derive(Clone, Copy, Debug)]
pub(super) struct NothingDone;

impl Default for TimeLimit {
    fn default() -> Self {
        TimeLimit::new(REQUEST_MAX)
    }
}

impl TimeLimit {
    fn new(arrival_max: Duration) -> TimeLimit {
        let most = arrival_max;
        let begun = PhaseDeadline { part: RequestPhase::Whole, most, until: Instant::now() + most };
        TimeLimit { arrival_max, now: Arc::new(Mutex::new(begun)) }
    }

    /// Notes that the body of the request is awaited from now on.
    pub(super) fn arrives(&self) {
        self.enter(RequestPhase::Arriving, self.arrival_max);
    }

    /// Notes that the operation begins, which may take as long as `most`.
    pub(super) fn runs(&self, most: Duration) {
        self.enter(RequestPhase::Running, most);
    }

    fn enter(&self, part: RequestPhase, most: Duration) {
        let until = Instant::now() + most;
        *self.now.lock().expect("no holder panics") = PhaseDeadline { part, most, until };
    }

    fn now(&self) -> PhaseDeadline {
        *self.now.lock().expect("no holder panics")
    }
}

impl PhaseDeadline {
    /// Returns the answer to a request that exceeds the limit.
    fn exceeded(self) -> Response {
        let seconds = self.most.as_secs();
        let message = match self.part {
            RequestPhase::Whole => format!("the request took more than {seconds} s"),
            RequestPhase::Arriving => format!(
                "the body of the request did not arrive within {seconds} s, so nothing was done"
            ),
            RequestPhase::Running => format!(
                "the operation takes more than {seconds} s: the server goes on with it, and the \
                 request does not wait any longer"
            ),
        };
        let mut response = Problem::new(Code::TimeOut, message).into_response();
        if matches!(self.part, RequestPhase::Arriving) {
            response.extensions_mut().insert(NothingDone);
        }
        response
    }
}

/// Ends a request whose body does not arrive, or whose operation takes longer than its row of the
/// table says. A change that has begun goes on.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    within(TimeLimit::default(), request, next).await
}

async fn within(limit: TimeLimit, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(limit.clone());
    let mut answer = pin!(next.run(request));
    loop {
        let until = limit.now().until;
        if let Ok(response) = timeout_at(until, answer.as_mut()).await {
            return response;
        }
        let now = limit.now();
        if now.until <= Instant::now() {
            return now.exceeded();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::Body;
    use super::super::operation::{Api, Operation};
    use super::*;
    use axum::body::Body as HttpBody;
    use axum::http::Method;
    use axum::{Router, middleware};
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use std::sync::mpsc::{Sender, channel};

    /// A limit that each of these tests exceeds on purpose, whatever it is.
    const SHORT: Duration = Duration::from_millis(30);

    struct NoParts;

    impl super::super::ports::ServerParts for NoParts {
        fn cpu(&self, _: usize) -> Option<usize> {
            None
        }
    }

    /// Returns the answer to a POST with this body, of an operation that ends when the returned
    /// sender is dropped.
    fn ask(body: HttpBody) -> (Response, Sender<()>) {
        let clock = Arc::new(|| contract::Instant::ZERO);
        let switches = crate::Switches::default();
        let device = crate::DeviceSetup { name: "disk".to_owned(), model: None, switches };
        let tenants = crate::Tenants::new(vec![device], 1, 1, clock);
        let (controller, _) = crate::WorkerController::new(tenants.clone(), 1);
        let (end, ended) = channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let row = Operation::new(Method::POST, "/v1/slow", "slow", "Waits.").takes(SHORT).by(
            move |_, Body(_): Body<crate::admin::DrainServer>| {
                let _ = ended.lock().unwrap().recv();
                Ok(())
            },
        );
        let (commands, parts) = (controller.commands(), Arc::new(NoParts));
        let api = Api { tenants, commands, parts, tracing: Arc::default() };
        let short = async |request, next| within(TimeLimit::new(SHORT), request, next).await;
        let router = Router::new().route(row.path, row.handler.unwrap()).with_state(api);
        let service = TowerToHyperService::new(router.layer(middleware::from_fn(short)));
        let request = axum::http::Request::post("/v1/slow")
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answered = runtime.block_on(service.call(request)).unwrap();
        runtime.shutdown_background();
        (answered, end)
    }

    fn said(answer: Response) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(axum::body::to_bytes(answer.into_body(), 1 << 16)).unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// A body of which nothing comes.
    struct Silent;

    impl hyper::body::Body for Silent {
        type Data = axum::body::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Self::Data>, Self::Error>>> {
            std::task::Poll::Pending
        }
    }

    #[test]
    fn a_body_that_does_not_arrive_is_told_from_an_operation_that_takes_long() {
        let (silent, _end) = ask(HttpBody::new(Silent));
        assert_eq!(silent.status().as_u16(), 408);
        assert!(silent.extensions().get::<NothingDone>().is_some());
        let text = said(silent);
        assert!(text.contains("the body of the request did not arrive"), "{text}");
        let (slow, _end) = ask(HttpBody::from("{}"));
        assert_eq!(slow.status().as_u16(), 408);
        assert!(slow.extensions().get::<NothingDone>().is_none(), "it goes on");
        let text = said(slow);
        assert!(text.contains("the server goes on with it"), "{text}");
    }

    #[test]
    fn each_part_of_the_way_has_its_own_time() {
        let limit = TimeLimit::new(Duration::from_secs(100));
        let whole = limit.now().until;
        limit.arrives();
        let arriving = limit.now().until;
        assert!(arriving >= whole);
        limit.runs(Duration::from_secs(400));
        assert!(limit.now().until >= arriving + Duration::from_secs(300));
    }
}
