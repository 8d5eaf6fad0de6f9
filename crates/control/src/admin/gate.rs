//! Who may use the API, and for how long.

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Code, Problem};

/// How long a request may take to arrive and be answered.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(10);

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

/// Lets in only who calls the server by a name of loopback: a page in a browser that had its own name
/// lead here is not let in.
pub(super) async fn by_its_name(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    match host.is_some_and(is_loopback) {
        true => next.run(request).await,
        false => {
            let message = "the header `host` must be localhost or an address of loopback";
            Problem::new(Code::Forbidden, message).into_response()
        }
    }
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

    #[test]
    fn the_owner_and_root_may_use_the_socket() {
        assert!(may_use(1000, 1000) && may_use(0, 1000) && may_use(0, 0));
        assert!(!may_use(1001, 1000) && !may_use(1000, 0));
    }
}
