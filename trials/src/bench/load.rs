//! A measurement of a server and a client, with the processor time of both.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::process::{self, Server};
use super::secrets;
use super::servers::{self, BenchProtocol, Op, Shape};
use super::settings::{Client, Settings};

/// The number of the core reserved for the client, as `taskset` takes it.
const CLIENT_CPU: &str = "1";

/// The bytes of the server's device that requests go to: the size of the naive server's file.
const SPAN_BYTES: u64 = 64 << 20;

/// The request size in bytes from which on addresses are sequential; below it they are random.
const STREAM_BYTES: usize = 64 << 10;

/// The interval at which the processor times of server and client are read.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// The results of one measurement of a server and its client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figure {
    /// Completed requests a second.
    pub(crate) rate: f64,
    /// Mean latency in µs.
    pub(crate) mean_us: f64,
    /// 95th percentile of latency in µs; zero if the client reports none.
    pub(crate) p95_us: f64,
    /// The server's busy time for each request, in ns.
    pub(crate) server_nanos: f64,
    /// The server's busy time, as a share of the measured time. A server that spins reports the
    /// time in which it had work; of other servers it is the time on their core.
    pub(crate) server_busy: f64,
    /// The client's time on its core, as a share of the measured time.
    pub(crate) client_busy: f64,
    /// The mean number of cores that other programs kept busy meanwhile.
    pub(crate) others_busy: f64,
}

/// Runs the client against the server for `seconds`, at `rate` requests a second, or as fast as
/// possible if `rate` is `None`.
pub(crate) fn measure(
    settings: &Settings,
    server: &Server,
    speech: BenchProtocol,
    shape: Shape,
    seconds: u64,
    rate: Option<f64>,
) -> Result<Figure, String> {
    let url = speech.url(&server.address);
    let mut command = command(settings, &url, shape, seconds, rate)?;
    let shown = process::show(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{shown}: {error}"))?;
    let mut output = child.stdout.take().expect("it was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let (mut first, mut last) = (None, None);
    let limit = Instant::now() + Duration::from_secs(4 * seconds + 30);
    let status = loop {
        let sample = Sample::take(server.id(), child.id());
        first = first.or(sample);
        last = sample.or(last);
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < limit => std::thread::sleep(SAMPLE_EVERY),
            _ => {
                // The child may just be ending; it is waited for below in any case.
                let _gone = child.kill();
                break child.wait().map_err(|error| format!("{shown}: {error}"))?;
            }
        }
    };
    let text = reader.join().map_err(|_| "the reader died")?.unwrap_or_default();
    if !status.success() {
        let mut error = String::new();
        let read = child.stderr.take().map(|mut stream| stream.read_to_string(&mut error));
        return Err(format!("{shown}: {status} {read:?}\n{error}{text}"));
    }
    let mut figure =
        parse(settings.client, shape, &text).ok_or(format!("{shown}: printed\n{text}"))?;
    if let (Some(first), Some(last)) = (first, last) {
        figure.account(&first, &last, server.says("busy"));
    }
    Ok(figure)
}

/// Processor times in nanoseconds at one moment: of the server, of the client, and of all programs
/// of the machine.
#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    server_nanos: u64,
    client_nanos: u64,
    machine_nanos: u64,
}

impl Sample {
    fn take(server: u32, client: u32) -> Option<Sample> {
        let server_nanos = process::cpu_nanos(server)?;
        let client_nanos = process::cpu_nanos(client)?;
        let machine_nanos = process::machine_cpu_nanos()?;
        Some(Sample { at: Instant::now(), server_nanos, client_nanos, machine_nanos })
    }
}

impl Figure {
    fn account(&mut self, first: &Sample, last: &Sample, says_busy: Option<f64>) {
        let elapsed = (last.at - first.at).as_nanos().max(1) as f64;
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / elapsed;
        self.client_busy = share(first.client_nanos, last.client_nanos);
        let on_core = share(first.server_nanos, last.server_nanos);
        self.server_busy = says_busy.unwrap_or(on_core);
        let all = share(first.machine_nanos, last.machine_nanos);
        self.others_busy = (all - self.client_busy - on_core).max(0.0);
        if self.rate > 0.0 {
            self.server_nanos = self.server_busy * 1e9 / self.rate;
        }
    }
}

