//! The input of an operation in addition to the name in its path: nothing, a query, or a body.
//! Errors of inputs are JSON, like all other errors.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{JsonRejection, QueryRejection, RawPathParamsRejection};
use axum::extract::{FromRequest, FromRequestParts, Query as AxumQuery, Request};
use axum::http::request::Parts;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use zeroize::Zeroize;

use super::problem::{Code, Problem};
use super::secrecy::WipedBytes;

/// The input of an operation from the query of the URL: the part after the question mark.
pub(super) struct Query<T>(pub(super) T);

/// The input of an operation from a JSON body, which must be an object.
pub(super) struct Body<T>(pub(super) T);

/// A JSON merge patch (RFC 7386) of a resource whose PUT keeps omitted members. `null` removes a
/// member, as an empty text does in a PUT.
pub(super) struct Patch<T>(pub(super) T);

/// The schema of an operation's input.
pub(super) enum InputSchema {
    Nothing,
    /// The query, whose members are parameters.
    Query(Schema),
    /// The body, and its media types.
    Body(Schema, &'static [&'static str]),
}

/// A type of input that an operation takes from its request: nothing, a query, or a body.
pub(super) trait Input: Sized + Send + 'static {
    /// Returns the schema of the input.
    fn schema(generator: &mut SchemaGenerator) -> InputSchema;

    /// Takes the input from a request.
    fn take(request: Request) -> impl Future<Output = Result<Self, Problem>> + Send;
}

impl Input for () {
    fn schema(_: &mut SchemaGenerator) -> InputSchema {
        InputSchema::Nothing
    }

    async fn take(_: Request) -> Result<Self, Problem> {
        Ok(())
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for Query<T> {
    fn schema(generator: &mut SchemaGenerator) -> InputSchema {
        InputSchema::Query(T::json_schema(generator))
    }

    async fn take(request: Request) -> Result<Self, Problem> {
        Query::from_request(request, &()).await
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for Body<T> {
    fn schema(generator: &mut SchemaGenerator) -> InputSchema {
        InputSchema::Body(generator.subschema_for::<T>(), &["application/json"])
    }

    async fn take(request: Request) -> Result<Self, Problem> {
        let (request, bytes) = with_body(request).await?;
        // serde takes a list for an object, by the order of the members.
        if bytes.0.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(Problem::new(Code::Invalid, "the body: expected an object, not a list"));
        }
        Ok(Body(Json::from_request(request, &()).await?.0))
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for Patch<T> {
    fn schema(generator: &mut SchemaGenerator) -> InputSchema {
        let media = &["application/merge-patch+json", "application/json"];
        InputSchema::Body(generator.subschema_for::<T>(), media)
    }

    async fn take(request: Request) -> Result<Self, Problem> {
        let (request, _bytes) = with_body(request).await?;
        let Json(mut patch): Json<Map<String, Value>> = Json::from_request(request, &()).await?;
        for member in patch.values_mut().filter(|member| member.is_null()) {
            *member = Value::String(String::new());
        }
        let mut patch = Value::Object(patch);
        let read = T::deserialize(&patch);
        for member in patch.as_object_mut().into_iter().flat_map(Map::values_mut) {
            if let Value::String(text) = member {
                text.zeroize();
            }
        }
        read.map(Patch).map_err(|error| Problem::new(Code::Invalid, error.to_string()))
    }
}

/// Receives the body of a request. Returns it in the request, and beside it to be wiped after its
/// use.
async fn with_body(request: Request) -> Result<(Request, WipedBytes), Problem> {
    let (parts, body) = request.into_parts();
    let whole = Request::from_parts(parts.clone(), body);
    let bytes = WipedBytes(Bytes::from_request(whole, &()).await.map_err(JsonRejection::from)?);
    Ok((Request::from_parts(parts, bytes.0.clone().into()), bytes))
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Query(AxumQuery::from_request_parts(parts, state).await?.0))
    }
}

impl From<RawPathParamsRejection> for Problem {
    fn from(rejection: RawPathParamsRejection) -> Problem {
        Problem::new(Code::Invalid, format!("the path: {}", rejection.body_text()))
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Problem {
        Problem::new(Code::Invalid, format!("behind the `?`: {}", rejection.body_text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::inventory::{HostPatch, NamespacePatch};
    use axum::body::Body as HttpBody;
    use axum::http::header::CONTENT_TYPE;

    fn patch<T: DeserializeOwned + JsonSchema + Send + 'static>(body: &str) -> Result<T, Problem> {
        let request = Request::builder().header(CONTENT_TYPE, "application/merge-patch+json");
        let request = request.body(HttpBody::from(body.to_owned())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Patch::take(request)).map(|Patch(to)| to)
    }

    #[test]
    fn a_body_is_an_object_and_no_list_of_its_members() {
        let take = |body: &str| {
            let request = Request::builder().header(CONTENT_TYPE, "application/json");
            let request = request.body(HttpBody::from(body.to_owned())).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(Body::<NamespacePatch>::take(request)).map(|Body(to)| to)
        };
        assert_eq!(take(r#" {"bytes": 1024}"#).unwrap().bytes, Some(1_024));
        for wrong in ["[]", " [null, null]", "", "null", "1"] {
            assert_eq!(take(wrong).unwrap_err().code, Code::Invalid, "{wrong}");
        }
    }

    #[test]
    fn a_patch_removes_what_is_null_and_keeps_what_is_omitted() {
        let HostPatch { tenant, key, controller_key, .. } =
            patch(r#"{"tenant": null, "key": "k"}"#).unwrap();
        assert_eq!(
            (tenant.as_deref(), key.as_deref(), controller_key),
            (Some(""), Some("k"), None)
        );
        let grown: NamespacePatch = patch(r#"{"bytes": 1024}"#).unwrap();
        assert_eq!(grown, NamespacePatch { bytes: Some(1_024), ..NamespacePatch::default() });
        for wrong in [r#"{"bytes": null}"#, r#"{"size": 1}"#, "[]", ""] {
            assert_eq!(patch::<NamespacePatch>(wrong).unwrap_err().code, Code::Invalid, "{wrong}");
        }
    }
}
