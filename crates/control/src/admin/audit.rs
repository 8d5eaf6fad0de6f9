//! The audit log: one record of each request to change something, done or refused, and of each that
//! was not let in.
//!
//! A record says who asked, what for, what was before and after where that is small, and how it
//! ended. It is made of what the API shows, never of a request's body, so that no key is in one.
//! What is deliberately not here: the file, its clock and its rotation (the program's [`Journal`]).

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

use super::problem::{Code, Problem};
use super::server::Seat;

/// Bytes of what was before, or is after, at most; what is larger is not told.
const VALUE_BYTES_MAX: usize = 4096;

/// Bytes of a path at most; the rest is cut.
const PATH_BYTES_MAX: usize = 512;

/// Records a [`PERIOD`] of requests that were not let in: whoever sends them must not fill a disk.
const STRANGERS_MAX: u32 = 20;

/// How long records of those are counted.
const PERIOD: Duration = Duration::from_secs(10);

/// Where records are kept.
pub trait Journal: Send + Sync {
    /// Whether records can be kept: what could not be before is written first.
    ///
    /// # Errors
    /// Says why not. Then nothing may be changed.
    fn ready(&self) -> Result<(), String>;

    /// Keeps a record, so that a crash does not lose it.
    ///
    /// # Errors
    /// Says why it is not kept yet. It is owed: `ready` fails until it is.
    fn keep(&self, record: &Record) -> Result<(), String>;
}

/// Who asked for a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Caller {
    /// A process of this machine, by a Unix socket: the kernel says which.
    Process {
        /// Its user.
        uid: u32,
        /// Its number when it connected.
        pid: Option<i32>,
    },
    /// Whoever is at an address.
    Address {
        /// The other end of the connection.
        address: SocketAddr,
        /// The name of the token that was presented, if it is one of ours.
        #[serde(skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// Whoever may send signals to the server.
    Signal {
        /// Its name.
        signal: &'static str,
    },
}

/// How a request for a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As was asked.
    Done,
    /// Nothing was changed: it may not be, or makes no sense.
    Refused,
    /// Nothing was changed: it could not be.
    Failed,
    /// It took too long to be waited for, and may still have been done.
    Unknown,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// Who asked.
    pub who: Caller,
    /// The method of HTTP; `RELOAD` for a signal, `UPGRADE` for another process.
    pub method: String,
    /// What it was about: the path, without a query.
    pub path: String,
    /// What was before, as far as it is another now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What is now, as far as it was another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// How it ended.
    pub outcome: Outcome,
    /// The status of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Requests before this one that were not let in and have no record.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Record {
    /// A record of what was asked for by other means than a request.
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

    /// Puts it into the log and into `journal`, if there is one.
    ///
    /// # Errors
    /// Says why it is not kept.
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

/// The beginning of a text, at a character's end.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(PATH_BYTES_MAX)].to_owned()
}

/// What a handler tells of its change, for the record of the request that it is at.
#[derive(Clone, Default)]
pub(super) struct Note(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    before: Option<Value>,
    after: Option<Value>,
    token: Option<String>,
    /// How the change ended, where that is said: why it was not done, if it was not.
    ended: Option<Option<Code>>,
    /// What waits for that, because the request was not waited for.
    late: Option<Late>,
}

/// Told why a change was not done, if it was not, and what was before and is after.
type Late = Box<dyn FnOnce(Option<Code>, Option<Value>, Option<Value>) + Send>;

impl Note {
    /// What was before the change.
    pub(super) fn before(&self, what: &impl Serialize) {
        self.told().before = value_of(what);
    }

    /// What is after it.
    pub(super) fn after(&self, what: &impl Serialize) {
        self.told().after = value_of(what);
    }

    /// The change has ended, well or for this reason. Said by whoever makes it, who may outlive the
    /// request.
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

    /// Has a record kept of how a change ended, once that is known: the one of its request does not
    /// say it.
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

    /// Whose token the request has.
    pub(super) fn token(&self, name: &str) {
        self.told().token = Some(name.to_owned());
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("no holder panics")
    }
}

fn value_of(what: &impl Serialize) -> Option<Value> {
    serde_json::to_value(what).ok().filter(|value| !value.is_null())
}

impl<S: Sync> FromRequestParts<S> for Note {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Note, Infallible> {
        Ok(parts.extensions.get::<Note>().cloned().unwrap_or_default())
    }
}

/// What all connections of a door have: where records go, and how many strangers left.
#[derive(Clone, Default)]
pub(super) struct Auditor {
    journal: Option<Arc<dyn Journal>>,
    strangers: Arc<Mutex<Strangers>>,
}

/// How many records of requests that were not let in there were in this period.
#[derive(Debug, Default)]
struct Strangers {
    since: Option<Instant>,
    kept: u32,
    left_out: u64,
}

impl Strangers {
    /// Whether one more has a record, and how many had none before it.
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
        // A disk may take its time, and others have questions meanwhile.
        let kept = tokio::task::spawn_blocking(move || record.keep(journal.as_deref())).await;
        kept.unwrap_or_else(|_| Err("the server's log says more".to_owned()))
    }
}

/// Whether a request is to change something. A check is a question, though it has a body; a trace has
/// workers do something that they do not do otherwise, and tells of single requests.
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

/// Changes nothing while the log takes no records. Asked of those who are let in.
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

/// Keeps a record of a request for a change, and of one that was not let in.
pub(super) async fn recorded(
    State(auditor): State<Auditor>,
    request: Request,
    next: Next,
) -> Response {
    // To its end also when the peer goes away: a change without a record must not be.
    let done = tokio::spawn(record(auditor, request, next)).await;
    done.unwrap_or_else(|_| {
        Problem::new(Code::Internal, "the server's log says more").into_response()
    })
}

async fn record(auditor: Auditor, mut request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), cut(request.uri().path()));
    let is_change = is_change(&method, request.uri().path());
    let caller = request.extensions().get::<Caller>().cloned();
    // What is done goes on when its peer hangs up, and has its seat until then.
    let _seat = request.extensions().get::<Seat>().cloned();
    let note = Note::default();
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
    let outcome = outcome_of(status);
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
        // It may be known by now, and then a disk is waited for.
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

/// Of two objects what is not the same in both; other values as they are.
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
    struct Kept(Mutex<Vec<Record>>);

    impl Journal for Kept {
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
        let journal = Arc::new(Kept::default());
        let first = || {
            let who = Caller::Signal { signal: "SIGHUP" };
            let record = Record::beside_http(who, "PUT", "/v1/x", Outcome::Unknown);
            Record { status: Some(408), code: Some(Code::TimeOut), ..record }
        };
        let later = |note: &Note| note.keep_later(first(), Some(journal.clone()));
        let done = Note::default();
        done.before(&json!({ "a": 1, "b": 1 }));
        later(&done);
        assert!(journal.0.lock().unwrap().is_empty(), "nobody knows");
        done.after(&json!({ "a": 2, "b": 1 }));
        done.ended(None);
        // Whoever was faster than the request's own record.
        let refused = Note::default();
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
        let (mut strangers, start) = (Strangers::default(), Instant::now());
        let kept = (0..1_000).filter(|_| strangers.take(start).is_some()).count();
        assert_eq!(kept, 20);
        assert_eq!(strangers.take(start + PERIOD), Some(980));
        assert_eq!(strangers.take(start + PERIOD), Some(0));
    }
}