/// Returns the command line of the client that makes the load, pinned to its core.
pub(crate) fn command(
    settings: &Settings,
    url: &str,
    shape: Shape,
    seconds: u64,
    rate: Option<f64>,
) -> Result<Command, String> {
    let mut command = settings.link.client_side("taskset");
    command.args(["-c", CLIENT_CPU]);
    match settings.client {
        Client::Nearflash => {
            command.arg(servers::built("nearflash"));
            command.args(["bench", url, "--json", "--spin"]);
            if shape.block_size >= STREAM_BYTES {
                command.args(["--pattern", "sequential"]);
            }
            let reads = if shape.op == Op::Read { "100" } else { "0" };
            command.args(["--read-percent", reads, "--span", &SPAN_BYTES.to_string()]);
            command.args(["--warmup", "1", "--seconds", &seconds.to_string()]);
            if let Some(rate) = rate {
                command.args(["--rate", &format!("{rate:.0}")]);
            }
        }
        Client::Hammer if rate.is_some() => return Err("hammer knows no open loop".to_owned()),
        Client::Hammer => {
            command.arg(servers::built("examples/hammer"));
            let bare = url.trim_start_matches("reflex://").trim_end_matches("?v=1");
            command.args([bare, "--copy", "--op", shape.op.name()]);
            command.args(["--seconds", &format!("{:.2}", seconds as f64 * 1.25)]);
        }
    }
    if url.contains(secrets::HOST) {
        command.env(secrets::KEY_VARIABLE, secrets::KEY);
    }
    command.args(["--block-size", &shape.block_size.to_string()]);
    command.args(["--connections", &shape.connections.to_string()]);
    command.args(["--queue-depth", &shape.queue_depth.to_string()]);
    Ok(command)
}

/// Parses the client's final output into rate and latencies; `None` if it has another form.
fn parse(client: Client, shape: Shape, text: &str) -> Option<Figure> {
    let mut figure = Figure::default();
    match client {
        Client::Hammer => {
            let mut words = text.split_whitespace();
            words.find(|word| *word == "requests_per_s")?;
            figure.rate = words.next()?.parse().ok()?;
            words.find(|word| *word == "mean_us")?;
            figure.mean_us = words.next()?.parse().ok()?;
        }
        Client::Nearflash => {
            let object = text.lines().rev().find(|line| line.starts_with('{'))?;
            let object: serde_json::Value = serde_json::from_str(object).ok()?;
            if object["errors"].as_u64() != Some(0) {
                return None;
            }
            figure.rate = object["iops"].as_f64()?;
            let latency = &object[shape.op.name()]["latency_us"];
            figure.mean_us = latency["mean"].as_f64()?;
            figure.p95_us = latency["p95"].as_f64()?;
        }
    }
    Some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { op: Op::Read, block_size: 512, connections: 1, queue_depth: 2 };

    #[test]
    fn what_clients_print_is_read() {
        let hammer = parse(Client::Hammer, SHAPE, "requests_per_s 500 mean_us 2.5\n").unwrap();
        assert_eq!((hammer.rate, hammer.mean_us), (500.0, 2.5));
        let text = r#"{"iops": 7.5, "errors": 0, "read": {"latency_us": {"mean": 1.5, "p95": 3}}}"#;
        let figure = parse(Client::Nearflash, SHAPE, text).unwrap();
        assert_eq!((figure.rate, figure.mean_us, figure.p95_us), (7.5, 1.5, 3.0));
        let errors = text.replace("\"errors\": 0", "\"errors\": 1");
        assert!(parse(Client::Nearflash, SHAPE, &errors).is_none());
        assert!(parse(Client::Hammer, SHAPE, "panicked").is_none());
    }

    #[test]
    fn shares_come_from_the_accounts() {
        let at = Instant::now();
        let first = Sample { at, server_nanos: 100, client_nanos: 0, machine_nanos: 0 };
        let later = at + Duration::from_nanos(1000);
        let (server_nanos, client_nanos, machine_nanos) = (600, 1000, 1750);
        let last = Sample { at: later, server_nanos, client_nanos, machine_nanos };
        let mut figure = Figure { rate: 1e6, ..Figure::default() };
        figure.account(&first, &last, None);
        assert_eq!((figure.server_busy, figure.client_busy), (0.5, 1.0));
        assert_eq!(figure.others_busy, 0.25);
        assert_eq!(figure.server_nanos, 500.0);
        figure.account(&first, &last, Some(0.25));
        assert_eq!(figure.server_busy, 0.25);
    }
}
