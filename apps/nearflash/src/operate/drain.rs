//! `nearflash drain`.

use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use control::admin::{AdminAddress, ClientError, Drain, DrainServer, DrainState};
use io::Clock;
use serde_json::json;

use super::{Common, Failure};
use lab::report::count_text;

/// The pause between two queries of the drain's progress.
const PERIOD: Duration = Duration::from_millis(250);

/// The time for which the command waits beyond the drain's own deadline, as a server waits for
/// requests at devices without any limit.
const GRACE: Duration = Duration::from_secs(30);

/// The number of failed queries in a row after which the server counts as ended: nobody listens at
/// its address.
const SILENCE: u32 = 3;

#[derive(Args, Clone, Debug)]
pub(crate) struct DrainCommand {
    /// Deadline in seconds for requests in flight [default: `drain_seconds` of the configuration]
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// Return without waiting for the server's end
    #[arg(long)]
    no_wait: bool,
    /// Show only whether the server drains, and how far it is
    #[arg(long, conflicts_with_all = ["deadline", "no_wait"])]
    show: bool,
}

impl DrainCommand {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut client = common.client()?;
        if self.show {
            common.print(&client.read::<Drain>()?, text);
            return Ok(ExitCode::SUCCESS);
        }
        let limit_ms = self.deadline.map(|seconds| seconds.saturating_mul(1_000));
        let begun = client.send(&DrainServer { deadline_ms: limit_ms })?;
        if self.no_wait {
            common.print(&begun, text);
            return Ok(ExitCode::SUCCESS);
        }
        common.note(&begun, text);
        drop(client);
        wait(common, begun)?;
        common.print(&json!({ "ended": true }), |_| "the server has ended".to_owned());
        Ok(ExitCode::SUCCESS)
    }
}

/// Waits until the drained server has ended, and prints the progress.
///
/// # Errors
/// Fails if the server has not ended in time, or its state is unknown.
fn wait(common: &Common, begun: Drain) -> Result<(), Failure> {
    let limit = Duration::from_millis(begun.left_ms.unwrap_or_default()) + GRACE;
    let (clock, mut watch) = (Clock::start(), Watch::new(begun));
    let end = clock.now() + limit;
    while clock.now() < end {
        std::thread::sleep(PERIOD);
        let before = (watch.last.connections, watch.last.in_flight);
        if watch.look(common.client().and_then(|mut client| client.read::<Drain>()))? {
            return Ok(());
        }
        if (watch.last.connections, watch.last.in_flight) != before {
            common.note(&watch.last, text);
        }
    }
    Err(Failure::Words(watch.overdue()))
}

/// The command's knowledge of a draining server, from its latest answers.
struct Watch {
    last: Drain,
    /// Number of queries in a row for which no process listened at the server's address.
    silent: u32,
    /// The error of the last query; `None` if the server answered it.
    unanswered: Option<String>,
}

impl Watch {
    fn new(last: Drain) -> Watch {
        Watch { last, silent: 0, unanswered: None }
    }

    /// Takes the result of a query, and returns `true` if the server has ended. A server that
    /// cannot be reached may still serve.
    ///
    /// # Errors
    /// Returns the problem if the server refused the query.
    fn look(&mut self, seen: Result<Drain, ClientError>) -> Result<bool, ClientError> {
        match seen {
            // Another one serves in its place.
            Ok(Drain { state: DrainState::Serving, .. }) => return Ok(true),
            Ok(now) => *self = Watch::new(now),
            Err(ClientError::Refused(problem)) => return Err(ClientError::Refused(problem)),
            Err(error) => {
                self.silent = if is_nobody_there(&error) { self.silent + 1 } else { 0 };
                self.unanswered = Some(error.to_string());
            }
        }
        Ok(self.silent == SILENCE)
    }

    /// Returns the error text for a server that has not ended in time.
    fn overdue(&self) -> String {
        match &self.unanswered {
            None => format!(
                "the server has not ended, although its time is over: {} requests are in flight",
                self.last.in_flight
            ),
            Some(why) => format!("it is not known whether the server has ended: {why}"),
        }
    }
}

/// Returns `true` if the error shows that no process listens at the server's address.
fn is_nobody_there(error: &ClientError) -> bool {
    let ClientError::Unreachable { address, error } = error else { return false };
    match error.kind() {
        ErrorKind::ConnectionRefused => true,
        // The name of a socket, not of a host.
        ErrorKind::NotFound => matches!(address, AdminAddress::Unix(_)),
        _ => false,
    }
}

fn text(drain: &Drain) -> String {
    let connections = count_text(drain.connections as u64, "connection");
    let there = format!("{connections}, {} in flight", count_text(drain.in_flight, "request"));
    match (drain.state, drain.left_ms) {
        (DrainState::Serving, _) => format!("serving: {there}"),
        (DrainState::Draining, None) => format!("draining: {there}"),
        (DrainState::Draining, Some(ms)) => {
            format!("draining: {there}, {} s left", ms.div_ceil(1_000))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_reached_may_not_have_ended() {
        let drain =
            Drain { state: DrainState::Draining, connections: 1, in_flight: 3, left_ms: None };
        let unix = || AdminAddress::Unix("/nowhere".into());
        let elsewhere = || AdminAddress::Tls { host: "server".to_owned(), port: 1 };
        let failed = |address: AdminAddress, kind: ErrorKind| {
            Err(ClientError::Unreachable { address, error: kind.into() })
        };
        let ended = |look: &dyn Fn() -> Result<Drain, ClientError>, looks: u32| {
            let mut watch = Watch::new(drain);
            let is_over = (0..looks).any(|_| watch.look(look()).unwrap());
            (is_over, watch.overdue())
        };
        let refused = || failed(elsewhere(), ErrorKind::ConnectionRefused);
        assert!(ended(&|| failed(unix(), ErrorKind::NotFound), SILENCE).0);
        assert!(ended(&refused, SILENCE).0 && !ended(&refused, SILENCE - 1).0);
        for kind in [ErrorKind::TimedOut, ErrorKind::HostUnreachable, ErrorKind::NotFound] {
            let (is_over, said) = ended(&|| failed(elsewhere(), kind), 100);
            assert!(!is_over && said.starts_with("it is not known whether"), "{kind}: {said}");
        }
        let no_token = || Err(ClientError::Pass("the token cannot be read".to_owned()));
        let (is_over, said) = ended(&no_token, 100);
        assert!(!is_over && said.ends_with("the token cannot be read"), "{said}");
        let (is_over, said) = ended(&|| Ok(drain), 100);
        assert!(!is_over && said.contains("3 requests are in flight"), "{said}");
        // One that answers in between is there.
        let mut watch = Watch::new(drain);
        for look in [refused(), refused(), Ok(drain), refused(), refused()] {
            assert!(!watch.look(look).unwrap());
        }
    }

    #[test]
    fn how_far_it_is_stands_in_a_line() {
        let (state, left_ms) = (DrainState::Draining, Some(8_001));
        let drain = Drain { state, connections: 1, in_flight: 3, left_ms };
        assert_eq!(text(&drain), "draining: 1 connection, 3 requests in flight, 9 s left");
        let drain = Drain { left_ms: None, ..drain };
        assert_eq!(text(&drain), "draining: 1 connection, 3 requests in flight");
        let (state, connections) = (DrainState::Serving, 0);
        let drain = Drain { state, connections, ..drain };
        assert_eq!(text(&drain), "serving: 0 connections, 3 requests in flight");
    }
}
