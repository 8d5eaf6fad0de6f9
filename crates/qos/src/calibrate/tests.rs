//! Calibrations of devices that are equations, with noise where a test asks for it.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::{ModelFile, PAGE_BYTES};

/// A device whose latency follows from how busy it is.
struct Device {
    /// Tokens a second at which it is busy all the time.
    tokens: f64,
    write_cost: f64,
    /// Tokens of a read while there is nothing else.
    read_only_cost: f64,
    /// The share by which the curve of each mix is off; the sign changes from mix to mix.
    scatter: f64,
    /// Random error of each latency, a share.
    noise: f64,
    /// The factor by which requests of 1 MiB cost more than in proportion.
    large: f64,
    chance: u64,
}

const A: Device = Device {
    tokens: 600e3,
    write_cost: 10.0,
    read_only_cost: 0.5,
    scatter: 0.0,
    noise: 0.0,
    large: 1.0,
    chance: 1,
};

impl Device {
    fn unit(&mut self) -> f64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns the result of a load: p95 = 90 µs / (1 - busy), and p99 is twice that. Short runs
    /// see only nine tenths of what is above the unloaded latency.
    fn serve(&mut self, offer: &OfferedLoad) -> LoadResult {
        let Mix { read_percent, bytes, .. } = offer.mix;
        let reads = f64::from(read_percent) / 100.0;
        let price = match read_percent {
            100 => self.read_only_cost,
            _ => reads + (1.0 - reads) * self.write_cost,
        };
        let tilt = match read_percent {
            99 | 75 => 1.0 + self.scatter,
            95 | 50 => 1.0 - self.scatter,
            _ => 1.0,
        };
        let pages = (bytes / PAGE_BYTES) as f64;
        let extra = 1.0 + (self.large - 1.0) * (pages / 256.0);
        let busy = (offer.iops * price * pages * extra + offer.probe_iops) * tilt / self.tokens;
        let iops = if busy < 1.0 { offer.iops } else { offer.iops / busy };
        let flattered = if offer.is_long { 1.0 } else { 0.9 };
        let error = 1.0 + self.noise * (self.unit() - 0.5);
        let p95_us = match busy < 0.999 {
            true => (90.0 + flattered * 90.0 * busy / (1.0 - busy)) * error,
            false => f64::INFINITY,
        };
        LoadResult { iops, mean_us: p95_us / 1.2, p95_us, p99_us: 2.0 * p95_us }
    }

    /// Returns the load, in requests of 4 KiB a second, at which p95 is `latency_us`.
    fn iops_at(&self, read_percent: u8, latency_us: f64) -> f64 {
        let busy = 1.0 - 90.0 / latency_us;
        let reads = f64::from(read_percent) / 100.0;
        let price = match read_percent {
            100 => self.read_only_cost,
            _ => reads + (1.0 - reads) * self.write_cost,
        };
        busy * self.tokens / price
    }
}

fn course() -> CalibrationPlan {
    CalibrationPlan {
        latencies_us: CalibrationPlan::LATENCIES_US.to_vec(),
        p99: true,
        read_percents: CalibrationPlan::READ_PERCENTS.to_vec(),
        sizes: CalibrationPlan::SIZES.to_vec(),
        effort: RunLengths::VIRTUAL,
        limit: CalibrationPlan::LIMIT,
    }
}

/// Runs a course to its end. Returns the calibration and the number of its runs.
fn calibrate(course: CalibrationPlan, device: &mut Device) -> (Calibration, usize) {
    let mut calibration = Calibration::new(course);
    let mut runs = 0;
    while let Some(offer) = calibration.next_offer() {
        assert!(offer.iops > 0.0 && offer.seconds > 0.0, "{offer:?}");
        calibration.take(offer, device.serve(&offer));
        runs += 1;
        assert!(runs < 2_000, "it comes to an end");
    }
    (calibration, runs)
}

fn near(found: f64, meant: f64, share: f64) -> bool {
    (found / meant - 1.0).abs() <= share
}

