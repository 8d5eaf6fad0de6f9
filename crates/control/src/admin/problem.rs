//! What the API says when it cannot do what was asked: a code for programs, and a message that says
//! what to do.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Ways;
use crate::words::{self, Refusal};

/// Names that a message lists at most.
const NAMES_MAX: usize = 8;

/// What kind of problem it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request, or a field of it, makes no sense.
    Invalid,
    /// There is a tenant of this name.
    Taken,
    /// There is no tenant of this name.
    NoTenant,
    /// There is no such device.
    NoDevice,
    /// The configuration names the tenant, so it cannot go.
    InUse,
    /// The table of tenants is full, or clients of one tenant fill as much of it as they may.
    TableFull,
    /// The device has no model.
    NoModel,
    /// The device's model has no rates for the percentile.
    NotMeasured,
    /// The device is not known to serve anything at this latency.
    TooTight,
    /// The device does not make as many tokens.
    TooMuch,
    /// There is no namespace of this name or number.
    NoNamespace,
    /// There is no subsystem of this name.
    NoSubsystem,
    /// Nothing is known of a host of this name.
    NoHost,
    /// There is no listener of this number or address.
    NoListener,
    /// The system does not open what was asked for: an address, a device.
    NotOpened,
    /// The state file cannot be written, so nothing was changed.
    NotKept,
    /// What is asked for loses data, and that it may was not said.
    Shrinks,
    /// The device has no room for it.
    NoRoom,
    /// It cannot change while the server runs; the message says what can be done instead.
    Fixed,
    /// Something else must end first; try again.
    Busy,
    /// This server has nothing of this kind.
    Unsupported,
    /// A token is needed that the server knows.
    Unauthorized,
    /// Too many wrong tokens came from this address.
    TooOften,
    /// This user, this token or this name of the server is not let in.
    Forbidden,
    /// There is no worker of this number.
    NoWorker,
    /// There is no connection of this name, or not any more.
    NoConnection,
    /// There is no such resource.
    NotFound,
    /// The resource has no such method.
    NoMethod,
    /// The body is too large.
    TooLarge,
    /// The request did not arrive in time.
    TimeOut,
    /// The audit log takes no records, so nothing was changed.
    NoAudit,
    /// It was done, but its record in the audit log is not kept yet.
    NotAudited,
    /// The server did something wrong; its log says what.
    Internal,
}

impl Code {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Code::Invalid => StatusCode::BAD_REQUEST,
            Code::NoTenant | Code::NoNamespace | Code::NotFound => StatusCode::NOT_FOUND,
            Code::NoWorker | Code::NoConnection => StatusCode::NOT_FOUND,
            Code::NoSubsystem | Code::NoHost | Code::NoListener => StatusCode::NOT_FOUND,
            Code::Taken | Code::InUse => StatusCode::CONFLICT,
            Code::NoDevice | Code::NoModel | Code::NotMeasured => StatusCode::UNPROCESSABLE_ENTITY,
            Code::NotOpened => StatusCode::UNPROCESSABLE_ENTITY,
            Code::TooTight | Code::TooMuch | Code::TableFull => StatusCode::CONFLICT,
            Code::Shrinks | Code::NoRoom | Code::Fixed | Code::Busy => StatusCode::CONFLICT,
            Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Code::Unauthorized => StatusCode::UNAUTHORIZED,
            Code::TooOften => StatusCode::TOO_MANY_REQUESTS,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::TimeOut => StatusCode::REQUEST_TIMEOUT,
            Code::NoAudit => StatusCode::SERVICE_UNAVAILABLE,
            Code::NotKept | Code::NotAudited | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// By how much an SLO does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortage {
    /// Tokens a second that the SLO needs.
    pub tokens_needed: u64,
    /// Tokens a second that the others leave.
    pub tokens_available: u64,
    /// Tokens a second that the device makes at the strictest latency.
    pub tokens_device: u64,
    /// The strictest latency, in microseconds.
    pub latency_us: u32,
    /// The tenant whose latency that is; `null`: that of the SLO that is asked for.
    pub limited_by: Option<String>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// For programs.
    pub code: Code,
    /// For people: what is wrong, and what to do.
    pub message: String,
    /// By how much an SLO does not fit, where that is the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Box<Shortage>>,
    /// What would have to give, where an SLO was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<Box<Ways>>,
}

/// A problem as the body of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(super) struct Failure {
    pub(super) error: Problem,
}

impl Problem {
    /// There is nothing of this kind and name; those that there are.
    pub fn unknown(code: Code, kind: &str, name: &str, known: Vec<String>) -> Problem {
        Problem::unknown_among(code, kind, name, &known, 0)
    }

    /// The same where there are so many `others` beside the `known` ones.
    fn unknown_among(
        code: Code,
        kind: &str,
        name: &str,
        known: &[String],
        others: usize,
    ) -> Problem {
        let there_are = match known.is_empty() {
            true => "there is none yet".to_owned(),
            false => format!("there are: {}", some_of(known, others)),
        };
        Problem::new(code, format!("there is no {kind} {name:?}; {there_are}"))
    }

