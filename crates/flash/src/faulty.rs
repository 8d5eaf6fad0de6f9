//! A decorator that fails, tears and stalls requests, by chance or by script.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;

use contract::{
    BLOCK_BYTES, Command, Completion, Device, Geometry, Instant, IoKind, Range, Slot, Status,
    Submission,
};

use crate::Rng;

/// The faults of a device. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Share of reads that end in a media error without being carried out, 0 to 1.
    pub fail_reads: f64,
    /// Share of writes of any kind that end in a media error, 0 to 1.
    pub fail_writes: f64,
    /// Statuses of particular commands by their number (the first submission is 0), ascending.
    pub script: Vec<(u64, Status)>,
    /// If `true`, a failed plain write of several physical blocks still writes its first half.
    pub torn_writes: bool,
    /// Periodic stalls, during which nothing completes; `None` for no stalls.
    pub stall: Option<Stall>,
    /// Seed of the random decisions.
    pub seed: u64,
}

/// A periodic pause of the device, like those of garbage collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Period in submissions: each `every`th submission begins a stall.
    pub every: u64,
    /// Duration of the stall, counted from that submission.
    pub lasts: Duration,
}

/// A queue to a device, into which [`Faults`] are injected.
#[derive(Debug)]
pub struct FaultyDevice<D> {
    inner: D,
    faults: Faults,
    /// Number of script entries already used.
    script_done: usize,
    chance: Rng,
    submitted: u64,
    stalled_until: Instant,
    /// Ended requests that are not yet reported.
    held: Vec<Completion>,
    /// Torn writes in the inner device, each with the status to report.
    torn: Vec<(Slot, Status)>,
    depth: usize,
    outstanding: usize,
    switch: FaultSwitch,
}

/// A handle that stalls a [`FaultyDevice`] from outside, and counts its faults. Clones control the
/// same device.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stalled: AtomicBool,
    failed: AtomicU64,
    torn: AtomicU64,
}

impl FaultSwitch {
    /// Stalls the device: nothing completes from now on.
    pub fn stall(&self) {
        self.shared.stalled.store(true, Ordering::Release);
    }

    /// Ends the stall: completions resume at the next poll.
    pub fn release(&self) {
        self.shared.stalled.store(false, Ordering::Release);
    }

    /// Returns `true` while this switch stalls the device.
    pub fn is_stalled(&self) -> bool {
        self.shared.stalled.load(Ordering::Acquire)
    }

    /// Returns the number of commands that were made to fail so far, torn writes included.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of writes that were torn so far.
    pub fn torn(&self) -> u64 {
        self.shared.torn.load(Ordering::Relaxed)
    }
}

impl<D: Device> FaultyDevice<D> {
    /// Returns a queue around `inner`, which must be at rest.
    pub fn new(inner: D, faults: Faults) -> Self {
        let depth = inner.room();
        FaultyDevice {
            inner,
            chance: Rng::new(faults.seed),
            faults,
            script_done: 0,
            submitted: 0,
            stalled_until: Instant::ZERO,
            held: Vec::with_capacity(depth),
            torn: Vec::with_capacity(depth),
            depth,
            outstanding: 0,
            switch: FaultSwitch::default(),
        }
    }

    /// Returns the switch of this device.
    pub fn switch(&self) -> FaultSwitch {
        self.switch.clone()
    }

