//! Extractors for a request's path and query, whose errors are JSON, like all other errors.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path as AxumPath, Query as AxumQuery};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use super::problem::{Code, Problem};

/// The variable part of a path.
pub(super) struct Path<T>(pub(super) T);

/// The query: the part after the question mark.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Path(AxumPath::from_request_parts(parts, state).await?.0))
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Query(AxumQuery::from_request_parts(parts, state).await?.0))
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Problem {
        Problem::new(Code::Invalid, format!("the path: {}", rejection.body_text()))
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        Problem::new(Code::Invalid, format!("behind the `?`: {}", rejection.body_text()))
    }
}
