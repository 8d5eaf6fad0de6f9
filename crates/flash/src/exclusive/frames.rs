//! Frames: one copy of a page in memory, into which small writes go together.
//!
//! The first small write of a page gets the page: a frame holds the page's stripe alone, and reads
//! the page from the device. Others join it. The frame lingers for a while at most, then the writes
//! are applied in order, the page is written once, and all of them are answered. So what is
//! answered is as safe as any write of the device, and a crash takes no part of a page.
//!
//! While the page is being written, others wait for it to come back, unless a request waits that
//! is none of them; then the frame is given up after the write.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use core::time::Duration;

use contract::{Buf, Command, Completion, Device, Instant, Range, Slot, Status, Submission};

use super::ExclusiveQueue;
use super::op;
use crate::locks::{Claim, Mode};

/// Counters of small writes, for another thread. Only what has changed a page counts: a comparison
/// that failed costs no write, and what the device refused is not written.
#[derive(Debug, Default)]
pub struct SmallWriteCounters {
    writes: AtomicU64,
    pages: AtomicU64,
}

impl SmallWriteCounters {
    /// Returns the number of small writes that pages were written with.
    pub fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    /// Returns the number of pages that were written for them.
    pub fn pages(&self) -> u64 {
        self.pages.load(Relaxed)
    }
}

/// The frames of a queue.
#[derive(Debug)]
pub(super) struct Frames {
    resident: Vec<Frame>,
    /// Buffers of frames that are not in use.
    spare: Vec<Buf>,
    /// The time for which a frame waits for more plain writes.
    linger: Duration,
    absorption: Arc<SmallWriteCounters>,
    /// The fault that a test has put in.
    pub(super) sabotage: Option<Sabotage>,
}

/// A fault that a test puts into frames, to prove that it would be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sabotage {
    /// Writes are answered before their page is written.
    EarlyAnswers,
    /// Frames do not wait for their stripe, and do not hold it.
    NoClaim,
    /// A write that comes while the page is being written is taken for written.
    LateJoins,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for its stripe, which others hold.
    Claiming,
    /// Has its stripe, and the page is about to be read.
    Granted,
    /// The page is being read.
    Fetching,
    /// The page is here, and more writes may join.
    Gathering,
    /// The page is being written.
    Writing,
}

/// Small writes in the order of their arrival, linked through their requests.
#[derive(Clone, Copy, Debug)]
struct WriteChain {
    first: Slot,
    last: Slot,
}

/// A page in memory. The slot of its first write stands for it at the device below.
#[derive(Debug)]
struct Frame {
    /// The page, in blocks.
    page: Range,
    claim: Claim,
    state: State,
    /// The page's data; `None` while the device has the buffer.
    buf: Option<Buf>,
    /// The writes that the next or present write of the page carries out.
    line: WriteChain,
    /// The writes that came while the page was being written.
    next: Option<WriteChain>,
    due: Instant,
}

impl Frames {
    /// Returns no frames: small writes are carried out one by one.
    pub(super) fn none() -> Frames {
        Frames::new(Vec::new(), Duration::ZERO, Arc::default())
    }

    pub(super) fn new(
        spare: Vec<Buf>,
        linger: Duration,
        absorption: Arc<SmallWriteCounters>,
    ) -> Frames {
        Frames {
            resident: Vec::with_capacity(spare.len()),
            spare,
            linger,
            absorption,
            sabotage: None,
        }
    }

    /// Returns `true` if a command on a device with granules of so many blocks goes to a frame: it
    /// changes less than a granule, or compares and writes within one.
    pub(super) fn take(&self, command: Command, granule: u64) -> bool {
        let is_small = |range: Range| u64::from(op::cover(range, granule).blocks) == granule;
        let exists = self.resident.capacity() > 0;
        exists
            && match command {
                Command::Write { range, .. } | Command::WriteAtomic(range) => {
                    is_small(range) && !op::is_whole(range, granule)
                }
                Command::CompareAndWrite(range) => is_small(range),
                _ => false,
            }
    }

    /// Returns the number of frames that have nothing at the device, and will have.
    pub(super) fn idle(&self) -> usize {
        let is_idle = |frame: &&Frame| !matches!(frame.state, State::Fetching | State::Writing);
        self.resident.iter().filter(is_idle).count()
    }

