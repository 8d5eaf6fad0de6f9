//! A warning in the answer to a change that is lost when the server ends.
//!
//! Without a state file, added namespaces and devices are forgotten at the end of the server, and
//! later ones reuse their blocks. A caller that has just placed data must know that.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;

use super::routes::ServerParts;

/// The header of an answer with the warning.
pub(super) const WARNING: HeaderName = HeaderName::from_static("nearflash-warning");

/// The text of the warning.
const NOT_KEPT: &str = "this server keeps no changes: this one is forgotten when it ends, and what was \
                        stored by it is not found again; start the server with --state FILE";

/// The resources whose changes place data.
const PLACES: [&str; 2] = ["/v1/namespaces", "/v1/devices"];

/// Warns of changes of namespaces and devices that are not stored.
pub(super) async fn warn(
    State(parts): State<Arc<dyn ServerParts>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let places = PLACES.iter().any(|place| path.starts_with(place));
    let changes = places && request.method() != Method::GET && request.method() != Method::HEAD;
    let mut answer = next.run(request).await;
    let is_kept = || parts.inventory().is_none_or(|inventory| inventory.keeps_changes());
    if changes && answer.status().is_success() && !is_kept() {
        answer.headers_mut().insert(WARNING, HeaderValue::from_static(NOT_KEPT));
    }
    answer
}
