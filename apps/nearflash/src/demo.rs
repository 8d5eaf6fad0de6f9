//! `nearflash demo`: a server on loopback, measured beside the same file opened locally.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use client::load::Side;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::bench;
use crate::report::{Report, time_text};

/// Size of the demonstration's volume.
const VOLUME: &str = "64MiB";

/// Where it is while the demonstration runs.
const FOLDER: &str = "./nearflash-data";

/// Clock ticks a second in `/proc/PID/stat`: part of Linux's interface on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each of the measurements
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

/// Runs the demonstration; fails when a single byte was wrong.
pub(crate) fn run(args: &Args) -> Result<ExitCode, String> {
    let seconds = args.seconds.to_string();
    let volume = Volume::new()?;
    volume.remove_on_signal()?;
    let spec = format!("file:{}?size={VOLUME}", volume.path.display());
    println!("nearflash demo: a file of 64 MiB, opened here and then served on loopback.\n");

    println!("1. Verified traffic: every block carries its address, generation and checksum.");
    let server = Server::start(&spec)?;
    let mix = ["--read-percent", "70", "--queue-depth", "16", "--connections", "4", "--verify"];
    let verified = measure(&server.url, &seconds, &mix)?;
    server.stop()?;
    println!(
        "   {} requests, {} errors, {} wrong blocks.\n",
        grouped(verified.count()),
        verified.errors(),
        verified.verify_failures()
    );

    println!("2. One request at a time, 4 KiB: local, then the same file over TCP.");
    let unloaded = ["--read-percent", "50", "--queue-depth", "1", "--spin"];
    let local = measure(&spec, &seconds, &unloaded)?;
    let server = Server::start(&spec)?;
    let remote = measure(&server.url, &seconds, &unloaded)?;
    println!("{}", latency_table(&local, &remote));

    println!("3. Many requests at a time: what the server does with its processor time.");
    let deep = ["--queue-depth", "32", "--connections", "4"];
    let (file, file_cores) = measure_with_cpu(&server, &seconds, &deep)?;
    server.stop()?;
    let server = Server::start("null:64GiB")?;
    let (null, null_cores) = measure_with_cpu(&server, &seconds, &deep)?;
    server.stop()?;
    println!("{}", throughput_line("4 KiB reads of the file", &file, file_cores));
    println!("{}", throughput_line("4 KiB reads of no device at all", &null, null_cores));
    println!("\nNext: nearflash serve --device file:./volume?size=1GiB, and in another terminal");
    println!("      nearflash bench reflex://127.0.0.1:7420 --queue-depth 32 --connections 4");
    let good = [&verified, &local, &remote, &file, &null].into_iter().all(Report::is_good);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(target: &str, seconds: &str, words: &[&str]) -> Result<Report, String> {
    let common = ["bench", target, "--seconds", seconds, "--warmup", "0.5"];
    bench::measure(common.iter().chain(words))
}

/// Measures, and says how many of the server's cores it kept busy.
fn measure_with_cpu(
    server: &Server,
    seconds: &str,
    words: &[&str],
) -> Result<(Report, f64), String> {
    let (before, started) = (server.cpu_seconds()?, io::Clock::start());
    let report = measure(&server.url, seconds, words)?;
    let elapsed = Duration::from_nanos(started.now().as_nanos()).as_secs_f64();
    Ok((report, (server.cpu_seconds()? - before) / elapsed))
}

fn latency_table(local: &Report, remote: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "   {:>8} {:>7} {:>10} {:>10} {:>10}", "", "", "mean", "p95", "p99");
    for (name, report) in [("local", local), ("remote", remote)] {
        for (kind, side) in [("read", report.read()), ("write", report.write())] {
            let times = nanos(side).map(|n| format!("{:>10}", time_text(n))).join(" ");
            let _ = writeln!(text, "   {name:>8} {kind:>7} {times}");
        }
    }
    for (kind, here, there) in
        [("read", local.read(), remote.read()), ("write", local.write(), remote.write())]
    {
        let (here, there) = (nanos(here), nanos(there));
        let added = [0, 1, 2].map(|n| match there[n] - here[n] {
            more if more > 0.0 => format!("{:>10}", format!("+{}", time_text(more))),
            _ => format!("{:>10}", "in noise"),
        });
        let _ = writeln!(text, "   {:>8} {kind:>7} {}", "added", added.join(" "));
    }
    text
}

