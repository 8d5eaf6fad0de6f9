//! Who may use the API, and for how long.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, HOST, HeaderName, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use contract::{Credential, Failures};
use tokio::time::Instant;

use super::audit::{Caller, Note, is_change};
use super::pages;
use super::problem::{Code, Problem};
use super::tls::Credentials;
use super::tokens::Right;

/// How long a request may take to arrive and be answered.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Wrong tokens of an address that are looked over.
const FAILURES_MAX: u32 = 10;

/// How long it takes until one is forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// How long the answer to a wrong token takes.
const FAILURE_PAUSE: Duration = Duration::from_millis(300);

/// Ends requests that take too long, because their bodies do not come.
pub(super) async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(REQUEST_MAX, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let message = format!("the request took more than {} s", REQUEST_MAX.as_secs());
            Problem::new(Code::TimeOut, message).into_response()
        }
    }
}

/// What browsers say of the page that asks: `same-origin`, `same-site`, `cross-site`, or `none` where
/// a person did (W3C, Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What browsers want the answer for: `navigate` to show it as a page.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Lets in only who calls the server by a name of loopback, and no page of another site: neither one
/// that had its own name lead here, nor one that asks across. A Unix socket is no exception: `ssh -L`
/// makes it a port of somebody's loopback.
pub(super) async fn from_here(request: Request, next: Next) -> Response {
    match trouble(&request) {
        None => next.run(request).await,
        Some(message) => Problem::new(Code::Forbidden, message).into_response(),
    }
}

/// Why a request is not let in.
fn trouble(request: &Request) -> Option<&'static str> {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).unwrap_or_default();
    if !is_loopback(host) {
        return Some("the header `host` must be localhost or an address of loopback");
    }
    from_page(request, host, "http://")
}

/// Why a request is not let in because a page of a browser makes it.
fn from_page(request: &Request, host: &str, scheme: &str) -> Option<&'static str> {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let is_own = |origin: &str| origin.strip_prefix(scheme) == Some(host);
    if text(ORIGIN).is_some_and(|origin| !is_own(origin)) {
        return Some("pages of other origins are not let in");
    }
    // A link to what people look at may be followed; its page does not see what comes. One to the API
    // would cost workers time.
    let is_page = *request.method() == Method::GET && !request.uri().path().starts_with("/v1/");
    let is_link = is_page && text(FETCH_MODE) == Some("navigate");
    match text(FETCH_SITE) {
        None | Some("same-origin" | "none") => None,
        Some(_) if is_link => None,
        Some(_) => Some("pages of other sites are not let in"),
    }
}

/// What a door to elsewhere asks of requests.
#[derive(Clone)]
pub(super) struct Guard {
    credentials: Arc<Credentials>,
    failures: Arc<Mutex<Failures>>,
    opened: Instant,
}

impl Guard {
    pub(super) fn new(credentials: Arc<Credentials>) -> Guard {
        let failures =
            Arc::new(Mutex::new(Failures::new(Credential::AdminToken, FAILURES_MAX, FORGET)));
        Guard { credentials, failures, opened: Instant::now() }
    }

    fn now(&self) -> contract::Instant {
        contract::Instant::ZERO + self.opened.elapsed()
    }

    /// How long an address has to wait.
    fn wait(&self, address: IpAddr) -> Option<Duration> {
        self.failures.lock().expect("no holder panics").wait(address, self.now())
    }

    fn has_failed(&self, address: IpAddr) {
        self.failures.lock().expect("no holder panics").add(address, self.now());
    }

    /// Answers who has no token that is known. The request, and with it its connection's place, is there
    /// until then, though whoever made it does not wait.
    async fn refuse(&self, _request: Request, address: IpAddr, has_guessed: bool) -> Response {
        let wait = self.wait(address).filter(|_| has_guessed);
        if has_guessed {
            if wait.is_none() {
                self.has_failed(address);
            }
            tokio::time::sleep(FAILURE_PAUSE).await;
        }
        if let Some(wait) = wait {
            self.failures.lock().expect("no holder panics").count_delay();
            let message = "too many wrong tokens came from this address; try again later";
            let mut response = Problem::new(Code::TooOften, message).into_response();
            response.headers_mut().insert(RETRY_AFTER, (wait.as_secs() + 1).into());
            return last(response);
        }
        let message = "this needs a token that the server knows: `authorization: Bearer TOKEN`";
        let mut response = Problem::new(Code::Unauthorized, message).into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        last(response)
    }
}

