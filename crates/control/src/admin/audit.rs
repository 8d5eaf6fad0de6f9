//! The audit log: one record of each request for a change, done or refused, and of each request
//! without valid credentials.
//!
//! A record has the caller, the operation, the values before and after if they are small, and the
//! outcome. Values come from the API's representation, never from a request's body, so that no
//! record contains a key. This module deliberately leaves out the file, its clock and its rotation
//! (see the program's [`Journal`]).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use super::connection_permit::ConnectionPermit;
use super::problem::{Code, Problem};
use super::time_limit::NothingDone;

/// Maximum size in bytes of a record's value before a change, and of its value after; larger
/// values are omitted.
const VALUE_BYTES_MAX: usize = 4096;

/// Maximum length in bytes of the path in a record; the rest of a longer path is cut.
const PATH_BYTES_MAX: usize = 512;

/// Maximum number of records per [`PERIOD`] of requests without valid credentials, so that their
/// senders cannot fill a disk.
const STRANGERS_MAX: u32 = 20;

/// Period in which at most [`STRANGERS_MAX`] requests without valid credentials get a record.
const PERIOD: Duration = Duration::from_secs(10);

/// The storage to which the audit log's records are written, such as a file.
pub trait Journal: Send + Sync {
    /// Prepares the storage for a record; writes overdue records first.
    ///
    /// # Errors
    /// Fails with the reason that no record can be kept. Then nothing may be changed.
    fn ready(&self) -> Result<(), String>;

    /// Stores a record so that a crash does not lose it.
    ///
    /// # Errors
    /// Fails with the reason that the record is not stored yet. The record is overdue: `ready`
    /// fails until it is stored.
    fn keep(&self, record: &Record) -> Result<(), String>;
}

/// The originator of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Caller {
    /// A process of this machine, connected to a Unix socket and identified by the kernel.
    Process {
        /// The user identifier of the process.
        uid: u32,
        /// The process identifier at the time of the connection.
        pid: Option<i32>,
    },
    /// A caller at a network address.
    Address {
        /// The address of the peer.
        address: SocketAddr,
        /// The name of the presented token, if the server knows it.
        #[serde(skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// A sender of a signal.
    Signal {
        /// The name of the signal.
        signal: &'static str,
    },
}

/// The outcome of a request for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The change was made.
    Done,
    /// Nothing was changed: the change is forbidden or invalid.
    Refused,
    /// Nothing was changed: the change was not possible.
    Failed,
    /// The change exceeded the time limit, and may still be made.
    Unknown,
}

/// A record of the audit log: one line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// The originator of the request.
    pub who: Caller,
    /// The HTTP method; `RELOAD` for a signal, `UPGRADE` for another process.
    pub method: String,
    /// The object of the change: the path, without a query.
    pub path: String,
    /// The object's values before the change, as far as they differ from the values after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The object's values after the change, as far as they differ from the values before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The outcome of the request for a change.
    pub outcome: Outcome,
    /// The HTTP status of the answer; `None` for a change by other means than HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The error code of the answer; `None` if the request succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Number of requests without valid credentials that got no record since the last record of
    /// such a request.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Record {
    /// Returns a record of a change that was requested by other means than HTTP.
    pub fn beside_http(who: Caller, method: &str, about: &str, outcome: Outcome) -> Record {
        Record {
            who,
            method: method.to_owned(),
            path: cut(about),
            before: None,
            after: None,
            outcome,
            status: None,
            code: None,
            left_out: 0,
        }
    }

    /// Writes the record to the server's log, and to `journal` if there is one.
    ///
    /// # Errors
    /// Fails with the reason that the record is not stored.
    pub fn keep(&self, journal: Option<&dyn Journal>) -> Result<(), String> {
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        tracing::info!(
            target: "audit",
            who = ?self.who,
            method = self.method,
            path = self.path,
            before = text(&self.before),
            after = text(&self.after),
            outcome = ?self.outcome,
            status = self.status,
            "control change"
        );
        journal.map_or(Ok(()), |journal| journal.keep(self))
    }
}

/// Returns at most the first [`PATH_BYTES_MAX`] bytes of a text, without cutting a character.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(PATH_BYTES_MAX)].to_owned()
}

/// The notes of a request's handler about the change that it made, for the audit record of the
/// request.
#[derive(Clone, Default)]
pub(super) struct AuditNote(Arc<Mutex<ChangeNote>>);

