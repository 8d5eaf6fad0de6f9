//! `cargo xtask takeover`: has a new process take over a thousand connections, and then the
//! controllers of NVMe hosts, from a serving process under loads that verify their reads.
//!
//! Each round starts a server and a load, and has a second server take over in the middle of the
//! load. It reads times and pauses from the new server's report, and errors and lost connections
//! from the load's. Nothing is pinned: the client and both servers share the processors, as in
//! production.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::machine;
use super::process::{self, PACKET_LINK, STOP, Server};
use xtask::shell;

/// The targets: the most milliseconds of a whole take-over, and of the pause of 99 of 100
/// connections.
const TOTAL_MS_MAX: f64 = 500.0;
const PAUSE_P99_MS_MAX: f64 = 50.0;

/// The subsystem that NVMe hosts connect to.
const NQN: &str = "nqn.2026-11.io.nearflash:takeover";

/// Options of `cargo xtask takeover`.
#[derive(Args)]
pub(crate) struct TakeoverOptions {
    /// Measure this many rounds with each protocol
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Connections of protocol reflex; 0 skips these rounds
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// Controllers of NVMe hosts; 0 skips these rounds
    #[arg(long, default_value_t = 125)]
    nvme: usize,
    /// I/O queues of each controller. Each of them, and the admin queue, is a connection
    #[arg(long, default_value_t = 7)]
    nvme_queues: usize,
    /// Keep this many requests of each connection or I/O queue in flight
    #[arg(long, default_value_t = 1)]
    queue_depth: usize,
    /// Serve a volume of flash translation of this size (such as 64GiB) in place of a file
    #[arg(long)]
    volume: Option<String>,
    /// Put the device into this folder, which is made [default: one in memory]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Measure this program [default: built as it is shipped]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Write the table, with the machine and the command lines, to this Markdown file
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// The clients of one round, which load the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// Connections of one client of protocol `reflex`.
    Reflex { connections: usize },
    /// NVMe hosts with one controller each.
    Nvme { controllers: usize, queues: usize },
    /// Connections of one NBD client.
    Nbd { connections: usize },
    /// Connections of one client of protocol `reflex` over packets, which share its associations.
    /// They do not move: the client dials again.
    Packets { connections: usize, associations: usize },
}

impl Crowd {
    /// Returns the clients of each kind of round that the options select.
    fn all(options: &TakeoverOptions) -> Vec<Crowd> {
        let reflex = Crowd::Reflex { connections: options.connections };
        let nvme = Crowd::Nvme { controllers: options.nvme, queues: options.nvme_queues.max(1) };
        [reflex, nvme].into_iter().filter(|crowd| crowd.connections() > 0).collect()
    }

    fn connections(self) -> usize {
        match self {
            Crowd::Reflex { connections }
            | Crowd::Nbd { connections }
            | Crowd::Packets { connections, .. } => connections,
            Crowd::Nvme { controllers, queues } => controllers * (1 + queues),
        }
    }

    /// Returns the number of connections that carry load; the connection of an admin queue does
    /// not.
    fn carriers(self) -> usize {
        match self {
            Crowd::Nvme { controllers, queues } => controllers * queues,
            _ => self.connections(),
        }
    }

    /// Waits until the load is under way at the server with this admin socket, on all connections
    /// that carry it.
    fn await_load(self, program: &Path, admin: &Path) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < LOAD_MAX {
            let mut list = Command::new(program);
            list.args(["conn", "list", "--json", "--admin"]).arg(admin).stdin(Stdio::null());
            let output = list.output().map_err(|error| format!("the list: {error}"))?;
            let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let all = list["connections"].as_array().into_iter().flatten();
            let carry = all.filter(|one| one["messages"].as_u64() > Some(UNDER_WAY)).count();
            if carry >= self.carriers() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("the load is not under way within {} s", LOAD_MAX.as_secs()))
    }

    /// Returns the URL at which the server listens, with a free port of loopback.
    fn url(self) -> &'static str {
        match self {
            Crowd::Reflex { .. } => "reflex://127.0.0.1:0",
            Crowd::Nvme { .. } => "nvme-tcp://127.0.0.1:0",
            Crowd::Nbd { .. } => "nbd://127.0.0.1:0",
            Crowd::Packets { .. } => "reflex+udp://127.0.0.1:0",
        }
    }

    /// Returns the arguments of `nearflash bench`: the URL of the server at `address`, and the
    /// load's threads and connections.
    fn load(self, address: &str) -> [String; 5] {
        let (target, threads, connections) = match self {
            Crowd::Nvme { controllers, queues } => {
                (format!("{address}/{NQN}"), controllers, controllers * queues)
            }
            _ => (address.to_owned(), 1, self.connections()),
        };
        let (threads, connections) = (threads.to_string(), connections.to_string());
        [target, "--threads".to_owned(), threads, "--connections".to_owned(), connections]
    }
}

