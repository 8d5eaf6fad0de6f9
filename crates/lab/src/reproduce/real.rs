//! The set-up of measurements in real time: servers as child processes on loopback, the load of
//! `nearflash bench`, and repeated measurements.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use client::load::Side;

use crate::bench;
use crate::child::Server;
use crate::report::Report;

/// The settings of all measurements in real time.
pub(super) struct RealTimeSettings {
    pub(super) quick: bool,
    pub(super) seed: u64,
}

/// The time in µs for which a polling server looks for more work before it sleeps: longer than any
/// pause of the loads here.
const POLLING_US: u32 = 2_000;

/// The rate and latencies of one path to the device, at one load.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Completed requests a second.
    pub(super) iops: f64,
    /// The mean latency in µs: of reads if there are any, otherwise of writes.
    pub(super) mean_us: f64,
    /// The 95th percentile of the latency in µs.
    pub(super) p95_us: f64,
}

impl RealTimeSettings {
    pub(super) fn new(quick: bool, seed: u64) -> RealTimeSettings {
        RealTimeSettings { quick, seed }
    }

    /// Returns the duration of each measurement in seconds, as an argument of `nearflash bench`.
    pub(super) fn seconds(&self) -> &'static str {
        if self.quick { "1" } else { "3" }
    }

    /// Returns how often a point is measured; the repetition with the median p95 counts.
    pub(super) fn repetitions(&self) -> usize {
        if self.quick { 1 } else { 3 }
    }

    /// Starts `nearflash serve` for the device spec `device` with one worker that polls, as the
    /// paper's server does.
    pub(super) fn serve(&self, device: &str) -> Result<Server, String> {
        let listen = "reflex://127.0.0.1:0";
        let spin = POLLING_US.to_string();
        let words = ["--device", device, "--listen", listen, "--spin", &spin];
        Server::start(&words.map(str::to_owned))
    }

    /// Starts `nearflash serve` for a device at a listening URL, with one worker that polls.
    pub(super) fn serve_at(&self, device: &str, url: &str) -> Result<Server, String> {
        let spin = POLLING_US.to_string();
        let words = ["--device", device, "--listen", url, "--spin", &spin];
        Server::start(&words.map(str::to_owned))
    }

    /// Starts `nearflash serve` for a device, which receives packets over UDP. Its environment has
    /// the variable `link`, a name and a value.
    pub(super) fn serve_linked(&self, device: &str, link: (&str, &str)) -> Result<Server, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let spin = POLLING_US.to_string();
        let mut command = Command::new(program);
        command.env(link.0, link.1).env("NEARFLASH_LOG", "error");
        command.args(["serve", "--admin", "none", "--device", device, "--spin", &spin]);
        Server::start_other(command.args(["--listen", "reflex+udp://127.0.0.1:0"]))
    }

    /// Returns the path of the yardstick program `name` beside this program; `None` if it was not
    /// built.
    pub(super) fn yardstick(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::current_exe().ok()?.parent()?.join("examples").join(name);
        path.exists().then_some(path)
    }

    /// Starts a yardstick program that serves, and waits until it is ready.
    pub(super) fn serve_with(&self, program: &PathBuf, words: &[&str]) -> Result<Server, String> {
        Server::start_other(Command::new(program).args(words))
    }

    /// Measures a server or a local device with the arguments `words` of `nearflash bench`, several
    /// times. Returns the repetition with the median p95.
    pub(super) fn measure(&self, target: &str, words: &[&str]) -> Result<Point, String> {
        let mut points = Vec::new();
        for n in 0..self.repetitions() {
            let seed = (self.seed + n as u64).to_string();
            let common = ["bench", target, "--seconds", self.seconds(), "--warmup", "0.3"];
            let rest = ["--seed", &seed, "--spin"];
            let report = bench::measure(common.iter().chain(words).chain(&rest))?;
            if report.errors() > 0 {
                return Err(format!("{target}: {} requests ended in an error", report.errors()));
            }
            points.push(Point::of(&report));
        }
        points.sort_by(|a, b| a.p95_us.total_cmp(&b.p95_us));
        Ok(points.swap_remove(points.len() / 2))
    }
}

impl Point {
    fn of(report: &Report) -> Point {
        let side: &Side = if report.read().count > 0 { report.read() } else { report.write() };
        Point {
            iops: report.iops(),
            mean_us: side.latency.mean() / 1e3,
            p95_us: side.latency.value_at_quantile(0.95) as f64 / 1e3,
        }
    }
}

/// Returns the URL of a nearflash server.
pub(super) fn url(address: SocketAddr) -> String {
    format!("reflex://{address}")
}

/// Returns the URL of a server of protocol version 1.
pub(super) fn url_v1(address: SocketAddr) -> String {
    format!("reflex://{address}?v=1")
}

/// The note that a figure has if a yardstick of it is not built.
pub(super) const NO_YARDSTICK: &str = "left out: the libaio-style server is not built \
     (cargo build --release -p nearflash-io --example naive)";
