//! Devices to be calibrated, under load in virtual time or in real time.

use std::sync::Arc;

use dataplane::Volume;
use figures::flash_test_bed::{Failure, FlashTestBed};
use flash::Spec;
use qos::calibrate::{LoadResult, OfferedLoad};

use super::real_time::CalibrationThreads;
use super::stop::CalibrationError;

/// A device to be calibrated, which accepts loads.
pub(super) enum CalibrationDevice {
    /// Simulated flash without data, on a clock of its own.
    Virtual(Box<FlashTestBed>),
    /// Any device, loaded by threads.
    Real { crew: CalibrationThreads, volume: Arc<Volume> },
}

impl CalibrationDevice {
    /// Opens the simulated device of a spec; returns `None` for other devices.
    pub(super) fn open_virtual(
        spec: &Spec,
        latency_us_max: u32,
        seed: u64,
    ) -> Option<CalibrationDevice> {
        let bed = FlashTestBed::open(spec, latency_us_max, seed)?;
        Some(CalibrationDevice::Virtual(Box::new(bed)))
    }

    /// Opens any device, with this number of threads for the load.
    pub(super) fn open_real(
        volume: Arc<Volume>,
        threads: usize,
        latency_us_max: u32,
        seed: u64,
    ) -> Result<CalibrationDevice, String> {
        let crew = CalibrationThreads::start(volume.clone(), threads, latency_us_max, seed)?;
        Ok(CalibrationDevice::Real { crew, volume })
    }

    pub(super) fn is_virtual(&self) -> bool {
        matches!(self, CalibrationDevice::Virtual(_))
    }

    /// Returns the device if it is measured in real time; `None` for simulated flash, which is
    /// measured in virtual time.
    pub(super) fn volume(&self) -> Option<&Volume> {
        match self {
            CalibrationDevice::Virtual(_) => None,
            CalibrationDevice::Real { volume, .. } => Some(volume),
        }
    }

    /// Returns the size of the device in bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            CalibrationDevice::Virtual(bed) => bed.bytes(),
            CalibrationDevice::Real { volume, .. } => volume.bytes(),
        }
    }

    /// Returns the number of requests, probes included, that were measured so far.
    pub(super) fn requests(&self) -> u64 {
        match self {
            CalibrationDevice::Virtual(bed) => bed.requests(),
            CalibrationDevice::Real { crew, .. } => crew.requests(),
        }
    }

    /// Offers a load to the device and returns its rate and latencies. Ends early if `is_stopped`
    /// returns `true`.
    pub(super) fn offer(
        &mut self,
        offer: &OfferedLoad,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<LoadResult, CalibrationError> {
        let failure = match self {
            CalibrationDevice::Real { crew, .. } => return crew.offer(offer, is_stopped),
            CalibrationDevice::Virtual(bed) => match bed.offer(offer, is_stopped) {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            },
        };
        Err(match failure {
            Failure::Stopped => CalibrationError::Interrupted,
            Failure::Errors(count) => CalibrationError::of_errors(count),
            Failure::Stuck => {
                CalibrationError::Failed("the device left requests unanswered".to_owned())
            }
        })
    }
}