impl fmt::Display for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crowd::Reflex { .. } => f.write_str("reflex"),
            Crowd::Nbd { .. } => f.write_str("NBD"),
            Crowd::Packets { .. } => f.write_str("reflex+udp"),
            Crowd::Nvme { controllers, queues } => {
                write!(f, "NVMe/TCP, {controllers} controllers of {queues} I/O queues")
            }
        }
    }
}

/// The results of one round, a take-over under load.
struct Round {
    crowd: Crowd,
    connections: f64,
    total_ms: f64,
    pause_p50_ms: f64,
    pause_p99_ms: f64,
    pause_max_ms: f64,
    left: f64,
    /// The longest latency that the client saw, in milliseconds.
    client_max_ms: f64,
    requests: u64,
    /// The number of times that the load lost a connection and connected again.
    lost: usize,
    wrong: u64,
}

/// A round to measure: the program, its device, and the load on it.
#[derive(Clone, Copy)]
struct Subject<'a> {
    program: &'a Path,
    pace: Pace,
    crowd: Crowd,
    queue_depth: usize,
    /// The size of a volume of flash translation; `None` for a file.
    volume: Option<&'a str>,
    /// The folder of the device; `None` for one in memory.
    folder: Option<&'a Path>,
}

impl<'a> Subject<'a> {
    /// Returns a round with a file, and one request in flight.
    fn of_file(program: &'a Path, pace: Pace, crowd: Crowd) -> Subject<'a> {
        Subject { program, pace, crowd, queue_depth: 1, volume: None, folder: None }
    }

    /// Makes the device in a folder, and returns its specification.
    fn make(&self, folder: &Path) -> Result<String, String> {
        let path = folder.join("device");
        let path = path.display();
        let Some(size) = self.volume else { return Ok(format!("file:{path}?size=256MiB")) };
        let spec = format!("ftl:file:{path}");
        let mut create = Command::new(self.program);
        shell::show(create.args(["ftl", "create", &format!("{spec}?size={size}")]))?;
        Ok(spec)
    }
}

/// The durations of a measured round, in seconds.
#[derive(Clone, Copy)]
struct Pace {
    /// The seconds of load before it is measured.
    warmup: u64,
    /// The seconds of measured load after the warm-up.
    seconds: u64,
    /// The seconds from the start of the load to the start of the new process. With `None`, the new
    /// process starts once the load is under way, and the load ends once it is under way at the new
    /// process.
    upgrade: Option<u64>,
}

/// The durations of a round whose load is measured.
const STEADY: Pace = Pace { warmup: 2, seconds: 8, upgrade: Some(5) };

/// The durations of a round that only passes or fails. Its load ends after the take-over.
const SHORT: Pace = Pace { warmup: 0, seconds: 600, upgrade: None };

/// The number of messages that a server has from each connection of a load that is under way.
const UNDER_WAY: u64 = 50;

/// The time limit for a load to get under way at a server.
const LOAD_MAX: Duration = Duration::from_secs(60);

impl Round {
    fn is_met(&self) -> bool {
        let in_time = self.total_ms <= TOTAL_MS_MAX && self.pause_p99_ms <= PAUSE_P99_MS_MAX;
        self.is_whole() && in_time
    }

    /// Returns `true` if all connections moved and no client lost one, whatever the duration.
    fn is_whole(&self) -> bool {
        // The load's first, short connection may still be open, and is moved like the others.
        let moved = self.connections >= self.crowd.connections() as f64 && self.left == 0.0;
        moved && self.lost == 0 && self.wrong == 0 && self.requests > 0
    }
}

/// The outcome of a take-over under a load over packets, whose client dials again.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedialResult {
    /// The longest latency that the client saw, in milliseconds: the longest pause.
    pub(super) longest_ms: f64,
    /// The number of requests, and of those that failed or returned wrong data.
    pub(super) requests: u64,
    pub(super) wrong: u64,
}

/// Runs one take-over under a load over packets, which is measured for `seconds`.
pub(super) fn over_packets(
    program: &Path,
    (connections, associations): (usize, usize),
    seconds: u64,
) -> Result<RedialResult, String> {
    let crowd = Crowd::Packets { connections, associations };
    let pace = Pace { warmup: 1, seconds, upgrade: Some(1 + seconds / 2) };
    let round = measure(Subject::of_file(program, pace, crowd), None)?;
    let Round { client_max_ms: longest_ms, requests, wrong, .. } = round;
    Ok(RedialResult { longest_ms, requests, wrong })
}

