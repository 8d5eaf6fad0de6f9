//! The queue to the device below a file system, which remembers the purpose of each command in
//! flight.
//!
//! Commands that the device has no room for wait here, oldest first.

use std::collections::VecDeque;

use contract::{Buf, Command, Completion, Device, Instant, SlotTable, Status, Submission};

/// The end of a command.
#[derive(Debug)]
pub(crate) struct EndedCommand<T> {
    /// The purpose of the command.
    pub(crate) task: T,
    /// The status with which the device completed the command.
    pub(crate) status: Status,
    /// The buffer of the command.
    pub(crate) buf: Option<Buf>,
}

/// A queue to a device.
pub(crate) struct Disk<D, T> {
    device: D,
    tasks: SlotTable<T>,
    waiting: VecDeque<(Command, Option<Buf>, T)>,
    done: Vec<Completion>,
}

impl<D: Device, T> Disk<D, T> {
    /// Returns a queue to a device that is at rest, with at most `depth` commands in flight.
    pub(crate) fn new(device: D, depth: usize) -> Self {
        Disk {
            tasks: SlotTable::new(depth.min(device.room())),
            device,
            waiting: VecDeque::with_capacity(depth),
            done: Vec::with_capacity(depth),
        }
    }

    /// Returns the device of a queue without commands.
    pub(crate) fn into_device(self) -> D {
        assert!(self.is_idle(), "commands are in flight");
        self.device
    }

    /// Submits a command to the device, or queues it until the device has room for it.
    pub(crate) fn submit(&mut self, now: Instant, command: Command, buf: Option<Buf>, task: T) {
        self.waiting.push_back((command, buf, task));
        self.start(now);
    }

    fn start(&mut self, now: Instant) {
        while !self.waiting.is_empty() && self.tasks.room() > 0 && self.device.room() > 0 {
            let (command, buf, task) = self.waiting.pop_front().expect("it is not empty");
            let slot = self.tasks.insert_with(|| task);
            self.device.submit(now, Submission { slot, command, buf });
        }
    }

    /// Appends the completed commands to `ended`, and submits queued commands in their place.
    pub(crate) fn poll(&mut self, now: Instant, ended: &mut Vec<EndedCommand<T>>) {
        self.device.poll(now, &mut self.done);
        for Completion { slot, status, buf } in self.done.drain(..) {
            ended.push(EndedCommand { task: self.tasks.remove(slot), status, buf });
        }
        self.start(now);
    }

    /// Makes the device start the commands that were submitted.
    pub(crate) fn kick(&mut self, now: Instant) {
        self.device.kick(now);
    }

    /// Returns the time of the next poll without an event of the ring; `None` for never.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.device.wake_at()
    }

    /// Returns `true` if no command is in flight, and none waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.waiting.is_empty()
    }
}
