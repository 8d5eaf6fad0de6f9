//! A load of concurrent changes of every kind on a volume until the server fails, and the check of
//! the volume's contents after it.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use wire::reflex_v2::Opcode;

use super::chance::Rng;
use super::ledger::{BLOCK, Contents, Ledger};
use super::reflex::{Connection, Reply, Request};

/// The number of requests that the load keeps in flight.
const DEPTH: usize = 16;

/// The largest request of the load, in blocks of the ledger.
const BLOCKS_MAX: u64 = 4;

/// The time before the end of a load with [`Mix::Flushes`] in which it sends no flush, so that a
/// failure can lose something.
const WITHOUT_FLUSH: Duration = Duration::from_millis(200);

/// The status of a request that the server did not carry out, and that may be sent again.
const RETRY: u16 = 14;

/// The longest that a server may stay silent with requests in flight: longer than a flush takes on
/// a disk that others keep busy.
const SILENCE_MAX: Duration = Duration::from_secs(180);

/// The number of blocks of one read when the volume is checked.
const READ_BLOCKS: usize = 64;

/// The largest number of wrong sectors of a volume that are described.
const TOLD_MAX: usize = 10;

/// The largest number of wrong sectors of one block that are described.
const TOLD_OF_BLOCK_MAX: usize = 2;

/// The acknowledgements after which a change must survive the failure of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DurabilityPromise {
    /// Acknowledged writes with forced unit access, and writes acknowledged before a flush: the
    /// power may fail.
    Durable,
    /// All acknowledged changes: only the server may die.
    All,
}

/// The way a load asks for durability. A sync for one request covers all others, so a load that
/// mixes both ways could hide a server that ignores one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// The load sends occasional flushes and no forced unit access. Near its end it sends no flush.
    Flushes,
    /// The load writes with forced unit access, and sends no flushes.
    Forced,
    /// The load sends flushes, and writes with forced unit access.
    Both,
}

/// A load on the volume behind a connection, which records its changes in a ledger.
pub(super) struct Load<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) ledger: &'a mut Ledger,
    pub(super) chance: &'a mut Rng,
    pub(super) promise: DurabilityPromise,
    pub(super) mix: Mix,
}

/// The numbers of acknowledged requests of a load, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) plain: u64,
    pub(super) forced: u64,
    pub(super) zeroed: u64,
    pub(super) flushes: u64,
    /// The number of requests that were in flight when the connection ended.
    pub(super) unanswered: u64,
}

/// A request in flight, with the data that the ledger needs when it is acknowledged.
enum Pending {
    Change { first: usize, count: usize, generation: u32, forced: bool, contents: Contents },
    Flush { mark: u64 },
}

impl Counts {
    /// Returns `true` if requests of each kind that decides about durability were acknowledged.
    fn cover(self, mix: Mix) -> bool {
        let flushed = mix == Mix::Forced || self.flushes > 0;
        let forced = mix == Mix::Flushes || self.forced > 0;
        self.plain > 0 && flushed && forced
    }
}