#[derive(Default)]
struct ChangeNote {
    before: Option<Value>,
    after: Option<Value>,
    token: Option<String>,
    /// The outcome of the change, once reported: the error code, or `None` for success.
    ended: Option<Option<Code>>,
    /// The continuation that waits for the outcome, if the request did not wait for it.
    late: Option<NoteContinuation>,
}

/// A continuation that receives the error code, and the values before and after.
type NoteContinuation = Box<dyn FnOnce(Option<Code>, Option<Value>, Option<Value>) + Send>;

impl AuditNote {
    /// Notes the values of the changed object before the change, for the audit record.
    pub(super) fn before(&self, what: &impl Serialize) {
        self.told().before = value_of(what);
    }

    /// Notes the values of the changed object after the change, for the audit record.
    pub(super) fn after(&self, what: &impl Serialize) {
        self.told().after = value_of(what);
    }

    /// Notes the outcome of the change: success, or an error code. Called by the code that makes
    /// the change, which may outlive the request.
    pub(super) fn ended(&self, code: Option<Code>) {
        let late = {
            let mut told = self.told();
            told.ended = Some(code);
            told.late.take().map(|late| (late, told.before.take(), told.after.take()))
        };
        if let Some((late, before, after)) = late {
            late(code, before, after);
        }
    }

    /// Stores a second record once the outcome of the change is known, since the record of the
    /// request lacks it.
    fn keep_later(&self, first: Record, journal: Option<Arc<dyn Journal>>) {
        let late = move |code: Option<Code>, before, after| {
            let outcome = code.map_or(Outcome::Done, |code| outcome_of(code.status()));
            let (before, after) = match outcome {
                Outcome::Done => differing(before, after),
                _ => (None, None),
            };
            let (before, after) = (before.map(bounded), after.map(bounded));
            let record =
                Record { before, after, outcome, status: None, code, left_out: 0, ..first };
            if let Err(why) = record.keep(journal.as_deref()) {
                tracing::error!("how a change ended is not recorded yet: {why}");
            }
        };
        let mut told = self.told();
        let Some(code) = told.ended else {
            told.late = Some(Box::new(late));
            return;
        };
        let (before, after) = (told.before.take(), told.after.take());
        drop(told);
        late(code, before, after);
    }

    /// Notes the name of the token that the request presented, for the audit record.
    pub(super) fn token(&self, name: &str) {
        self.told().token = Some(name.to_owned());
    }

    fn told(&self) -> MutexGuard<'_, ChangeNote> {
        self.0.lock().expect("no holder panics")
    }
}

fn value_of(what: &impl Serialize) -> Option<Value> {
    serde_json::to_value(what).ok().filter(|value| !value.is_null())
}

impl<S: Sync> FromRequestParts<S> for AuditNote {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<AuditNote, Infallible> {
        Ok(parts.extensions.get::<AuditNote>().cloned().unwrap_or_default())
    }
}

/// The shared state of an endpoint's connections: the journal, and the count of requests without
/// valid credentials.
#[derive(Clone, Default)]
pub(super) struct Auditor {
    journal: Option<Arc<dyn Journal>>,
    strangers: Arc<Mutex<UnauthenticatedCounts>>,
}

/// The number of records in the current [`PERIOD`] of requests without valid credentials, and of
/// such requests that got no record.
#[derive(Debug, Default)]
struct UnauthenticatedCounts {
    since: Option<Instant>,
    kept: u32,
    left_out: u64,
}

impl UnauthenticatedCounts {
    /// Counts a request without valid credentials. Returns the number of such requests without a
    /// record since the last record, or `None` if this request gets no record either.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.duration_since(since) >= PERIOD) {
            (self.since, self.kept) = (Some(now), 0);
        }
        if self.kept == STRANGERS_MAX {
            self.left_out += 1;
            return None;
        }
        self.kept += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Auditor {
    pub(super) fn new(journal: Option<Arc<dyn Journal>>) -> Auditor {
        Auditor { journal, strangers: Arc::default() }
    }

    async fn keep(&self, record: Record) -> Result<(), String> {
        let journal = self.journal.clone();
        // A disk may be slow, and other requests must be answered meanwhile.
        let kept = tokio::task::spawn_blocking(move || record.keep(journal.as_deref())).await;
        kept.unwrap_or_else(|_| Err("the server's log says more".to_owned()))
    }
}

