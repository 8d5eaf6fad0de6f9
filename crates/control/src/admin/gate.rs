//! Authentication and authorization of requests.

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
use contract::{AuthFailures, Credential};
use tokio::time::Instant;

use super::audit::{AuditNote, Caller, is_change};
use super::pages;
use super::problem::{Code, Problem};
use super::tls::Credentials;
use super::tokens::Right;

/// Number of wrong tokens of an address that are tolerated.
const FAILURES_MAX: u32 = 10;

/// Time after which one wrong token is forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// Delay of the answer to a wrong token.
const FAILURE_PAUSE: Duration = Duration::from_millis(300);

/// The browser's statement about the requesting page: `same-origin`, `same-site`, `cross-site`, or
/// `none` for a request by the user (W3C, Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The purpose of a browser's request: `navigate` to show the answer as a page.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Admits requests that call the server by a loopback name, unless a page of another site makes
/// them. The page may have pointed its own name here, or may send cross-site requests. A Unix
/// socket is no exception: `ssh -L` makes it a port of somebody's loopback.
pub(super) async fn from_here(request: Request, next: Next) -> Response {
    if let Some(message) = malformed(&request) {
        return last(Problem::new(Code::Invalid, message).into_response());
    }
    match trouble(&request) {
        None => next.run(request).await,
        Some(message) => Problem::new(Code::Forbidden, message).into_response(),
    }
}

/// Returns the reason to refuse a request that names more than one host (RFC 9112, 3.2); `None` to
/// admit it.
fn malformed(request: &Request) -> Option<&'static str> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    if hosts.next().is_some() {
        return Some("the request has more than one header `host`");
    }
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    match (authority, host) {
        (Some(authority), Some(host)) if authority != host => {
            Some("the request's target names another host than its header `host`")
        }
        _ => None,
    }
}

/// Returns the reason to refuse a request that calls the server by another name than a loopback
/// name, or that a page of another site makes; `None` to admit it.
fn trouble(request: &Request) -> Option<&'static str> {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let host = text(HOST).unwrap_or_default();
    if !is_loopback(host) {
        return Some("the header `host` must be localhost or an address of loopback");
    }
    from_page(request, host, "http://")
}

/// Returns the reason to refuse a request that a page of another origin or site makes in a browser;
/// `None` to admit it.
fn from_page(request: &Request, host: &str, scheme: &str) -> Option<&'static str> {
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let is_own = |origin: &str| origin.strip_prefix(scheme) == Some(host);
    if text(ORIGIN).is_some_and(|origin| !is_own(origin)) {
        return Some("pages of other origins are not let in");
    }
    // Links to the dashboard's pages may be followed, since the linking page does not see the
    // answer. A link to the API would cost workers' time.
    let is_page = *request.method() == Method::GET && !request.uri().path().starts_with("/v1/");
    let is_link = is_page && text(FETCH_MODE) == Some("navigate");
    match text(FETCH_SITE) {
        None | Some("same-origin" | "none") => None,
        Some(_) if is_link => None,
        Some(_) => Some("pages of other sites are not let in"),
    }
}

/// The checks of requests at an endpoint that other machines reach: the valid credentials, and the
/// wrong tokens of each address.
#[derive(Clone)]
pub(super) struct Guard {
    credentials: Arc<Credentials>,
    failures: Arc<Mutex<AuthFailures>>,
    opened: Instant,
}

impl Guard {
    pub(super) fn new(credentials: Arc<Credentials>) -> Guard {
        let failures =
            Arc::new(Mutex::new(AuthFailures::new(Credential::AdminToken, FAILURES_MAX, FORGET)));
        Guard { credentials, failures, opened: Instant::now() }
    }

    fn now(&self) -> contract::Instant {
        contract::Instant::ZERO + self.opened.elapsed()
    }

    /// Returns the time that an address must wait after too many wrong tokens; `None` if it need
    /// not wait.
    fn wait(&self, address: IpAddr) -> Option<Duration> {
        self.failures.lock().expect("no holder panics").wait(address, self.now())
    }

    fn has_failed(&self, address: IpAddr) {
        self.failures.lock().expect("no holder panics").add(address, self.now());
    }

    /// Answers a request without a valid token. Until the answer, the request keeps its place among
    /// the connections of its address, even if its peer has gone.
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

/// Admits requests with a token, within the token's rights. A wrong token is answered late, and
/// after some wrong tokens only with the time to try again. A valid token never waits. The
/// dashboard's own files are public: they contain nothing of this server, and ask for the token
/// themselves.
pub(super) async fn by_token(
    State(guard): State<Guard>,
    note: AuditNote,
    request: Request,
    next: Next,
) -> Response {
    let address = match request.extensions().get::<Caller>() {
        Some(Caller::Address { address, .. }) => address.ip(),
        _ => {
            return Problem::new(Code::Internal, "the caller's identity is unknown")
                .into_response();
        }
    };
    if let Some(message) = malformed(&request) {
        return last(Problem::new(Code::Invalid, message).into_response());
    }
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let elsewhere = from_page(&request, host, "https://");
    let tokens = guard.credentials.tokens();
    let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
    let token = given.and_then(|given| given.strip_prefix(b"Bearer "));
    if token.is_none() && elsewhere.is_none() && pages::is_one(&request) {
        return last(next.run(request).await);
    }
    // A valid token does not wait for wrong ones from its address: many peers may share an address
    // behind one address translator.
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

/// Marks a response as the last one of its connection, which the server then closes. So
/// unauthenticated peers hold no connections.
pub(super) fn last(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Returns `true` if `HOST[:PORT]` is a loopback name.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns `true` if a user may use the socket of a server that `owner` runs.
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

    /// Returns the reason why a request with these headers is refused; `None` if it is admitted.
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
            // The port of another program, a name that resolves to this machine, and frames without
            // a name.
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
    fn a_request_names_one_host() {
        let said = |target: &str, hosts: &[&str]| {
            let mut request = Request::builder().uri(target);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            malformed(&request.body(axum::body::Body::empty()).unwrap())
        };
        assert_eq!(said("/v1/tenants", &["localhost"]), None);
        assert_eq!(said("http://localhost/v1/tenants", &["localhost"]), None);
        assert_eq!(said("http://localhost/v1/tenants", &[]), None, "as HTTP/2 has it");
        assert!(said("/v1/tenants", &["localhost", "evil.example"]).is_some());
        assert!(said("/v1/tenants", &["localhost", "localhost"]).is_some());
        assert!(said("http://evil.example/v1/tenants", &["localhost"]).is_some());
    }

    #[test]
    fn the_owner_and_root_may_use_the_socket() {
        assert!(may_use(1000, 1000) && may_use(0, 1000) && may_use(0, 0));
        assert!(!may_use(1001, 1000) && !may_use(1000, 0));
    }
}
