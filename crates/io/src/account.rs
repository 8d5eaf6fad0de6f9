//! The kernel's account of a thread: the time for which it waited for a processor.
//!
//! The account is a file of `/proc` that any thread of the process may read. Kernels without
//! scheduler statistics have none.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The time that a runnable thread may take to start on a machine with a free processor, with a
/// wide margin.
const BEGIN: Duration = Duration::from_micros(50);

/// The waits of a thread for a processor, from its start to the moment of the reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWaits {
    /// The time for which the thread was runnable but not running.
    time: Duration,
    /// The number of times that the thread was scheduled in.
    runs: u64,
}

impl CpuWaits {
    /// Returns the time since `earlier` for which the thread waited because others ran. It leaves
    /// out 50 µs for each time that the thread was scheduled in.
    pub fn since(&self, earlier: &CpuWaits) -> Duration {
        let runs = u32::try_from(self.runs.saturating_sub(earlier.runs)).unwrap_or(u32::MAX);
        self.time.saturating_sub(earlier.time).saturating_sub(BEGIN.saturating_mul(runs))
    }
}

/// The kernel's scheduling account of one thread.
#[derive(Debug)]
pub struct ThreadAccount {
    file: File,
}

impl ThreadAccount {
    /// Opens the scheduling account of the calling thread; `None` if the kernel has none.
    pub fn of_this_thread() -> Option<ThreadAccount> {
        let file = File::open("/proc/thread-self/schedstat").ok()?;
        let account = ThreadAccount { file };
        account.waits().map(|_| account)
    }

    /// Returns the waits since the start of the thread; `None` once the thread has ended. A wait
    /// counts from its end on.
    pub fn waits(&self) -> Option<CpuWaits> {
        let mut text = [0; 64];
        let length = self.file.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Parses the text of a `schedstat` file: its second number, the wait in nanoseconds, and its
/// third, the count of runs. `None` if one is missing or no number.
fn parse(text: &str) -> Option<CpuWaits> {
    let mut numbers = text.split_whitespace().skip(1).map(|number| number.parse().ok());
    let (nanos, runs) = (numbers.next()??, numbers.next()??);
    Some(CpuWaits { time: Duration::from_nanos(nanos), runs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_as_the_kernel_writes_them() {
        let waits = CpuWaits { time: Duration::from_micros(4_200), runs: 3 };
        assert_eq!(parse("918 4200000 3\n"), Some(waits));
        assert_eq!((parse("918"), parse("918 4200000")), (None, None));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_thread_that_often_begins_to_run_is_not_kept_waiting() {
        let waits = |micros, runs| CpuWaits { time: Duration::from_micros(micros), runs };
        let before = waits(1_000, 10);
        assert_eq!(waits(21_000, 2_010).since(&before), Duration::ZERO);
        assert_eq!(waits(21_000, 15).since(&before), Duration::from_micros(19_750));
        assert_eq!(before.since(&waits(21_000, 15)), Duration::ZERO);
    }

    #[test]
    fn another_thread_reads_an_account_until_its_thread_has_ended() {
        let (account, ends) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            account.0.send(ThreadAccount::of_this_thread()).unwrap();
            ends.1.recv().unwrap();
        });
        let account = account.1.recv().unwrap();
        let before = account.as_ref().map(ThreadAccount::waits);
        ends.0.send(()).unwrap();
        thread.join().unwrap();
        let Some(account) = account else { return };
        assert!(before.flatten().is_some());
        // A thread is joined a moment before the kernel has put it away.
        let ended = (0..10_000).any(|_| {
            let ended = account.waits().is_none();
            if !ended {
                std::thread::sleep(Duration::from_millis(1));
            }
            ended
        });
        assert!(ended);
    }
}