/// Runs one take-over under a load that verifies its data, and fails unless all connections moved
/// without the clients' notice. The duration is not checked.
pub(crate) fn check(program: &Path, folder: &Path, crowd: Crowd) -> Result<String, String> {
    let round = measure_in(folder, Subject::of_file(program, SHORT, crowd), None)?;
    let text = table(std::slice::from_ref(&round));
    if !round.is_whole() {
        return Err(format!("not everything moved unseen:\n{text}"));
    }
    Ok(format!("{} connections, {} requests verified", round.connections, round.requests))
}

/// Measures all rounds and prints the table. Fails if a target is missed.
pub(crate) fn run(options: &TakeoverOptions) -> Result<(), String> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            shell::show(&mut shell::cargo(&[
                "build",
                "--profile",
                "dist",
                "--package",
                "nearflash-cli",
            ]))?;
            shell::root().join("target/dist/nearflash")
        }
    };
    process::raise_descriptor_limit()?;
    let machine = machine::describe();
    println!("{machine}\n");
    let (mut rounds, mut commands) = (Vec::new(), Vec::new());
    for crowd in Crowd::all(options) {
        for n in 0..options.rounds.max(1) {
            println!("{crowd}: round {} …", n + 1);
            let shown = (n == 0).then_some(&mut commands);
            let subject = Subject {
                program: &program,
                pace: STEADY,
                crowd,
                queue_depth: options.queue_depth,
                volume: options.volume.as_deref(),
                folder: options.folder.as_deref(),
            };
            rounds.push(measure(subject, shown)?);
        }
    }
    let text = table(&rounds);
    println!("\n{text}");
    if let Some(path) = &options.output {
        let document = document(&machine.to_string(), &text, &commands);
        std::fs::write(path, document).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    match rounds.iter().filter(|round| !round.is_met()).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} of {} rounds missed a target", rounds.len())),
    }
}

