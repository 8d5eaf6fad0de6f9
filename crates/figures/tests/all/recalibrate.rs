//! A device ages under its tenants. The drift is found, the device is measured anew beside them
//! without breaking their SLOs, and the findings agree with a brute-force sweep of the aged device.

use std::time::Duration;

use contract::{Instant, Slo};
use flash::sim_flash::Preset;
use flash::sim_flash::sweep::{self, iops_at};
use nearflash_figures::scenario::{Load, Scenario, SendingRule, Setup, SourceId};
use qos::calibrate::{CalibrationPlan, Crossing, Fit, Percentile, fit};
use qos::recalibrate::{Findings, Plan, Recalibration, RecalibrationError, Step, StepReading};
use qos::units::TOKEN;
use qos::{CORRECTION_NANOS, DelaysCursor, DeviceModel, Drift, DriftUncertainty};

/// The factor by which the device is slower than device A, so that a second of it takes an eighth
/// of the time to simulate.
const SLOW: u32 = 8;
const BOUND_US: u32 = 500 * SLOW;
const AGE: f64 = 2.0;
const EVERYWHERE: [usize; 2] = [0, 1];

/// The shortest and the longest duration of a step of the recalibration.
const STEP: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(4));
const READS: f64 = 30_000.0;
/// The time for which a step's load settles before it is measured.
const SETTLE: Duration = Duration::from_millis(800);
/// The interval at which a running step is looked at, as a server does, slowed like the device.
const LOOK: Duration = Duration::from_millis(50 * SLOW as u64);

/// The largest relative deviation from the brute-force sweep.
const TOLERANCE: f64 = 0.15;

struct Play {
    stage: Scenario,
    critical: Vec<SourceId>,
    shared: Vec<SourceId>,
    probes: SourceId,
    /// The largest p95 of a latency-critical tenant in any step so far, in microseconds.
    p95_us_max: f64,
}

