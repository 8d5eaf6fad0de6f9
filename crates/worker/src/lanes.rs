//! The devices of a worker, each with its scheduler.
//!
//! Deliberately not here: the reasons for which requests wait (`engine.rs` knows them).

use std::collections::VecDeque;

use contract::{
    Command, Completion, DEVICES_MAX, Device, Geometry, Instant, IoKind, QueueFull, Scheduler,
    Slot, Submission, TenantId, Tokens,
};

use crate::Limits;
use crate::requests::{InFlightRequest, ParkedReads, Payment, Requests};

/// A worker's queue to one device, the scheduler in front of it, and the requests that wait between
/// the two.
#[derive(Debug)]
pub struct DeviceLane<D, S> {
    device: D,
    scheduler: S,
    geometry: Geometry,
    /// Number of requests in the device.
    submitted: usize,
    /// Number of requests in the device that the scheduler counts as large ones of best effort.
    large: usize,
    /// Reads that the scheduler has released and that wait for buffers.
    pub(crate) parked: ParkedReads,
    /// Requests that the scheduler has released and that wait for their fence or for another
    /// process, oldest first. Ends of requests at the device end the wait. At most as many as are
    /// in flight.
    pub(crate) fenced: VecDeque<Slot>,
    /// `true` if requests were queued since the last round.
    is_fresh: bool,
    /// `true` if the last round released more than the device had room for.
    is_cut: bool,
    /// The flow of tokens of the devices that had this device's number before.
    earlier: Tokens,
}

impl<D: Device, S: Scheduler> DeviceLane<D, S> {
    /// Joins a device and its scheduler.
    pub fn new(device: D, scheduler: S) -> Self {
        let geometry = device.geometry();
        DeviceLane {
            device,
            scheduler,
            geometry,
            submitted: 0,
            large: 0,
            parked: ParkedReads::new(0),
            fenced: VecDeque::new(),
            is_fresh: false,
            is_cut: false,
            earlier: Tokens::default(),
        }
    }

    /// Returns whether the lane has no request at all.
    pub(crate) fn is_idle(&self) -> bool {
        let waiting = self.scheduler.queued() + self.parked.tenants() + self.fenced.len();
        self.submitted + waiting == 0
    }

    /// Returns the flow of tokens of all devices that had this device's number, so that the sum
    /// never decreases.
    pub(crate) fn tokens(&self) -> Tokens {
        self.scheduler.tokens().after(self.earlier)
    }

    /// Reserves memory for the maximum number of requests and tenants.
    fn reserve(&mut self, (in_flight, tenants): (usize, usize)) {
        self.parked = ParkedReads::new(tenants);
        self.fenced.reserve(in_flight);
    }

    /// Returns when the next round has work: new requests, new room or new tokens, or tokens that
    /// the scheduler wants to give away. Returns `None` while only a completion helps, because the
    /// device is full, and if nothing waits.
    fn due(&self, now: Instant) -> Option<Instant> {
        let has_room = self.room() > 0;
        match self.scheduler.queued() {
            1.. if !has_room => None,
            _ if has_room && (self.is_fresh || self.is_cut) => Some(now),
            _ => self.scheduler.wake_at(now),
        }
    }

    /// Begins a round if one is due. Returns whether requests may be submitted.
    pub(crate) fn begin_round(&mut self, now: Instant) -> bool {
        if self.due(now).is_some_and(|at| at <= now) {
            self.scheduler.begin_round(now);
            (self.is_fresh, self.is_cut) = (false, true);
            return true;
        }
        self.parked.tenants() + self.fenced.len() > 0
    }

