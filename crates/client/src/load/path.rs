//! The way from the load generator to storage: a server or a local device, measured by the same
//! code.

use contract::Submission;
use contract::{
    Buf, Command, Completion, DIRECT_BYTES_MIN, Device, Dial, Instant, NamespaceId, SlotTable,
    Status,
};

use crate::{Done, Initiator, Op};

/// A request that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What [`Path::submit`] returned.
    pub index: usize,
    /// How it ended.
    pub status: Status,
    /// Its buffer.
    pub buf: Option<Buf>,
}

/// Where requests go.
pub trait Path {
    /// The most requests in flight; every index is below it.
    fn in_flight_max(&self) -> usize;

    /// How many more requests it takes now.
    fn room(&self) -> usize;

    /// Whether a read of so many bytes is given a buffer even if nobody looks at the data. Over the
    /// network, large data is better received there than looked at and dropped.
    fn reads_need_buffers(&self, bytes: usize) -> bool;

    /// Whether a write that ended as lost can still be carried out later.
    fn lost_writes_linger(&self) -> bool;

    /// Takes a request (there is room) on a lane, which is a connection if there are such; returns
    /// its index, which no other request in flight has.
    fn submit(&mut self, now: Instant, lane: usize, command: Command, buf: Option<Buf>) -> usize;

    /// Starts what was submitted.
    fn flush(&mut self, now: Instant);

    /// Appends what has ended. Returns whether anything happened.
    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool;

    /// When the next turn is worth while without an event.
    fn wake_at(&self) -> Option<Instant>;
}

/// A borrowed path: several generators, one after the other, make load on the same one.
impl<P: Path> Path for &mut P {
    fn in_flight_max(&self) -> usize {
        (**self).in_flight_max()
    }

    fn room(&self) -> usize {
        (**self).room()
    }

    fn reads_need_buffers(&self, bytes: usize) -> bool {
        (**self).reads_need_buffers(bytes)
    }

    fn lost_writes_linger(&self) -> bool {
        (**self).lost_writes_linger()
    }

    fn submit(&mut self, now: Instant, lane: usize, command: Command, buf: Option<Buf>) -> usize {
        (**self).submit(now, lane, command, buf)
    }

    fn flush(&mut self, now: Instant) {
        (**self).flush(now);
    }

    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool {
        (**self).turn(now, ended)
    }

    fn wake_at(&self) -> Option<Instant> {
        (**self).wake_at()
    }
}

/// A server, through an [`Initiator`]; a lane is a connection.
#[derive(Debug)]
pub struct Remote<T> {
    initiator: Initiator<T>,
    namespace: Option<NamespaceId>,
    in_flight_max: usize,
    lost_writes_linger: bool,
    done: Vec<Done>,
}

impl<T: Dial> Remote<T> {
    /// Requests of `namespace` through `initiator`, on which nothing is in flight.
    /// `lost_writes_linger` without a fence, that is with version 1.
    pub fn new(
        initiator: Initiator<T>,
        namespace: Option<NamespaceId>,
        lost_writes_linger: bool,
    ) -> Self {
        let in_flight_max = initiator.room();
        let done = Vec::with_capacity(in_flight_max);
        Remote { initiator, namespace, in_flight_max, lost_writes_linger, done }
    }

    /// The initiator, for its reports.
    pub fn initiator(&mut self) -> &mut Initiator<T> {
        &mut self.initiator
    }
}

impl<T: Dial> Path for Remote<T> {
    fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn room(&self) -> usize {
        self.initiator.room()
    }

    fn reads_need_buffers(&self, bytes: usize) -> bool {
        bytes >= DIRECT_BYTES_MIN
    }

    fn lost_writes_linger(&self) -> bool {
        self.lost_writes_linger
    }

    fn submit(&mut self, now: Instant, lane: usize, command: Command, buf: Option<Buf>) -> usize {
        let op = Op { link: Some(lane), stream: 0, namespace: self.namespace, command, buf };
        self.initiator.submit(now, op).expect("the caller asked for room").index()
    }

    fn flush(&mut self, now: Instant) {
        self.initiator.flush(now);
    }

    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool {
        let progressed = self.initiator.turn(now, &mut self.done);
        ended.extend(self.done.drain(..).map(|done| Ended {
            index: done.ticket.index(),
            status: done.status,
            buf: done.buf,
        }));
        progressed
    }

    fn wake_at(&self) -> Option<Instant> {
        self.initiator.wake_at()
    }
}

/// A device of this process; lanes mean nothing.
#[derive(Debug)]
pub struct Local<D> {
    device: D,
    slots: SlotTable<()>,
    in_flight_max: usize,
    done: Vec<Completion>,
}

impl<D: Device> Local<D> {
    /// At most `in_flight_max` requests in flight on `device`.
    pub fn new(device: D, in_flight_max: usize) -> Self {
        let done = Vec::with_capacity(in_flight_max);
        Local { device, slots: SlotTable::new(in_flight_max), in_flight_max, done }
    }
}

impl<D: Device> Path for Local<D> {
    fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn room(&self) -> usize {
        self.slots.room().min(self.device.room())
    }

    fn reads_need_buffers(&self, _bytes: usize) -> bool {
        true
    }

    fn lost_writes_linger(&self) -> bool {
        false
    }

    fn submit(&mut self, now: Instant, _lane: usize, command: Command, buf: Option<Buf>) -> usize {
        let slot = self.slots.insert(()).expect("the caller asked for room");
        self.device.submit(now, Submission { slot, command, buf });
        slot.index()
    }

    fn flush(&mut self, now: Instant) {
        self.device.kick(now);
    }

    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool {
        self.device.poll(now, &mut self.done);
        let progressed = !self.done.is_empty();
        for Completion { slot, status, buf } in self.done.drain(..) {
            self.slots.remove(slot);
            ended.push(Ended { index: slot.index(), status, buf });
        }
        progressed
    }

    fn wake_at(&self) -> Option<Instant> {
        self.device.wake_at()
    }
}
