//! An operation of the API: a row of the table in `operations`. The router, the OpenAPI document
//! and the handler's frame (input, blocking work, audit, answer) come from the row.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Json, RequestPartsExt};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use tokio::sync::Mutex;

use super::audit::AuditNote;
use super::blocking::blocking;
use super::devices::Recalibrator;
use super::input::{Input, InputSchema};
use super::ports::{Inventory, ServerParts};
use super::problem::{Code, Problem};
use super::time_limit::{REQUEST_MAX, TimeLimit};
use super::warning;

/// The state that every operation receives.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) tenants: crate::Tenants,
    pub(super) commands: crate::WorkerCommands,
    pub(super) parts: Arc<dyn ServerParts>,
    /// Admits one trace at a time, on all endpoints: clones of the router share the lock.
    pub(super) tracing: Arc<Mutex<()>>,
}

/// A request for an operation, except its input.
pub(super) struct Call {
    pub(super) api: Api,
    pub(super) note: AuditNote,
    /// The name in the path: the part that varies. In a path without one, its last part.
    pub(super) name: String,
}

impl Call {
    /// Makes a call from the head of a request.
    ///
    /// # Errors
    /// Fails if the path is not UTF-8.
    async fn of(api: Api, parts: &mut Parts) -> Result<Call, Problem> {
        let note = parts.extensions.get::<AuditNote>().cloned().unwrap_or_default();
        let params: RawPathParams = parts.extract().await?;
        // A tenant may be named `check`, whose path has no variable part.
        let last = || parts.uri.path().rsplit('/').next().unwrap_or_default();
        let name = params.iter().next().map_or_else(last, |(_, name)| name).to_owned();
        Ok(Call { api, note, name })
    }

    /// Returns the inventory of the server.
    ///
    /// # Errors
    /// Fails if this server has no inventory that changes.
    pub(super) fn inventory(&self) -> Result<Arc<dyn Inventory>, Problem> {
        let missing = || Problem::new(Code::Unsupported, "this server has nothing of this kind");
        self.api.parts.inventory().ok_or_else(missing)
    }

    /// Returns the recalibrator of the server's devices.
    ///
    /// # Errors
    /// Fails if this server cannot recalibrate devices.
    pub(super) fn recalibrator(&self) -> Result<Arc<dyn Recalibrator>, Problem> {
        let missing = || Problem::new(Code::Unsupported, "this server does not measure devices");
        self.api.parts.recalibrator().ok_or_else(missing)
    }
}

/// The schema of an operation's answer.
#[derive(Clone, Copy)]
pub(super) enum AnswerSchema {
    /// The answer has no body, or one that only its description describes.
    Nothing,
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Text of a media type.
    Text(&'static str),
}

/// The work of an operation, which may block. Returns the call, with the answer or the failure.
type BlockingWork = Box<dyn FnOnce() -> (Call, Result<Response, Problem>) + Send>;

/// Takes an operation's input from its request, and returns the work.
type PrepareFuture = Pin<Box<dyn Future<Output = Result<BlockingWork, Problem>> + Send>>;

/// Prepares the work of an operation. The types of inputs and answers are erased here, so that the
/// code which runs operations is compiled once and not for each operation.
type PrepareFn = Arc<dyn Fn(Call, Request) -> PrepareFuture + Send + Sync>;

/// The part of a handler that all operations have.
#[derive(Clone, Copy)]
struct Frame {
    places_data: bool,
    body_bytes_max: usize,
    time_max: Duration,
}

impl Frame {
    fn handler(self, filter: MethodFilter, prepare: PrepareFn) -> MethodRouter<Api> {
        let handler = async move |State(api): State<Api>, request: Request| {
            let (mut parts, body) = request.into_parts();
            let call = Call::of(api, &mut parts).await?;
            let limit = parts.extensions.get::<TimeLimit>().cloned().unwrap_or_default();
            limit.arrives();
            let work = prepare(call, Request::from_parts(parts, body));
            let work = work.await.map_err(|problem| problem.with_limit(self.body_bytes_max))?;
            limit.runs(self.time_max);
            blocking(move || self.finish(work)).await
        };
        on(filter, handler)
    }

