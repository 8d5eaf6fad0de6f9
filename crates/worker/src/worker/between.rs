//! Questions and orders of the outer loop to a worker, between turns.

use contract::{
    BufPool, ConnId, DEVICES_MAX, Device, Instant, Mailbox, Scheduler, Session, TenantId, Transport,
};

use super::Worker;
use crate::frontend::Frontend;
use crate::{ControlPlaneLink, DeviceLane, ResourceUse, SessionFactory};

/// Questions and orders of the outer loop between turns.
impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox, N: SessionFactory<P>>
    Worker<T, D, S, P, M, N>
{
    /// Drains the worker: takes no new connections and requests. Requests in flight finish and
    /// their replies leave within the time of the limits.
    pub fn drain(&mut self, now: Instant) {
        if !self.is_draining() {
            self.drain_by(now, now + self.engine.front.limits.drain);
        }
    }

    /// Drains like [`drain`](Worker::drain) with this deadline. A second call changes the deadline.
    pub fn drain_by(&mut self, now: Instant, until: Instant) {
        let front = &mut self.engine.front;
        if front.drain_until.replace(until).is_some() {
            return;
        }
        front.now = now;
        front.net.stop_listening();
        for place in 0..front.conns.places() {
            if let Some(id) = front.conns.at(place).map(|conn| conn.id) {
                front.finish(id);
            }
        }
        self.engine.discard_unwanted();
        self.engine.front.net.kick(now);
    }

    /// Returns whether [`drain`](Worker::drain) was called and everything has ended.
    pub fn is_drained(&self) -> bool {
        let front = &self.engine.front;
        front.is_draining()
            && front.conns.open() == 0
            && front.requests.len() == 0
            && front.conns.hellos.asked == 0
            && self.migration.is_idle()
    }

    /// Returns whether [`drain`](Worker::drain) was called and the worker will send no more
    /// requests to devices, though connections may still be open.
    pub fn is_inert(&self) -> bool {
        let front = &self.engine.front;
        // What is away may come back with requests.
        let is_alone = front.requests.len() == 0 && self.migration.is_idle();
        let mut conns = front.conns.iter();
        front.is_draining() && is_alone && conns.all(|conn| conn.outstanding.count == 0)
    }

    /// Returns whether [`drain`](Worker::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.engine.front.is_draining()
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.engine.front.conns.open()
    }

    /// Returns the identifiers of the open connections.
    pub fn connection_ids(&self) -> impl Iterator<Item = ConnId> {
        self.engine.front.conns.iter().map(|conn| conn.id)
    }

    /// Returns the requests, buffers and bytes that the worker holds now.
    pub fn load(&self) -> ResourceUse {
        let front = &self.engine.front;
        ResourceUse {
            in_flight: front.requests.len(),
            buffers: front.requests.buffers_taken(),
            carried: front.conns.carried.total(),
            put_off: self.reader.invitations.put_off(),
            fenced: self.engine.lanes.fenced(),
            called: front.conns.called(),
        }
    }

    /// Returns whether nothing is in flight and every buffer is in its pool: a check of the
    /// simulated world.
    pub fn is_at_rest(&self) -> bool {
        let front = &self.engine.front;
        front.requests.len() == 0
            && front.conns.hellos.asked == 0
            && front.requests.buffers_taken() == 0
            && front.conns.inbox.is_empty()
            && self.migration.is_idle()
    }

    /// Returns the transport and the devices for the simulator, which drives them.
    pub fn ports(&mut self) -> (&mut T, impl Iterator<Item = &mut D>) {
        (&mut self.engine.front.net, self.engine.lanes.devices())
    }

    /// Returns the schedulers by device, for the counts of the simulated world.
    pub fn schedulers(&self) -> impl Iterator<Item = &S> {
        self.engine.lanes.iter().map(|lane| lane.scheduler())
    }

    /// Counts the requests in flight of one tenant by scanning the table of all requests.
    pub fn in_flight_of(&self, tenant: TenantId) -> usize {
        self.engine.front.requests.iter().filter(|entry| entry.tenant == tenant).count()
    }

    /// Attaches another device to the worker, in a new place or in place of an idle device.
    ///
    /// # Panics
    /// Panics if there is no such place, or if the device in it is not
    /// [idle](Worker::is_idle_at).
    pub fn attach_device(&mut self, place: usize, attached: DeviceLane<D, S>) {
        assert!(place < DEVICES_MAX, "at most {DEVICES_MAX} devices");
        let is_free = place == self.device_places() || self.is_idle_at(place);
        assert!(is_free, "a device goes with its requests");
        self.engine.lanes.attach(place, attached);
    }

    /// Returns whether no request concerns the device in a place, in the worker or on its way to
    /// it.
    pub fn is_idle_at(&self, place: usize) -> bool {
        let mut entries = self.engine.front.requests.iter();
        self.engine.lanes.peek(place).is_idle()
            && !entries.any(|entry| usize::from(entry.device) == place)
    }

    /// Returns the number of the worker's places for devices.
    pub fn device_places(&self) -> usize {
        self.engine.lanes.len()
    }

    /// Ends the worker and returns its buffers.
    pub fn into_pool(self) -> BufPool {
        self.into_parts().0
    }

    /// Ends the worker and returns its buffers, its line to the control plane and its schedulers.
    pub fn into_parts(self) -> (BufPool, ControlPlaneLink<M>, Vec<S>) {
        let Frontend { requests, gauges, .. } = self.engine.front;
        let line = ControlPlaneLink { watch: gauges.into_watch(), ..self.line };
        (requests.into_pool(), line, self.engine.lanes.into_schedulers())
    }
}