    /// A problem that is no refusal of an SLO.
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), shortage: None, ways: None }
    }

    /// A refusal, with what would have to give.
    pub(super) fn refused(refusal: Refusal, ways: words::Ways) -> Problem {
        let mut problem = Problem::from(refusal);
        let ways = Ways::from(ways);
        if let Some(text) = ways_text(&ways) {
            problem.message = format!("{}; {text}", problem.message);
            problem.ways = Some(Box::new(ways));
        }
        problem
    }
}

/// What would have to give, in words; `None` when nothing is known that would help.
fn ways_text(ways: &Ways) -> Option<String> {
    let mut each = Vec::new();
    if let Some(iops) = ways.iops {
        each.push(format!("at most {iops} requests/s"));
    }
    if let Some(latency_us) = ways.latency_us {
        each.push(format!("a latency of {latency_us} µs or more"));
    }
    if !ways.leave.is_empty() {
        each.push(format!("the end of {}", some_of(&ways.leave, 0)));
    }
    let (last, first) = each.split_last()?;
    Some(match first.is_empty() {
        true => format!("it would fit with {last}"),
        false => format!("it would fit with {}, or {last}", first.join(", ")),
    })
}

/// The first few of these names, and how many they and the others are beside those.
fn some_of(names: &[String], others: usize) -> String {
    let shown = names.iter().take(NAMES_MAX).map(|name| format!("{name:?}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_MAX) + others {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let code = match &refusal {
            Refusal::Invalid(_) => Code::Invalid,
            Refusal::Taken(name) => {
                let message = format!("there is a tenant {name:?} already; change it instead");
                return Problem::new(Code::Taken, message);
            }
            Refusal::NoTenant { name, known, others } => {
                return Problem::unknown_among(Code::NoTenant, "tenant", name, known, *others);
            }
            Refusal::NoDevice { .. } => Code::NoDevice,
            Refusal::InUse { .. } | Refusal::DeviceInUse { .. } => Code::InUse,
            Refusal::TableFull { .. } | Refusal::TooMany { .. } => Code::TableFull,
            Refusal::Upgrading => Code::Busy,
            Refusal::NoModel { .. } => Code::NoModel,
            Refusal::NotMeasured { .. } => Code::NotMeasured,
            Refusal::TooTight { .. } => Code::TooTight,
            Refusal::TooMuch { .. } => Code::TooMuch,
        };
        let mut problem = Problem::new(code, refusal.to_string());
        if let Refusal::TooMuch {
            tokens_needed,
            tokens_available,
            tokens_device,
            latency_us,
            limited_by,
            ..
        } = refusal
        {
            problem.shortage = Some(Box::new(Shortage {
                tokens_needed,
                tokens_available,
                tokens_device,
                latency_us,
                limited_by,
            }));
        }
        problem
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            return Problem::new(Code::TooLarge, "the body is larger than 64 KiB");
        }
        let message = match &rejection {
            JsonRejection::MissingJsonContentType(_) => {
                "expected a body in JSON, with the header `content-type: application/json`"
                    .to_owned()
            }
            // The message of the cause says where, and what was expected.
            other => std::error::Error::source(other).map_or(other.to_string(), |e| e.to_string()),
        };
        Problem::new(Code::Invalid, message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let code = self.code;
        let mut response = (code.status(), Json(Failure { error: self })).into_response();
        response.extensions_mut().insert(code);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_would_have_to_give() {
        let refusal = Refusal::TooMuch {
            tokens_needed: 400,
            tokens_available: 300,
            tokens_device: 420,
            latency_us: 500,
            percentile: qos::Percentile::P95,
            limited_by: Some("gold".to_owned()),
        };
        let leave = (0..10).map(|n| format!("t{n}")).collect();
        let ways = words::Ways { iops: Some(300), latency_us: Some(2_000), leave };
        let problem = Problem::refused(refusal, ways);
        assert_eq!(problem.code, Code::TooMuch);
        assert!(
            problem.message.ends_with(
                "the bound of tenant \"gold\"; it would fit with at most 300 requests/s, a latency \
                 of 2000 µs or more, or the end of \"t0\", \"t1\", \"t2\", \"t3\", \"t4\", \"t5\", \
                 \"t6\", \"t7\" and 2 more"
            ),
            "{}",
            problem.message
        );
        assert_eq!(problem.shortage.unwrap().limited_by.as_deref(), Some("gold"));
    }

    #[test]
    fn a_long_list_of_names_is_cut() {
        let known = (0..20).map(|n| format!("t{n}")).collect();
        let problem = Problem::from(Refusal::NoTenant { name: "x".to_owned(), known, others: 980 });
        assert!(problem.message.ends_with("\"t7\" and 992 more"), "{}", problem.message);
        let problem =
            Problem::from(Refusal::NoTenant { name: "x".to_owned(), known: vec![], others: 0 });
        assert!(problem.message.contains("none yet"), "{}", problem.message);
    }
}
