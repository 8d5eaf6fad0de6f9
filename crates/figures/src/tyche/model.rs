//! Two hosts on a 10 Gbit/s link in virtual time, whose threads and frames have the costs of Table
//! II of the Tyche paper for one request at a time

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use contract::Instant;
use packets::batch::{Adaptive, Batch, LEVEL_MAX};

/// The time of a context switch, in nanoseconds (section IV.A of the Tyche paper).
const SWITCH: u64 = 4_000;
/// The time from the application to Tyche in nanoseconds: half of the time that a device without
/// context switches takes (Table IV).
const WAY_IN: u64 = 1_800;
/// The time in which the receiving thread completes a request, in nanoseconds: half of the way from
/// Tyche to the application without context switches.
const COMPLETE: u64 = 900;
/// The time from the completion of a request to the application, in nanoseconds: In/Out kernel of
/// Table II, less [`WAY_IN`] and [`COMPLETE`].
const WAY_OUT: u64 = 13_190 - WAY_IN - COMPLETE;
/// The time in which the target's ramdisk reads or writes 4 KiB, in nanoseconds.
const RAMDISK: u64 = 1_000;
/// Bytes that a data frame takes on the link beside its data: Ethernet's 38 and a head of 32.
const FRAME_BYTES: u64 = 70;
/// Bytes on the link of a message with one request or completion, and of each further request or
/// completion in it.
const MESSAGE_BYTES: (u64, u64) = (84, 32);
/// The time of network cards and drivers in one direction, in nanoseconds: Network of Table II
/// without the time on the link.
const CARDS: u64 = (24_600 - 3_470) / 2;

/// The nanoseconds that a thread needs for a message without data, for a data frame of 4 KiB, and
/// for one of 8 KiB.
#[derive(Clone, Copy, Debug)]
struct Handling {
    message: u64,
    frame: u64,
    double: u64,
}

// The differences of Table II: a message alone is in the direction without data. Frames are what
// data adds at 4 and 8 KiB.
const INITIATOR_SENDS: Handling = Handling { message: 2_750, frame: 2_000, double: 2_250 };
const TARGET_RECEIVES: Handling = Handling { message: 3_000, frame: 2_000, double: 3_000 };
const TARGET_SENDS: Handling = Handling { message: 3_000, frame: 1_000, double: 2_000 };
const INITIATOR_RECEIVES: Handling = Handling { message: 2_250, frame: 2_750, double: 3_750 };

/// A load of 4 KiB requests, of which a fixed number is always outstanding, and how they travel.
#[derive(Clone, Debug)]
pub(super) struct BatchingCase {
    pub(super) writes: bool,
    pub(super) outstanding: u32,
    pub(super) batch: Batch,
    /// `true` if the data of two requests share a frame of 8 KiB.
    pub(super) pairs: bool,
    /// Duration of the run in nanoseconds of virtual time. The first fifth of the run is not
    /// measured.
    pub(super) nanos: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchingResults {
    /// Requests completed a second.
    pub(super) iops: f64,
    /// The mean number of requests in a message from the initiator.
    pub(super) level: f64,
}

/// A thread, or one direction of the link, which does one piece of work after the other. Times are
/// in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    free_at: u64,
    /// The time to wake the thread if it is idle when work comes.
    wake: u64,
}

impl Thread {
    fn new(wake: u64) -> Thread {
        Thread { free_at: 0, wake }
    }

    /// Returns the time at which work that comes at `at` and takes `nanos` is done, and keeps the
    /// thread busy until then.
    fn serve(&mut self, at: u64, nanos: u64) -> u64 {
        let begin = if self.free_at >= at { self.free_at } else { at + self.wake };
        self.free_at = begin + nanos;
        self.free_at
    }
}

/// A direction between the two hosts: the thread that sends, the link, and the thread that
/// receives.
#[derive(Clone, Copy, Debug)]
struct Direction {
    sender: Thread,
    link: Thread,
    receiver: Thread,
    sends: Handling,
    receives: Handling,
}

impl Direction {
    /// Returns the time at which a message with `requests` requests or completions was received
    /// that is sent at `at`. If `data`, their data is sent before it; if `pairs`, in frames with
    /// the data of two requests.
    fn carry(&mut self, at: u64, requests: u32, data: bool, pairs: bool) -> u64 {
        let requests = u64::from(requests);
        if data {
            let doubles = if pairs { requests / 2 } else { 0 };
            for _ in 0..doubles {
                self.frame(at, self.sends.double, 8192 + FRAME_BYTES, self.receives.double);
            }
            for _ in 0..requests - 2 * doubles {
                self.frame(at, self.sends.frame, 4096 + FRAME_BYTES, self.receives.frame);
            }
        }
        let bytes = MESSAGE_BYTES.0 + MESSAGE_BYTES.1 * (requests - 1);
        self.frame(at, self.sends.message, bytes, self.receives.message)
    }

    fn frame(&mut self, at: u64, send: u64, bytes: u64, receive: u64) -> u64 {
        let sent = self.sender.serve(at, send);
        let arrived = self.link.serve(sent, bytes * 8 / 10) + CARDS;
        self.receiver.serve(arrived, receive)
    }
}

/// An event of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The application issues one of its first requests.
    First,
    /// A request is complete, and the application issues the next one.
    Again,
    /// The batch that becomes message number n has to leave, or the thread that sends is free.
    Due(u64),
}

/// The state of a run in virtual time.
#[derive(Debug)]
struct World {
    case: BatchingCase,
    out: Direction,
    back: Direction,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Requests in the batch that has not left yet; `first` is the time at which the first of them
    /// came.
    queued: u32,
    first: u64,
    /// Messages sent so far by the initiator.
    messages: u64,
    /// The requests and the messages that the initiator sent after the first fifth of the run.
    counted: (u64, u64),
    done: u64,
}