/// Measures one round in a folder in memory, which is removed afterwards.
fn measure(subject: Subject<'_>, commands: Option<&mut Vec<String>>) -> Result<Round, String> {
    let parent = subject.folder.unwrap_or(Path::new("/dev/shm"));
    let folder = parent.join(format!("nearflash-takeover-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let measured = measure_in(&folder, subject, commands);
    std::fs::remove_dir_all(&folder).map_err(failed)?;
    measured
}

fn measure_in(
    folder: &Path,
    subject: Subject<'_>,
    commands: Option<&mut Vec<String>>,
) -> Result<Round, String> {
    let Subject { program, pace, crowd, .. } = subject;
    let (admin, log, notes) = (folder.join("admin"), folder.join("log"), folder.join("notes"));
    let create = |path: &Path| File::create(path).map_err(|error| error.to_string());
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let device = subject.make(folder)?;
    let config = folder.join("server.toml");
    let text = format!(
        "[[device]]\nname = \"disk\"\nspec = \"{device}\"\n[[listen]]\nurl = \"{}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\n",
        crowd.url()
    );
    std::fs::write(&config, text).map_err(|error| error.to_string())?;
    let mut serve = Command::new(program);
    serve.args(["serve", "--workers", "1", "--config"]).arg(&config).arg("--admin").arg(&admin);
    let old = Server::start_with(&mut serve, Stdio::null())?;
    let mut load = Command::new(program);
    load.arg("bench").args(crowd.load(&old.address));
    load.args(["--json", "--verify", "--read-percent", "50"]);
    load.args(["--warmup", &pace.warmup.to_string(), "--seconds", &pace.seconds.to_string()]);
    load.args(["--queue-depth", &subject.queue_depth.to_string()]);
    if pace.upgrade.is_none() {
        load.env(STOP, "");
    }
    if let Crowd::Packets { associations, .. } = crowd {
        load.env(PACKET_LINK, format!("associations={associations}"));
    }
    load.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(create(&notes)?);
    let spawned = load.spawn();
    let load_child = spawned.map_err(|error| format!("the load: {error}"))?;
    match pace.upgrade {
        Some(seconds) => std::thread::sleep(Duration::from_secs(seconds)),
        None => crowd.await_load(program, &admin)?,
    }
    let mut upgrade = Command::new(program);
    upgrade.args(serve.get_args()).arg("--upgrade");
    let new = Server::start_with(&mut upgrade, create(&log)?.into())?;
    if pace.upgrade.is_none() {
        crowd.await_load(program, &admin)?;
    }
    // This closes the load's standard input.
    let output = load_child.wait_with_output().map_err(|error| error.to_string())?;
    let (said, notes) = (read(&log)?, read(&notes)?);
    drop((new, old));
    let json: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the load says no JSON: {error}\n{notes}"))?;
    if let Some(commands) = commands {
        commands.extend([&serve, &load, &upgrade].map(process::show));
    }
    let line = said.lines().find(|line| line.contains("took over"));
    let line = line.ok_or_else(|| format!("no word of a take-over: {said}"))?;
    parse(crowd, line, &json, &notes)
}

/// Parses the line that the new process logged, and the load's output: its JSON and its notes.
fn parse(crowd: Crowd, line: &str, json: &Value, notes: &str) -> Result<Round, String> {
    let words = line.split(|c: char| !c.is_ascii_digit());
    let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    // … 1000 connections in 91 ms (… at most 1 µs, 99 of 100 for 2 µs, the longest for 3 µs); 0 end
    // …
    let [connections, total_ms, p50, _, _, p99, max, left] = numbers[..] else {
        return Err(format!("no such line was expected: {line}"));
    };
    let of = |side: &str, what: &str| json[side]["latency_us"][what].as_f64().unwrap_or(f64::NAN);
    let count = |what: &str| json[what].as_u64().unwrap_or(u64::MAX);
    let requests = |side: &str| json[side]["count"].as_u64().unwrap_or(0);
    let is_loss =
        |note: &&str| note.contains("connecting again") || note.contains("dialling again");
    Ok(Round {
        crowd,
        connections,
        total_ms,
        pause_p50_ms: p50 / 1e3,
        pause_p99_ms: p99 / 1e3,
        pause_max_ms: max / 1e3,
        left,
        client_max_ms: of("read", "max").max(of("write", "max")) / 1e3,
        requests: requests("read") + requests("write"),
        lost: notes.lines().filter(is_loss).count(),
        wrong: count("errors").saturating_add(count("verify_failures")),
    })
}

fn table(rounds: &[Round]) -> String {
    let mut text = String::from(
        "| protocol | connections | total ms (≤ 500) | pause p50 ms | p99 ms (≤ 50) | longest ms | not moved | \
         client's longest request ms | its requests | opened again | errors, wrong data | verdict |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for round in rounds {
        text.push_str(&format!(
            "| {} | {} | {:.0} | {:.1} | {:.1} | {:.1} | {} | {:.1} | {} | {} | {} | {} |\n",
            round.crowd,
            round.connections,
            round.total_ms,
            round.pause_p50_ms,
            round.pause_p99_ms,
            round.pause_max_ms,
            round.left,
            round.client_max_ms,
            round.requests,
            round.lost,
            round.wrong,
            if round.is_met() { "met" } else { "MISSED" },
        ));
    }
    text
}

fn document(machine: &str, table: &str, commands: &[String]) -> String {
    format!(
        "# Taking over connections under load\n\nMade by `cargo xtask takeover`: client, old and new \
         server share the processors of one machine.\n\n```\n{machine}\n```\n\n{table}\nThe pause of a \
         connection is from when the old process stops to receive from it to when the new one \
         receives. All connections of an NVMe controller go together.\n\nThe command lines of a round \
         of each protocol (ports differ; `server.toml` has the device, the listener and the subsystem):\n\n```sh\n{}\n```\n",
        commands.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_what_both_say() {
        let line = "nearflash: took over 8 connections in 26 ms (half of them paused for at most 1569 \
                    µs, 99 of 100 for 2273 µs, the longest for 2300 µs); 0 end with the older process";
        let side = |max: f64| serde_json::json!({ "count": 5, "latency_us": { "max": max } });
        let json = serde_json::json!({
            "errors": 0, "verify_failures": 0, "read": side(4000.0), "write": side(9000.0),
        });
        let crowd = Crowd::Nvme { controllers: 2, queues: 3 };
        let round = parse(crowd, line, &json, "").unwrap();
        assert_eq!((round.connections, round.total_ms, round.left), (8.0, 26.0, 0.0));
        assert_eq!((round.pause_p99_ms, round.pause_max_ms), (2.273, 2.3));
        assert_eq!((round.client_max_ms, round.requests), (9.0, 10));
        assert!(round.is_met());
        let more = Round { crowd: Crowd::Reflex { connections: 9 }, ..round };
        assert!(!more.is_met(), "one is missing");
        let notes = "the controller is lost: it was reset; connecting again\n";
        let lost = parse(crowd, line, &json, notes).unwrap();
        assert!(lost.lost == 1 && !lost.is_met());
        assert!(parse(crowd, "took over", &json, "").is_err());
    }
}
