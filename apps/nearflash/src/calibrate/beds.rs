//! What loads are made on: a device in virtual time, or in real time.

use std::sync::Arc;

use contract::{BLOCK_BYTES, Device};
use flash::sim_flash::{SimQueue, SimVolume};
use flash::{Decorated, Source, Spec};
use qos::calibrate::{Offer, Outcome};
use sim::bed::{self, Failure};

use super::Stop;
use super::real_time::Crew;
use crate::volumes::Volume;

/// Requests in flight on a simulated queue of probes.
const PROBES_IN_FLIGHT_MAX: usize = 1024;

/// A device that takes loads.
pub(super) enum Bed {
    /// Simulated flash without data, on a clock of its own.
    Virtual { bed: Box<bed::Bed<Decorated<SimQueue>>>, bytes: u64 },
    /// Any device, by threads.
    Real { crew: Crew, volume: Arc<Volume> },
}

impl Bed {
    /// The simulated device of a spec; it has the port of any device, and nothing else of it is
    /// used.
    ///
    /// # Panics
    /// If the spec names another kind of device.
    pub(super) fn open_virtual(spec: &Spec, latency_us_max: u32, seed: u64) -> Bed {
        let Source::Sim { preset, bytes, age, slow } = &spec.source else {
            unreachable!("only simulated flash has virtual time")
        };
        let chance = spec.decorations.seed;
        let blocks = bytes / BLOCK_BYTES as u64;
        let volume = SimVolume::forgetful(preset.model().slowed(*slow), blocks, *age, chance);
        let depths = [bed::IN_FLIGHT_MAX, PROBES_IN_FLIGHT_MAX];
        let mut queue = 0;
        let queues = depths.map(|depth| {
            queue += 1;
            spec.decorations.wrap(volume.open_queue_of(depth), queue - 1)
        });
        let bytes = queues[0].geometry().blocks * BLOCK_BYTES as u64;
        let bed = Box::new(bed::Bed::new(queues, latency_us_max, seed));
        Bed::Virtual { bed, bytes }
    }

    /// Any device, with so many threads that make load.
    pub(super) fn open_real(
        volume: Arc<Volume>,
        threads: usize,
        latency_us_max: u32,
        seed: u64,
    ) -> Result<Bed, String> {
        let crew = Crew::start(volume.clone(), threads, latency_us_max, seed)?;
        Ok(Bed::Real { crew, volume })
    }

    pub(super) fn is_virtual(&self) -> bool {
        matches!(self, Bed::Virtual { .. })
    }

    /// The device, if it is one in real time.
    pub(super) fn volume(&self) -> Option<&Volume> {
        match self {
            Bed::Virtual { .. } => None,
            Bed::Real { volume, .. } => Some(volume),
        }
    }

    /// Bytes of the device.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Bed::Virtual { bytes, .. } => *bytes,
            Bed::Real { volume, .. } => volume.bytes(),
        }
    }

    /// Requests that were made so far.
    pub(super) fn requests(&self) -> u64 {
        match self {
            Bed::Virtual { bed, .. } => bed.requests(),
            Bed::Real { crew, .. } => crew.requests(),
        }
    }

    /// Offers a load and says what came of it.
    pub(super) fn offer(
        &mut self,
        offer: &Offer,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, Stop> {
        let failure = match self {
            Bed::Real { crew, .. } => return crew.offer(offer, is_stopped),
            Bed::Virtual { bed, .. } => match bed.offer(offer, is_stopped) {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            },
        };
        Err(match failure {
            Failure::Stopped => Stop::Interrupted,
            Failure::Errors(count) => Stop::Failed(errors(count)),
            Failure::Stuck => Stop::Failed("the device left requests unanswered".to_owned()),
        })
    }
}

/// What to say when requests ended badly.
pub(super) fn errors(count: u64) -> String {
    format!("{count} requests ended in errors: a device that fails cannot be calibrated")
}
