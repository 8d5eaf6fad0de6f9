//! A device model: the tokens that a device serves at each tail latency, and the price of requests
//! on it. The paper's Figure 3 as a table (section 3.2.1).
//!
//! This module deliberately leaves out how a model is measured, and how it is stored in a file.

use alloc::vec::Vec;
use core::fmt;

use contract::Slo;

use crate::headroom::WindowRates;
use crate::units::{RATE_MAX, TOKEN};
use crate::{CostModel, CostModelError, Load};

/// A row of a device model: the units a second that the device makes while the tail latency of
/// reads is at most `latency_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatePoint {
    /// Tail read latency in microseconds, at the percentile of the table that the row is in.
    pub latency_us: u32,
    /// Units a second while the load is mixed.
    pub mixed: u64,
    /// Units a second of a load of reads only, at the *mixed* price of a read. The published code
    /// switches to this rate; nearflash keeps the rate and lowers the price, never both.
    pub read_only: u64,
}

/// A percentile of read latency: the part of the reads that a latency bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Percentile {
    /// 95 of 100 reads.
    P95,
    /// 99 of 100 reads.
    P99,
}

impl Percentile {
    /// Returns the percentile for so many tenths of a percent; zero means the 95th. Returns `None`
    /// for any other than the 95th and the 99th.
    pub fn from_tenths(tenths: u16) -> Option<Percentile> {
        match tenths {
            0 | 950 => Some(Percentile::P95),
            990 => Some(Percentile::P99),
            _ => None,
        }
    }

    /// Returns the percentile in tenths of a percent.
    pub fn tenths(self) -> u16 {
        match self {
            Percentile::P95 => 950,
            Percentile::P99 => 990,
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.tenths() / 10)
    }
}

/// The reason that a device model is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceModelError {
    /// The model has no row.
    Empty,
    /// Latencies do not ascend, or a rate falls while the latency grows.
    NotMonotone,
    /// A rate is zero or above [`RATE_MAX`].
    Rate,
    /// The prices are invalid.
    Cost(CostModelError),
}

impl fmt::Display for DeviceModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceModelError::Empty => f.write_str("a device model needs at least one rate"),
            DeviceModelError::NotMonotone => {
                f.write_str("rates of a device model must not fall as latencies ascend")
            }
            DeviceModelError::Rate => {
                write!(f, "a rate must lie between 1 and {RATE_MAX} units a second")
            }
            DeviceModelError::Cost(error) => error.fmt(f),
        }
    }
}

/// A device's rates and prices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceModel {
    cost: CostModel,
    /// The rows for the 95th percentile in ascending order of latency, never empty.
    points: Vec<RatePoint>,
    /// The rows for the 99th percentile in ascending order of latency; empty if they are not known.
    p99: Vec<RatePoint>,
    /// Units a second without any latency bound.
    rate_max: u64,
    /// `true` if SLOs are to hold in windows, and not only on average.
    promises_windows: bool,
}

impl DeviceModel {
    /// Creates a model of these prices and rows, which are for the 95th percentile. `rate_max` is
    /// the rate in units a second without any latency bound.
    pub fn new(
        cost: CostModel,
        points: Vec<RatePoint>,
        rate_max: u64,
    ) -> Result<DeviceModel, DeviceModelError> {
        if points.is_empty() {
            return Err(DeviceModelError::Empty);
        }
        sound_rows(&points, rate_max)?;
        Ok(DeviceModel { cost, points, p99: Vec::new(), rate_max, promises_windows: false })
    }

    /// Adds the rates for the 99th percentile of the read latency. Where noise makes one of them
    /// exceed the rate for the 95th percentile, [`limit`](DeviceModel::limit) returns the latter.
    pub fn with_p99(mut self, points: Vec<RatePoint>) -> Result<DeviceModel, DeviceModelError> {
        sound_rows(&points, self.rate_max)?;
        self.p99 = points;
        Ok(self)
    }

    /// Has SLOs that are promised from the model hold in windows; by default they hold on average.
    #[must_use]
    pub fn with_windows(mut self, on: bool) -> DeviceModel {
        self.promises_windows = on;
        self
    }

