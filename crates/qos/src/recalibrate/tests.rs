//! Devices that are a formula, behind the tokens of a model that is wrong.

use core::time::Duration;

use super::*;
use crate::DeviceModel;
use crate::units::TOKEN;

/// A device whose tail grows as `1 / (1 − load)`.
struct Formula {
    /// Tokens a second at which a mix overloads the device. Of reads alone it serves twice as many.
    knee: f64,
    write_cost: f64,
    /// The load of the tenants: reads and writes a second.
    tenants: (f64, f64),
    /// Tokens a second that the scheduler makes, by the doubted model.
    made: f64,
    /// The number of steps so far; `p95_us_max` is the longest tail, in microseconds.
    steps: usize,
    p95_us_max: f64,
}

impl Formula {
    fn aged(tenants: (f64, f64)) -> Formula {
        Formula { knee: 500e3, write_cost: 21.0, tenants, made: 420e3, steps: 0, p95_us_max: 0.0 }
    }

    fn p95_us(&self, reads: f64, writes: f64) -> f64 {
        let knee = if writes <= 0.001 * (reads + writes) { 2.0 * self.knee } else { self.knee };
        let load = (reads + self.write_cost * writes) / knee;
        if load >= 0.999 { 50_000.0 } else { 90.0 / (1.0 - load) }
    }

    /// Returns the load, in requests a second with this share of reads, at which the tail is
    /// `p95_us`.
    fn iops_at(&self, reads: f64, p95_us: f64) -> f64 {
        let weight = reads + self.write_cost * (1.0 - reads);
        self.knee * (1.0 - 90.0 / p95_us) / weight
    }

    fn see(&mut self, plan: &Plan, step: &Step) -> StepReading {
        let model_write = f64::from(plan.model.cost().write()) / f64::from(TOKEN);
        let share = f64::from(step.read_percent) / 100.0;
        let (reads, writes) = self.tenants;
        let is_pure = writes == 0.0 && step.read_percent == 100;
        let made = if is_pure { 2.0 * self.made } else { self.made };
        let left = (made - reads - model_write * writes).max(0.0);
        let iops = step.iops.min(left / (share + model_write * (1.0 - share)));
        let (reads, writes) = (reads + iops * share, writes + iops * (1.0 - share));
        self.steps += 1;
        let p95_us = self.p95_us(reads, writes);
        self.p95_us_max = self.p95_us_max.max(p95_us);
        StepReading { reads, writes, p95_us, ended: 20_000, size: 1.0 }
    }

    fn measure(&mut self, plan: Plan) -> Recalibration {
        let mut recalibration = Recalibration::new(plan);
        while let Some(step) = recalibration.next_step() {
            let reading = self.see(recalibration.plan(), &step);
            let is_cut = recalibration.is_too_late(reading.p95_us);
            recalibration.take(step, reading, is_cut);
            assert!(self.steps <= 4 * 19, "it does not end");
            assert!((0.0..=1.0).contains(&recalibration.progress()));
        }
        recalibration
    }
}

fn plan(bound_us: Option<u32>, writes: bool) -> Plan {
    let step = (Duration::from_millis(500), Duration::from_secs(3));
    Plan { model: DeviceModel::device_a(), bound_us, writes, step, reads: 20_000.0 }
}

fn near(found: f64, meant: f64, tolerance: f64) {
    assert!((found / meant - 1.0).abs() <= tolerance, "{found}, meant {meant}");
}

#[test]
fn writes_that_became_dearer_are_found_beside_tenants() {
    let mut device = Formula::aged((100e3, 4e3));
    let found = device.measure(plan(Some(500), true)).findings().unwrap();
    near(found.write_cost.unwrap(), 21.0, 0.05);
    let row = found.rows[0];
    assert!(row.is_measured && row.latency_us == 500 && found.has_mixed);
    let meant = device.iops_at(0.9, 500.0) * (0.9 + 2.1);
    near(row.after.mixed as f64 / 100.0, meant, 0.05);
    // What is beyond the strictest promise was scaled with it, and not up.
    let last = found.rows.last().unwrap();
    assert!(!last.is_measured);
    near(last.after.mixed as f64 / last.before.mixed as f64, meant / 420e3, 0.05);
    assert!(device.p95_us_max <= 500.0, "{}", device.p95_us_max);
}