    /// Returns the next request that the round releases, or `None` at the end of the round.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Slot> {
        let next = self.scheduler.next();
        if next.is_none() {
            self.is_cut = false;
        }
        next
    }

    /// Returns how many more requests the scheduler may put into the device.
    pub(crate) fn room(&self) -> usize {
        let wanted = self.scheduler.depth_max().saturating_sub(self.submitted);
        self.device.room().min(wanted)
    }

    /// Returns whether the device runs this command alone in its range of blocks, without other
    /// requests.
    pub(crate) fn excludes(&self, command: Command) -> bool {
        self.device.excludes(command)
    }

    /// Queues a request with this command in the scheduler.
    ///
    /// # Errors
    /// Fails if the scheduler takes no more requests of the tenant.
    #[inline(always)]
    pub(crate) fn enqueue(
        &mut self,
        tenant: TenantId,
        command: Command,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        let (work, bytes) = match command {
            Command::Read(range) => (IoKind::Read, range.bytes()),
            other => (other.work(), other.work_bytes()),
        };
        self.scheduler.enqueue(tenant, work, bytes, slot)?;
        self.is_fresh = true;
        Ok(())
    }

    /// Submits a request to the device.
    #[inline(always)]
    pub(crate) fn submit(&mut self, now: Instant, submission: Submission) {
        self.submitted += 1;
        self.device.submit(now, submission);
    }

    /// Makes the device begin the commands that were submitted since the last call.
    pub(crate) fn kick(&mut self, now: Instant) {
        self.device.kick(now);
    }

    /// Refunds the tokens of a request that was paid for and is not submitted.
    pub(crate) fn refund(&mut self, command: Command) {
        self.scheduler.refund(command.work(), command.work_bytes());
    }

    /// Adds the requests that the device has completed to `ended`, and reports their delays to the
    /// scheduler.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        ended: &mut Vec<Completion>,
        requests: &mut Requests,
        limits: &Limits,
    ) {
        if self.submitted == 0 {
            return;
        }
        let before = ended.len();
        self.device.poll(now, ended);
        self.submitted -= ended.len() - before;
        if self.scheduler.measures() {
            for completion in &ended[before..] {
                let entry = requests.get(completion.slot);
                let submitted_at = entry.submitted_at.expect("the device got it");
                self.scheduler.ended(entry.command.kind(), now.since(submitted_at));
            }
        }
        if self.large > 0 {
            self.end_large(&ended[before..], requests, limits);
        }
    }

    /// Notes that a large request of a tenant that yields to promises goes to the device.
    pub(crate) fn begin_large(&mut self, command: Command) {
        self.large += 1;
        self.scheduler.began_large(command.work(), command.work_bytes());
    }

    /// Tells the scheduler which large requests of best effort have ended. Others may wait for
    /// them, so a round is due.
    #[inline(never)]
    fn end_large(&mut self, ended: &[Completion], requests: &mut Requests, limits: &Limits) {
        for completion in ended {
            let entry = requests.get(completion.slot);
            if entry.payment == Payment::Large {
                entry.payment = Payment::Paid;
                let command = limits.part_of(entry.command);
                self.scheduler.ended_large(command.work(), command.work_bytes());
                self.large -= 1;
                self.is_fresh = true;
            }
        }
    }

    /// Removes the requests for which `is_meant` is true from the waits for buffers, fences and
    /// other processes, and appends them to `taken`.
    pub(crate) fn unpark(
        &mut self,
        requests: &mut Requests,
        is_meant: impl Fn(&InFlightRequest) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        self.parked.withdraw(requests.table(), &is_meant, taken);
        self.fenced.retain(|slot| {
            let is_meant = is_meant(requests.get(*slot));
            taken.extend(is_meant.then_some(*slot));
            !is_meant
        });
    }

    /// Returns the number of requests in the device.
    pub(crate) fn submitted(&self) -> usize {
        self.submitted
    }

    /// Returns the properties of the device.
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the scheduler, to read its state.
    pub(crate) fn scheduler(&self) -> &S {
        &self.scheduler
    }

    /// Returns the device's scheduler for changes.
    pub(crate) fn scheduler_mut(&mut self) -> &mut S {
        &mut self.scheduler
    }
}

/// The devices of a worker, by their numbers.
#[derive(Debug)]
pub(crate) struct Lanes<D, S> {
    lanes: Vec<DeviceLane<D, S>>,
    /// The maximum number of requests in flight, and the limit of tenants' numbers.
    room: (usize, usize),
}

impl<D: Device, S: Scheduler> Lanes<D, S> {
    /// Creates lanes for the maximum numbers of requests and tenants of the limits.
    ///
    /// # Panics
    /// Panics if there are more than [`DEVICES_MAX`] devices.
    pub(crate) fn new(mut lanes: Vec<DeviceLane<D, S>>, limits: &Limits) -> Self {
        assert!(lanes.len() <= DEVICES_MAX, "at most {DEVICES_MAX} devices");
        let room = (limits.in_flight, limits.tenants);
        lanes.iter_mut().for_each(|lane| lane.reserve(room));
        Lanes { lanes, room }
    }

    /// Attaches a device under the number `place`, which must be the next free one or that of an
    /// idle device.
    ///
    /// # Panics
    /// Panics if `place` is neither the number of a device nor the next free one.
    pub(crate) fn attach(&mut self, place: usize, mut lane: DeviceLane<D, S>) {
        assert!(place < DEVICES_MAX, "at most {DEVICES_MAX} devices");
        lane.reserve(self.room);
        if place == self.lanes.len() {
            self.lanes.push(lane);
        } else {
            lane.earlier = self.lanes[place].tokens();
            self.lanes[place] = lane;
        }
    }

    /// Returns the number of devices.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the device of a number, to read its state.
    #[inline]
    pub(crate) fn peek(&self, n: usize) -> &DeviceLane<D, S> {
        &self.lanes[n]
    }

    /// Returns the device of a number.
    #[inline]
    pub(crate) fn get(&mut self, n: usize) -> &mut DeviceLane<D, S> {
        &mut self.lanes[n]
    }

    /// Returns all devices with their schedulers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &DeviceLane<D, S>> {
        self.lanes.iter()
    }

    /// Returns all devices with their schedulers, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut DeviceLane<D, S>> {
        self.lanes.iter_mut()
    }

    /// Returns the number of requests that wait for fences or for another process.
    pub(crate) fn fenced(&self) -> usize {
        self.lanes.iter().map(|lane| lane.fenced.len()).sum()
    }

    /// Returns when a lane has work, if no other event comes before.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let each = self.lanes.iter().flat_map(|lane| [lane.device.wake_at(), lane.due(now)]);
        each.flatten().min()
    }

    /// Returns the queues of the devices.
    pub(crate) fn devices(&mut self) -> impl Iterator<Item = &mut D> {
        self.lanes.iter_mut().map(|lane| &mut lane.device)
    }

    /// Returns the schedulers, for use in another worker.
    pub(crate) fn into_schedulers(self) -> Vec<S> {
        self.lanes.into_iter().map(|lane| lane.scheduler).collect()
    }
}