    /// Returns another model of the device, from which SLOs are promised as from the present one: in
    /// windows or on average.
    pub(crate) fn succeeded_by(&self, model: &DeviceModel) -> DeviceModel {
        model.clone().with_windows(self.promises_windows)
    }

    /// Returns device A of the paper: 420 K tokens a second at 500 µs and 570 K at 2 ms (sections
    /// 3.2.2, 5.4 and 5.5). A write costs 10 tokens; a read of a read-only load costs half a token.
    /// The rows between and above are those published with the original for its sample device.
    pub fn device_a() -> DeviceModel {
        let points = rows(&[
            (500, 42, 85),
            (1_000, 50, 95),
            (1_500, 52, 98),
            (2_000, 57, 100),
            (2_500, 75, 100),
            (3_000, 80, 100),
        ]);
        preset(1_000, 50, points, 100)
    }

    /// Returns device B of the paper, of which only the write cost is published (20 tokens, section
    /// 3.2.1). The rates are ours: those of simulated flash of preset `b`, rounded.
    pub fn device_b() -> DeviceModel {
        let points = rows(&[(500, 28, 35), (1_000, 35, 38), (2_000, 42, 43)]);
        preset(2_000, 80, points, 50)
    }

    /// Returns device C of the paper, of which only the write cost is published (16 tokens, section
    /// 3.2.1). The rates are ours: those of simulated flash of preset `c`, rounded.
    pub fn device_c() -> DeviceModel {
        let points = rows(&[(500, 39, 48), (1_000, 47, 52), (2_000, 56, 57)]);
        preset(1_600, 80, points, 65)
    }

    /// Returns the model of the cloud instance's NVMe device of 2018 that the original was
    /// published with. Nothing is known about cheaper reads of a read-only load; the published
    /// rates differ by a tenth at relaxed latencies, so reads cost the same under both loads here.
    pub fn cloud() -> DeviceModel {
        let tenths = [
            (500, 240, 380),
            (1_000, 330, 390),
            (1_500, 350, 400),
            (2_000, 370, 410),
            (2_500, 390, 410),
            (3_000, 410, 415),
        ];
        let points = tenths.map(|(latency_us, mixed, read_only)| RatePoint {
            latency_us,
            mixed: mixed * 100_000,
            read_only: read_only * 100_000,
        });
        // The published maximum (40 M) lies below the published rate at 3 ms (41 M).
        preset(700, 100, points.to_vec(), 41)
    }

    /// Returns the model of a fourteenth of device A: 4 of its 56 dies. The rates are ours:
    /// simulated flash of preset `small` serves any mix of them within half of the latency. The
    /// other half is left to a machine that has other work to do.
    pub fn small() -> DeviceModel {
        let row = |latency_us, tokens: u64| {
            let units = tokens * u64::from(TOKEN);
            RatePoint { latency_us, mixed: units, read_only: units }
        };
        preset(1_000, 50, alloc::vec![row(1_000, 23_000), row(2_000, 28_000)], 4)
    }

    /// Returns the model of a device about which nothing is known: its tokens are unlimited, so
    /// requests never wait for them, and a request of any kind costs its pages. A latency must not
    /// be promised from it.
    pub fn unlimited() -> DeviceModel {
        let cost = CostModel::linear(TOKEN, TOKEN).expect("equal prices are sound");
        let point = RatePoint { latency_us: u32::MAX, mixed: RATE_MAX, read_only: RATE_MAX };
        DeviceModel::new(cost, alloc::vec![point], RATE_MAX).expect("the highest rate is sound")
    }

    /// Returns the model of a device that is `times` times slower. `times` must not be zero.
    pub fn slowed(mut self, times: u32) -> DeviceModel {
        let slower = |rate: u64| (rate / u64::from(times)).max(1);
        for point in self.points.iter_mut().chain(&mut self.p99) {
            *point = RatePoint {
                latency_us: point.latency_us.saturating_mul(times),
                mixed: slower(point.mixed),
                read_only: slower(point.read_only),
            };
        }
        self.rate_max = slower(self.rate_max);
        self
    }