/// Mean, 95th and 99th percentile in nanoseconds.
fn nanos(side: &Side) -> [f64; 3] {
    let latency = &side.latency;
    let quantile = |q| latency.value_at_quantile(q) as f64;
    [latency.mean(), quantile(0.95), quantile(0.99)]
}

fn throughput_line(what: &str, report: &Report, cores: f64) -> String {
    let iops = report.iops();
    let per_core = if cores > 0.0 { iops / cores } else { 0.0 };
    format!(
        "   {what:<32} {:>10} IOPS on {cores:.2} cores, {:>10} per core of time",
        grouped(iops as u64),
        grouped(per_core as u64)
    )
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The demonstration's file, which is removed in the end.
struct Volume {
    path: PathBuf,
}

impl Volume {
    fn new() -> Result<Volume, String> {
        let path = PathBuf::from(format!("{FOLDER}/demo-{}", std::process::id()));
        std::fs::create_dir_all(FOLDER)
            .map_err(|error| format!("cannot make the folder {FOLDER}: {error}"))?;
        Ok(Volume { path })
    }
}

impl Volume {
    /// Also when the demonstration is interrupted, nothing is left behind, and no server.
    fn remove_on_signal(&self) -> Result<(), String> {
        let volume = Volume { path: self.path.clone() };
        let mut signals =
            Signals::new([SIGINT, SIGTERM]).map_err(|e| format!("cannot take signals: {e}"))?;
        std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                if let Some(server) = *RUNNING.lock().expect("no holder panics") {
                    let _ = kill_process(server, Signal::TERM); // it may have ended already
                }
                drop(volume);
                std::process::exit(130);
            }
        });
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // it may never have been made
        let _ = std::fs::remove_file(format!("{}.journal", self.path.display()));
        let _ = std::fs::remove_dir(FOLDER); // stays when something else is in it
    }
}

/// The server that runs now, for whoever is told to stop.
static RUNNING: Mutex<Option<Pid>> = Mutex::new(None);

/// A server of our own, in a process of its own.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(spec: &str) -> Result<Server, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find myself: {e}"))?;
        let mut child = Command::new(program)
            .args(["serve", "--device", spec, "--listen", "reflex://127.0.0.1:0"])
            .args(["--admin", "none"])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the server: {error}"))?;
        *RUNNING.lock().expect("no holder panics") = Some(Pid::from_child(&child));
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        let read = BufReader::new(output).read_line(&mut line);
        let mut server = Server { child, url: String::new() };
        match line.trim().strip_prefix("ready ") {
            Some(url) if read.is_ok() => server.url = url.to_owned(),
            _ => return Err("the server did not start (its message is above)".to_owned()),
        }
        Ok(server)
    }

    /// Processor time that it has used.
    fn cpu_seconds(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat =
            std::fs::read_to_string(&path).map_err(|e| format!("cannot read {path}: {e}"))?;
        let ticks = || {
            // After the name in parentheses: the 12th and 13th fields are user and system time.
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
        };
        let ticks = ticks().ok_or_else(|| format!("{path} is not what it should be"))?;
        Ok(ticks / TICKS_PER_SECOND)
    }

    /// Asks it to stop, and waits.
    fn stop(mut self) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .map_err(|error| format!("cannot stop the server: {error}"))?;
        let status = self.child.wait().map_err(|e| format!("cannot wait for the server: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        *RUNNING.lock().expect("no holder panics") = None;
        let _ = self.child.kill(); // it may have ended already
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        let grouped = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(grouped, ["0", "999", "1 000", "1 234 567"]);
    }
}
