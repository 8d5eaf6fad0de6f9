//! A device that writes down what passes through it, in order.

use alloc::sync::Arc;
use alloc::vec::Vec;

use contract::{Command, Completion, Device, Geometry, Instant, Slot, Status, Submission};
use spin::Mutex;

/// One line of a [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A command went to the device.
    Submitted {
        /// Its name.
        slot: Slot,
        /// What it asks.
        command: Command,
    },
    /// The device reported its end.
    Completed {
        /// Its name.
        slot: Slot,
        /// What it asked.
        command: Command,
        /// How it ended.
        status: Status,
    },
    /// Something that a test wants to place among the others, such as an acknowledgement that left.
    Mark(u64),
}

/// What recorders wrote down. Clones are the same recording; several recorders may share one.
#[derive(Clone, Debug)]
pub struct Recording {
    shared: Arc<Mutex<Vec<Record>>>,
    records_max: usize,
}

impl Recording {
    /// An empty recording of at most `records_max` records; one more panics.
    pub fn new(records_max: usize) -> Self {
        let shared = Arc::new(Mutex::new(Vec::with_capacity(records_max)));
        Recording { shared, records_max }
    }

    /// Writes a mark behind everything that happened so far.
    pub fn mark(&self, mark: u64) {
        self.push(Record::Mark(mark));
    }

    /// Everything so far, in order.
    pub fn records(&self) -> Vec<Record> {
        self.shared.lock().clone()
    }

    /// Whether the last write that completed before this mark was durable by then: it forced unit
    /// access or is atomic, or a flush was submitted after its end and succeeded before the mark.
    /// `None` where the mark is not in the recording.
    pub fn is_durable_at(&self, mark: u64) -> Option<bool> {
        let records = self.shared.lock();
        let end = records.iter().position(|record| *record == Record::Mark(mark))?;
        let before = &records[..end];
        let is_write = |record: &Record| match record {
            Record::Completed { command, status, .. } => is_data(*command) && status.is_ok(),
            _ => false,
        };
        let Some(last) = before.iter().rposition(is_write) else { return Some(true) };
        let forced = matches!(
            before[last],
            Record::Completed {
                command: Command::Write { fua: true, .. }
                    | Command::WriteZeroes { fua: true, .. }
                    | Command::WriteAtomic(_),
                ..
            }
        );
        let behind = &before[last..];
        let flushed = behind.iter().enumerate().any(|(place, record)| match record {
            Record::Submitted { slot, command: Command::Flush } => {
                let (slot, status) = (*slot, Status::Ok);
                let end = Record::Completed { slot, command: Command::Flush, status };
                behind[place..].contains(&end)
            }
            _ => false,
        });
        Some(forced || flushed)
    }

    fn push(&self, record: Record) {
        let mut records = self.shared.lock();
        assert!(records.len() < self.records_max, "the recording is full");
        records.push(record);
    }
}

fn is_data(command: Command) -> bool {
    command.kind() == contract::Kind::Write
}

/// Wraps a device and writes its traffic into a [`Recording`].
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    recording: Recording,
    in_flight: Vec<(Slot, Command)>,
}

impl<D: Device> Recorder<D> {
    /// A queue around `inner`, which is at rest.
    pub fn new(inner: D, recording: Recording) -> Self {
        let in_flight = Vec::with_capacity(inner.room());
        Recorder { inner, recording, in_flight }
    }
}

impl<D: Device> Device for Recorder<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn excludes(&self, command: Command) -> bool {
        self.inner.excludes(command)
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        let Submission { slot, command, .. } = submission;
        self.in_flight.push((slot, command));
        self.recording.push(Record::Submitted { slot, command });
        self.inner.submit(now, submission);
    }

    fn kick(&mut self, now: Instant) {
        self.inner.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let old = done.len();
        self.inner.poll(now, done);
        for Completion { slot, status, .. } in &done[old..] {
            let place = self.in_flight.iter().position(|(other, _)| other == slot);
            let place = place.unwrap_or_else(|| panic!("{slot:?} completed unasked"));
            let (slot, command) = self.in_flight.swap_remove(place);
            self.recording.push(Record::Completed { slot, command, status: *status });
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.inner.wake_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Heap, leak_buf};
    use crate::{MemQueue, MemVolume};
    use contract::{Range, SlotTable};

    #[test]
    fn conforms() {
        let recording = Recording::new(1 << 20);
        conformance::run(&mut Heap::new(|blocks| {
            let volume = MemVolume::new(blocks);
            [0, 1].map(|_| Recorder::new(volume.open_queue(), recording.clone()))
        }));
        assert!(recording.records().len() > 1000);
    }

    fn run(device: &mut Recorder<MemQueue>, command: Command) {
        let slot = SlotTable::new(1).insert(()).unwrap();
        let buf = (command.buffer_bytes() > 0).then(|| leak_buf(command.buffer_bytes(), 0));
        device.submit(Instant::ZERO, Submission { slot, command, buf });
        device.kick(Instant::ZERO);
        let mut done = Vec::new();
        device.poll(Instant::ZERO, &mut done);
        assert_eq!(done.len(), 1);
    }

    #[test]
    fn tells_what_was_durable_when() {
        let recording = Recording::new(64);
        let mut device = Recorder::new(MemVolume::new(8).open_queue(), recording.clone());
        let range = Range::new(0, 1);
        recording.mark(0);
        run(&mut device, Command::Write { range, fua: false });
        recording.mark(1);
        run(&mut device, Command::Flush);
        recording.mark(2);
        run(&mut device, Command::Discard(range));
        recording.mark(3);
        run(&mut device, Command::Write { range, fua: true });
        recording.mark(4);
        let durable = [0, 1, 2, 3, 4, 5].map(|mark| recording.is_durable_at(mark));
        assert_eq!(durable, [Some(true), Some(false), Some(true), Some(false), Some(true), None]);
    }
}
