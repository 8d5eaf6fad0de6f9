//! The hand-over of volumes of flash translation between processes. Other devices need none: their
//! queues are open in both processes.

use contract::{Device, Instant, TurnOutcome};
use flash::{DecoratedDevice, Spec};

use super::gate::DesiredState;
use super::translated::ATTEND_PERIOD;
use super::{AnyDevice, Storage, Volume};

impl Volume {
    /// The version of the states by which devices are handed over.
    pub const STATE_FORMAT: u32 = ftl::FORMAT;

    /// Returns the version of the state by which a device is handed over; `None` for devices that
    /// need none.
    pub fn state_format(spec: &Spec) -> Option<u32> {
        Volume::is_of_one_worker(spec).then_some(Volume::STATE_FORMAT)
    }

    /// Brings a device to rest that one process serves at a time: it takes no requests, and those
    /// in flight end. Has no effect on other devices.
    pub fn come_to_rest(&self) {
        self.want(DesiredState::Rest);
    }

    /// Returns the state of a device at rest for another process, once; an empty one for devices
    /// that need none. Returns `None` if the device does not rest yet.
    ///
    /// # Errors
    /// The device will never rest.
    pub fn hand_over(&self) -> Result<Option<Vec<u8>>, String> {
        match &self.storage {
            Storage::Ftl(volume) => volume.gate().take(),
            _ => Ok(Some(Vec::new())),
        }
    }

    /// Serves a device again that [came to rest](Volume::come_to_rest), or serves one that has
    /// [arrived](Volume::receive).
    pub fn go_on(&self) {
        self.want(DesiredState::Service);
    }

    /// Gives a device at rest to the process that got its state. Further requests are answered with
    /// [`Status::Retry`](contract::Status::Retry).
    pub fn give(&self) {
        self.want(DesiredState::Nothing);
    }

    fn want(&self, wanted: DesiredState) {
        if let Storage::Ftl(volume) = &self.storage {
            volume.gate().want(wanted);
        }
    }

    /// Takes the state of an adopted device that another process has handed over. The device is not
    /// served before it [goes on](Volume::go_on).
    ///
    /// # Errors
    /// The state makes no sense, or the device needs none.
    pub fn receive(&self, state: &[u8]) -> Result<(), String> {
        match &self.storage {
            Storage::Ftl(volume) => volume.receive(state),
            _ => Err("a state came for a device that has none".to_owned()),
        }
    }

    /// Returns `true` if the state of an adopted device has not come yet.
    pub fn is_awaited(&self) -> bool {
        matches!(&self.storage, Storage::Ftl(volume) if volume.is_awaited())
    }
}

/// Looks after a worker's queues of devices that come to rest or arrive. Returns the turn with the
/// time at which that is due again.
pub(crate) fn attend<'a>(
    queues: impl Iterator<Item = &'a mut DecoratedDevice<AnyDevice>>,
    now: Instant,
    turn: TurnOutcome,
) -> TurnOutcome {
    let attended = queues.filter_map(|queue| {
        let DecoratedDevice::Plain(AnyDevice::Ftl(outer)) = queue else { return None };
        let is_to_rest = outer.inner().is_to_rest();
        if let Some(inner) = outer.inner_at_rest() {
            return inner.attend(now);
        }
        // No request comes any more that would make the waiting ones try again.
        is_to_rest.then(|| {
            outer.kick(now);
            now + ATTEND_PERIOD
        })
    });
    let wake_at = attended.chain(turn.wake_at).min();
    TurnOutcome { wake_at, ..turn }
}

#[cfg(test)]
mod tests;