impl<'a> Load<'a> {
    /// Returns a load of changes of all kinds on a server that must keep each of them.
    pub(super) fn of_all(
        connection: &'a mut Connection,
        ledger: &'a mut Ledger,
        chance: &'a mut Rng,
    ) -> Load<'a> {
        Load { connection, ledger, chance, promise: DurabilityPromise::All, mix: Mix::Both }
    }

    /// Runs the load until its counts cover its mix and then for `time`, calls `happen`, which
    /// makes the server fail, and goes on receiving until the connection ends.
    pub(super) fn until(mut self, time: Duration, happen: impl FnOnce()) -> Result<Counts, String> {
        let mut pending = BTreeMap::new();
        let mut counts = Counts::default();
        let mut happen = Some(happen);
        let mut covered: Option<Instant> = None;
        loop {
            let past = covered.map(|since| since.elapsed());
            let is_early = past.is_none_or(|past| past + WITHOUT_FLUSH < time);
            // A flush before any acknowledged write would promise nothing.
            let flush_percent = if counts.plain == 0 { 0 } else { self.flush_percent(is_early) };
            let filled = match happen.is_some() {
                true => self.fill(&mut pending, flush_percent),
                false => Ok(()),
            };
            if past.is_some_and(|past| past >= time)
                && let Some(happen) = happen.take()
            {
                // A random pause of a random magnitude, so that the failure meets the requests at
                // different stages in the server. An emulated server is slower.
                let scales = match self.promise {
                    DurabilityPromise::Durable => [30, 300, 3000, 30_000],
                    DurabilityPromise::All => [1, 1, 10, 100],
                };
                let scale = scales[self.chance.below(4) as usize];
                std::thread::sleep(Duration::from_micros(self.chance.below(scale)));
                happen();
            }
            match filled.and_then(|()| self.connection.receive(SILENCE_MAX)) {
                Ok(Some(reply)) => {
                    self.take(&reply, &mut pending, &mut counts)?;
                    if covered.is_none() && counts.cover(self.mix) {
                        covered = Some(Instant::now());
                    }
                }
                Ok(None) => return Err(format!("no answer for {SILENCE_MAX:?}")),
                Err(error) if happen.is_some() => return Err(format!("connection lost: {error}")),
                Err(_) => {
                    counts.unanswered = pending.len() as u64;
                    return Ok(counts);
                }
            }
        }
    }

    /// Runs the load until the connection ends, or until `is_over` and all requests are answered. A
    /// request that the server did not carry out, and says so, counts as unanswered.
    pub(super) fn across(mut self, is_over: impl Fn() -> bool) -> Result<Counts, String> {
        let (mut pending, mut counts, mut refused) = (BTreeMap::new(), Counts::default(), 0);
        loop {
            let ends = is_over();
            let filled = match ends {
                true if pending.is_empty() => Ok(false),
                true => Ok(true),
                false => self.fill(&mut pending, self.flush_percent(true)).map(|()| true),
            };
            let received = match filled {
                Ok(false) => break,
                Ok(true) => self.connection.receive(SILENCE_MAX),
                Err(error) => Err(error),
            };
            match received {
                Ok(Some(reply)) if reply.status == RETRY => {
                    refused += u64::from(pending.remove(&reply.tag).is_some());
                }
                Ok(Some(reply)) => self.take(&reply, &mut pending, &mut counts)?,
                Ok(None) => return Err(format!("no answer for {SILENCE_MAX:?}")),
                Err(_) => break,
            }
        }
        counts.unanswered = refused + pending.len() as u64;
        Ok(counts)
    }

    /// Runs the load for `time`, and waits until all requests are answered.
    pub(super) fn for_time(mut self, time: Duration) -> Result<Counts, String> {
        let mut pending = BTreeMap::new();
        let mut counts = Counts::default();
        let started = Instant::now();
        while started.elapsed() < time || !pending.is_empty() {
            let filled = match started.elapsed() < time {
                true => self.fill(&mut pending, self.flush_percent(true)),
                false => Ok(()),
            };
            let outcome = filled.and_then(|()| self.connection.receive(SILENCE_MAX));
            match outcome.map_err(|error| format!("connection lost: {error}"))? {
                Some(reply) => self.take(&reply, &mut pending, &mut counts)?,
                None => return Err(format!("no answer for {SILENCE_MAX:?}")),
            }
        }
        Ok(counts)
    }

    /// Returns the percentage of flushes among requests; `is_early` is `false` near the load's end.
    fn flush_percent(&self, is_early: bool) -> u64 {
        match self.mix {
            Mix::Flushes if is_early => 3,
            Mix::Flushes | Mix::Forced => 0,
            Mix::Both => 6,
        }
    }

    /// Sends random requests until [`DEPTH`] of them are in flight.
    fn fill(&mut self, pending: &mut BTreeMap<u64, Pending>, flush_percent: u64) -> io::Result<()> {
        while pending.len() < DEPTH {
            if self.chance.below(100) < flush_percent {
                let request = Request { opcode: Opcode::FLUSH, offset: 0, bytes: 0, forced: false };
                let mark = self.ledger.mark();
                pending.insert(self.connection.send(request, &[])?, Pending::Flush { mark });
                continue;
            }
            let count = 1 + self.chance.below(BLOCKS_MAX) as usize;
            let first = self.chance.below((self.ledger.len() - count) as u64) as usize;
            let overlaps = |other: &Pending| match other {
                Pending::Change { first: f, count: c, .. } => first < f + c && *f < first + count,
                Pending::Flush { .. } => false,
            };
            // Each block has at most one change in flight, so that the order of its changes is
            // known.
            if pending.values().any(overlaps) {
                continue;
            }
            let (opcode, forced) = match self.chance.below(100) {
                0..47 => (Opcode::WRITE, false),
                47..79 => (Opcode::WRITE, true),
                79..87 => (Opcode::DISCARD, false),
                87..94 => (Opcode::WRITE_ZEROES, false),
                _ => (Opcode::WRITE_ZEROES, true),
            };
            let forced = forced && self.mix != Mix::Flushes;
            let contents = if opcode == Opcode::WRITE { Contents::Data } else { Contents::Zeroes };
            let generation = self.ledger.issue(first, count, contents);
            let mut payload = Vec::new();
            if contents == Contents::Data {
                payload.resize(count * BLOCK, 0);
                for (number, bytes) in payload.chunks_exact_mut(BLOCK).enumerate() {
                    self.ledger.fill(first + number, generation, bytes);
                }
            }
            let (offset, bytes) = (first * BLOCK, count * BLOCK);
            let tag = self.connection.send(Request { opcode, offset, bytes, forced }, &payload)?;
            let change = Pending::Change { first, count, generation, forced, contents };
            pending.insert(tag, change);
        }
        Ok(())
    }

    fn take(
        &mut self,
        reply: &Reply,
        pending: &mut BTreeMap<u64, Pending>,
        counts: &mut Counts,
    ) -> Result<(), String> {
        // Unsolicited notices belong to no request.
        let Some(request) = pending.remove(&reply.tag) else { return Ok(()) };
        if reply.status != 0 {
            return Err(format!("a request ended with status {}", reply.status));
        }
        match request {
            Pending::Flush { mark } => {
                counts.flushes += 1;
                self.ledger.flushed(mark);
            }
            Pending::Change { first, count, generation, forced, contents } => {
                let kept = forced || self.promise == DurabilityPromise::All;
                self.ledger.acknowledge(first, count, generation, kept);
                match (forced, contents) {
                    (true, _) => counts.forced += 1,
                    (false, Contents::Data) => counts.plain += 1,
                    (false, Contents::Zeroes) => counts.zeroed += 1,
                }
            }
        }
        Ok(())
    }
}