    /// Returns the status to fail the next command with, or `None` to carry the command out.
    fn verdict(&mut self, command: Command) -> Option<Status> {
        let number = self.submitted;
        self.submitted += 1;
        if let Some(&(nth, status)) = self.faults.script.get(self.script_done)
            && nth == number
        {
            self.script_done += 1;
            return Some(status);
        }
        let share = match command.kind() {
            IoKind::Read => self.faults.fail_reads,
            IoKind::Write | IoKind::Exchange => self.faults.fail_writes,
            IoKind::Other => 0.0,
        };
        self.chance.happens(share).then_some(Status::MediaError)
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn room(&self) -> usize {
        self.inner.room().min(self.depth - self.outstanding)
    }

    fn excludes(&self, command: Command) -> bool {
        self.inner.excludes(command)
    }

    fn submit(&mut self, now: Instant, submission: Submission) {
        self.outstanding += 1;
        let verdict = self.verdict(submission.command);
        if let Some(stall) = self.faults.stall
            && self.submitted.is_multiple_of(stall.every)
        {
            self.stalled_until = self.stalled_until.max(now + stall.lasts);
        }
        let Some(status) = verdict else { return self.inner.submit(now, submission) };
        self.switch.shared.failed.fetch_add(1, Ordering::Relaxed);
        let Submission { slot, command, buf } = submission;
        let physical = self.geometry().physical_block_bytes / BLOCK_BYTES as u32;
        match command {
            Command::Write { range, fua }
                if self.faults.torn_writes && range.blocks >= 2 * physical =>
            {
                self.switch.shared.torn.fetch_add(1, Ordering::Relaxed);
                self.torn.push((slot, status));
                let half = range.blocks / 2 / physical * physical;
                let range = Range::new(range.lba, half);
                let command = Command::Write { range, fua };
                self.inner.submit(now, Submission { slot, command, buf });
            }
            _ => self.held.push(Completion { slot, status, buf }),
        }
    }

    fn kick(&mut self, now: Instant) {
        self.inner.kick(now);
    }

    fn poll(&mut self, now: Instant, done: &mut Vec<Completion>) {
        let old = self.held.len();
        self.inner.poll(now, &mut self.held);
        for completion in &mut self.held[old..] {
            if let Some(place) = self.torn.iter().position(|(slot, _)| *slot == completion.slot) {
                completion.status = self.torn.swap_remove(place).1;
            }
        }
        if !self.switch.is_stalled() && self.stalled_until <= now {
            self.outstanding -= self.held.len();
            done.append(&mut self.held);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let held = (!self.held.is_empty()).then_some(Instant::ZERO);
        let wanted = held.into_iter().chain(self.inner.wake_at()).min();
        match wanted {
            // No wake-up is due: the owner of the switch releases it and then polls the device.
            Some(_) if self.switch.is_stalled() => None,
            Some(at) => Some(at.max(self.stalled_until)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, HeapBench, leak_buf};
    use crate::{MemQueue, MemVolume};
    use contract::SlotTable;

    #[test]
    fn conforms_without_faults_and_with_stalls() {
        let stall = Some(Stall { every: 7, lasts: Duration::from_micros(50) });
        for stall in [None, stall] {
            conformance::run(&mut HeapBench::new(|blocks| {
                let volume = MemVolume::new(blocks);
                let faults = Faults { stall, ..Faults::default() };
                [0, 1].map(|_| FaultyDevice::new(volume.open_queue(), faults.clone()))
            }));
        }
    }

    fn write(device: &mut FaultyDevice<MemQueue>, now: Instant) -> Slot {
        let mut buf = leak_buf(4096, 0);
        buf.bytes_mut().fill(7);
        let slot = SlotTable::new(1).insert(()).unwrap();
        let command = Command::Write { range: Range::new(0, 8), fua: false };
        device.submit(now, Submission { slot, command, buf: Some(buf) });
        device.kick(now);
        slot
    }

    fn poll(device: &mut FaultyDevice<MemQueue>, now: Instant) -> Vec<Status> {
        let mut done = Vec::new();
        device.poll(now, &mut done);
        assert!(done.iter().all(|completion| completion.buf.is_some()));
        done.iter().map(|completion| completion.status).collect()
    }

    #[test]
    fn the_script_fails_the_nth_command_and_tears_it() {
        let volume = MemVolume::new(8);
        let script = alloc::vec![(1, Status::NoSpace), (2, Status::MediaError)];
        let faults = Faults { script, torn_writes: true, ..Faults::default() };
        let mut device = FaultyDevice::new(volume.open_queue(), faults);
        let mut seen = Vec::new();
        for _ in 0..4 {
            write(&mut device, Instant::ZERO);
            seen.extend(poll(&mut device, Instant::ZERO));
        }
        assert_eq!(seen, [Status::Ok, Status::NoSpace, Status::MediaError, Status::Ok]);
        assert_eq!((device.switch().failed(), device.switch().torn()), (2, 2));
    }

    #[test]
    fn a_torn_write_wrote_its_first_half() {
        let volume = MemVolume::new(8);
        let faults = Faults { fail_writes: 1.0, torn_writes: true, ..Faults::default() };
        let mut device = FaultyDevice::new(volume.open_queue(), faults);
        write(&mut device, Instant::ZERO);
        assert_eq!(poll(&mut device, Instant::ZERO), [Status::MediaError]);
        let mut data = [0; 4096];
        volume.read_now(Range::new(0, 8), &mut data);
        assert_eq!((data[0], data[2047], data[2048]), (7, 7, 0));
    }

    #[test]
    fn the_switch_holds_completions_until_it_is_released() {
        let mut device = FaultyDevice::new(MemVolume::new(8).open_queue(), Faults::default());
        let switch = device.switch();
        switch.stall();
        write(&mut device, Instant::ZERO);
        assert_eq!(poll(&mut device, Instant::from_nanos(9)), []);
        assert_eq!(device.wake_at(), None);
        switch.release();
        assert_eq!(device.wake_at(), Some(Instant::ZERO));
        assert_eq!(poll(&mut device, Instant::from_nanos(9)), [Status::Ok]);
    }

    #[test]
    fn chance_fails_about_the_share_that_was_asked_for() {
        let faults = Faults { fail_writes: 0.25, seed: 3, ..Faults::default() };
        let mut device = FaultyDevice::new(MemVolume::new(8).open_queue(), faults);
        for _ in 0..400 {
            write(&mut device, Instant::ZERO);
            poll(&mut device, Instant::ZERO);
        }
        assert!((70..130).contains(&device.switch().failed()), "{}", device.switch().failed());
    }
}
