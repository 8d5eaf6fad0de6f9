//! Tests that kill the server under load and start it again: every acknowledged write is there, and
//! clients reconnect.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::chance::Rng;
use super::context::{Context, Verdict};
use super::ledger::{BLOCK, Ledger};
use super::load::{Load, survey};
use super::port::{far_ends, free_port};
use super::reflex::Connection;
use crate::bench::process::{STOP, Server};
use xtask::shell;

const VOLUME_BYTES: usize = 32 << 20;

/// Bytes of the member of a volume of flash translation, and those of the volume that are changed:
/// nearly all that it has.
const MEMBER_BYTES: usize = 24 << 20;
const TRANSLATED_BYTES: usize = 12 << 20;

/// The time limit for all kills of a test.
const KILLS_LIMIT: Duration = Duration::from_secs(45 * 60);

/// The time limit for starting a server whose predecessor was killed. The kernel frees the
/// predecessor's ring late (after seconds on a busy machine), and the volume stays locked until
/// then.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The connections of the load generator that runs across the kills.
const CONNECTIONS: usize = 4;

/// The time for which it goes on once all of them are at the last server.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// The time limit for the server's end after a request to end.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The fields that the tests read from the output of `nearflash bench --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Report {
    pub(super) errors: u64,
    pub(super) verify_failures: u64,
    pub(super) read: OperationFigures,
    pub(super) write: OperationFigures,
}

/// The figures of reads, or of writes, in a [`Report`].
#[derive(Debug, Deserialize)]
pub(super) struct OperationFigures {
    pub(super) count: u64,
}

impl Report {
    /// Finds the JSON object in the output of `nearflash bench`, and parses it.
    pub(super) fn find(output: &str) -> Result<Report, String> {
        let line = output.lines().find(|line| line.starts_with('{'));
        let line = line.ok_or_else(|| format!("no report in:\n{output}"))?;
        serde_json::from_str(line).map_err(|error| format!("{error} in {line}"))
    }

    /// Returns the report of a load that has read and written.
    ///
    /// # Errors
    /// Fails if a request was lost, or read wrong data.
    pub(super) fn sound(ran: Output) -> Result<Report, String> {
        let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        let output = said.concat();
        let report = Report::find(&output)?;
        if report.verify_failures > 0 {
            return Err(format!("{} verify failures:\n{output}", report.verify_failures));
        }
        if report.errors > 0 {
            return Err(format!("{} requests were lost:\n{output}", report.errors));
        }
        if report.read.count == 0 || report.write.count == 0 {
            return Err(format!("nothing was done:\n{output}"));
        }
        Ok(report)
    }
}

/// Starts a server of the file `volume` at `port`, and tries again while its killed predecessor
/// still locks the file.
pub(super) fn start(context: &Context, volume: &Path, port: u16) -> Result<Server, String> {
    serve(context, &file_device(volume), port)
}

/// Returns the device of the file `volume`.
fn file_device(volume: &Path) -> String {
    format!("file:{}?size={VOLUME_BYTES}", volume.display())
}

/// Starts a server of a device at `port`, and tries again while its killed predecessor still locks
/// the device.
fn serve(context: &Context, device: &str, port: u16) -> Result<Server, String> {
    let mut command = Command::new(&context.nearflash);
    command.args(["serve", "--admin", "none", "--workers", "1", "--device", device]);
    command.args(["--listen", &format!("reflex://127.0.0.1:{port}")]);
    let started = Instant::now();
    loop {
        match Server::start(&mut command) {
            Err(error) if started.elapsed() > START_LIMIT => return Err(error),
            // The server itself waits some seconds, then reports that the volume is in use.
            Err(_) => println!("    not yet ready after {:.1} s", started.elapsed().as_secs_f64()),
            ready => return ready,
        }
    }
}

/// Kills the server several times under a client that keeps a ledger. Every acknowledged change
/// must survive, flushed or not, because only the server dies and not the machine.
pub(super) fn ledger(context: &Context) -> Result<Verdict, String> {
    let volume = context.folder.join("volume");
    let device = file_device(&volume);
    killed(context, &device, VOLUME_BYTES / BLOCK, 700)
}

/// Kills a server of a volume of flash translation, as [`ledger`] does. The volume is small, so
/// that its collector is at work when the server dies.
pub(super) fn translated(context: &Context) -> Result<Verdict, String> {
    let volume = context.folder.join("volume");
    let device = format!("ftl:file:{}", volume.display());
    let mut create = Command::new(&context.nearflash);
    create.args(["ftl", "create", &format!("{device}?size={MEMBER_BYTES}&ftl.spare=40%")]);
    let made = create.output().map_err(|error| format!("nearflash ftl create: {error}"))?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned());
    }
    let verdict = killed(context, &device, TRANSLATED_BYTES / BLOCK, 150)?;
    in_memory(|folder| across_kills_of_a_volume(context, folder))?;
    let mut check = Command::new(&context.nearflash);
    let checked = check.args(["ftl", "check", &device]).output();
    let checked = checked.map_err(|error| format!("nearflash ftl check: {error}"))?;
    match checked.status.success() {
        true => Ok(verdict),
        false => Err(String::from_utf8_lossy(&checked.stdout).into_owned()),
    }
}

/// Kills servers of another volume of flash translation under the load that verifies its reads. Its
/// blocks end with checksums of their own, and it also reads what was never acknowledged.
fn across_kills_of_a_volume(context: &Context, folder: &Path) -> Result<Verdict, String> {
    let device = format!("ftl:file:{}", folder.join("volume").display());
    let mut create = Command::new(&context.nearflash);
    let sizes = format!("{device}?size=128MiB&ftl.segment=256KiB");
    shell::show(create.args(["ftl", "create", &sizes]))?;
    bench_on(context, &device, if context.quick { 8 } else { 30 })
}