    /// Carries out the work and notes its outcome.
    fn finish(self, work: BlockingWork) -> Result<Response, Problem> {
        let (call, done) = work();
        let code = done.as_ref().err().map(|problem| problem.code);
        // A worker that did not answer in time may still make the change.
        if code != Some(Code::TimeOut) {
            call.note.ended(code);
        }
        let mut answer = done?;
        if self.places_data && call.inventory().is_ok_and(|inventory| !inventory.keeps_changes()) {
            answer.headers_mut().extend(warning::not_kept());
        }
        Ok(answer)
    }
}

/// The HTTP status of an answer, and its meaning in the document. An empty text stands for the
/// general meaning of the status.
pub(super) type StatusMeaning = (u16, &'static str);

/// Maximum size of a request's body in bytes, of an operation that does not set its own.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

/// An operation: a row of the table.
pub(super) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Identifier in the OpenAPI document.
    pub(super) id: String,
    /// Summary in the OpenAPI document: the effect of the operation.
    pub(super) summary: &'static str,
    /// Description in the OpenAPI document, beyond the summary; `None` if there is none.
    pub(super) description: Option<&'static str>,
    pub(super) input: fn(&mut SchemaGenerator) -> InputSchema,
    pub(super) success: StatusMeaning,
    pub(super) answer: AnswerSchema,
    /// Failures of this operation, beside those of its input and of all operations.
    pub(super) failures: Vec<StatusMeaning>,
    /// The handler; `None` if another router has it.
    pub(super) handler: Option<MethodRouter<Api>>,
    /// `true` if the operation places data, which would be lost if the server does not store
    /// changes.
    places_data: bool,
    /// Maximum size of the body in bytes; `None` stands for [`BODY_BYTES_MAX`].
    body_bytes_max: Option<usize>,
    /// Maximum time for the operation to be carried out, once its request has arrived. The answer
    /// is then an error, and the operation goes on.
    pub(super) time_max: Duration,
}

impl Operation {
    /// Returns an operation that answers 200. [`by`](Operation::by) or
    /// [`by_handler`](Operation::by_handler) completes it.
    pub(super) fn new(
        method: Method,
        path: &'static str,
        id: &str,
        summary: &'static str,
    ) -> Operation {
        Operation {
            method,
            path,
            id: id.to_owned(),
            summary,
            description: None,
            input: <()>::schema,
            success: (200, ""),
            answer: AnswerSchema::Nothing,
            failures: Vec::new(),
            handler: None,
            places_data: false,
            body_bytes_max: None,
            time_max: REQUEST_MAX,
        }
    }

    /// Sets the status of success, and its meaning.
    pub(super) fn answers(self, status: u16, meaning: &'static str) -> Operation {
        Operation { success: (status, meaning), ..self }
    }

    /// Adds failures of the operation to those that the OpenAPI document lists.
    pub(super) fn fails(mut self, failures: &[StatusMeaning]) -> Operation {
        self.failures.extend(failures);
        self
    }

    /// Sets the description of the operation in the OpenAPI document.
    pub(super) fn describes(self, description: &'static str) -> Operation {
        Operation { description: Some(description), ..self }
    }

    /// Sets the maximum size of the request's body in bytes.
    pub(super) fn takes_bytes(self, max: usize) -> Operation {
        Operation { body_bytes_max: Some(max), ..self }
    }

    /// Sets the maximum time for the operation to be carried out.
    pub(super) fn takes(self, time_max: Duration) -> Operation {
        Operation { time_max, ..self }
    }

    /// Makes the answer warn if the server does not store changes.
    pub(super) fn places_data(self) -> Operation {
        Operation { places_data: true, ..self }
    }

    /// Sets the function that performs the operation, on a thread where it may block. Nobody can
    /// cancel the function, so that no change stays incomplete. Its outcome is noted, also when
    /// the request no longer waits for it.
    pub(super) fn by<I: Input, T: Serialize + JsonSchema>(
        mut self,
        run: impl Fn(&Call, I) -> Result<T, Problem> + Clone + Send + Sync + 'static,
    ) -> Operation {
        let status = StatusCode::from_u16(self.success.0).expect("it is a status");
        let frame = Frame {
            places_data: self.places_data,
            body_bytes_max: self.body_bytes_max.unwrap_or(BODY_BYTES_MAX),
            time_max: self.time_max,
        };
        let prepare = move |call: Call, request: Request| -> PrepareFuture {
            let run = run.clone();
            Box::pin(async move {
                let input = I::take(request).await?;
                let work = move || {
                    let done = run(&call, input).map(|done| match status {
                        StatusCode::NO_CONTENT => status.into_response(),
                        _ => (status, Json(done)).into_response(),
                    });
                    (call, done)
                };
                Ok(Box::new(work) as BlockingWork)
            })
        };
        self.input = I::schema;
        if status != StatusCode::NO_CONTENT {
            self.answer = AnswerSchema::Json(SchemaGenerator::subschema_for::<T>);
        }
        let filter = MethodFilter::try_from(self.method.clone()).expect("it is a usual method");
        let handler = frame.handler(filter, Arc::new(prepare));
        self.handler = Some(match self.body_bytes_max {
            Some(max) => handler.layer(DefaultBodyLimit::max(max)),
            None => handler,
        });
        self
    }

    /// Sets an asynchronous handler, and describes its input and its answer.
    pub(super) fn by_handler<I: Input>(
        self,
        answer: AnswerSchema,
        handler: Option<MethodRouter<Api>>,
    ) -> Operation {
        Operation { input: I::schema, answer, handler, ..self }
    }
}
