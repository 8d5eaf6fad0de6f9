//! Devices to be calibrated, under load in virtual time or in real time.

use std::sync::Arc;

use dataplane::Volume;
use figures::bed::{Failure, FlashBed};
use flash::Spec;
use qos::calibrate::{Offer, Outcome};

use super::real_time::Crew;
use super::stop::Stop;

/// A device to be calibrated, which accepts loads.
pub(super) enum Bed {
    /// Simulated flash without data, on a clock of its own.
    Virtual(Box<FlashBed>),
    /// Any device, loaded by threads.
    Real { crew: Crew, volume: Arc<Volume> },
}

impl Bed {
    /// Opens the simulated device of a spec; returns `None` for other devices.
    pub(super) fn open_virtual(spec: &Spec, latency_us_max: u32, seed: u64) -> Option<Bed> {
        let bed = FlashBed::open(spec, latency_us_max, seed)?;
        Some(Bed::Virtual(Box::new(bed)))
    }

    /// Opens any device, with this number of threads for the load.
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
        matches!(self, Bed::Virtual(_))
    }

    /// Returns the device if it is measured in real time; `None` for simulated flash, which is
    /// measured in virtual time.
    pub(super) fn volume(&self) -> Option<&Volume> {
        match self {
            Bed::Virtual(_) => None,
            Bed::Real { volume, .. } => Some(volume),
        }
    }

    /// Returns the size of the device in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Bed::Virtual(bed) => bed.bytes(),
            Bed::Real { volume, .. } => volume.bytes(),
        }
    }

    /// Returns the number of requests, probes included, that were measured so far.
    pub(super) fn requests(&self) -> u64 {
        match self {
            Bed::Virtual(bed) => bed.requests(),
            Bed::Real { crew, .. } => crew.requests(),
        }
    }

    /// Offers a load to the device and returns its rate and latencies. Ends early if `is_stopped`
    /// returns `true`.
    pub(super) fn offer(
        &mut self,
        offer: &Offer,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, Stop> {
        let failure = match self {
            Bed::Real { crew, .. } => return crew.offer(offer, is_stopped),
            Bed::Virtual(bed) => match bed.offer(offer, is_stopped) {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            },
        };
        Err(match failure {
            Failure::Stopped => Stop::Interrupted,
            Failure::Errors(count) => Stop::of_errors(count),
            Failure::Stuck => Stop::Failed("the device left requests unanswered".to_owned()),
        })
    }
}
