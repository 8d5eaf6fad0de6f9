//! Tests of a new process that takes over under a load that verifies its reads: no request is lost
//! or answered wrongly, and no connection stays behind. `cargo xtask takeover` measures what a
//! take-over costs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use wire::reflex_v2::Opcode;
use xtask::shell;

use super::chance::Rng;
use super::context::{Context, Verdict};
use super::kill_server::{Report, RunningLoad, in_memory};
use super::ledger::{BLOCK, Ledger};
use super::load::{Load, survey};
use super::port::free_port;
use super::reflex::{Connection, Request};
use crate::bench::process::Server;
use crate::bench::takeover::{Crowd, check};

/// The time limit for a process to serve after the other was killed.
const SERVES_MAX: Duration = Duration::from_secs(60);

/// The time limit for a server to accept a connection.
const HELLO_MAX: Duration = Duration::from_secs(10);

/// The bytes of the volume that the ledger has.
const LEDGER_BYTES: usize = 32 << 20;

/// The time for which a load goes on after the last kill, so that all its connections are back.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// The longest time from the start of a new process to a kill, in milliseconds: longer than a
/// take-over takes.
const KILL_MS_MAX: u64 = 250;

/// Tests the take-over of connections of protocol `reflex`.
pub(super) fn reflex(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Reflex { connections: 50 })
}

/// Tests the take-over of controllers of NVMe hosts.
pub(super) fn nvme(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nvme { controllers: 6, queues: 3 })
}

/// Tests the take-over of connections of an NBD client.
pub(super) fn nbd(context: &Context) -> Result<Verdict, String> {
    take_over(context, Crowd::Nbd { connections: 16 })
}

fn take_over(context: &Context, crowd: Crowd) -> Result<Verdict, String> {
    check(&context.nearflash, &context.folder, crowd).map(Verdict::Passed)
}

/// Tests the take-over of a server with a volume of flash translation: several in a row under a
/// load that verifies its reads, and then some in whose middle the older or the newer process is
/// killed, after which every acknowledged change must be there.
pub(super) fn volume(context: &Context) -> Result<Verdict, String> {
    in_memory(|folder| HandOverTrial::begin(context, folder)?.run(context.quick, context.seed))
}

/// A server with a volume of flash translation.
struct HandOverTrial<'a> {
    program: &'a Path,
    folder: &'a Path,
    device: String,
    port: u16,
    server: Server,
}

