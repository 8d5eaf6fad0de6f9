//! Devices that a worker gets and gives up between two turns.

use contract::{DEVICES_MAX, Device, Mailbox, Scheduler, Session, Transport};

use crate::Attached;
use crate::worker::Worker;

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// Gives the worker one device more, or another one in the place of one that it has nothing at.
    ///
    /// # Panics
    /// When there is no such place, or [something](Worker::is_idle_at) is at the device that is there.
    pub fn attach_device(&mut self, place: usize, mut attached: Attached<D, S>) {
        assert!(place < DEVICES_MAX, "at most {DEVICES_MAX} devices");
        attached.reserve(self.limits.in_flight);
        if place == self.devices.len() {
            self.devices.push(attached);
            return;
        }
        assert!(self.is_idle_at(place), "a device goes with its requests");
        self.devices[place] = attached;
    }

    /// Whether nothing is under way that is about the device in a place, here or on its way to it.
    pub fn is_idle_at(&self, place: usize) -> bool {
        let is_about = |device: u8| usize::from(device) == place;
        self.devices[place].is_idle()
            && !self.in_flight.iter().any(|(_, entry)| is_about(entry.device))
    }

    /// How many places of devices it has.
    pub fn device_places(&self) -> usize {
        self.devices.len()
    }
}