#[test]
fn an_exact_device_is_recovered_exactly() {
    for write_cost in [1.0, 3.0, 10.0, 40.0] {
        let mut device = Device { write_cost, ..A };
        let (calibration, runs) = calibrate(course(), &mut device);
        let fit = calibration.findings().unwrap();
        assert!(near(fit.write_cost, write_cost, 0.02), "{} of {write_cost}", fit.write_cost);
        assert!(near(fit.read_only_cost, 0.5, 0.02));
        assert_eq!(fit.p95.len(), CalibrationPlan::LATENCIES_US.len());
        for row in &fit.p95 {
            let tokens = row.mixed as f64 / 100.0;
            let meant = (1.0 - 90.0 / f64::from(row.latency_us)) * 600e3;
            assert!(near(tokens, meant, 0.02), "{row:?}: {meant}");
            let meant = device.iops_at(100, f64::from(row.latency_us));
            assert!(near(row.read_only as f64 / 100.0, meant, 0.02), "{row:?}: {meant}");
        }
        // Twice the latency at p99: 400 µs there is 200 µs here.
        assert_eq!(fit.p99[0].latency_us, 200);
        assert!(near(fit.p99[2].mixed as f64 / 100.0, (1.0 - 180.0 / 500.0) * 600e3, 0.02));
        assert!(runs < 400, "{runs} runs");
    }
}

#[test]
fn noise_is_lived_with() {
    for chance in 1..20 {
        let mut device = Device { noise: 0.1, chance, ..A };
        let (calibration, _) = calibrate(course(), &mut device);
        let fit = calibration.findings().unwrap();
        assert!(near(fit.write_cost, 10.0, 0.05), "{chance}: {}", fit.write_cost);
        let row = fit.p95.iter().find(|row| row.latency_us == 500).unwrap();
        assert!(near(row.mixed as f64 / 100.0, 492e3, 0.05), "{chance}: {row:?}");
    }
}

#[test]
fn curves_that_do_not_fall_together_are_refused_by_name() {
    let mut device = Device { scatter: 0.3, ..A };
    let (calibration, _) = calibrate(course(), &mut device);
    let misfit = calibration.findings().unwrap_err();
    let FitError::Scattered { points, limit, .. } = &misfit else { panic!("{misfit:?}") };
    assert!(points.iter().all(|point| point.off.abs() > *limit));
    assert!(points.is_sorted_by(|a, b| a.off.abs() >= b.off.abs()), "the worst comes first");
    let text = misfit.to_string();
    assert!(text.contains("do not fall together") && text.contains("at 50 % reads"), "{text}");
    // What is within the limit is no reason to refuse.
    let mut device = Device { scatter: 0.08, ..A };
    assert!(calibrate(course(), &mut device).0.findings().is_ok());
}

#[test]
fn too_little_is_refused() {
    let only_reads = CalibrationPlan { read_percents: Vec::new(), sizes: Vec::new(), ..course() };
    let (calibration, _) = calibrate(only_reads, &mut Device { ..A });
    assert_eq!(calibration.findings(), Err(FitError::TooLittle));
    let reads = calibration.crossings();
    let crossing = reads.iter().find(|c| c.latency_us == 500).unwrap();
    assert!(near(crossing.iops, 984e3, 0.02), "reads alone are found all the same: {crossing:?}");
    let one_mix = CalibrationPlan { read_percents: vec![90], ..course() };
    let (calibration, _) = calibrate(one_mix, &mut Device { ..A });
    assert_eq!(calibration.findings(), Err(FitError::TooLittle), "one mix tells no write cost");
    let exact =
        |latencies_us| CalibrationPlan { latencies_us, read_percents: vec![90, 50], ..course() };
    let (calibration, _) = calibrate(exact(vec![500]), &mut Device { ..A });
    assert_eq!(calibration.findings(), Err(FitError::TooLittle), "two points fit any device");
    let (calibration, _) = calibrate(exact(vec![500, 2_000]), &mut Device { ..A });
    assert!(calibration.findings().is_ok());
}

