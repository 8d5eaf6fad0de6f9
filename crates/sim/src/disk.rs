//! A worker's queue to the simulated volume: the devices of `flash`, wrapped so that commands are
//! carried out late, fail, tear and stall, with a recorder around them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{Buf, Command, Completion, Device, Geometry, Instant, Slot, Status, Submission};
use flash::{
    Delay, DelayedDevice, ExclusiveQueue, FaultSwitch, Faults, FaultyDevice, MemQueue, MemVolume,
    RangeLocks, Rng,
};

use crate::ledger::{Ledger, Tick};
use crate::marks::{Mark, Marks};
use crate::stamp;

/// A device that carries commands out late. [`DelayedDevice`] only reports them late; this is the
/// drive that finishes a write long after its connection died.
#[derive(Debug)]
struct LateDevice<D> {
    inner: D,
    lateness: Lateness,
    chance: Rng,
    /// Submissions that are delayed, each with the time at which it reaches the device below.
    held: Vec<(Instant, Submission)>,
    calm: Rc<RefCell<bool>>,
    marks: Marks,
}

/// The delays, in nanoseconds, with which a volume's device begins commands.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    pub(crate) usual: RangeInclusive<u64>,
    pub(crate) rare: RangeInclusive<u64>,
    /// The share of commands with a rare, long delay, from 0 to 1.
    pub(crate) share: f64,
}

impl<D: Device> Device for LateDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn room(&self) -> usize {
        self.inner.room().saturating_sub(self.held.len())
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        let rare = !*self.calm.borrow() && self.chance.happens(self.lateness.share);
        let range = if rare { &self.lateness.rare } else { &self.lateness.usual };
        if rare {
            self.marks.hit(Mark::DeviceLate);
        }
        let due = now + Duration::from_nanos(self.chance.within(range.clone()));
        self.held.push((due, submission));
    }

    fn kick(&mut self, _now: Instant) {}

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let mut n = 0;
        while n < self.held.len() {
            if self.held[n].0 <= now {
                let (_, submission) = self.held.swap_remove(n);
                self.inner.submit(now, submission);
            } else {
                n += 1;
            }
        }
        self.inner.kick(now);
        self.inner.poll(now, done);
    }

    fn wake_at(&self) -> Option<Instant> {
        let held = self.held.iter().map(|&(due, _)| due).min();
        held.into_iter().chain(self.inner.wake_at()).min()
    }
}

/// The behaviour of a worker's queue to the simulated device.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    pub(crate) depth: usize,
    pub(crate) granularity_bytes: usize,
    pub(crate) lateness: Lateness,
    pub(crate) delay: Delay,
    pub(crate) faults: Faults,
}

/// The state that the queues of a volume share.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    pub(crate) data: MemVolume,
    pub(crate) locks: Arc<RangeLocks>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
    /// `true` once commands are no longer very late.
    pub(crate) calm: Rc<RefCell<bool>>,
    pub(crate) marks: Marks,
}

type Stack = ExclusiveQueue<FaultyDevice<DelayedDevice<LateDevice<MemQueue>>>>;

/// A command in flight at the device, by the effect that it may have on the model.
#[derive(Clone, Copy, Debug)]
enum InFlightCommand {
    /// A write of the request with this number, or a part of that write.
    Write(u32),
    /// A flush, with the time at which the flush began.
    Flush(Tick),
    /// A command that neither writes a request's data nor flushes.
    Other,
}

/// A worker's queue to the volume.
#[derive(Debug)]
pub(crate) struct Disk {
    /// The wrapped devices of `flash`; `None` after [`Disk::take_scratch`].
    stack: Option<Stack>,
    switch: FaultSwitch,
    ledger: Rc<RefCell<Ledger>>,
    in_flight: HashMap<Slot, InFlightCommand>,
    marks: Marks,
}