/// Returns `true` for a request for a change. A check is a query, though it has a body. A trace
/// counts as a change: it makes workers do additional work, and shows single requests.
pub(super) fn is_change(method: &Method, path: &str) -> bool {
    match *method {
        Method::OPTIONS => false,
        Method::GET | Method::HEAD => path == "/v1/trace",
        Method::POST => path != "/v1/tenants/check",
        _ => true,
    }
}

fn is_stranger(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS
    )
}

/// Refuses changes while the audit log accepts no records. Runs after authentication.
pub(super) async fn ready(
    State(auditor): State<Auditor>,
    request: Request,
    next: Next,
) -> Response {
    let journal = auditor.journal.filter(|_| is_change(request.method(), request.uri().path()));
    if let Some(journal) = journal {
        let ready = tokio::task::spawn_blocking(move || journal.ready()).await;
        if let Ok(Err(why)) = ready {
            let message = format!(
                "the audit log takes no records, so nothing was changed: {why}; make room for it, or \
                 start the server without one"
            );
            return Problem::new(Code::NoAudit, message).into_response();
        }
    }
    next.run(request).await
}

/// Stores a record of a request for a change, or of one without valid credentials.
pub(super) async fn recorded(
    State(auditor): State<Auditor>,
    request: Request,
    next: Next,
) -> Response {
    // Runs to its end also when the peer disconnects: a change must not lack a record.
    let done = tokio::spawn(record(auditor, request, next)).await;
    done.unwrap_or_else(|_| {
        Problem::new(Code::Internal, "the server's log says more").into_response()
    })
}

async fn record(auditor: Auditor, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), cut(request.uri().path()));
    let is_change = is_change(&method, request.uri().path());
    let caller = request.extensions().get::<Caller>().cloned();
    // The work goes on when its peer disconnects, and keeps its seat until then.
    let _seat = request.extensions().get::<ConnectionPermit>().cloned();
    let note = AuditNote::default();
    request.extensions_mut().insert(note.clone());
    let response = next.run(request).await;
    let status = response.status();
    let mut left_out = 0;
    if is_stranger(status) {
        let taken = auditor.strangers.lock().expect("no holder panics").take(Instant::now());
        match taken {
            Some(missing) => left_out = missing,
            None => return response,
        }
    } else if !is_change {
        return response;
    }
    let Some(mut who) = caller else { return response };
    let (before, after, named) = {
        let told = note.told();
        (told.before.clone(), told.after.clone(), told.token.clone())
    };
    if let Caller::Address { token, .. } = &mut who {
        *token = named;
    }
    let outcome = match response.extensions().get::<NothingDone>() {
        Some(NothingDone) => Outcome::Refused,
        None => outcome_of(status),
    };
    let (before, after) = match outcome {
        Outcome::Done | Outcome::Unknown => differing(before, after),
        _ => (None, None),
    };
    let record = Record {
        who,
        method: method.to_string(),
        path,
        before: before.map(bounded),
        after: after.map(bounded),
        outcome,
        status: Some(status.as_u16()),
        code: response.extensions().get::<Code>().copied(),
        left_out,
    };
    let unknown = (outcome == Outcome::Unknown).then(|| record.clone());
    let kept = auditor.keep(record).await;
    if let Some(first) = unknown {
        let journal = auditor.journal.clone();
        // The outcome may be known by now; then this waits for a disk.
        let _ = tokio::task::spawn_blocking(move || note.keep_later(first, journal)).await;
    }
    match kept {
        Err(why) if outcome == Outcome::Done => {
            let message = format!(
                "it was done, but its record in the audit log is not kept yet: {why}; no other change \
                 is made before it is"
            );
            Problem::new(Code::NotAudited, message).into_response()
        }
        _ => response,
    }
}

fn outcome_of(status: StatusCode) -> Outcome {
    match status {
        StatusCode::REQUEST_TIMEOUT => Outcome::Unknown,
        status if status.is_success() => Outcome::Done,
        status if status.is_server_error() => Outcome::Failed,
        _ => Outcome::Refused,
    }
}

