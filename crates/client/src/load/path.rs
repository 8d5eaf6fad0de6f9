//! Paths from the load generator to storage: a server or a local device, measured by the same code.

use contract::Submission;
use contract::{
    Buf, Command, Completion, DIRECT_BYTES_MIN, Device, Dial, Instant, NamespaceId, SlotTable,
    Status,
};

use crate::{Done, Initiator, Op};

/// A request that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The index that [`Path::submit`] returned.
    pub index: usize,
    /// The status of the request.
    pub status: Status,
    /// The request's buffer, with a read's data on success; `None` if it had none.
    pub buf: Option<Buf>,
}

/// A destination of the load generator's requests: a server or a local device.
pub trait Path {
    /// Returns the maximum number of requests in flight; every index is below it.
    fn in_flight_max(&self) -> usize;

    /// Returns the number of further requests that the path accepts now.
    fn room(&self) -> usize;

    /// Returns `true` if a read of `bytes` bytes should have a buffer even if the data is not
    /// checked. Over the network, receiving large data into a buffer is cheaper than parsing and
    /// dropping it.
    fn reads_need_buffers(&self, bytes: usize) -> bool;

    /// Returns `true` if a write that ended as lost can still be carried out later.
    fn lost_writes_linger(&self) -> bool;

    /// Submits a request on a lane, which stands for a connection if the path has connections. The
    /// path must have room. Returns the request's index, which no other request in flight has.
    fn submit(&mut self, now: Instant, lane: usize, command: Command, buf: Option<Buf>) -> usize;

    /// Starts the requests that were submitted since the last call.
    fn flush(&mut self, now: Instant);

    /// Appends the ended requests. Returns `true` if anything happened.
    fn turn(&mut self, now: Instant, ended: &mut Vec<Ended>) -> bool;

    /// Returns the time at which the next turn is due if no event comes first; `None` if only an
    /// event makes a turn necessary.
    fn wake_at(&self) -> Option<Instant>;
}

/// Implements [`Path`] for a borrowed path, so that several generators can use one path in
/// succession.
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

/// A server, reached through an [`Initiator`]; a lane is a connection.
#[derive(Debug)]
pub struct Remote<T> {
    initiator: Initiator<T>,
    namespace: Option<NamespaceId>,
    in_flight_max: usize,
    lost_writes_linger: bool,
    done: Vec<Done>,
}

impl<T: Dial> Remote<T> {
    /// Returns the path to `namespace` through `initiator`, which has nothing in flight.
    /// `lost_writes_linger` is `true` without a fence, that is with version 1.
    pub fn new(
        initiator: Initiator<T>,
        namespace: Option<NamespaceId>,
        lost_writes_linger: bool,
    ) -> Self {
        let in_flight_max = initiator.room();
        let done = Vec::with_capacity(in_flight_max);
        Remote { initiator, namespace, in_flight_max, lost_writes_linger, done }
    }

    /// Returns the initiator, for its reports.
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

/// A device of this process; lanes have no meaning.
#[derive(Debug)]
pub struct Local<D> {
    device: D,
    slots: SlotTable<()>,
    in_flight_max: usize,
    done: Vec<Completion>,
}

impl<D: Device> Local<D> {
    /// Returns the path to `device` with at most `in_flight_max` requests in flight.
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