/// Runs a case and returns its throughput and the mean size of its batches.
pub(super) fn run(case: &BatchingCase) -> BatchingResults {
    // The interrupt and the other thread: a receiving thread that sleeps is woken twice.
    let receiver = Thread::new(2 * SWITCH);
    let mut world = World {
        case: case.clone(),
        out: Direction {
            sender: Thread::new(SWITCH),
            link: Thread::new(0),
            receiver,
            sends: INITIATOR_SENDS,
            receives: TARGET_RECEIVES,
        },
        back: Direction {
            sender: Thread::new(SWITCH),
            link: Thread::new(0),
            receiver,
            sends: TARGET_SENDS,
            receives: INITIATOR_RECEIVES,
        },
        events: BinaryHeap::new(),
        queued: 0,
        first: 0,
        messages: 0,
        counted: (0, 0),
        done: 0,
    };
    // Threads start one after the other.
    for n in 0..case.outstanding {
        world.events.push(Reverse((u64::from(n) * 1_000, Event::First)));
    }
    world.run()
}

impl World {
    fn run(mut self) -> BatchingResults {
        let begin = self.case.nanos / 5;
        while let Some(Reverse((now, event))) = self.events.pop() {
            if now >= self.case.nanos {
                break;
            }
            match event {
                Event::Due(number) if number == self.messages => self.look(now, true),
                Event::Due(_) => {}
                Event::First => self.issue(now),
                Event::Again => {
                    self.done += u64::from(now >= begin);
                    self.issue(now);
                }
            }
            if now < begin {
                self.counted = (0, 0);
            }
        }
        let seconds = (self.case.nanos - begin) as f64 / 1e9;
        let (requests, messages) = self.counted;
        let level = requests as f64 / messages.max(1) as f64;
        BatchingResults { iops: self.done as f64 / seconds, level }
    }

    /// Adds a request to the batch, and sends the batch if its rule says so.
    fn issue(&mut self, now: u64) {
        if let Batch::Adaptive(adaptive) = &mut self.case.batch {
            adaptive.completed(4096);
            adaptive.advance(Instant::from_nanos(now));
            adaptive.queued(self.case.outstanding);
        }
        if self.queued == 0 {
            self.first = now;
        }
        self.queued += 1;
        self.look(now, false);
    }

    /// Sends the batch at `now` if its rule says so; otherwise plans when to look again. `is_due`
    /// is `true` if this look was planned.
    fn look(&mut self, now: u64, is_due: bool) {
        // A turn of ours ends when the thread that sends is free.
        let turn_ends = self.out.sender.free_at <= now;
        let (at, first) = (Instant::from_nanos(now), Instant::from_nanos(self.first));
        if self.queued > 0
            && (self.queued >= LEVEL_MAX
                || self.case.batch.leaves(at, self.queued, first, turn_ends))
        {
            self.send(now);
        } else if self.queued == 1 || is_due {
            let due = match self.case.batch.leaves_by(first) {
                Some(due) => due.as_nanos(),
                None => self.out.sender.free_at,
            };
            self.events.push(Reverse((due, Event::Due(self.messages))));
        }
    }

    /// Sends the batch in one message, and plans the requests that follow when the batch's requests
    /// complete.
    fn send(&mut self, now: u64) {
        let requests = std::mem::take(&mut self.queued);
        let BatchingCase { writes, pairs, .. } = self.case;
        self.messages += 1;
        self.counted.0 += u64::from(requests);
        self.counted.1 += 1;
        if self.is_inline() {
            // Applications send on their own processors, beside each other.
            self.out.sender = Thread { free_at: now, wake: 0 };
        } else {
            self.out.sender.wake = SWITCH;
        }
        self.out.carry(now, requests, writes, pairs);
        let stored = self.out.receiver.serve(0, u64::from(requests) * RAMDISK);
        self.back.carry(stored, requests, !writes, pairs);
        for _ in 0..requests {
            let complete = self.back.receiver.serve(0, COMPLETE);
            self.events.push(Reverse((complete + WAY_OUT + WAY_IN, Event::Again)));
        }
    }

    /// Returns `true` if each request leaves alone, so that the application's own thread sends it.
    fn is_inline(&self) -> bool {
        match &self.case.batch {
            Batch::Never => true,
            Batch::Adaptive(adaptive) => adaptive.level() == 1,
            Batch::Turn | Batch::Static(_) => false,
        }
    }
}

/// Returns the adaptive batching rule at the start of a run.
pub(super) fn adaptive() -> Batch {
    Batch::Adaptive(Adaptive::new(Instant::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone(writes: bool) -> f64 {
        let batch = Batch::Never;
        let case = BatchingCase { writes, outstanding: 1, batch, pairs: false, nanos: 10_000_000 };
        run(&case).iops
    }

    /// Checks that one request at a time takes the total of Table II, 73.7 µs, within 3 µs.
    #[test]
    fn one_request_takes_what_the_table_says() {
        for writes in [false, true] {
            let micros = 1e6 / alone(writes);
            assert!((micros - 73.7).abs() < 3.0, "{micros} µs");
        }
    }

    #[test]
    fn a_batch_that_is_never_full_waits_for_its_delay() {
        let batch = Batch::Static(64);
        let case = BatchingCase {
            writes: false,
            outstanding: 4,
            batch,
            pairs: false,
            nanos: 1_000_000_000,
        };
        let outcome = run(&case);
        assert!((700.0..800.0).contains(&outcome.iops), "{outcome:?}");
        assert!((outcome.level - 4.0).abs() < 0.1, "{outcome:?}");
    }
}