/// The result of checking a whole volume after a crash.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The number of sectors with wrong contents; `told` describes the first few.
    pub(super) wrong: usize,
    pub(super) told: Vec<String>,
    /// The number of blocks that lost an acknowledged change whose survival was not promised.
    pub(super) lost_unpromised: u64,
}

/// Reads the whole volume, compares it with the ledger, and takes what was found as the ledger's
/// new state.
pub(super) fn survey(connection: &mut Connection, ledger: &mut Ledger) -> Result<Survey, String> {
    let mut survey = Survey::default();
    for first in (0..ledger.len()).step_by(READ_BLOCKS) {
        let count = READ_BLOCKS.min(ledger.len() - first);
        let data = connection.read(first * BLOCK, count * BLOCK)?;
        for (number, bytes) in data.chunks_exact(BLOCK).enumerate() {
            let finding = ledger.settle(first + number, bytes);
            survey.wrong += finding.wrong.len();
            survey.lost_unpromised += u64::from(finding.lost_unpromised);
            let room = (TOLD_MAX - survey.told.len()).min(TOLD_OF_BLOCK_MAX);
            survey.told.extend(finding.wrong.into_iter().take(room));
        }
    }
    Ok(survey)
}

impl Survey {
    /// Returns an error that describes wrong sectors, if there are any.
    pub(super) fn verdict(&self) -> Result<(), String> {
        match self.wrong {
            0 => Ok(()),
            wrong => Err(format!(
                "{wrong} sectors are not what was promised, such as:\n{}",
                self.told.join("\n")
            )),
        }
    }
}