#[test]
fn with_reads_alone_the_price_of_writes_stays() {
    let mut device = Formula::aged((50e3, 5e3));
    let found = device.measure(plan(Some(500), false)).findings().unwrap();
    assert_eq!((found.write_cost, found.model.cost().write()), (None, 1_000));
    let reads = device.knee * (1.0 - 90.0 / 500.0) - 21.0 * 5e3;
    near(found.rows[0].after.mixed as f64 / 100.0, reads + 10.0 * 5e3, 0.05);
    // Nobody writes: the rate of reads alone is found, and that of mixes follows down only.
    let mut device = Formula { knee: 300e3, ..Formula::aged((50e3, 0.0)) };
    let found = device.measure(plan(Some(500), false)).findings().unwrap();
    assert!(!found.has_mixed);
    let row = found.rows[0];
    near(row.after.read_only as f64 / 100.0, 600e3 * 0.82, 0.05);
    near(
        row.after.mixed as f64 / row.before.mixed as f64,
        row.after.read_only as f64 / row.before.read_only as f64,
        0.01,
    );
}

#[test]
fn without_promises_every_row_is_measured() {
    let mut device = Formula { made: 1e6, write_cost: 10.0, ..Formula::aged((0.0, 0.0)) };
    let found = device.measure(plan(None, true)).findings().unwrap();
    near(found.write_cost.unwrap(), 10.0, 0.05);
    assert!(found.rows.iter().all(|row| row.is_measured), "{:?}", found.rows);
    let price = f64::from(found.model.cost().read_only_read());
    near(price, 50.0, 0.1);
    assert!(found.model.rate_max() >= found.rows.last().unwrap().after.mixed);
}

#[test]
fn a_stricter_promise_that_comes_meanwhile_bounds_all_that_follows() {
    let mut device = Formula::aged((100e3, 4e3));
    let mut recalibration = Recalibration::new(plan(Some(2_000), true));
    let mut steps = 0;
    while let Some(step) = recalibration.next_step() {
        let reading = device.see(recalibration.plan(), &step);
        let is_cut = recalibration.is_too_late(reading.p95_us);
        recalibration.take(step, reading, is_cut);
        steps += 1;
        if steps == 4 {
            recalibration.tighten(Some(500));
            assert!(recalibration.is_too_late(501.0));
            device.p95_us_max = 0.0;
        }
        // One that is laxer, or goes, changes nothing.
        recalibration.tighten([Some(900), None][steps % 2].filter(|_| steps > 4));
    }
    assert!(steps > 8);
    assert!(device.p95_us_max <= 500.0, "{}", device.p95_us_max);
    assert_eq!(recalibration.plan().bound_us, Some(500));
    let found = recalibration.findings().unwrap();
    let row = found.rows[0];
    assert!(row.is_measured && row.latency_us == 500);
    near(found.write_cost.unwrap(), 21.0, 0.05);
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_reason() {
    let mut busy = Formula::aged((300e3, 12e3));
    let unfit = busy.measure(plan(Some(500), true)).findings().unwrap_err();
    assert!(matches!(unfit, RecalibrationError::NoRoom { .. }), "{unfit}");
    assert_eq!(busy.steps, 1, "nothing was added to a device that is late");
    let mut fast = Formula { knee: 5e6, ..Formula::aged((100e3, 4e3)) };
    let unfit = fast.measure(plan(Some(500), false)).findings().unwrap_err();
    let RecalibrationError::OutOfReach { tokens, .. } = unfit else { panic!("{unfit}") };
    near(tokens, 420e3, 0.05);
    let mut large = Recalibration::new(plan(Some(500), false));
    while let Some(step) = large.next_step() {
        let reading =
            StepReading { size: 3.0, ..Formula::aged((50e3, 0.0)).see(large.plan(), &step) };
        large.take(step, reading, false);
    }
    assert_eq!(large.findings().unwrap_err(), RecalibrationError::LargeRequests);
}

#[test]
fn curves_that_do_not_fall_together_are_refused() {
    let mut device = Formula::aged((50e3, 0.0));
    let mut recalibration = Recalibration::new(plan(Some(500), true));
    while let Some(step) = recalibration.next_step() {
        // A device that is far too slow for one mix.
        device.knee = if step.read_percent == 75 { 150e3 } else { 500e3 };
        let reading = device.see(recalibration.plan(), &step);
        recalibration.take(step, reading, false);
    }
    let unfit = recalibration.findings().unwrap_err();
    assert!(matches!(unfit, RecalibrationError::FitError(_)), "{unfit}");
}