    /// Returns the time at which a frame has waited long enough; `retry` is the time of the next
    /// try for those that wait for a stripe.
    pub(super) fn wake_at(&self, retry: Instant) -> Option<Instant> {
        let wake = |frame: &Frame| match frame.state {
            State::Claiming | State::Granted => Some(retry),
            State::Gathering => Some(frame.due),
            State::Fetching | State::Writing => None,
        };
        self.resident.iter().filter_map(wake).min()
    }

    /// Returns `true` if a frame waits for a stripe, which may be another frame's.
    fn wait(&self) -> bool {
        self.resident.iter().any(|frame| frame.state == State::Claiming)
    }

    fn is_sabotaged(&self, by: Sabotage) -> bool {
        self.sabotage == Some(by)
    }
}

impl<D: Device> ExclusiveQueue<D> {
    /// Carries small writes out in frames, one for each of the buffers, which hold a granule each.
    /// A frame waits `linger` for more plain writes, unless a request waits; a write that must be
    /// durable and a compare-and-write end the wait.
    #[must_use]
    pub fn with_frames(
        self,
        bufs: Vec<Buf>,
        linger: Duration,
        absorption: Arc<SmallWriteCounters>,
    ) -> Self {
        let granule = Range::new(0, self.granule as u32);
        assert!(
            bufs.iter().all(|buf| buf.capacity() >= granule.bytes()),
            "a frame holds a granule"
        );
        ExclusiveQueue { frames: Frames::new(bufs, linger, absorption), ..self }
    }

    /// Adds a small write to the frame of its page, which is opened if need be; returns `false` if
    /// the write must wait.
    pub(super) fn join(&mut self, now: Instant, slot: Slot, is_new: bool) -> bool {
        let op = self.ops.get(slot);
        let range = op.command.range().expect("a write has a range");
        let page = op::cover(range, self.granule);
        let lingers = matches!(op.command, Command::Write { fua: false, .. });
        let due = if lingers { now + self.frames.linger } else { now };
        let at = self.frames.resident.iter().position(|frame| frame.page == page);
        let Some(at) = at else {
            // Those that wait came first.
            return (!is_new || self.waiting.is_empty()) && self.open(page, slot, due);
        };
        let others_wait = !self.waiting.is_empty() || self.frames.wait();
        let takes_late = self.frames.is_sabotaged(Sabotage::LateJoins);
        let frame = &mut self.frames.resident[at];
        if frame.state != State::Writing || takes_late {
            frame.due = frame.due.min(due);
            let last = core::mem::replace(&mut frame.line.last, slot);
            self.ops.get(last).next = Some(slot);
            return true;
        }
        if others_wait {
            return false;
        }
        let line = frame.next.get_or_insert(WriteChain { first: slot, last: slot });
        let last = core::mem::replace(&mut line.last, slot);
        frame.due = if last == slot { due } else { frame.due.min(due) };
        if last != slot {
            self.ops.get(last).next = Some(slot);
        }
        true
    }

    fn open(&mut self, page: Range, slot: Slot, due: Instant) -> bool {
        let Some(buf) = self.frames.spare.pop() else { return false };
        let mut claim = match self.frames.is_sabotaged(Sabotage::NoClaim) {
            true => Claim::NOTHING,
            false => self.locks.claim(page, Mode::Alone),
        };
        // From here on its turn comes before that of later requests.
        let state = match self.locks.advance(&mut claim) {
            true => State::Granted,
            false => State::Claiming,
        };
        let line = WriteChain { first: slot, last: slot };
        let (buf, next) = (Some(buf), None);
        self.frames.resident.push(Frame { page, claim, state, buf, line, next, due });
        true
    }