#[test]
fn a_latency_that_the_device_never_meets_has_no_row() {
    let course = CalibrationPlan { latencies_us: vec![50, 80, 500, 1_000], ..course() };
    let (calibration, _) = calibrate(course, &mut Device { ..A });
    let fit = calibration.findings().unwrap();
    assert_eq!(fit.p95.iter().map(|row| row.latency_us).collect::<Vec<_>>(), [500, 1_000]);
}

#[test]
fn a_tight_latency_that_does_not_fit_is_left_out_and_the_rest_stands() {
    let (calibration, _) = calibrate(course(), &mut Device { ..A });
    let mut crossings = calibration.crossings();
    for crossing in &mut crossings {
        if crossing.latency_us == 200 && crossing.read_percent == 50 {
            crossing.iops *= 2.0;
        }
    }
    let fit = fit(&crossings, CalibrationPlan::LIMIT, 500).unwrap();
    assert_eq!(fit.left_out.len(), 1);
    assert_eq!((fit.left_out[0].0, fit.p95[0].latency_us), (200, 300));
    assert!(fit.p99.iter().all(|row| row.latency_us != 200));
    assert!(near(fit.write_cost, 10.0, 0.02));
}

#[test]
fn sizes_cost_what_they_do_to_others() {
    let (calibration, _) = calibrate(course(), &mut Device { large: 3.0, ..A });
    let sizes = calibration.sizes();
    assert_eq!(sizes[0], crate::SizePoint { bytes: 4096, weight: 100 });
    let weight = |bytes| {
        let point = sizes.iter().find(|point| point.bytes == bytes).unwrap();
        f64::from(point.weight) / 100.0
    };
    assert!(near(weight(16 << 10), 4.0 * (1.0 + 2.0 * 4.0 / 256.0), 0.05), "{sizes:?}");
    assert!(near(weight(256 << 10), 64.0 * 1.5, 0.05), "{sizes:?}");
    assert!(near(weight(1 << 20), 768.0, 0.05), "{sizes:?}");
    let linear = calibrate(course(), &mut Device { ..A }).0.sizes();
    for point in linear {
        assert!(near(f64::from(point.weight), point.bytes as f64 * 100.0 / 4096.0, 0.04));
    }
}

#[test]
fn a_device_without_limits_ends_the_search() {
    let mut endless = Device { tokens: 1e12, ..A };
    let course = CalibrationPlan { sizes: Vec::new(), ..course() };
    let (calibration, runs) = calibrate(course, &mut endless);
    assert!(runs < 500, "{runs}");
    assert_eq!(calibration.findings(), Err(FitError::TooLittle), "no latency was ever reached");
}

#[test]
fn a_fit_is_a_file_that_can_be_read() {
    let (calibration, _) = calibrate(course(), &mut Device { scatter: 0.05, ..A });
    let fit = calibration.findings().unwrap();
    let tokens_max = calibration.tokens_max(&fit);
    let file = fit.to_file("an equation", "never", calibration.sizes(), tokens_max);
    assert!(file.residuals.iter().all(|residual| residual.off_percent >= 0.0), "{file:?}");
    assert!(file.residuals.iter().any(|residual| residual.off_percent > 5.0));
    assert_eq!(ModelFile::parse(&file.to_toml()), Ok(file));
}

#[test]
fn progress_goes_from_nothing_to_all() {
    let mut device = Device { ..A };
    let mut calibration = Calibration::new(course());
    let mut last: f64 = 0.0;
    while let Some(offer) = calibration.next_offer() {
        let progress = calibration.progress();
        assert!((0.0..=1.0).contains(&progress));
        // An estimate may go back a little within a curve, never to an earlier one.
        assert!(progress > last - 0.1, "{progress} after {last}");
        last = last.max(progress);
        calibration.take(offer, device.serve(&offer));
    }
    assert!(last > 0.9, "{last}");
}