/// Lets in who has a token, for what that is good for. Who fails is answered late, and after some
/// failures only told when to try again; who has a right token never waits for that. The dashboard's own
/// files are for anybody, as they say nothing of this server and ask for the token themselves.
pub(super) async fn by_token(
    State(guard): State<Guard>,
    note: Note,
    request: Request,
    next: Next,
) -> Response {
    let address = match request.extensions().get::<Caller>() {
        Some(Caller::Address { address, .. }) => address.ip(),
        _ => return Problem::new(Code::Internal, "nobody knows who calls").into_response(),
    };
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let elsewhere = from_page(&request, host, "https://");
    let tokens = guard.credentials.tokens();
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = given.and_then(|given| given.strip_prefix(b"Bearer "));
    if token.is_none() && elsewhere.is_none() && pages::is_one(&request) {
        return last(next.run(request).await);
    }
    // Whoever has a right one does not wait for what others at its address guess: they may be many
    // behind one translator of addresses.
    let Some((name, right)) = token.and_then(|token| tokens.find(token)) else {
        let has_guessed = token.is_some();
        return guard.refuse(request, address, has_guessed).await;
    };
    note.token(name);
    if right == Right::Read && is_change(request.method(), request.uri().path()) {
        let message = format!("the token {name:?} is for reading only");
        return Problem::new(Code::Forbidden, message).into_response();
    }
    if let Some(message) = elsewhere {
        return Problem::new(Code::Forbidden, message).into_response();
    }
    next.run(request).await
}

/// The last response of its connection, so that strangers hold none.
pub(super) fn last(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whether `HOST[:PORT]` names this machine to itself.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a user may use the socket of a server that `owner` runs.
pub(super) fn may_use(uid: u32, owner: u32) -> bool {
    uid == owner || uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[test]
    fn only_names_of_loopback_are_let_in() {
        for host in
            ["localhost", "localhost:1", "127.0.0.1:7421", "127.1.2.3", "[::1]:7421", "[::1]"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.org", "localhost.example.org:80", "10.0.0.1:80", "127.0.0.1.nip"]
        {
            assert!(!is_loopback(host), "{host}");
        }
    }

    /// What is said to a request with these headers.
    fn said(method: Method, headers: &[(&'static str, &'static str)]) -> Option<&'static str> {
        let request = Request::builder().method(method).uri("/");
        let request = headers.iter().fold(request, |request, (name, value)| {
            request.header(HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        trouble(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn pages_of_others_are_not_let_in() {
        const HERE: (&str, &str) = ("host", "localhost:7480");
        let link = [HERE, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")];
        for headers in [
            &[HERE][..],
            &[HERE, ("origin", "http://localhost:7480"), ("sec-fetch-site", "same-origin")],
            &[HERE, ("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")],
        ] {
            assert_eq!(said(Method::GET, headers), None, "{headers:?}");
            assert_eq!(said(Method::POST, headers), None, "{headers:?}");
        }
        assert_eq!(said(Method::GET, &link), None);
        assert!(said(Method::POST, &link).unwrap().contains("other sites"));
        for headers in [
            // The port of another program, a name that leads here, and frames without a name.
            &[HERE, ("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")][..],
            &[HERE, ("origin", "http://evil.example")],
            &[HERE, ("origin", "https://localhost:7480")],
            &[HERE, ("origin", "null")],
            &[HERE, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
            &[HERE, ("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")],
            &[("host", "evil.example"), ("origin", "http://evil.example")],
            &[("host", "evil.example"), ("sec-fetch-mode", "navigate")],
            &[],
        ] {
            assert!(said(Method::GET, headers).is_some(), "{headers:?}");
            assert!(said(Method::PUT, headers).is_some(), "{headers:?}");
        }
    }

    #[test]
    fn the_owner_and_root_may_use_the_socket() {
        assert!(may_use(1000, 1000) && may_use(0, 1000) && may_use(0, 0));
        assert!(!may_use(1001, 1000) && !may_use(1000, 0));
    }
}
