//! `nearflash drain`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use control::admin::{ClientError, Drain, DrainState};
use serde_json::json;

use super::{Common, Failure};

/// Between two looks how far it is.
const PERIOD: Duration = Duration::from_millis(250);

/// How much longer than it was given a drain is waited for: requests that a device has are waited for
/// whatever the time.
const GRACE: Duration = Duration::from_secs(30);

/// Looks in a row without an answer that mean that the server has ended.
const SILENCE: u32 = 3;

#[derive(Args, Clone, Debug)]
pub(crate) struct Command {
    /// Seconds until connections end that still have requests in flight [default: `drain_seconds` of the
    /// server's configuration]
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// Do not wait until the server has ended
    #[arg(long)]
    no_wait: bool,
    /// Only show whether the server drains, and how far it is
    #[arg(long, conflicts_with_all = ["deadline", "no_wait"])]
    show: bool,
}

impl Command {
    pub(super) fn run(&self, common: &Common) -> Result<ExitCode, Failure> {
        let mut client = common.client()?;
        if self.show {
            common.print(&client.drain()?, text);
            return Ok(ExitCode::SUCCESS);
        }
        let limit_ms = self.deadline.map(|seconds| seconds.saturating_mul(1_000));
        let begun = client.drain_server(limit_ms)?;
        if self.no_wait {
            common.print(&begun, text);
            return Ok(ExitCode::SUCCESS);
        }
        common.note(&begun, text);
        drop(client);
        match wait(common, begun)? {
            None => {
                common.print(&json!({ "ended": true }), |_| "the server has ended".to_owned());
                Ok(ExitCode::SUCCESS)
            }
            Some(last) => Err(Failure::Words(format!(
                "the server has not ended, although its time is over: {} requests are in flight",
                last.in_flight
            ))),
        }
    }
}

/// Waits until the server has ended, and says how far it is; what was last told of one that does not.
fn wait(common: &Common, begun: Drain) -> Result<Option<Drain>, Failure> {
    let limit = Duration::from_millis(begun.left_ms.unwrap_or_default()) + GRACE;
    let (mut last, mut silent) = (begun, 0);
    for _ in 0..limit.as_millis() / PERIOD.as_millis() {
        std::thread::sleep(PERIOD);
        match common.client().and_then(|mut client| client.drain()) {
            // Another one serves in its place.
            Ok(Drain { state: DrainState::Serving, .. }) => return Ok(None),
            Ok(now) => {
                if (now.connections, now.in_flight) != (last.connections, last.in_flight) {
                    common.note(&now, text);
                }
                (last, silent) = (now, 0);
            }
            Err(ClientError::Refused(problem)) => return Err(ClientError::Refused(problem).into()),
            Err(_) if silent + 1 == SILENCE => return Ok(None),
            Err(_) => silent += 1,
        }
    }
    Ok(Some(last))
}

fn text(drain: &Drain) -> String {
    let count = |n: u64, what: &str| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    let there = format!(
        "{}, {} in flight",
        count(drain.connections as u64, "connection"),
        count(drain.in_flight, "request")
    );
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