    /// Returns the prices of requests on the device.
    pub fn cost(&self) -> &CostModel {
        &self.cost
    }

    /// Returns the rows for the 95th percentile, in ascending order of latency.
    pub fn points(&self) -> &[RatePoint] {
        &self.points
    }

    /// Returns the units a second without any latency bound.
    pub fn rate_max(&self) -> u64 {
        self.rate_max
    }

    /// Returns the rows for the 99th percentile; empty if they are unknown.
    pub fn p99_points(&self) -> &[RatePoint] {
        &self.p99
    }

    /// Returns the rows for a percentile.
    pub fn points_at(&self, percentile: Percentile) -> &[RatePoint] {
        match percentile {
            Percentile::P95 => &self.points,
            Percentile::P99 => &self.p99,
        }
    }

    /// Returns the tightest latency at the 95th percentile for which the model has a rate, in
    /// microseconds.
    pub fn latency_us_min(&self) -> u32 {
        self.points[0].latency_us
    }

    /// Returns the units a second at this tail latency (p95): interpolated between rows, the last
    /// row's rate above them, `None` for a latency tighter than the first.
    pub fn rate(&self, latency_us: u32, load: Load) -> Option<u64> {
        self.rate_at(Percentile::P95, latency_us, load)
    }

    /// Returns the units a second at this tail latency of a percentile, interpolated as
    /// [`rate`](DeviceModel::rate) does. Returns `None` for a latency tighter than the first row's,
    /// or if the percentile was not measured.
    pub fn rate_at(&self, percentile: Percentile, latency_us: u32, load: Load) -> Option<u64> {
        let of = |point: &RatePoint| match load {
            Load::Mixed => point.mixed,
            Load::ReadOnly => point.read_only,
        };
        let points = self.points_at(percentile);
        let behind = points.partition_point(|point| point.latency_us <= latency_us);
        let low = points.get(behind.checked_sub(1)?)?;
        let Some(high) = points.get(behind) else { return Some(of(low)) };
        let run = u64::from(high.latency_us - low.latency_us);
        let along = u64::from(latency_us - low.latency_us);
        Some(of(low) + (of(high) - of(low)) * along / run)
    }

    /// Returns the units a second that may be promised while this is the strictest latency; `None`
    /// if the model has no rate for the latency at this percentile.
    pub fn limit(&self, percentile: Percentile, latency_us: u32) -> Option<u64> {
        let limit = self.rate_at(percentile, latency_us, Load::Mixed)?;
        Some(self.rate(latency_us, Load::Mixed).map_or(limit, |most| limit.min(most)))
    }

    /// Returns the units a second that may be promised and filled while this SLO is the strictest;
    /// `None` if the model has no rate for the latency at this percentile.
    pub(crate) fn rates_for(&self, percentile: Percentile, slo: &Slo) -> Option<WindowRates> {
        let most = self.limit(percentile, slo.latency_us)?;
        match self.promises_windows {
            true => Some(WindowRates::in_windows(self, slo, percentile, most)),
            false => Some(WindowRates { most, promised: most, filled: most }),
        }
    }
}

/// Checks that the latencies of rows ascend, that their rates do not fall, and that all rates lie
/// between 1 and [`RATE_MAX`] units a second, mixed ones also within `rate_max`.
fn sound_rows(points: &[RatePoint], rate_max: u64) -> Result<(), DeviceModelError> {
    let rising = |pair: &[RatePoint]| {
        pair[0].latency_us < pair[1].latency_us
            && pair[0].mixed <= pair[1].mixed
            && pair[0].read_only <= pair[1].read_only
    };
    if !points.windows(2).all(rising) || points.last().is_some_and(|last| last.mixed > rate_max) {
        return Err(DeviceModelError::NotMonotone);
    }
    let sound = |rate: u64| (1..=RATE_MAX).contains(&rate);
    let all = points.iter().all(|point| sound(point.mixed) && sound(point.read_only));
    if !all || !sound(rate_max) {
        return Err(DeviceModelError::Rate);
    }
    Ok(())
}