impl Play {
    fn new(seed: u64) -> Play {
        let mut setup = Setup::device_a(seed, EVERYWHERE.len());
        setup.flash = Preset::A.model().slowed(SLOW);
        setup.model = DeviceModel::device_a().slowed(SLOW);
        let mut stage = Scenario::new(setup);
        let slo = |iops, read_percent| Some(Slo::new(BOUND_US, iops, read_percent));
        let load = |arrivals, reads| Load { arrivals, reads, bytes: 4096 };
        // 53 K reads, and 13 K with 80 % reads, on device A; they send 95 % of that.
        let critical = [(slo(6_600, 100), 6_250.0, 1.0), (slo(1_600, 80), 1_520.0, 0.8)];
        let critical = critical.map(|(slo, iops, reads)| {
            let tenant = stage.register(slo).expect("it fits");
            stage.add(tenant, load(SendingRule::Paced(iops), reads), &EVERYWHERE, 4)
        });
        let shared = [0.95, 0.25].map(|reads| {
            let tenant = stage.register(None).expect("there is room");
            stage.add(tenant, load(SendingRule::Closed(32), reads), &EVERYWHERE, 4)
        });
        let tenant = stage.register(None).expect("there is room");
        let probes = stage.add(tenant, load(SendingRule::Random(1.0), 1.0), &EVERYWHERE, 4);
        stage.give_up(probes);
        critical.iter().chain(&shared).for_each(|source| stage.start(*source));
        let now = Instant::from_nanos(stage.now());
        stage.registry().watch_drift(true, now);
        let (critical, shared) = (critical.to_vec(), shared.to_vec());
        Play { stage, critical, shared, probes, p95_us_max: 0.0 }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.stage.now())
    }

    /// Lets virtual time pass until `wanted` accepts the drift. Returns the time that passed, and
    /// panics after `most`.
    fn until(&mut self, wanted: impl Fn(Drift) -> bool, most: Duration) -> Duration {
        let begun = self.now();
        while !wanted(self.stage.registry().drift().expect("it is watched")) {
            let took = self.now().since(begun);
            let drift = self.stage.registry().drift();
            assert!(took < most, "still {drift:?} after {took:?}");
            self.stage.run(Duration::from_nanos(CORRECTION_NANOS));
            let now = self.now();
            self.stage.registry().observe(Duration::ZERO, now);
        }
        self.now().since(begun)
    }

    /// Lets virtual time pass until the promises are kept for a second. Returns the time that
    /// passed, and panics after `most`.
    fn until_kept(&mut self, most: Duration) -> Duration {
        let begun = self.now();
        loop {
            self.stage.clear();
            self.stage.run(Duration::from_secs(1));
            let took = self.now().since(begun);
            if self.p95_us() <= f64::from(BOUND_US) {
                return took;
            }
            assert!(took < most, "still {} µs after {took:?}", self.p95_us());
        }
    }

    /// Returns the larger p95 read latency of the latency-critical tenants since the measurements
    /// were last cleared, in microseconds.
    fn p95_us(&mut self) -> f64 {
        let each: Vec<SourceId> = self.critical.clone();
        each.into_iter().map(|source| self.stage.meter(source).read_us(95.0)).fold(0.0, f64::max)
    }

    fn step(&mut self, recalibration: &Recalibration, step: &Step) -> (StepReading, bool) {
        let reads = f64::from(step.read_percent) / 100.0;
        if step.iops > 0.0 {
            let arrivals = SendingRule::Random(step.iops);
            self.stage.change(self.probes, Load { arrivals, reads, bytes: 4096 });
            self.stage.start(self.probes);
        }
        self.stage.run(SETTLE);
        let (mut all, mut slice) = (DelaysCursor::nothing(), DelaysCursor::nothing());
        all.look(self.stage.registry().shared().delays());
        slice.look(self.stage.registry().shared().delays());
        self.stage.clear();
        let begun = self.now();
        let (mut is_cut, mut was_late) = (false, false);
        while self.now().since(begun) < step.length && !is_cut {
            self.stage.run(LOOK);
            let tail = slice.look(self.stage.registry().shared().delays()).tail_nanos(950);
            let is_late = recalibration.is_too_late(tail as f64 / 1e3);
            is_cut = is_late && was_late && step.iops > 0.0;
            was_late = is_late;
        }
        let length = self.now().since(begun);
        let p95_us = self.p95_us();
        self.p95_us_max = self.p95_us_max.max(p95_us);
        self.stage.stop(self.probes);
        let registry = self.stage.registry();
        let since = all.look(registry.shared().delays());
        let write = registry.shared().prices().write;
        (StepReading::of(registry.model(), &since, write, length), is_cut)
    }

    fn recalibrate(&mut self, writes: bool) -> Result<Findings, RecalibrationError> {
        let model = self.stage.registry().model().clone();
        let plan = Plan { model, bound_us: Some(BOUND_US), writes, step: STEP, reads: READS };
        self.stage.registry().probe(true);
        let mut recalibration = Recalibration::new(plan);
        while let Some(step) = recalibration.next_step() {
            let (reading, is_cut) = self.step(&recalibration, &step);
            let StepReading { reads, writes, p95_us, .. } = reading;
            let worst = self.p95_us_max;
            println!(
                "{:3} % reads, {:6.0} probes/s for {:?}: {reads:.0} reads and {writes:.0} writes/s, \
                 p95 {p95_us:.0} µs, cut {is_cut}; worst p95 of tenants {worst:.0} µs",
                step.read_percent, step.iops, step.length
            );
            recalibration.take(step, reading, is_cut);
        }
        self.stage.registry().probe(false);
        recalibration.findings()
    }
}

/// Returns the model fitted to a brute-force sweep of the aged device, at the strictest latency
/// alone.
fn swept() -> Fit {
    let model = Preset::A.model().slowed(SLOW);
    let crossing = |read_percent: u8| {
        let reads = f64::from(read_percent) / 100.0;
        let iops = 52_500.0 / (reads + 25.0 * (1.0 - reads));
        let load = sweep::Load { iops, reads, requests: 150_000, pages: 1, seed: 11 };
        let iops = iops_at(&model, AGE, f64::from(BOUND_US), load);
        Crossing { read_percent, percentile: Percentile::P95, latency_us: BOUND_US, iops }
    };
    let all: Vec<Crossing> = [95, 90, 75, 50]
        .into_iter()
        .map(crossing)
        .chain([Crossing { read_percent: 100, iops: 105_000.0, ..crossing(90) }])
        .collect();
    fit(&all, CalibrationPlan::LIMIT, BOUND_US).expect("the curves fall together")
}

