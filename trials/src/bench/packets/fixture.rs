//! A server and a client at the two ends of the virtual cable, and one measurement of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::transport::{LinkAddresses, Transport};
use super::watch::{Reading, SpentTime, Watch, spent};
use crate::bench::link::Link;
use crate::bench::process::{PACKET_LINK, Server, show};

/// The cores of the server and of the client, as `--cpus` and `taskset` take them.
pub(super) const SERVER_CPU: &str = "0";
pub(super) const CLIENT_CPU: &str = "1";

/// The seconds of load before it is measured.
const WARMUP: &str = "0.5";

/// The interval at which the accounts of the cores are read.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// The share of the measured time, from its end, in which the accounts are compared.
const COUNTED: f64 = 0.8;

/// The shape of a load: bytes of a read, connections, and requests in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) block_size: usize,
    pub(super) connections: usize,
    pub(super) queue_depth: usize,
}

/// The results of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figure {
    /// Completed requests a second.
    pub(super) rate: f64,
    /// The median and the 95th percentile of latency in µs.
    pub(super) p50_us: f64,
    pub(super) p95_us: f64,
    /// The processor time of the server's worker for each request, in ns.
    pub(super) server_nanos: f64,
    /// The share of the time that other work took from the server or the client.
    pub(super) taken: f64,
    /// The number of connections that the client lost and dialled again.
    pub(super) lost: u64,
}

/// The cable, the program and the settings of all measurements.
pub(super) struct Cable {
    pub(super) program: PathBuf,
    pub(super) link: Link,
    pub(super) places: LinkAddresses,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    last_port: u16,
    /// The command lines that were used, with one port.
    commands: BTreeSet<String>,
}

impl Cable {
    /// Creates the bed over a link. `key` is the file of the key for sealed packets.
    pub(super) fn new(
        program: PathBuf,
        link: Link,
        key: PathBuf,
        rounds: usize,
        seconds: f64,
    ) -> Result<Cable, String> {
        let places = LinkAddresses::new(&link, key)?;
        let commands = BTreeSet::new();
        Ok(Cable { program, link, places, rounds, seconds, last_port: 7420, commands })
    }

    /// Returns the command lines that were used so far.
    pub(super) fn commands(&self) -> &BTreeSet<String> {
        &self.commands
    }

    /// Returns a port that no earlier server of this run had.
    pub(super) fn port(&mut self) -> u16 {
        self.last_port += 1;
        self.last_port
    }

    /// Starts a server that listens at these URLs.
    pub(super) fn serve(&mut self, urls: &[String]) -> Result<Server, String> {
        let mut command = self.link.server_side(&self.program.display().to_string());
        command.args(["serve", "--device", "null:64GiB", "--workers", "1", "--admin", "none"]);
        command.args(["--cpus", SERVER_CPU, "--insecure", "--congestion", "cubic"]);
        command.args(urls.iter().flat_map(|url| ["--listen", url]));
        self.remember(&command);
        Server::start(&mut command)
    }

    /// Returns the command of a load on the server at `url` that spins, as fast as possible.
    pub(super) fn load(&self, url: &str, shape: Shape) -> Command {
        let mut command = self.calm_load(url, shape);
        command.args(["--spin", "--seconds", &self.seconds.to_string()]);
        command
    }

    /// Returns the command of a load on the server at `url` that sleeps while it waits. The caller
    /// adds its seconds.
    pub(super) fn calm_load(&self, url: &str, shape: Shape) -> Command {
        let mut command = self.link.client_side("taskset");
        command.args(["-c", CLIENT_CPU]).arg(&self.program).args(["bench", url, "--json"]);
        command.args(["--read-percent", "100", "--span", "64MiB", "--warmup", WARMUP]);
        command.args(["--block-size", &shape.block_size.to_string()]);
        command.args(["--connections", &shape.connections.to_string()]);
        command.args(["--queue-depth", &shape.queue_depth.to_string()]);
        command
    }

    /// Runs a load of this shape over a transport, on a server of its own, as fast as possible.
    /// Over packets, the client divides its connections among so many associations.
    pub(super) fn once(
        &mut self,
        transport: Transport,
        shape: Shape,
        associations: usize,
    ) -> Result<Figure, String> {
        let port = self.port();
        let server = self.serve(&[transport.server_url(&self.places, port)])?;
        let mut command = self.load(&transport.client_url(&self.places, port), shape);
        if associations > 1 {
            command.env(PACKET_LINK, format!("associations={associations}"));
        }
        self.measure(&server, command)
    }

