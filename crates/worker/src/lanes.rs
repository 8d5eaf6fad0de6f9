//! The devices of a worker, each with the scheduler in front of it.
//!
//! Deliberately not here: which requests wait, and why (`engine.rs` knows).

use std::collections::VecDeque;

use contract::{
    Command, Completion, DEVICES_MAX, Device, Geometry, Instant, Kind, QueueFull, Scheduler, Slot,
    Submission, TenantId, Tokens,
};

use crate::Limits;
use crate::requests::{InFlight, Parked, Requests};

/// A device queue with its scheduler.
#[derive(Debug)]
pub struct Attached<D, S> {
    device: D,
    scheduler: S,
    geometry: Geometry,
    /// Requests that the device has.
    submitted: usize,
    /// Reads that the scheduler let go and that wait for buffers.
    pub(crate) parked: Parked,
    /// Requests that the scheduler let go and that their fence, or another process, holds, oldest
    /// first; the ends of requests at the device end this, or the other process's. At most as many as
    /// are in flight.
    pub(crate) fenced: VecDeque<Slot>,
    /// Requests were queued since the last round.
    is_fresh: bool,
    /// The device had no room for all that the last round let go.
    is_cut: bool,
    /// The flow of tokens of the devices that were in this place before.
    earlier: Tokens,
}

impl<D: Device, S: Scheduler> Attached<D, S> {
    /// Joins a device and its scheduler.
    pub fn new(device: D, scheduler: S) -> Self {
        let geometry = device.geometry();
        Attached {
            device,
            scheduler,
            geometry,
            submitted: 0,
            parked: Parked::new(0),
            fenced: VecDeque::new(),
            is_fresh: false,
            is_cut: false,
            earlier: Tokens::default(),
        }
    }

    /// Returns whether no request is in hand.
    pub(crate) fn is_idle(&self) -> bool {
        let waiting = self.scheduler.queued() + self.parked.tenants() + self.fenced.len();
        self.submitted + waiting == 0
    }

    /// Returns the flow of tokens of all devices that were in this place, so that it never goes back.
    pub(crate) fn tokens(&self) -> Tokens {
        self.scheduler.tokens().after(self.earlier)
    }

    /// Makes room for as many requests and tenants as there may be.
    fn reserve(&mut self, (in_flight, tenants): (usize, usize)) {
        self.parked = Parked::new(tenants);
        self.fenced.reserve(in_flight);
    }

    /// Returns when a round would find something to do: new requests, new room, or new tokens. Also
    /// without waiting requests, when the scheduler asks for a round: it has tokens to give away.
    /// While the device takes no more, a completion ends the wait.
    fn due(&self, now: Instant) -> Option<Instant> {
        let has_room = self.room() > 0;
        match self.scheduler.queued() {
            1.. if !has_room => None,
            _ if has_room && (self.is_fresh || self.is_cut) => Some(now),
            _ => self.scheduler.wake_at(now),
        }
    }

    /// Begins a round if one is due. Returns whether there may be anything to submit.
    pub(crate) fn begin_round(&mut self, now: Instant) -> bool {
        if self.due(now).is_some_and(|at| at <= now) {
            self.scheduler.begin_round(now);
            (self.is_fresh, self.is_cut) = (false, true);
            return true;
        }
        self.parked.tenants() + self.fenced.len() > 0
    }

