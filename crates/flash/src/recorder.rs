//! A decorator that records all requests and completions in order.

use alloc::sync::Arc;
use alloc::vec::Vec;

use contract::{Command, Completion, Device, Geometry, Instant, Slot, Status, Submission};
use spin::Mutex;

/// An entry of a [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A command went to the device.
    Submitted {
        /// The slot that identifies the submitted command.
        slot: Slot,
        /// The submitted command.
        command: Command,
    },
    /// The device completed a command.
    Completed {
        /// The slot that identifies the completed command.
        slot: Slot,
        /// The completed command.
        command: Command,
        /// The status with which the device completed the command.
        status: Status,
    },
    /// A mark that a test places among the other records, for example for an acknowledgement that
    /// was sent.
    Mark(u64),
}

/// The records of one or several recorders. Clones share the same records.
#[derive(Clone, Debug)]
pub struct Recording {
    shared: Arc<Mutex<Vec<Record>>>,
    records_max: usize,
}

impl Recording {
    /// Returns an empty recording of at most `records_max` records. One more record panics.
    pub fn new(records_max: usize) -> Self {
        let shared = Arc::new(Mutex::new(Vec::with_capacity(records_max)));
        Recording { shared, records_max }
    }

    /// Appends a mark with this number to the records.
    pub fn mark(&self, mark: u64) {
        self.push(Record::Mark(mark));
    }

    /// Returns all records in order.
    pub fn records(&self) -> Vec<Record> {
        self.shared.lock().clone()
    }

    /// Returns `true` if the last write that succeeded before this mark was durable at the mark, or
    /// if there was none.
    ///
    /// A write is durable if it forced unit access or is atomic. It is also durable if a flush was
    /// submitted after its end and succeeded before the mark. Returns `None` if the recording lacks
    /// the mark.
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
                    | Command::WriteAtomic(_)
                    | Command::Commit { .. },
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
    command.kind() == contract::IoKind::Write
}

/// A device whose traffic is written to a [`Recording`].
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    recording: Recording,
    in_flight: Vec<(Slot, Command)>,
}

impl<D: Device> Recorder<D> {
    /// Returns a queue around `inner`, which must be at rest.
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
    use crate::conformance::{self, HeapBench, leak_buf};
    use crate::{MemQueue, MemVolume};
    use contract::{Range, SlotTable};

    #[test]
    fn conforms() {
        let recording = Recording::new(1 << 20);
        conformance::run(&mut HeapBench::new(|blocks| {
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
