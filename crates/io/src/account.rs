//! The kernel's account of a thread: for how long it was ready to run and did not.
//!
//! The account is a file of `/proc`, which any thread of the process may read. Kernels without
//! scheduler statistics have none.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The kernel's account of one thread.
#[derive(Debug)]
pub struct ThreadAccount {
    file: File,
}

impl ThreadAccount {
    /// Opens the account of the calling thread; `None` where the kernel has none.
    pub fn of_this_thread() -> Option<ThreadAccount> {
        let file = File::open("/proc/thread-self/schedstat").ok()?;
        let account = ThreadAccount { file };
        account.waited().map(|_| account)
    }

    /// Returns the time for which the thread was ready to run and did not, since its start. A wait
    /// counts from its end on. `None` once the thread has ended.
    pub fn waited(&self) -> Option<Duration> {
        let mut text = [0; 64];
        let length = self.file.read_at(&mut text, 0).ok()?;
        parse(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Returns the second number of an account, in nanoseconds.
fn parse(text: &str) -> Option<Duration> {
    text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse("918 4200000 3\n"), Some(Duration::from_micros(4_200)));
        assert_eq!(parse("918"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn another_thread_reads_an_account_until_its_thread_has_ended() {
        let (account, ends) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            account.0.send(ThreadAccount::of_this_thread()).unwrap();
            ends.1.recv().unwrap();
        });
        let account = account.1.recv().unwrap();
        let before = account.as_ref().map(ThreadAccount::waited);
        ends.0.send(()).unwrap();
        thread.join().unwrap();
        let Some(account) = account else { return };
        assert!(before.flatten().is_some());
        assert_eq!(account.waited(), None);
    }
}
