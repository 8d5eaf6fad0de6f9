//! The probes: small reads of the tenants beside the attackers, each with its latency and with the
//! time that other work on the machine took from it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use wire::reflex_v2::Opcode;

use super::account::{Accounts, Reading};
use crate::interop::chance::Rng;
use crate::interop::reflex::{Connection, Reply, Request};

/// The size of a read, in bytes.
const BYTES: usize = 4096;

/// The reads of a probe are of these first bytes of its namespace.
const SPAN: u64 = 32 << 20;

/// The pause between two reads of a probe with one read at a time.
const PAUSE: Duration = Duration::from_millis(2);

/// The most reads in flight of a probe with a rate.
const IN_FLIGHT_MAX: usize = 48;

/// The time after which a read is given up, and the probe with it.
const LIMIT: Duration = Duration::from_secs(60);

/// The time limit for connecting to a server that has just started.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// A read that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProbeRead {
    /// The time at which it was due.
    pub(super) at: Instant,
    /// The latency, from when it was due.
    pub(super) took: Duration,
    /// The part of the latency for which the machine kept the probe or a worker from running.
    pub(super) taken: Duration,
}

impl ProbeRead {
    /// Returns the latency less the time that other work on the machine took.
    pub(super) fn net(&self) -> Duration {
        self.took.saturating_sub(self.taken)
    }
}

/// The place at which a probe connects.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Tcp(String),
    Unix(PathBuf),
}

/// The pace of a probe's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// A single read at a time, with a short pause between two.
    Alone,
    /// A fixed number of reads a second, even if earlier ones are not answered.
    Rate(u32),
}

/// A probe under way, which ends with this value.
pub(super) struct Probe {
    thread: JoinHandle<Result<Vec<ProbeRead>, String>>,
    ends: Arc<AtomicBool>,
}

impl Probe {
    /// Starts a probe of the server with this process id. `name` is for messages.
    pub(super) fn start(
        name: &'static str,
        target: Target,
        pace: Pace,
        server: u32,
    ) -> Result<Probe, String> {
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let connection = match &target {
            Target::Tcp(address) => Connection::open(address, OPEN_LIMIT)?,
            Target::Unix(path) => Connection::open_unix(path)
                .map_err(|error| format!("{}: {error}", path.display()))?,
        };
        let workers = Accounts::of_workers(server)?;
        let body = move || {
            let accounts = workers.with_own();
            let line = Line { connection, accounts, chance: Rng::new(9), reads: Vec::new() };
            let ran = match pace {
                Pace::Alone => line.alone(&told),
                Pace::Rate(rate) => line.paced(rate, &told),
            };
            ran.map_err(|error| format!("{name}: {error}"))
        };
        Ok(Probe { thread: std::thread::spawn(body), ends })
    }

    /// Ends the probe once its reads are answered, and returns all of them.
    pub(super) fn end(self) -> Result<Vec<ProbeRead>, String> {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "a probe panicked".to_owned())?
    }
}

/// The connection of a probe, in its thread.
struct Line {
    connection: Connection,
    accounts: Accounts,
    chance: Rng,
    reads: Vec<ProbeRead>,
}

impl Line {
    fn alone(mut self, ends: &AtomicBool) -> Result<Vec<ProbeRead>, String> {
        while !ends.load(Ordering::Relaxed) {
            let (at, before) = (Instant::now(), self.accounts.read());
            self.send()?;
            let reply = self.connection.receive(LIMIT).map_err(|error| error.to_string())?;
            self.take(&reply.ok_or_else(unanswered)?, at, &before)?;
            std::thread::sleep(PAUSE);
        }
        Ok(self.reads)
    }

    fn paced(mut self, rate: u32, ends: &AtomicBool) -> Result<Vec<ProbeRead>, String> {
        let (period, mut next) = (Duration::from_secs(1) / rate, Instant::now());
        let mut before = self.accounts.read();
        let mut due: VecDeque<(Instant, Reading)> = VecDeque::new();
        let mut pending: BTreeMap<u64, (Instant, Reading)> = BTreeMap::new();
        while !ends.load(Ordering::Relaxed) || !pending.is_empty() {
            let now = Instant::now();
            let goes_on = !ends.load(Ordering::Relaxed);
            while goes_on && next <= now {
                due.push_back((next, before.clone()));
                next += period;
            }
            while pending.len() < IN_FLIGHT_MAX
                && let Some(one) = due.pop_front()
            {
                pending.insert(self.send()?, one);
            }
            if let Some((first, _)) = pending.values().next()
                && now - *first > LIMIT
            {
                return Err(unanswered());
            }
            // The machine may take time from a read between this and the time at which it is due.
            before = self.accounts.read();
            let wait = next.saturating_duration_since(Instant::now());
            let wait = if goes_on { wait } else { Duration::from_millis(100) };
            let mut polled = [PollFd::new(&self.connection, PollFlags::IN)];
            let ready = poll(&mut polled, wait.try_into().ok().as_ref()).unwrap_or(0);
            if ready == 0 {
                continue;
            }
            let first = self.connection.receive(Duration::from_millis(1));
            let mut reply = first.map_err(|error| error.to_string())?;
            while let Some(one) = reply {
                let (at, before) = pending.remove(&one.tag).ok_or("a reply to no request")?;
                self.take(&one, at, &before)?;
                reply = self.connection.take_reply();
            }
        }
        Ok(self.reads)
    }

    fn send(&mut self) -> Result<u64, String> {
        let offset = self.chance.below(SPAN / BYTES as u64) as usize * BYTES;
        let read = Request { opcode: Opcode::READ, offset, bytes: BYTES, forced: false };
        self.connection.send(read, &[]).map_err(|error| error.to_string())
    }

    fn take(&mut self, reply: &Reply, at: Instant, before: &Reading) -> Result<(), String> {
        if reply.status != 0 || reply.body.len() != BYTES {
            return Err(format!("a read ended with status {}", reply.status));
        }
        let took = at.elapsed();
        let taken = self.accounts.read().taken_since(before).min(took);
        self.reads.push(ProbeRead { at, took, taken });
        Ok(())
    }
}

fn unanswered() -> String {
    format!("a read has no answer after {} s", LIMIT.as_secs())
}