impl Disk {
    pub(crate) fn new(volume: &Volume, habits: &Habits, scratch: Vec<Buf>, seed: u64) -> Self {
        let late = LateDevice {
            inner: volume.data.open_queue_of(habits.depth),
            lateness: habits.lateness.clone(),
            chance: Rng::new(seed),
            held: Vec::new(),
            calm: volume.calm.clone(),
            marks: volume.marks.clone(),
        };
        let delayed = DelayedDevice::new(late, habits.delay, seed ^ 1);
        let faulty = FaultyDevice::new(delayed, habits.faults.clone());
        let switch = faulty.switch();
        let (locks, granularity) = (volume.locks.clone(), habits.granularity_bytes);
        let stack = ExclusiveQueue::with_granularity(faulty, locks, scratch, granularity);
        Disk {
            stack: Some(stack),
            switch,
            ledger: volume.ledger.clone(),
            in_flight: HashMap::new(),
            marks: volume.marks.clone(),
        }
    }

    /// Returns the switch that stalls and releases the queue, and counts its faults.
    pub(crate) fn switch(&self) -> FaultSwitch {
        self.switch.clone()
    }

    /// Returns the number of commands in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes the buffers of a queue at rest, which ends the queue.
    pub(crate) fn take_scratch(&mut self) -> Vec<Buf> {
        self.stack.take().map_or_else(Vec::new, |stack| stack.into_parts().1)
    }

    fn stack(&self) -> &Stack {
        self.stack.as_ref().expect("it was not taken apart")
    }

    fn stack_mut(&mut self) -> &mut Stack {
        self.stack.as_mut().expect("it was not taken apart")
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        self.stack().geometry()
    }

    fn room(&self) -> usize {
        let room = self.stack().room();
        if room == 0 {
            self.marks.hit(Mark::DeviceFull);
        }
        room
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        let Submission { slot, command, buf } = &submission;
        let writer = match (command, buf) {
            (Command::Write { .. } | Command::WriteAtomic(_), Some(buf)) => {
                stamp::writer(buf.bytes())
            }
            (Command::CompareAndWrite(range), Some(buf)) => {
                stamp::writer(&buf.bytes()[range.bytes()..])
            }
            _ => None,
        };
        let inside = match (writer, command) {
            (Some(op), _) => {
                let lba = command.range().map_or(0, |range| range.lba);
                let fua = matches!(command, Command::Write { fua: true, .. });
                self.ledger.borrow_mut().submitted(op, lba, fua);
                InFlightCommand::Write(op)
            }
            (None, Command::Flush) => {
                InFlightCommand::Flush(self.ledger.borrow_mut().flush_begins())
            }
            (None, _) => InFlightCommand::Other,
        };
        let before = self.in_flight.insert(*slot, inside);
        assert!(before.is_none(), "{slot:?} is at the device already");
        self.stack_mut().submit(now, submission);
    }

    fn kick(&mut self, now: Instant) {
        self.stack_mut().kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let old = done.len();
        self.stack_mut().poll(now, done);
        for Completion { slot, status, .. } in &done[old..] {
            if *status == Status::MediaError {
                self.ledger.borrow_mut().media_failed();
            }
            let inside = self.in_flight.remove(slot);
            match inside.unwrap_or_else(|| panic!("{slot:?} completed unasked")) {
                InFlightCommand::Write(op) => self.ledger.borrow_mut().completed(op),
                InFlightCommand::Flush(began) if status.is_ok() => {
                    self.ledger.borrow_mut().flushed(began);
                }
                InFlightCommand::Flush(_) | InFlightCommand::Other => {}
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.stack().wake_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noticed_ends::NoticedEnds;
    use flash::conformance::{self, HeapBench, leak_buf};

    #[test]
    fn late_devices_conform() {
        let lateness = Lateness { usual: 0..=500, rare: 1_000..=9_000, share: 0.3 };
        conformance::run(&mut HeapBench::new(|blocks| {
            let volume = Volume {
                data: MemVolume::new(blocks),
                locks: Arc::new(RangeLocks::new()),
                ledger: Rc::new(RefCell::new(Ledger::new(
                    Marks::default(),
                    NoticedEnds::default(),
                ))),
                calm: Rc::new(RefCell::new(false)),
                marks: Marks::default(),
            };
            let habits = Habits {
                depth: 64,
                granularity_bytes: 512,
                lateness: lateness.clone(),
                delay: Delay { min: Duration::ZERO, max: Duration::from_nanos(300) },
                faults: Faults::default(),
            };
            [0, 1].map(|seed| Disk::new(&volume, &habits, vec![leak_buf(1 << 20, 0)], seed))
        }));
    }
}