/// Returns rows from latencies in microseconds, and mixed and read-only rates in millions of units
/// a second.
fn rows(millions: &[(u32, u64, u64)]) -> Vec<RatePoint> {
    let row = |&(latency_us, mixed, read_only): &(u32, u64, u64)| RatePoint {
        latency_us,
        mixed: mixed * 1_000_000,
        read_only: read_only * 1_000_000,
    };
    millions.iter().map(row).collect()
}

fn preset(write: u32, read_only_read: u32, points: Vec<RatePoint>, millions: u64) -> DeviceModel {
    let cost = CostModel::linear(write, read_only_read).expect("a preset's prices are sound");
    DeviceModel::new(cost, points, millions * 1_000_000).expect("a preset's rates are sound")
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_papers_rates() {
        let model = DeviceModel::device_a();
        let tokens = |us| model.rate(us, Load::Mixed).map(|rate| rate / 100);
        assert_eq!(tokens(500), Some(420_000));
        assert_eq!(tokens(2_000), Some(570_000));
        assert_eq!(tokens(750), Some(460_000));
        assert_eq!(tokens(1_000_000), Some(800_000));
        assert_eq!(tokens(499), None);
        assert_eq!(model.rate(750, Load::ReadOnly), Some(90_000_000));
        assert_eq!(DeviceModel::cloud().rate(500, Load::Mixed), Some(24_000_000));
        let writes = [DeviceModel::device_b(), DeviceModel::device_c()].map(|m| m.cost().write());
        assert_eq!(writes, [2_000, 1_600]);
    }

    #[test]
    fn rates_never_fall_as_latency_grows() {
        let models = [
            DeviceModel::device_a(),
            DeviceModel::device_b(),
            DeviceModel::device_c(),
            DeviceModel::cloud(),
        ];
        for model in models {
            for load in [Load::Mixed, Load::ReadOnly] {
                let rates: Vec<_> = (500..4_000).map(|us| model.rate(us, load).unwrap()).collect();
                assert!(rates.is_sorted());
                assert!(load == Load::ReadOnly || *rates.last().unwrap() <= model.rate_max());
            }
        }
    }

    #[test]
    fn the_99th_percentile_is_known_where_it_was_measured() {
        let model = DeviceModel::device_a();
        assert_eq!(model.rate_at(Percentile::P99, 2_000, Load::Mixed), None);
        let point = |latency_us, millions: u64| {
            let rate = millions * 1_000_000;
            RatePoint { latency_us, mixed: rate, read_only: rate }
        };
        let known = model.clone().with_p99(vec![point(1_000, 30), point(2_000, 50)]).unwrap();
        let rate = |us| known.rate_at(Percentile::P99, us, Load::Mixed);
        assert_eq!(
            [rate(999), rate(1_500), rate(9_000)],
            [None, Some(40_000_000), Some(50_000_000)]
        );
        // Noise: never more than for the 95th percentile.
        let noisy = model.with_p99(vec![point(400, 30), point(1_000, 51)]).unwrap();
        let limit = |us| noisy.limit(Percentile::P99, us);
        assert_eq!(
            [limit(399), limit(400), limit(1_000)],
            [None, Some(30_000_000), Some(50_000_000)]
        );
    }

    #[test]
    fn senseless_models_are_refused() {
        let cost = || CostModel::linear(1_000, 50).unwrap();
        let point = |latency_us, mixed| RatePoint { latency_us, mixed, read_only: mixed };
        let make = |points, rate_max| DeviceModel::new(cost(), points, rate_max).unwrap_err();
        assert_eq!(make(vec![], 5), DeviceModelError::Empty);
        assert_eq!(make(vec![point(2, 1), point(1, 1)], 5), DeviceModelError::NotMonotone);
        assert_eq!(make(vec![point(1, 2), point(2, 1)], 5), DeviceModelError::NotMonotone);
        assert_eq!(make(vec![point(1, 6)], 5), DeviceModelError::NotMonotone);
        assert_eq!(make(vec![point(1, 0)], 5), DeviceModelError::Rate);
        assert_eq!(make(vec![point(1, 1)], RATE_MAX + 1), DeviceModelError::Rate);
    }
}
