//! The OpenAPI 3.1 document of the API, generated from the code.

use axum::http::Method;
use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, PathItem, Ref, RefOr, Response};

use super::audit::is_change;
use super::drain;
use super::inventory_routes;
use super::routes::documented::Document;
use super::workers;

/// Returns the document, as served at `/openapi.json`.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    document.merge(super::watch::Document::openapi());
    document.merge(super::dashboard::Document::openapi());
    document.merge(super::scrape::Document::openapi());
    document.merge(super::devices::Document::openapi());
    document.merge(super::batch::documented::Document::openapi());
    document.merge(super::listeners::Document::openapi());
    document.merge(super::settings::Document::openapi());
    document.merge(drain::documented::Document::openapi());
    document.merge(workers::documented::Document::openapi());
    document.merge(inventory_routes::documented::Document::openapi());
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            add_gate(operation, is_change(&method, path));
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let all = [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds the responses of the layers that every request passes before its resource (`gate.rs`,
/// `audit.rs`).
fn add_gate(operation: &mut Operation, is_change: bool) {
    let of_all = [
        (401, "From elsewhere: there is no token, or one that the server does not know"),
        (403, "Who asks is not let in, or the token is for reading only"),
        (408, "It took too long; a change may still have been made"),
        (429, "From elsewhere: too many wrong tokens came from this address (`retry-after`)"),
    ];
    let of_changes = [
        (409, "It is in use, or another process is taking over: nothing was changed"),
        (500, "It cannot be kept, so it was not done; or its record in the audit log is owed"),
        (503, "The audit log takes no records: nothing was changed"),
    ];
    let of_changes = of_changes.into_iter().filter(|_| is_change);
    for (status, description) in of_all.into_iter().chain(of_changes) {
        let failure = Content::new(Some(Ref::from_schema_name("Failure")));
        let mut response = Response::new(description);
        response.content.insert("application/json".to_owned(), RefOr::T(failure));
        let all = &mut operation.responses.responses;
        all.entry(status.to_string()).or_insert(RefOr::T(response));
    }
}
