//! A client that keeps the protocol, and verifies all the time that reads return what it has
//! written.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{PATIENCE, V2, now, pattern, wait_until};

/// Number of blocks at the start of the namespace that only the polite client uses.
pub(crate) const BLOCKS: u64 = 64;

/// A client in a thread that writes 4 KiB and reads them back every millisecond until it is
/// dismissed.
pub(crate) struct PoliteClient {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    worst: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl PoliteClient {
    /// Starts the client, and waits until it was served once. The device must keep data, and others
    /// must leave the first [`BLOCKS`] blocks alone.
    pub(crate) fn start(address: SocketAddr) -> PoliteClient {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let worst = Arc::new(AtomicU64::new(0));
        let (stopped, counted, slowest) = (stop.clone(), rounds.clone(), worst.clone());
        let thread = std::thread::spawn(move || {
            let mut v2 = V2::connect(address);
            for round in 0u64.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (lba, version) = (round % (BLOCKS / 8) * 8, round as u8);
                let data = pattern(lba, 8, version);
                let started = now();
                v2.write_blocks(lba, &data, false);
                assert_eq!(v2.read_blocks(lba, 8), data, "round {round}");
                slowest.fetch_max(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                counted.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let polite = PoliteClient { stop, rounds, worst, thread: Some(thread) };
        polite.is_served();
        polite
    }

    /// Waits until the client has been served three times more.
    pub(crate) fn is_served(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        wait_until("the polite client is served", PATIENCE, || {
            let thread = self.thread.as_ref().expect("not dismissed");
            assert!(!thread.is_finished(), "the polite client came to harm");
            self.rounds.load(Ordering::Relaxed) >= before + 3
        });
    }

    /// Returns the longest round so far: the time of a write and of the read after it.
    pub(crate) fn worst(&self) -> Duration {
        Duration::from_millis(self.worst.load(Ordering::Relaxed))
    }

    /// Ends the client, and asserts that it was served to the end. Returns the longest round, a
    /// write and the read after it.
    pub(crate) fn dismiss(mut self) -> Duration {
        self.is_served();
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("not dismissed yet");
        assert!(thread.join().is_ok(), "the polite client came to harm");
        self.worst()
    }
}

impl Drop for PoliteClient {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