fn near(what: &str, found: f64, meant: f64) {
    let off = found / meant - 1.0;
    println!("{what}: {found:.2}, brute force {meant:.2}, {:+.1} %", off * 100.0);
    assert!(off.abs() <= TOLERANCE, "{what}: {found}, brute force {meant}");
}

#[test]
fn a_device_that_ages_is_found_out_and_measured_beside_its_tenants() {
    let mut play = Play::new(1);
    let fits = |drift| matches!(drift, Drift::Fits { .. });
    let took = play.until(fits, Duration::from_secs(15));
    println!("it fits, after {took:?}");
    play.stage.volume().set_age(AGE);
    let took = play.until(|drift| matches!(drift, Drift::Drifted { .. }), Duration::from_secs(15));
    let drift = play.stage.registry().drift().unwrap();
    println!("the drift is told after {took:?}: {drift:?}");
    assert!(matches!(drift, Drift::Drifted { ratio, .. } if ratio < 0.8), "{drift:?}");

    // By the old model, best effort takes what it does not have: there is no room to measure in.
    let refused = play.recalibrate(true).unwrap_err();
    assert!(matches!(refused, RecalibrationError::NoRoom { .. }), "{refused}");

    // Best effort has nothing to do for a while.
    let shared = play.shared.clone();
    shared.iter().for_each(|source| play.stage.stop(*source));
    let took = play.until_kept(Duration::from_secs(60));
    println!("what had piled up is gone after {took:?}");
    play.p95_us_max = 0.0;
    let findings = play.recalibrate(true).expect("it can be measured");
    let bound = f64::from(BOUND_US);
    assert!(play.p95_us_max <= bound, "probes brought p95 to {} µs", play.p95_us_max);
    let truth = swept();
    near("write cost", findings.write_cost.unwrap(), truth.write_cost);
    let tokens = |units: u64| units as f64 / f64::from(TOKEN);
    near("tokens/s at the bound", tokens(findings.rows[0].after.mixed), tokens(truth.p95[0].mixed));

    // The new model keeps what was promised, with best effort back.
    let now = play.now();
    let registry = play.stage.registry();
    assert_eq!(registry.displaced(&findings.model), []);
    registry.set_model(findings.model, now).unwrap();
    assert_eq!(registry.drift(), Some(Drift::Unknown(DriftUncertainty::TooSoon)));
    shared.iter().for_each(|source| play.stage.start(*source));
    play.stage.run(Duration::from_secs(2));
    play.stage.clear();
    play.stage.run(Duration::from_secs(5));
    let p95_us = play.p95_us();
    println!("with the new model: p95 {p95_us:.0} µs of {bound}");
    assert!(p95_us <= bound, "{p95_us}");
    play.until(fits, Duration::from_secs(20));
    play.stage.end();
}

#[test]
fn reads_alone_find_the_rate_and_keep_the_price() {
    let mut play = Play::new(2);
    let shared = play.shared.clone();
    shared.iter().for_each(|source| play.stage.stop(*source));
    play.stage.volume().set_age(AGE);
    play.stage.run(Duration::from_secs(2));
    let findings = play.recalibrate(false).expect("it can be measured");
    assert!(play.p95_us_max <= f64::from(BOUND_US), "{}", play.p95_us_max);
    assert_eq!((findings.write_cost, findings.has_mixed), (None, true));
    // What the device serves of these tenants' mix, at the old price: 304 writes a second.
    let truth = swept();
    let rate = truth.p95[0].mixed as f64 / f64::from(TOKEN);
    let meant = rate - 304.0 * truth.write_cost + 304.0 * 10.0;
    near("tokens/s at the bound", findings.rows[0].after.mixed as f64 / 100.0, meant);
    play.stage.end();
}
