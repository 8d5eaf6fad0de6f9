//! A check that needs two threads: a queue reads while another queue writes the same blocks.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use contract::{
    BLOCK_BYTES, Buf, BufPool, Command, Completion, Device, Instant, Range, SlotTable, Submission,
};

/// The blocks that the writer writes and the reader reads: 64 KiB.
const RANGE: Range = Range::new(8, 128);
/// Requests that each side keeps in flight.
const DEPTH: usize = 4;

/// A thread's queue, and the resources to use the queue.
#[derive(Debug)]
pub struct TestQueue<'a, D, P> {
    /// A queue to a volume that all threads share.
    pub queue: D,
    /// Buffers of this thread; some hold at least 64 KiB.
    pub pool: &'a mut BufPool,
    /// Advances the time of this thread's simulated world, like
    /// [`Bench::pass`](super::Bench::pass).
    pub pass: P,
}

/// The numbers of blocks that a reader found torn, and of changes that it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// Blocks that mixed two generations of data.
    pub torn: u64,
    /// Number of reads whose first block had another generation than in the previous read.
    pub changes: u64,
}

impl<D: Device, P: FnMut(Option<Instant>) -> Instant> TestQueue<'_, D, P> {
    /// Writes the same blocks again and again, each time with a new generation. Sets `is_over`
    /// after `rounds` writes, or on a panic.
    pub fn write_generations(&mut self, rounds: u64, is_over: &AtomicBool) {
        let _over = EndFlagGuard(is_over);
        let mut begun = 0;
        let write = Command::Write { range: RANGE, fua: false };
        self.keep_busy(
            write,
            |buf| {
                begun += 1;
                let word = u64::to_le_bytes(begun);
                buf.bytes_mut().chunks_exact_mut(8).for_each(|bytes| bytes.copy_from_slice(&word));
                begun <= rounds
            },
            |_| {},
        );
    }

    /// Reads the blocks until the writer has set `is_over`; returns the reader's counts.
    pub fn read_generations(&mut self, is_over: &AtomicBool) -> ReaderCounts {
        let (mut seen, mut last) = (ReaderCounts::default(), 0);
        self.keep_busy(
            Command::Read(RANGE),
            |_| !is_over.load(Ordering::Acquire),
            |buf| {
                for block in buf.bytes()[..RANGE.bytes()].chunks_exact(BLOCK_BYTES) {
                    let is_whole = block.chunks_exact(8).all(|word| *word == block[..8]);
                    seen.torn += u64::from(!is_whole);
                }
                let first = u64::from_le_bytes(*buf.bytes().first_chunk().expect("a block"));
                seen.changes += u64::from(first != last);
                last = first;
            },
        );
        seen
    }

    /// Keeps requests in flight while `prepare` returns `true`, and shows each ended request's
    /// buffer to `look`. Returns once all requests have ended.
    fn keep_busy(
        &mut self,
        command: Command,
        mut prepare: impl FnMut(&mut Buf) -> bool,
        mut look: impl FnMut(&Buf),
    ) {
        let mut slots: SlotTable<()> = SlotTable::new(DEPTH);
        let mut now = (self.pass)(Some(Instant::ZERO));
        let (mut goes_on, mut done) = (true, Vec::new());
        while goes_on || !slots.is_empty() {
            while goes_on && slots.room() > 0 && self.queue.room() > 0 {
                let mut buf = self.pool.take(RANGE.bytes()).expect("the pool is too small");
                goes_on = prepare(&mut buf);
                if goes_on {
                    let slot = slots.insert(()).expect("room was checked");
                    self.queue.submit(now, Submission { slot, command, buf: Some(buf) });
                } else {
                    self.pool.give(buf);
                }
            }
            self.queue.kick(now);
            now = (self.pass)(self.queue.wake_at());
            self.queue.poll(now, &mut done);
            for Completion { slot, status, buf } in done.drain(..) {
                slots.remove(slot);
                assert!(status.is_ok(), "{command:?}: {status}");
                let buf = buf.expect("a buffer comes back");
                look(&buf);
                self.pool.give(buf);
            }
        }
    }
}

/// Sets the flag when dropped, so that no reader waits for a writer that has panicked.
struct EndFlagGuard<'a>(&'a AtomicBool);

impl Drop for EndFlagGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
