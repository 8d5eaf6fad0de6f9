//! The errors of the API: a code for programs, and a message with the remedy for people.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::info::{Refusal, Ways, grouped, time};

/// Maximum number of names that a message lists.
const NAMES_MAX: usize = 8;

/// The code of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request, or a field of it, is invalid.
    Invalid,
    /// The tenant's name is taken.
    Taken,
    /// There is no tenant of this name.
    NoTenant,
    /// There is no such device.
    NoDevice,
    /// The configuration names the tenant, so it cannot be removed.
    InUse,
    /// The table of tenants is full, or clients of one tenant use their whole part of it.
    TableFull,
    /// The device has no model.
    NoModel,
    /// The device's model has no rates for the percentile.
    NotMeasured,
    /// The device's model has no rate for such a low latency.
    TooTight,
    /// The device does not deliver as many tokens.
    TooMuch,
    /// There is no namespace of this name or number.
    NoNamespace,
    /// There is no subsystem of this name.
    NoSubsystem,
    /// There is no registered host of this name.
    NoHost,
    /// There is no listener of this number or address.
    NoListener,
    /// The system refused to open an address or a device.
    NotOpened,
    /// The state file cannot be written, so nothing was changed.
    NotKept,
    /// The change loses data, and the request does not permit that.
    Shrinks,
    /// The device has no room for the namespace.
    NoRoom,
    /// The value cannot change while the server runs; the message has an alternative.
    Fixed,
    /// Another operation must end first; try again.
    Busy,
    /// The server does not support the resource.
    Unsupported,
    /// The request needs a token that the server knows.
    Unauthorized,
    /// Too many wrong tokens came from this address.
    TooOften,
    /// The caller's user, token or host name for the server is not admitted.
    Forbidden,
    /// There is no worker of this number.
    NoWorker,
    /// There is no connection of this identifier (any more).
    NoConnection,
    /// There is no such resource.
    NotFound,
    /// The resource has no such method.
    NoMethod,
    /// The body is too large.
    TooLarge,
    /// The request did not arrive in time.
    TimeOut,
    /// The audit log accepts no records, so nothing was changed.
    NoAudit,
    /// The change was made, but its record in the audit log is not stored yet.
    NotAudited,
    /// The server has an internal error, described in its log.
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

/// The figures of an SLO that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shortage {
    /// Tokens per second that the SLO needs.
    pub tokens_needed: u64,
    /// Tokens per second that the other tenants leave.
    pub tokens_available: u64,
    /// Tokens per second that the device delivers at the strictest latency.
    pub tokens_device: u64,
    /// The strictest latency in microseconds.
    pub latency_us: u32,
    /// The tenant with the strictest latency; `null` for the requested SLO.
    pub limited_by: Option<String>,
}

/// The reason that a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Error code for programs.
    pub code: Code,
    /// Message for people: the error and its remedy.
    pub message: String,
    /// The figures of an SLO that does not fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortage: Option<Box<Shortage>>,
    /// Remedies for a refused SLO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<Box<Ways>>,
}

/// A problem as the body of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Failure {
    pub(super) error: Problem,
}

impl Problem {
    /// Returns the problem of an unknown name, with the known names.
    pub fn unknown(code: Code, kind: &str, name: &str, known: Vec<String>) -> Problem {
        Problem::unknown_among(code, kind, name, &known, 0)
    }

    /// Returns the problem of an unknown name, with the known names. `others` is the number of
    /// further known names.
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

    /// Returns a problem with this code and message, without the details of a refused SLO.
    pub fn new(code: Code, message: impl Into<String>) -> Problem {
        Problem { code, message: message.into(), shortage: None, ways: None }
    }

    /// Returns the problem of a refused SLO, with its remedies.
    pub(super) fn refused(refusal: Refusal, ways: Ways) -> Problem {
        let mut problem = Problem::from(refusal);
        if let Some(text) = ways_text(&ways) {
            problem.message = format!("{}; {text}", problem.message);
            problem.ways = Some(Box::new(ways));
        }
        problem
    }
}

/// Returns the remedies as text; `None` if there are none.
fn ways_text(ways: &Ways) -> Option<String> {
    let mut each = Vec::new();
    if let Some(iops) = ways.iops {
        each.push(format!("at most {} requests/s", grouped(iops.into())));
    }
    if let Some(latency_us) = ways.latency_us {
        each.push(format!("a latency of {} or more", time(latency_us)));
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

/// Returns the first few names as text, and the number of further ones.
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
                let message = format!(
                    "there is a tenant {name:?} already; `nearflash tenant set` changes it"
                );
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

impl Problem {
    /// Returns the problem of a body that is too large with the limit in bytes in its message, and
    /// any other problem unchanged.
    pub(super) fn with_limit(self, bytes_max: usize) -> Problem {
        match self.code {
            Code::TooLarge => {
                let message = format!("the body is larger than {} KiB", bytes_max >> 10);
                Problem { message, ..self }
            }
            _ => self,
        }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Problem {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            return Problem::new(Code::TooLarge, "the body is too large");
        }
        let message = match &rejection {
            JsonRejection::MissingJsonContentType(_) => {
                "expected a body in JSON, with the header `content-type: application/json`"
                    .to_owned()
            }
            // The message of the cause has the position and the expected value.
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
            tokens_needed: 400_000,
            tokens_available: 300,
            tokens_device: 420,
            tokens_headroom: 0,
            latency_us: 500,
            percentile: qos::Percentile::P95,
            limited_by: Some("gold".to_owned()),
        };
        let leave = (0..10).map(|n| format!("t{n}")).collect();
        let ways = Ways { iops: Some(300_000), latency_us: Some(20_000), leave };
        let problem = Problem::refused(refusal, ways);
        assert_eq!(problem.code, Code::TooMuch);
        assert!(problem.message.starts_with("needs 400 000 tokens/s of 300 available"));
        assert!(
            problem.message.ends_with(
                "the bound of tenant \"gold\"; it would fit with at most 300 000 requests/s, a latency \
                 of 20 ms or more, or the end of \"t0\", \"t1\", \"t2\", \"t3\", \"t4\", \"t5\", \
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