/// Returns the members in which the JSON objects `before` and `after` differ. Values that are not
/// two objects are returned unchanged.
fn differing(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    match (before, after) {
        (Some(Value::Object(mut was)), Some(Value::Object(mut is))) => {
            let same = |key: &String, is: &serde_json::Map<_, _>| was.get(key) == is.get(key);
            let shared: Vec<String> = is.keys().filter(|key| same(key, &is)).cloned().collect();
            for key in shared {
                was.remove(&key);
                is.remove(&key);
            }
            (Some(Value::Object(was)), Some(Value::Object(is)))
        }
        other => other,
    }
}

fn bounded(value: Value) -> Value {
    match value.to_string().len() {
        bytes if bytes > VALUE_BYTES_MAX => Value::String(format!("({bytes} bytes)")),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_tells_what_differs_and_nothing_large() {
        let (was, is) = differing(
            Some(json!({ "name": "a", "bytes": 1, "old": true })),
            Some(json!({ "name": "a", "bytes": 2 })),
        );
        assert_eq!(
            (was.unwrap(), is.unwrap()),
            (json!({ "bytes": 1, "old": true }), json!({ "bytes": 2 }))
        );
        assert_eq!(differing(None, Some(json!({ "a": 1 }))), (None, Some(json!({ "a": 1 }))));
        assert_eq!(bounded(json!("x".repeat(5_000))), json!("(5002 bytes)"));
        assert_eq!(cut(&"é".repeat(400)).len(), 512);
    }

    #[derive(Default)]
    struct MemoryJournal(Mutex<Vec<Record>>);

    impl Journal for MemoryJournal {
        fn ready(&self) -> Result<(), String> {
            Ok(())
        }

        fn keep(&self, record: &Record) -> Result<(), String> {
            self.0.lock().unwrap().push(record.clone());
            Ok(())
        }
    }

    #[test]
    fn what_took_too_long_has_a_second_record_when_its_end_is_known() {
        let journal = Arc::new(MemoryJournal::default());
        let first = || {
            let who = Caller::Signal { signal: "SIGHUP" };
            let record = Record::beside_http(who, "PUT", "/v1/x", Outcome::Unknown);
            Record { status: Some(408), code: Some(Code::TimeOut), ..record }
        };
        let later = |note: &AuditNote| note.keep_later(first(), Some(journal.clone()));
        let done = AuditNote::default();
        done.before(&json!({ "a": 1, "b": 1 }));
        later(&done);
        assert!(journal.0.lock().unwrap().is_empty(), "nobody knows");
        done.after(&json!({ "a": 2, "b": 1 }));
        done.ended(None);
        // The outcome came before the request's own record.
        let refused = AuditNote::default();
        refused.before(&json!({ "a": 1 }));
        refused.ended(Some(Code::InUse));
        later(&refused);
        let kept = journal.0.lock().unwrap();
        let said: Vec<_> = kept.iter().map(|one| (one.outcome, one.code, one.status)).collect();
        assert_eq!(
            said,
            [(Outcome::Done, None, None), (Outcome::Refused, Some(Code::InUse), None)]
        );
        assert_eq!(
            (&kept[0].before, &kept[0].after),
            (&Some(json!({"a": 1})), &Some(json!({"a": 2})))
        );
        assert_eq!((&kept[1].before, &kept[1].path), (&None, &"/v1/x".to_owned()));
    }

    #[test]
    fn questions_are_no_changes() {
        for (method, path, changes) in [
            (Method::GET, "/v1/tenants", false),
            (Method::HEAD, "/v1/tenants", false),
            (Method::POST, "/v1/tenants/check", false),
            (Method::PUT, "/v1/tenants/check", true),
            (Method::POST, "/v1/tenants", true),
            (Method::PATCH, "/", true),
            (Method::GET, "/v1/trace", true),
            (Method::HEAD, "/v1/trace", true),
            (Method::OPTIONS, "/v1/trace", false),
        ] {
            assert_eq!(is_change(&method, path), changes, "{method} {path}");
        }
    }

    #[test]
    fn strangers_fill_no_log() {
        let (mut strangers, start) = (UnauthenticatedCounts::default(), Instant::now());
        let kept = (0..1_000).filter(|_| strangers.take(start).is_some()).count();
        assert_eq!(kept, 20);
        assert_eq!(strangers.take(start + PERIOD), Some(980));
        assert_eq!(strangers.take(start + PERIOD), Some(0));
    }
}