    /// Continues the frames that wait for nothing below. Returns `true` if something went to the
    /// device.
    pub(super) fn tend(&mut self, now: Instant) -> bool {
        let mut submitted = false;
        for frame in &mut self.frames.resident {
            if frame.state == State::Claiming && self.locks.advance(&mut frame.claim) {
                frame.state = State::Granted;
            }
        }
        let is_crowded = !self.waiting.is_empty() || self.frames.wait();
        for at in (0..self.frames.resident.len()).rev() {
            let frame = &mut self.frames.resident[at];
            submitted |= match frame.state {
                State::Granted => {
                    frame.state = State::Fetching;
                    let (slot, command) = (frame.line.first, Command::Read(frame.page));
                    let buf = frame.buf.take();
                    self.inner.submit(now, Submission { slot, command, buf });
                    true
                }
                State::Gathering if is_crowded || frame.due <= now => self.write(now, at),
                _ => false,
            };
        }
        submitted
    }

    /// Applies the writes of a frame to its page, and writes the page if that changed it. Returns
    /// `true` if the page went to the device.
    fn write(&mut self, now: Instant, at: usize) -> bool {
        let answers_early = self.frames.is_sabotaged(Sabotage::EarlyAnswers);
        let frame = &mut self.frames.resident[at];
        let mut buf = frame.buf.take().expect("the page is here");
        let (mut command, mut next) = (None, Some(frame.line.first));
        while let Some(slot) = next {
            let op = self.ops.get(slot);
            let part = op.command.range().expect("a write has a range");
            match op.patch(part, self.granule, &mut buf) {
                Ok(write) => command = stronger(command, write),
                Err(refusal) => op.status = refusal,
            }
            if answers_early {
                let (slot, status, buf) = (op.slot, op.status, op.buf.take());
                self.refused.push(Completion { slot, status, buf });
            }
            next = op.next;
        }
        let frame = &mut self.frames.resident[at];
        let Some(command) = command else {
            frame.buf = Some(buf);
            self.end_round(now, at, Status::Ok);
            return false;
        };
        frame.state = State::Writing;
        let slot = frame.line.first;
        self.inner.submit(now, Submission { slot, command, buf: Some(buf) });
        true
    }

    /// Processes the end of a frame's read or write of its page.
    pub(super) fn land(&mut self, now: Instant, slot: Slot, status: Status, buf: Option<Buf>) {
        let mut frames = self.frames.resident.iter_mut();
        let at = frames.position(|frame| frame.line.first == slot).expect("it has a frame");
        let frame = &mut self.frames.resident[at];
        frame.buf = buf;
        if frame.state == State::Fetching && status.is_ok() {
            frame.state = State::Gathering;
            return;
        }
        self.end_round(now, at, status);
    }

    /// Answers the writes of a frame. The frame goes on with those that came meanwhile, or is given
    /// up.
    fn end_round(&mut self, now: Instant, at: usize, status: Status) {
        let is_written = self.frames.resident[at].state == State::Writing && status.is_ok();
        let (mut next, mut count) = (Some(self.frames.resident[at].line.first), 0);
        while let Some(slot) = next {
            let op = self.ops.remove(slot);
            next = op.next;
            let status = if status.is_ok() { op.status } else { status };
            count += u64::from(status.is_ok());
            if op.buf.is_some() {
                self.refused.push(Completion { slot: op.slot, status, buf: op.buf });
            }
        }
        if is_written {
            self.frames.absorption.writes.fetch_add(count, Relaxed);
            self.frames.absorption.pages.fetch_add(1, Relaxed);
        }
        let frame = &mut self.frames.resident[at];
        match frame.next.take() {
            Some(line) if status.is_ok() => {
                frame.line = line;
                frame.state = State::Gathering;
            }
            // What is in the buffer may not be what the device has.
            Some(line) => {
                frame.line = line;
                frame.state = State::Granted;
                frame.due = now;
            }
            None => {
                let frame = self.frames.resident.swap_remove(at);
                self.locks.release(&frame.claim);
                self.frames.spare.extend(frame.buf);
            }
        }
    }
}

/// Returns the write that is durable and atomic if one of the two is.
fn stronger(one: Option<Command>, other: Option<Command>) -> Option<Command> {
    match (one, other) {
        (Some(Command::Write { range, fua }), Some(Command::Write { fua: also, .. })) => {
            Some(Command::Write { range, fua: fua || also })
        }
        (Some(atomic @ Command::WriteAtomic(_)), _) | (None, Some(atomic)) => Some(atomic),
        (one, None) => one,
        (_, other) => other,
    }
}