    /// Runs the command of a load on a server to its end.
    pub(super) fn measure(
        &mut self,
        server: &Server,
        mut command: Command,
    ) -> Result<Figure, String> {
        self.remember(&command);
        let limit = Duration::from_secs_f64(4.0 * self.seconds + 40.0);
        let (output, readings) = observe(server.id(), &mut command, limit)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut figure = parse(&text).ok_or_else(|| {
            let errors = String::from_utf8_lossy(&output.stderr);
            let words = format!("{errors} {text}");
            let words: Vec<&str> = words.split_whitespace().collect();
            format!("{}: {}", output.status, words.join(" "))
        })?;
        let notes = String::from_utf8_lossy(&output.stderr);
        figure.lost = notes.matches("dialling again").count() as u64;
        figure.account(spent(&readings, Duration::from_secs_f64(COUNTED * self.seconds)));
        Ok(figure)
    }

    /// Remembers a command line, with the same port for all.
    pub(super) fn remember(&mut self, command: &Command) {
        let program = self.program.display().to_string();
        let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let variables: String = variables
            .map(|(name, value)| format!("{}={} ", name.display(), value.display()))
            .collect();
        let shown = variables + &show(command).replace(&show_path(&program), "nearflash");
        self.commands.insert(shown.replace(&self.last_port.to_string(), "7420"));
    }
}

/// Returns a path as [`show`] writes it.
fn show_path(path: &str) -> String {
    show(&Command::new(Path::new(path)))
}

impl Figure {
    fn account(&mut self, spent: SpentTime) {
        self.taken = spent.taken;
        if self.rate > 0.0 {
            self.server_nanos = spent.server * 1e9 / self.rate;
        }
    }
}

/// Runs the command of a client to its end, and reads the accounts of both cores meanwhile.
fn observe(
    server: u32,
    command: &mut Command,
    limit: Duration,
) -> Result<(Output, Vec<Reading>), String> {
    let shown = show(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = Watch::new(server);
    let child = command.spawn().map_err(|error| format!("{shown}: {error}"))?;
    let id = child.id();
    watch.client(id);
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let (began, mut readings) = (Instant::now(), Vec::new());
    loop {
        match receiver.recv_timeout(SAMPLE_EVERY) {
            Ok(output) => {
                // The client was ending while the last two readings were taken.
                readings.truncate(readings.len().saturating_sub(2));
                return Ok((output.map_err(|error| format!("{shown}: {error}"))?, readings));
            }
            Err(RecvTimeoutError::Timeout) if began.elapsed() < limit => {
                readings.push(watch.read());
            }
            Err(_) => {
                kill(id);
                return Err(format!("{shown}: it still runs after {} s", limit.as_secs()));
            }
        }
    }
}

fn kill(id: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // A process that has ended cannot be killed.
        let _gone = kill_process(id, Signal::KILL);
    }
}

/// Parses the JSON of a load; `None` if it has another form or there were errors.
fn parse(text: &str) -> Option<Figure> {
    let object = text.lines().rev().find(|line| line.starts_with('{'))?;
    let object: Value = serde_json::from_str(object).ok()?;
    if object["errors"].as_u64() != Some(0) {
        return None;
    }
    let latency = &object["read"]["latency_us"];
    let (p50_us, p95_us) = (latency["p50"].as_f64()?, latency["p95"].as_f64()?);
    Some(Figure { rate: object["iops"].as_f64()?, p50_us, p95_us, ..Figure::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_prints_is_read() {
        let text = r#"{"iops": 4e6, "errors": 0, "read": {"latency_us": {"p50": 1.5, "p95": 3}}}"#;
        let mut figure = parse(&format!("words\n{text}\n")).unwrap();
        figure.account(SpentTime { server: 0.8, taken: 0.1 });
        assert_eq!((figure.rate, figure.p50_us, figure.p95_us), (4e6, 1.5, 3.0));
        assert_eq!((figure.server_nanos, figure.taken), (200.0, 0.1));
        assert_eq!(parse(&text.replace("\"errors\": 0", "\"errors\": 1")), None);
        assert_eq!(parse("panicked"), None);
    }

    #[test]
    fn a_client_that_does_not_end_is_killed() {
        let mut command = Command::new("sleep");
        let error = observe(1, command.arg("1000"), Duration::ZERO).unwrap_err();
        assert!(error.contains("still runs"), "{error}");
    }
}