/// Kills servers of a device, each at most `most` milliseconds after the shortest load, and checks
/// the first `blocks` blocks after each kill.
fn killed(context: &Context, device: &str, blocks: usize, most: u64) -> Result<Verdict, String> {
    let mut ledger = Ledger::new(55 << 40, blocks);
    let mut chance = Rng::new(context.seed ^ 55);
    let (mut kept, mut unanswered) = (0, 0);
    let kills = context.kills.unwrap_or(if context.quick { 4 } else { 8 });
    let started = Instant::now();
    for kill in 0..kills {
        if started.elapsed() > KILLS_LIMIT {
            let minutes = KILLS_LIMIT.as_secs() / 60;
            return Err(format!("nothing lost in {kill} kills, but {kills} need > {minutes} min"));
        }
        let port = free_port()?;
        let server = serve(context, device, port)?;
        let mut connection =
            Connection::open(&format!("127.0.0.1:{port}"), Duration::from_secs(10))?;
        survey(&mut connection, &mut ledger)?.verdict().map_err(|e| format!("kill {kill}: {e}"))?;
        let time = Duration::from_millis(150 + chance.below(most));
        let load = Load::of_all(&mut connection, &mut ledger, &mut chance);
        let counts = load.until(time, || drop(server))?;
        kept += counts.plain + counts.forced + counts.zeroed;
        unanswered += counts.unanswered;
    }
    let port = free_port()?;
    let _server = serve(context, device, port)?;
    let mut connection = Connection::open(&format!("127.0.0.1:{port}"), Duration::from_secs(10))?;
    survey(&mut connection, &mut ledger)?.verdict()?;
    if unanswered == 0 {
        return Err("no request was in flight when the server died".to_owned());
    }
    Ok(Verdict::Passed(format!(
        "{kills} kills in {:.0} s: {kept} acknowledged changes are there, {unanswered} were in flight",
        started.elapsed().as_secs_f64()
    )))
}

/// Runs the load generator across two kills of the server. It reconnects, repeats what is safe to
/// repeat, and must find no error. The volume is in memory, so that a disk that others keep busy
/// does not look like a server that does not answer.
pub(super) fn bench(context: &Context) -> Result<Verdict, String> {
    in_memory(|folder| bench_on(context, &file_device(&folder.join("volume")), 2))
}

/// Runs a test with an empty folder in memory, which is removed afterwards.
pub(super) fn in_memory(
    test: impl FnOnce(&Path) -> Result<Verdict, String>,
) -> Result<Verdict, String> {
    let name = format!("nearflash-interop-{}", std::process::id());
    let folder = Path::new("/dev/shm").join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let outcome = test(&folder);
    fs::remove_dir_all(&folder).map_err(failed)?;
    outcome
}

/// A load that runs until its standard input is closed, and whose output is read meanwhile.
pub(super) struct RunningLoad {
    id: u32,
    input: Option<ChildStdin>,
    output: Receiver<std::io::Result<Output>>,
}

impl RunningLoad {
    pub(super) fn start(command: &mut Command) -> Result<RunningLoad, String> {
        command.env(STOP, "").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("the load: {error}"))?;
        let (id, input) = (child.id(), child.stdin.take());
        let (sender, output) = channel();
        thread::spawn(move || {
            // The other end is gone only when the time limit has passed.
            let _unheard = sender.send(child.wait_with_output());
        });
        Ok(RunningLoad { id, input, output })
    }

    /// Ends the load, and returns its output. Kills it after a time limit.
    pub(super) fn end(self) -> Result<Output, String> {
        drop(self.input);
        match self.output.recv_timeout(END_LIMIT) {
            Ok(ran) => ran.map_err(|error| format!("the load: {error}")),
            Err(_) => {
                let child = i32::try_from(self.id).ok().and_then(Pid::from_raw);
                // It may have ended by itself in this instant.
                let _gone = child.map(|child| kill_process(child, Signal::KILL));
                Err(format!("the load did not end within {} s", END_LIMIT.as_secs()))
            }
        }
    }
}

fn bench_on(context: &Context, device: &str, kills: u32) -> Result<Verdict, String> {
    let port = free_port()?;
    let mut server = serve(context, device, port)?;
    let mut command = Command::new(&context.nearflash);
    command.args(["bench", &format!("reflex://127.0.0.1:{port}"), "--verify", "--json"]);
    let connections = CONNECTIONS.to_string();
    command.args(["--read-percent", "50", "--connections", &connections, "--queue-depth", "8"]);
    command.args(["--seconds", "600", "--warmup", "0", "--seed", &context.seed.to_string()]);
    let load = RunningLoad::start(&mut command)?;
    let mut old = BTreeSet::new();
    let mut chance = Rng::new(context.seed ^ 66);
    let started = Instant::now();
    for _ in 0..kills {
        thread::sleep(Duration::from_millis(1200 + chance.below(800)));
        // The kernel keeps them with the killed server's ring.
        old.append(&mut far_ends(port)?);
        drop(server);
        thread::sleep(Duration::from_millis(chance.below(300)));
        server = serve(context, device, port)?;
    }
    let last_start = started.elapsed();
    // The requests in flight of a connection that did not come back would count as errors.
    let is_back = || far_ends(port).map(|all| all.difference(&old).count() >= CONNECTIONS);
    while !is_back()? && started.elapsed() < last_start + START_LIMIT {
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(AFTERWARDS);
    let ran = load.end()?;
    drop(server);
    let report = Report::sound(ran)?;
    Ok(Verdict::Passed(format!(
        "{kills} kills, the last start after {:.1} s: {} reads, {} writes, none lost, none wrong",
        last_start.as_secs_f64(),
        report.read.count,
        report.write.count
    )))
}
