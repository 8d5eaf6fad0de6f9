//! Stall times: how long the machine kept runnable threads of a server and its clients from
//! running. No scheduling of requests can avoid stalls, so reports of latency state them.
//!
//! The kernel counts this time for each thread (`schedstat`), and the time that the host of a
//! virtual machine took (`steal`). Both are sums, so single stalls cannot be told apart.

use std::fs;
use std::time::Duration;

use crate::report::time_text;

/// The duration of a tick of `/proc/stat`.
const TICK: Duration = Duration::from_millis(10);

/// The time for which runnable threads were kept from running, summed over threads or processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StallTime {
    /// The time for which the server's threads waited for a processor.
    pub(crate) server: Duration,
    /// The time for which the clients' threads waited for a processor.
    pub(crate) clients: Duration,
    /// The time, summed over processors, in which the host ran other virtual machines.
    pub(crate) host: Duration,
}

impl StallTime {
    /// Returns the stall times until now: of the server with the process id `server`, of the
    /// clients in this process, and of the machine. Times that the kernel does not report are zero.
    pub(crate) fn until_now(server: u32) -> StallTime {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        StallTime {
            server: waited(&server.to_string()),
            clients: waited("self"),
            host: stolen(&stat).unwrap_or_default(),
        }
    }

    /// Returns the stall times since `earlier`.
    pub(crate) fn since(&self, earlier: &StallTime) -> StallTime {
        StallTime {
            server: self.server.saturating_sub(earlier.server),
            clients: self.clients.saturating_sub(earlier.clients),
            host: self.host.saturating_sub(earlier.host),
        }
    }

    /// Returns the three stall times as text, with their units.
    pub(crate) fn text(&self) -> String {
        let [server, clients, host] =
            [self.server, self.clients, self.host].map(|time| time_text(time.as_nanos() as f64));
        format!(
            "time without a processor: server {server}, clients {clients}, taken by the host {host}"
        )
    }

    /// Returns the sum of the stall times of the server, the clients and the machine.
    pub(crate) fn sum(&self) -> Duration {
        self.server + self.clients + self.host
    }
}

/// Returns the total time for which the threads of a process were runnable but did not run.
/// `process` is an id or `self`.
fn waited(process: &str) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Duration::ZERO };
    let account = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        waited_of_thread(&text)
    };
    threads.flatten().filter_map(account).sum()
}

/// Parses the second number of a thread's schedstat: the nanoseconds for which the thread was
/// runnable but did not run.
fn waited_of_thread(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// Parses the first line of `/proc/stat`: its eighth number is the time stolen by the host, in
/// ticks over all processors.
fn stolen(stat: &str) -> Option<Duration> {
    let ticks: u32 = stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    TICK.checked_mul(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(waited_of_thread("918 4200000 3\n"), Some(Duration::from_micros(4_200)));
        assert_eq!(waited_of_thread(""), None);
        let stat = "cpu  10 0 20 30 0 0 1 7 0 0\ncpu0 5 0 10 15 0 0 1 3 0 0\n";
        assert_eq!(stolen(stat), Some(Duration::from_millis(70)));
        assert_eq!(stolen("cpu 1 2\n"), None);
    }

    #[test]
    fn a_thread_that_is_there_has_an_account() {
        let before = StallTime::until_now(std::process::id());
        let after = StallTime::until_now(std::process::id());
        assert!(after.clients >= before.clients && after.server >= before.server);
        let none = StallTime::until_now(u32::MAX);
        assert_eq!(none.server, Duration::ZERO, "there is no such process");
    }
}
