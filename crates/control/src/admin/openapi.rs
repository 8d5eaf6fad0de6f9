//! The document that describes the API to programs (OpenAPI 3.1), made from the code.

use utoipa::OpenApi;

use super::crew;
use super::estate_routes;
use super::routes::documented::Document;

/// The document, as `/openapi.json` serves it.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    document.merge(super::watch::Document::openapi());
    document.merge(super::dashboard::Document::openapi());
    document.merge(crew::documented::Document::openapi());
    document.merge(estate_routes::documented::Document::openapi());
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    document
}