impl<'a> HandOverTrial<'a> {
    fn begin(context: &'a Context, folder: &'a Path) -> Result<HandOverTrial<'a>, String> {
        let device = format!("ftl:file:{}", folder.join("volume").display());
        let program = context.nearflash.as_path();
        let mut create = Command::new(program);
        let sizes = format!("{device}?size=128MiB&ftl.segment=256KiB");
        shell::show(create.args(["ftl", "create", &sizes]))?;
        let port = free_port()?;
        let server = Server::start(&mut serve(program, folder, &device, port))?;
        Ok(HandOverTrial { program, folder, device, port, server })
    }

    fn run(mut self, quick: bool, seed: u64) -> Result<Verdict, String> {
        let (takeovers, kills) = if quick { (3, 4) } else { (10, 20) };
        let mut chance = Rng::new(seed ^ 77);
        let report = self.take_over(takeovers, seed, &mut chance)?;
        let across = self.kill_under_verifying(kills, seed, &mut chance)?;
        let (kept, unanswered) = self.kill(kills, &mut chance)?;
        signal(self.server.id(), Signal::TERM);
        if !self.server.ends_in_order(SERVES_MAX)? {
            return Err("the last server failed".to_owned());
        }
        let mut check = Command::new(self.program);
        let checked = shell::capture(check.args(["ftl", "check", &self.device]), SERVES_MAX)?;
        if !checked.ok || !checked.output.contains("pages damaged: 0") {
            return Err(checked.output);
        }
        Ok(Verdict::Passed(format!(
            "{takeovers} take-overs, {} reads, {} writes, none lost, none wrong; {kills} with a kill: \
             {} reads, {} writes, none lost, none wrong; {kills} more: {kept} acknowledged changes \
             are there, {unanswered} were in flight",
            report.read.count, report.write.count, across.read.count, across.write.count
        )))
    }

    /// Has new processes take over under a load that verifies its reads.
    fn take_over(&mut self, times: u32, seed: u64, chance: &mut Rng) -> Result<Report, String> {
        let load = self.verifying(seed)?;
        for _ in 0..times {
            thread::sleep(Duration::from_millis(300 + chance.below(400)));
            let newer = Server::start(&mut self.upgrade())?;
            let older = std::mem::replace(&mut self.server, newer);
            if !older.ends_in_order(SERVES_MAX)? {
                return Err("the older process failed".to_owned());
            }
        }
        thread::sleep(Duration::from_millis(300));
        Report::sound(load.end()?)
    }

    /// Starts a load that verifies its reads.
    fn verifying(&self, seed: u64) -> Result<RunningLoad, String> {
        let mut load = Command::new(self.program);
        load.args(["bench", &format!("reflex://{}", self.address()), "--verify", "--json"]);
        load.args(["--read-percent", "50", "--connections", "4", "--queue-depth", "8"]);
        load.args(["--seconds", "600", "--warmup", "0", "--seed", &seed.to_string()]);
        RunningLoad::start(&mut load)
    }

    /// Kills the older and the newer process of take-overs in turns, under a load that verifies its
    /// reads: it also reads what was never acknowledged.
    fn kill_under_verifying(
        &mut self,
        times: u32,
        seed: u64,
        chance: &mut Rng,
    ) -> Result<Report, String> {
        let load = self.verifying(seed + 1)?;
        for n in 0..times {
            thread::sleep(Duration::from_millis(300 + chance.below(400)));
            let after = Duration::from_millis(chance.below(KILL_MS_MAX));
            match n % 2 {
                0 => self.kill_older(after)?,
                _ => self.kill_newer(after)?,
            }
        }
        thread::sleep(AFTERWARDS);
        Report::sound(load.end()?)
    }

    /// Kills the older and the newer process of take-overs in turns, under a client that keeps a
    /// ledger, and compares all blocks after each. Returns the numbers of acknowledged changes, and
    /// of requests that were in flight.
    fn kill(&mut self, times: u32, chance: &mut Rng) -> Result<(u64, u64), String> {
        let mut ledger = Ledger::new(77 << 40, LEDGER_BYTES / BLOCK);
        self.zero()?;
        let (mut kept, mut unanswered) = (0, 0);
        for n in 0..times {
            let mut connection = Connection::open(&self.address(), HELLO_MAX)?;
            survey(&mut connection, &mut ledger)?.verdict()?;
            let after = Duration::from_millis(chance.below(KILL_MS_MAX));
            let load = Load::of_all(&mut connection, &mut ledger, chance);
            let (counts, outcome) = thread::scope(|scope| {
                let killer = scope.spawn(|| match n % 2 {
                    0 => self.kill_older(after),
                    _ => self.kill_newer(after),
                });
                let counts = load.across(|| killer.is_finished());
                (counts, killer.join())
            });
            let counts = counts?;
            outcome.map_err(|_| "the killer panicked".to_owned())??;
            kept += counts.plain + counts.forced + counts.zeroed;
            unanswered += counts.unanswered;
        }
        let mut connection = Connection::open(&self.address(), HELLO_MAX)?;
        survey(&mut connection, &mut ledger)?.verdict()?;
        Ok((kept, unanswered))
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Zeroes the blocks of the ledger, as it begins.
    fn zero(&self) -> Result<(), String> {
        let mut connection = Connection::open(&self.address(), HELLO_MAX)?;
        for offset in (0..LEDGER_BYTES).step_by(1 << 20) {
            let opcode = Opcode::WRITE_ZEROES;
            let request = Request { opcode, offset, bytes: 1 << 20, forced: false };
            connection.send(request, &[]).map_err(|error| error.to_string())?;
            let reply = connection.receive(SERVES_MAX).map_err(|error| error.to_string())?;
            if reply.is_none_or(|reply| reply.status != 0) {
                return Err("the blocks cannot be zeroed".to_owned());
            }
        }
        Ok(())
    }

    fn upgrade(&self) -> Command {
        let mut command = serve(self.program, self.folder, &self.device, self.port);
        command.arg("--upgrade");
        command
    }

    /// Starts a server in the place of the present one, and tries again as long as the kernel keeps
    /// files locked that a killed process had.
    fn start(&mut self) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match Server::start(&mut self.upgrade()) {
                Err(error) if began.elapsed() > SERVES_MAX => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(100)),
                Ok(server) => {
                    self.server = server;
                    return Ok(());
                }
            }
        }
    }

    /// Kills the older process of a take-over. The newer one serves then.
    fn kill_older(&mut self, after: Duration) -> Result<(), String> {
        let older = self.server.id();
        let killer = thread::spawn(move || {
            thread::sleep(after);
            signal(older, Signal::KILL);
        });
        self.start()?;
        killer.join().map_err(|_| "the killer panicked".to_owned())
    }

    /// Kills the newer process of a take-over. The older one serves then, if the take-over was not
    /// over; otherwise another server is started.
    fn kill_newer(&mut self, after: Duration) -> Result<(), String> {
        let mut upgrade = self.upgrade();
        upgrade.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut newer = upgrade.spawn().map_err(|error| format!("the newer: {error}"))?;
        thread::sleep(after);
        newer.kill().and_then(|()| newer.wait()).map_err(|error| error.to_string())?;
        let began = Instant::now();
        while began.elapsed() < SERVES_MAX {
            if self.server.has_ended()? {
                return self.start();
            }
            if Connection::open(&self.address(), Duration::from_millis(500)).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err("the older process does not serve after the newer one was killed".to_owned())
    }
}

/// Returns the command of a server of the device at `port`.
fn serve(program: &Path, folder: &Path, device: &str, port: u16) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", "--workers", "1", "--device", device]);
    command.args(["--listen", &format!("reflex://127.0.0.1:{port}"), "--admin"]);
    command.arg(folder.join("admin"));
    command
}

/// Sends a signal to a child of this process.
fn signal(child: u32, signal: Signal) {
    let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
    // It may have ended by itself in this instant.
    let _gone = pid.map(|pid| kill_process(pid, signal));
}
