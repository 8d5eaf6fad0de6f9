//! The kernel's accounts of the server's workers, of a probe and of the threads that deliver
//! packets when a processor has much to do: the time for which they could have run and did not,
//! because other work had the processors.
//!
//! A read that was late for this says nothing about the server. The attackers' own processor time
//! is other work, too: attackers have machines of their own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The time that a runnable thread may take to start on a machine with a free processor, with a
/// wide margin: as the server counts it in `nearflash_worker_waited_seconds_total`.
const BEGIN: Duration = Duration::from_micros(50);

/// The account of a thread: its processor time, its waits for a processor, and the number of times
/// that it began to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTimes {
    pub(crate) ran: Duration,
    waited: Duration,
    runs: u32,
}

impl ThreadTimes {
    /// Reads a file `schedstat` of `/proc`. Of a thread that has ended, returns zeroes.
    pub(crate) fn read(file: &File) -> ThreadTimes {
        let mut text = [0; 64];
        let length = file.read_at(&mut text, 0).unwrap_or(0);
        std::str::from_utf8(&text[..length]).ok().and_then(ThreadTimes::parse).unwrap_or_default()
    }

    fn parse(text: &str) -> Option<ThreadTimes> {
        let mut numbers = text.split_whitespace();
        let mut time = || numbers.next()?.parse().ok().map(Duration::from_nanos);
        let (ran, waited) = (time()?, time()?);
        let runs: u64 = numbers.next()?.parse().ok()?;
        Some(ThreadTimes { ran, waited, runs: runs as u32 })
    }

    /// Returns the time since `earlier` for which the thread waited because others ran.
    pub(crate) fn taken_since(&self, earlier: &ThreadTimes) -> Duration {
        let waited = self.waited.saturating_sub(earlier.waited);
        waited.saturating_sub(BEGIN.saturating_mul(self.runs.wrapping_sub(earlier.runs)))
    }
}

/// The accounts of the workers of a server, of the kernel's threads that deliver packets, and, of a
/// probe, of its thread.
pub(super) struct Accounts {
    workers: Vec<File>,
    kernel: Vec<File>,
    own: Option<File>,
}

/// The figures of all accounts at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    workers: Vec<ThreadTimes>,
    kernel: Vec<ThreadTimes>,
    own: ThreadTimes,
}

impl Accounts {
    /// Opens the accounts of the workers of the server with this process id.
    pub(super) fn of_workers(server: u32) -> Result<Accounts, String> {
        let workers = named(&format!("/proc/{server}/task"), "worker-")?;
        if workers.is_empty() {
            return Err(format!("no thread of process {server} is a worker"));
        }
        let kernel = named("/proc", "ksoftirqd/")?;
        Ok(Accounts { workers, kernel, own: None })
    }

    /// Adds the account of the calling thread.
    pub(super) fn with_own(mut self) -> Accounts {
        self.own = File::open("/proc/thread-self/schedstat").ok();
        self
    }

    pub(super) fn read(&self) -> Reading {
        let own = self.own.as_ref().map(ThreadTimes::read).unwrap_or_default();
        let all = |files: &[File]| files.iter().map(ThreadTimes::read).collect();
        Reading { workers: all(&self.workers), kernel: all(&self.kernel), own }
    }
}

impl Reading {
    /// Returns the time since `earlier` that was taken from a request: from the probe, from the
    /// worker from which most was taken, and from such a thread of the kernel.
    pub(super) fn taken_since(&self, earlier: &Reading) -> Duration {
        let most = |now: &[ThreadTimes], then: &[ThreadTimes]| {
            let pairs = now.iter().zip(then);
            pairs.map(|(now, then)| now.taken_since(then)).max().unwrap_or_default()
        };
        let workers = most(&self.workers, &earlier.workers);
        let kernel = most(&self.kernel, &earlier.kernel);
        workers + kernel + self.own.taken_since(&earlier.own)
    }

    /// Returns the processor time of all workers since `earlier`.
    pub(super) fn ran_since(&self, earlier: &Reading) -> Duration {
        let pairs = self.workers.iter().zip(&earlier.workers);
        pairs.map(|(now, then)| now.ran.saturating_sub(then.ran)).sum()
    }
}

/// Opens the accounts of the threads or processes in a folder of `/proc` whose names begin so. One
/// that has ended since has no name.
pub(crate) fn named(folder: &str, beginning: &str) -> Result<Vec<File>, String> {
    let failed = |error: std::io::Error| format!("{folder}: {error}");
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.starts_with(beginning) {
            found.push(File::open(path.join("schedstat")).map_err(failed)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(waited_us: u64, runs: u32) -> ThreadTimes {
        ThreadTimes { ran: Duration::ZERO, waited: Duration::from_micros(waited_us), runs }
    }

    #[test]
    fn accounts_are_read_as_the_kernel_writes_them() {
        let read = ThreadTimes::parse("918 4200000 3\n").unwrap();
        assert_eq!(read, ThreadTimes { ran: Duration::from_nanos(918), ..waits(4200, 3) });
        assert_eq!(ThreadTimes::parse("918 4200"), None);
    }

    #[test]
    fn a_request_loses_what_its_probe_and_one_worker_lost() {
        let workers = vec![waits(0, 0), waits(500, 7)];
        let before = Reading { workers, kernel: vec![waits(0, 0)], own: waits(10, 1) };
        let workers = vec![waits(900, 2), waits(700, 8)];
        let after = Reading { workers, kernel: vec![waits(80, 1)], own: waits(370, 2) };
        assert_eq!(after.taken_since(&before), Duration::from_micros(800 + 30 + 310));
        assert_eq!(before.taken_since(&before), Duration::ZERO);
    }

    #[test]
    fn a_process_without_workers_has_no_accounts() {
        assert!(Accounts::of_workers(std::process::id()).is_err());
    }
}