    /// Returns the next request that the round lets go; `None`: the round has ended.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Slot> {
        let next = self.scheduler.next();
        if next.is_none() {
            self.is_cut = false;
        }
        next
    }

    /// Returns how many more requests the device takes, as far as the scheduler wants it to.
    pub(crate) fn room(&self) -> usize {
        let wanted = self.scheduler.depth_max().saturating_sub(self.submitted);
        self.device.room().min(wanted)
    }

    /// Returns whether a command, of the device's blocks, needs its range for itself.
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
            Command::Read(range) => (Kind::Read, range.bytes()),
            other => (other.work(), other.work_bytes()),
        };
        self.scheduler.enqueue(tenant, work, bytes, slot)?;
        self.is_fresh = true;
        Ok(())
    }

    /// Gives a request to the device.
    #[inline(always)]
    pub(crate) fn submit(&mut self, now: Instant, submission: Submission) {
        self.submitted += 1;
        self.device.submit(now, submission);
    }

    /// Starts what was submitted.
    pub(crate) fn kick(&mut self, now: Instant) {
        self.device.kick(now);
    }

    /// Refunds the tokens of a request that was paid for and is not submitted.
    pub(crate) fn refund(&mut self, command: Command) {
        self.scheduler.refund(command.work(), command.work_bytes());
    }

    /// Takes the requests that the device has ended, and tells the scheduler how long they took.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        ended: &mut Vec<Completion>,
        requests: &mut Requests,
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
    }

    /// Takes the requests that are meant out of those that wait for buffers, or for another process.
    pub(crate) fn unpark(
        &mut self,
        requests: &mut Requests,
        is_meant: impl Fn(&InFlight) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        self.parked.withdraw(requests.table(), &is_meant, taken);
        self.fenced.retain(|slot| {
            let is_meant = is_meant(requests.get(*slot));
            taken.extend(is_meant.then_some(*slot));
            !is_meant
        });
    }

    /// Returns how many requests the device has.
    pub(crate) fn submitted(&self) -> usize {
        self.submitted
    }

    /// Returns the properties of the device.
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the scheduler, to look at.
    pub(crate) fn scheduler(&self) -> &S {
        &self.scheduler
    }

    /// Returns the scheduler.
    pub(crate) fn scheduler_mut(&mut self) -> &mut S {
        &mut self.scheduler
    }
}

/// The devices of a worker, by their numbers.
#[derive(Debug)]
pub(crate) struct Lanes<D, S> {
    lanes: Vec<Attached<D, S>>,
    /// Requests that may be in flight at the same time, and the limit of tenants' numbers.
    room: (usize, usize),
}

impl<D: Device, S: Scheduler> Lanes<D, S> {
    /// Makes lanes for as many requests in flight, and tenants, as the limits say.
    ///
    /// # Panics
    /// Panics if there are more than [`DEVICES_MAX`] devices.
    pub(crate) fn new(mut lanes: Vec<Attached<D, S>>, limits: &Limits) -> Self {
        assert!(lanes.len() <= DEVICES_MAX, "at most {DEVICES_MAX} devices");
        let room = (limits.in_flight, limits.tenants);
        lanes.iter_mut().for_each(|lane| lane.reserve(room));
        Lanes { lanes, room }
    }

    /// Puts a device into a place, where there is none or one that is idle.
    ///
    /// # Panics
    /// Panics if there is no such place.
    pub(crate) fn attach(&mut self, place: usize, mut lane: Attached<D, S>) {
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

    /// Returns the device of a number, to look at.
    #[inline]
    pub(crate) fn peek(&self, n: usize) -> &Attached<D, S> {
        &self.lanes[n]
    }

    /// Returns the device of a number.
    #[inline]
    pub(crate) fn get(&mut self, n: usize) -> &mut Attached<D, S> {
        &mut self.lanes[n]
    }

    /// Returns all devices, to look at.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Attached<D, S>> {
        self.lanes.iter()
    }

    /// Returns all devices.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attached<D, S>> {
        self.lanes.iter_mut()
    }

    /// Returns how many requests fences, or another process, hold.
    pub(crate) fn fenced(&self) -> usize {
        self.lanes.iter().map(|lane| lane.fenced.len()).sum()
    }

    /// Returns when there is something to do, unless another event comes before.
    pub(crate) fn wake_at(&self, now: Instant) -> Option<Instant> {
        let each = self.lanes.iter().flat_map(|lane| [lane.device.wake_at(), lane.due(now)]);
        each.flatten().min()
    }

    /// Returns the queues of the devices.
    pub(crate) fn devices(&mut self) -> impl Iterator<Item = &mut D> {
        self.lanes.iter_mut().map(|lane| &mut lane.device)
    }

    /// Takes the lanes apart, to use their schedulers again.
    pub(crate) fn into_schedulers(self) -> Vec<S> {
        self.lanes.into_iter().map(|lane| lane.scheduler).collect()
    }
}
