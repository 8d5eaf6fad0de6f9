//! The work of the two cores during a measurement: the processor time of the server's worker, and
//! the time that other work took from the server and from the client.
//!
//! The kernel's own threads for packets are a part of the network, so their time is not counted as
//! taken.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::bench::process::machine_cpu_nanos;
use crate::siege::account::{ThreadTimes, named};

/// The names with which threads of a server and of a client begin.
const WORKER: &str = "worker-";
const LOAD: &str = "load";

/// The length of a tick, the unit of `/proc/stat`.
const TICK: Duration = Duration::from_millis(10);

/// The accounts of both cores at one moment.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    at: Instant,
    /// The server's worker on core 0, and the client's thread on core 1.
    sides: [ThreadTimes; 2],
    /// The kernel's threads for packets on the two cores.
    kernel: [ThreadTimes; 2],
    /// The steal time of the two processors: time that the hypervisor gave to others.
    stolen: [Duration; 2],
}

/// The time that was spent between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SpentTime {
    /// The processor time of the server's worker, as a share of the time.
    pub(super) server: f64,
    /// The time that other work took from the server or the client, whichever lost more, as a share
    /// of the time.
    pub(super) taken: f64,
}

/// The open accounts of a server and its client.
pub(super) struct Watch {
    client: u32,
    sides: [Option<File>; 2],
    kernel: [Option<File>; 2],
}

impl Watch {
    /// Opens the accounts of a server's worker and of the kernel's threads.
    pub(super) fn new(server: u32) -> Watch {
        let kernel = [0, 1].map(|core| first("/proc", &format!("ksoftirqd/{core}\n")));
        Watch { client: 0, sides: [first(&threads(server), WORKER), None], kernel }
    }

    /// Watches the client with this process id, too, whose threads may not have started yet.
    pub(super) fn client(&mut self, id: u32) {
        self.client = id;
    }

    /// Reads all accounts. One that cannot be read has zeroes.
    pub(super) fn read(&mut self) -> Reading {
        if self.sides[1].is_none() {
            self.sides[1] = first(&threads(self.client), LOAD);
        }
        let read = |file: &Option<File>| file.as_ref().map(ThreadTimes::read).unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Reading {
            at: Instant::now(),
            sides: self.sides.each_ref().map(read),
            kernel: self.kernel.each_ref().map(read),
            stolen: [0, 1].map(|core| stolen(&stat, core)),
        }
    }
}

impl Reading {
    /// Returns what happened since an earlier reading.
    fn since(&self, earlier: &Reading) -> SpentTime {
        let time = (self.at - earlier.at).as_secs_f64().max(1e-9);
        let taken = |core: usize| {
            let waited = self.sides[core].taken_since(&earlier.sides[core]);
            let network = self.kernel[core].ran.saturating_sub(earlier.kernel[core].ran);
            let stolen = self.stolen[core].saturating_sub(earlier.stolen[core]);
            (waited.saturating_sub(network) + stolen).as_secs_f64() / time
        };
        let ran = self.sides[0].ran.saturating_sub(earlier.sides[0].ran);
        SpentTime { server: ran.as_secs_f64() / time, taken: taken(0).max(taken(1)) }
    }
}

/// Returns what happened in the last `length` of the readings, whose last is the end of the load.
pub(super) fn spent(readings: &[Reading], length: Duration) -> SpentTime {
    let Some(last) = readings.last() else { return SpentTime::default() };
    // The load was still under way a moment ago.
    let is_whole = |reading: &&Reading| last.at.duration_since(reading.at) <= length;
    let first = readings.iter().find(is_whole).unwrap_or(last);
    last.since(first)
}

/// A watch that separates the processor time of this process's children from that of other work.
pub(super) struct OtherWorkWatch {
    began: Instant,
    machine: Duration,
    ours: Duration,
}

impl OtherWorkWatch {
    pub(super) fn begin() -> OtherWorkWatch {
        OtherWorkWatch { began: Instant::now(), machine: machine(), ours: ours() }
    }

    /// Returns the share of all processors' time that other work has taken. Children count once
    /// they have ended.
    pub(super) fn share(&self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let time = self.began.elapsed().as_secs_f64().max(1e-9) * cores as f64;
        let ours = ours().saturating_sub(self.ours);
        machine().saturating_sub(self.machine).saturating_sub(ours).as_secs_f64() / time
    }
}

fn machine() -> Duration {
    Duration::from_nanos(machine_cpu_nanos().unwrap_or(0))
}

/// Returns the processor time of this process and of its ended children.
fn ours() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is the program's name in brackets, which may contain any character.
    let rest = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = rest.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u32>().ok());
    TICK * ticks.sum::<u32>()
}

/// Returns the processor time of all threads of a process so far.
pub(crate) fn ran(id: u32) -> Duration {
    let all = named(&threads(id), "").unwrap_or_default();
    all.iter().map(|thread| ThreadTimes::read(thread).ran).sum()
}

/// Opens the account of the first thread or process in a folder of `/proc` whose name begins so.
fn first(folder: &str, beginning: &str) -> Option<File> {
    named(folder, beginning).ok()?.into_iter().next()
}

/// Returns the folder of a process's threads.
pub(crate) fn threads(id: u32) -> String {
    format!("/proc/{id}/task")
}

/// Returns the time that the host took from a core since boot.
fn stolen(stat: &str, core: usize) -> Duration {
    let name = format!("cpu{core} ");
    let line = stat.lines().find(|line| line.starts_with(&name));
    let field = line.and_then(|line| line.split_whitespace().nth(8));
    TICK * field.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, ran_ms: u64, stolen_ms: u64) -> Reading {
        let mut ran = ThreadTimes::default();
        ran.ran = Duration::from_millis(ran_ms);
        let stolen = [Duration::ZERO, Duration::from_millis(stolen_ms)];
        Reading {
            at,
            sides: [ran, ThreadTimes::default()],
            kernel: [ThreadTimes::default(); 2],
            stolen,
        }
    }

    #[test]
    fn only_the_end_of_the_readings_counts() {
        let at = Instant::now();
        let later = |ms| at + Duration::from_millis(ms);
        let readings =
            [reading(at, 0, 0), reading(later(900), 100, 0), reading(later(1900), 600, 80)];
        let spent = spent(&readings, Duration::from_secs(1));
        assert_eq!(spent, SpentTime { server: 0.5, taken: 0.08 });
    }

    #[test]
    fn the_hosts_time_is_read_of_each_core() {
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 50 0 0\n";
        assert_eq!(stolen(stat, 0), Duration::from_millis(80));
        assert_eq!(stolen(stat, 1), Duration::from_millis(500));
        assert_eq!(stolen(stat, 2), Duration::ZERO);
    }
}
