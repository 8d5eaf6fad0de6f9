//! The contents of a model file, whichever form the file has.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use contract::{IoKind, REQUEST_BYTES_MAX};

use crate::units::TOKEN;
use crate::{CostModel, DeviceModel, DeviceModelError, PAGE_BYTES, RatePoint, SizePoint};

/// The version of the TOML form that is written, and the only one that is read.
pub const FORMAT: i64 = 1;

/// The maximum number of rows in one table of a model file.
pub const ROWS_MAX: usize = 256;

/// The whole content of a model file.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// The description of the device, in free words.
    pub device: String,
    /// The method and the date of the measurement, in free words.
    pub measured: String,
    /// The price of a 4 KiB write in units.
    pub write: u32,
    /// The price in units of a 4 KiB read while the device serves only reads.
    pub read_only_read: u32,
    /// The prices of larger requests, by ascending size; empty if prices are linear in the number
    /// of pages.
    pub sizes: Vec<SizePoint>,
    /// Units a second without any latency bound.
    pub rate_max: u64,
    /// Rates by the 95th percentile of read latency; never empty.
    pub p95: Vec<RatePoint>,
    /// Rates by the 99th percentile of read latency; empty if they were not measured.
    pub p99: Vec<RatePoint>,
    /// The measured points, each with its distance from the model.
    pub residuals: Vec<Residual>,
}

/// A measured point, compared with the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// 95th percentile of read latency in microseconds.
    pub latency_us: u32,
    /// Reads among the requests, in per cent.
    pub read_percent: u8,
    /// Requests of 4 KiB a second at which the point was reached.
    pub iops: u64,
    /// The excess over the model's rate, in per cent; negative for less.
    pub off_percent: f64,
}

/// The reason that a text is not a valid device model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFileError {
    /// The number of the faulty line, from 1; `None` if the error concerns the whole text.
    pub line: Option<usize>,
    /// The text that was found and the text that was expected.
    pub what: String,
}

impl fmt::Display for ModelFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl core::error::Error for ModelFileError {}

impl ModelFile {
    /// Returns the contents of a model file for an existing model. A curve of costs is sampled at
    /// powers of two.
    pub fn of(device: &str, measured: &str, model: &DeviceModel) -> ModelFile {
        let weight = |bytes: usize| {
            let weight = model.cost().cost(IoKind::Read, bytes).mixed * 100 / TOKEN;
            SizePoint { bytes, weight }
        };
        let doubled = |bytes: &usize| (bytes * 2 <= REQUEST_BYTES_MAX).then_some(bytes * 2);
        let mut sizes: Vec<SizePoint> =
            core::iter::successors(Some(PAGE_BYTES), doubled).map(weight).collect();
        if sizes.iter().all(|point| point.weight as usize == 100 * point.bytes / PAGE_BYTES) {
            sizes.clear();
        }
        ModelFile {
            device: device.into(),
            measured: measured.into(),
            write: model.cost().write(),
            read_only_read: model.cost().read_only_read(),
            sizes,
            rate_max: model.rate_max(),
            p95: model.points().to_vec(),
            p99: model.p99_points().to_vec(),
            residuals: Vec::new(),
        }
    }

    /// Returns the model that schedulers and admission work with.
    ///
    /// # Errors
    /// The entries contradict each other. A parsed file never has this error.
    pub fn model(&self) -> Result<DeviceModel, DeviceModelError> {
        let cost = CostModel::curved(self.write, self.read_only_read, &self.sizes)
            .map_err(DeviceModelError::Cost)?;
        DeviceModel::new(cost, self.p95.clone(), self.rate_max)?.with_p99(self.p99.clone())
    }
}
