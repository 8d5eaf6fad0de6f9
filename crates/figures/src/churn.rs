//! The figure `churn`: tenants with SLOs come and go at random. It checks that each gets its
//! promise, and that no tenant is refused whose SLO would have fitted.

use std::time::Duration;

use contract::{Instant, Slo, TenantId};
use flash::Rng;
use qos::admission::Refusal;
use qos::{DeviceModel, Load as DeviceLoad, Percentile, RatePoint, Windows};

use super::text::{BEST_EFFORT, kilo, percent};
use super::{Figure, Options, Series, Table};
use crate::scenario::{Load, Rate, Scenario, SendingRule, Setup, SourceId, Window, WindowExtent};

const SLOTS: usize = 16;
const WORKERS: usize = 4;
const EVERYWHERE: [usize; WORKERS] = [0, 1, 2, 3];
/// The mean seconds that a tenant stays, and that its place is then empty; a place is also empty
/// after a refusal.
const STAYS: f64 = 20.0;
const AWAY: f64 = 3.0;
/// The tokens by which a tenant may be ahead of its rate before its windows stop counting: the
/// deficit that the paper permits.
const BURST: u64 = 50;

/// The virtual time in nanoseconds at which the best-effort tenants start, after the first tenants
/// with SLOs.
const GREEDY_FROM: u64 = 2_000_000_000;

/// The extents of the windows that are judged.
const SPANS: [WindowExtent; 3] = [
    WindowExtent::Reads(1_000),
    WindowExtent::Nanos(1_000_000_000),
    WindowExtent::Nanos(10_000_000_000),
];

/// A tenant with an SLO that is registered.
struct RegisteredTenant {
    id: TenantId,
    source: SourceId,
    slo: Slo,
}

/// A place, one of 16, that successive tenants with SLOs occupy.
struct TenantSlot {
    guest: Option<RegisteredTenant>,
    /// The virtual time in nanoseconds at which the present tenant leaves, or the next one comes.
    until: u64,
}

/// The results of a run: tenants that came, and their windows of 1 000 reads each.
#[derive(Default)]
struct ChurnResults {
    admitted: u64,
    refused: u64,
    /// The number of refused tenants whose SLO the paper's arithmetic would have admitted.
    wronged: u64,
    /// The windows of each extent of [`SPANS`].
    frames: [ExtentResults; 3],
    /// The end of each kept window of 1 000 reads in seconds, and its tail divided by the SLO's
    /// latency.
    points: Vec<(f64, f64)>,
    used: f64,
    /// The tokens up to which SLOs were admitted, and those that the model has at the strictest
    /// latency, since the first SLO.
    admitted_tokens: f64,
    model_tokens: f64,
}

/// The windows of one extent.
#[derive(Clone, Copy, Default)]
struct ExtentResults {
    windows: u64,
    kept: u64,
    good: u64,
    worst: f64,
}

impl ExtentResults {
    fn share(&self) -> f64 {
        self.good as f64 / self.kept.max(1) as f64
    }
}

/// The promises of a run.
#[derive(Clone, Copy)]
struct RunPromises {
    name: &'static str,
    percentile: Percentile,
    in_windows: bool,
    /// The latencies of the SLOs, in microseconds.
    latencies: [u32; 3],
}

const TERMS: [RunPromises; 3] = [
    RunPromises {
        name: "p95, on average",
        percentile: Percentile::P95,
        in_windows: false,
        latencies: [500, 1_000, 2_000],
    },
    RunPromises {
        name: "p95, in windows",
        percentile: Percentile::P95,
        in_windows: true,
        latencies: [500, 1_000, 2_000],
    },
    RunPromises {
        name: "p99, in windows",
        percentile: Percentile::P99,
        in_windows: true,
        latencies: [750, 1_500, 3_000],
    },
];

struct ChurnRun<'a> {
    stage: Scenario,
    chance: Rng,
    model: &'a DeviceModel,
    terms: RunPromises,
    places: Vec<TenantSlot>,
    /// The ids of tenants that are unregistered, but still have requests in flight.
    leaving: Vec<TenantId>,
    outcome: ChurnResults,
}

impl ChurnRun<'_> {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.chance.within(0..=from.len() as u64 - 1) as usize]
    }

    /// Draws a duration from the exponential distribution with this mean, in nanoseconds.
    fn time(&mut self, mean_seconds: f64) -> u64 {
        let unit = (self.chance.number() >> 11) as f64 / (1_u64 << 53) as f64;
        (-libm::log(1.0 - unit) * mean_seconds * 1e9) as u64
    }

    fn wish(&mut self) -> Slo {
        let latencies = self.terms.latencies;
        let latency_us = self.pick(&latencies);
        let iops = self.pick(&[1_000, 2_500, 5_000, 10_000, 20_000]);
        let percentile_tenths = self.terms.percentile.tenths();
        Slo { percentile_tenths, ..Slo::new(latency_us, iops, self.pick(&[100, 90, 80, 70])) }
    }

    fn turn(&mut self, n: usize) {
        match self.places[n].guest.take() {
            Some(guest) => self.leave(guest),
            None => self.come(n),
        }
        let mean = if self.places[n].guest.is_some() { STAYS } else { AWAY };
        self.places[n].until = self.stage.now() + self.time(mean);
    }

    fn come(&mut self, n: usize) {
        let wish = self.wish();
        let fits = self.fits(&wish);
        match self.stage.register(wish) {
            Ok(id) => {
                self.outcome.admitted += 1;
                let (rate, reads) = (f64::from(wish.iops), f64::from(wish.read_percent) / 100.0);
                let paced = self.chance.happens(0.5);
                let arrivals = if paced {
                    SendingRule::Paced(0.98 * rate)
                } else {
                    SendingRule::Random(0.75 * rate)
                };
                let load = Load { arrivals, reads, bytes: 4096 };
                let source = self.stage.add(id, load, &EVERYWHERE, 1);
                let now = self.stage.now();
                let units = needed(&wish, self.model);
                let rate = Rate::new(units, BURST * 100, now);
                self.stage.meter(source).judge(&SPANS, self.terms.percentile, rate);
                self.stage.start(source);
                self.places[n].guest = Some(RegisteredTenant { id, source, slo: wish });
            }
            Err(refusal) => {
                self.outcome.refused += 1;
                let is_full = matches!(refusal, Refusal::TableFull);
                self.outcome.wronged += u64::from(fits || is_full);
            }
        }
    }

    fn leave(&mut self, guest: RegisteredTenant) {
        self.stage.stop(guest.source);
        let now = Instant::from_nanos(self.stage.now());
        self.stage.registry().unregister(guest.id, now).expect("it is registered");
        self.leaving.push(guest.id);
        self.collect(&guest);
    }

    /// Adds the windows of a leaving tenant's reads to the outcome.
    fn collect(&mut self, guest: &RegisteredTenant) {
        let bound = f64::from(guest.slo.latency_us) * 1e3;
        for (n, judged) in self.outcome.frames.iter_mut().enumerate() {
            for window in self.stage.meter(guest.source).windows(n) {
                let Window { ended, tail, kept } = *window;
                judged.windows += 1;
                if kept {
                    let share = tail as f64 / bound;
                    judged.kept += 1;
                    judged.good += u64::from(share <= 1.0);
                    judged.worst = judged.worst.max(share);
                    if n == 0 {
                        self.outcome.points.push((ended as f64 / 1e9, share));
                    }
                }
            }
        }
    }

    /// Runs the stage for so many nanoseconds, and counts the tokens that may be promised in them.
    fn run(&mut self, nanos: u64) {
        let registry = self.stage.registry();
        if registry.latency_us_min().is_some() {
            let (rate, kept) = (registry.device_rate(), Windows::headroom(registry));
            self.outcome.admitted_tokens += rate as f64 * nanos as f64;
            self.outcome.model_tokens += (rate + kept) as f64 * nanos as f64;
        }
        self.stage.run(Duration::from_nanos(nanos));
    }

    /// Frees the ids of unregistered tenants whose requests have all ended.
    fn forget(&mut self) {
        let now = Instant::from_nanos(self.stage.now());
        let registry = self.stage.registry();
        self.leaving.retain(|id| !registry.remove(*id, now));
    }

    /// Returns `true` if, by the paper's formula, 85 % of the device have room for an SLO
    /// beside those of the present tenants.
    fn fits(&self, wish: &Slo) -> bool {
        let all = || self.places.iter().flat_map(|place| &place.guest).map(|guest| &guest.slo);
        let strictest = all().chain([wish]).map(|slo| slo.latency_us).min().unwrap_or(0);
        let sum: u64 = all().chain([wish]).map(|slo| needed(slo, self.model)).sum();
        let rate = match self.terms.percentile {
            Percentile::P95 => self.model.rate(strictest, DeviceLoad::Mixed),
            Percentile::P99 => self.model.limit(Percentile::P99, strictest),
        };
        rate.is_some_and(|rate| sum <= rate * 85 / 100)
    }
}

/// Returns the units a second that an SLO over 4 KiB needs, by the paper's formula; 100 units are a
/// token.
fn needed(slo: &Slo, model: &DeviceModel) -> u64 {
    let (reads, all) = (u64::from(slo.read_percent), u64::from(slo.iops));
    let write = u64::from(model.cost().write());
    (all * (reads * 100 + (100 - reads) * write)).div_ceil(100)
}

/// Returns the published model of device A, with rates at the 99th percentile as the simulated
/// device has them.
fn model() -> DeviceModel {
    let row = |latency_us, mixed| RatePoint { latency_us, mixed, read_only: 2 * mixed };
    let rows = vec![row(750, 40_000_000), row(1_000, 45_000_000), row(2_000, 50_000_000)];
    DeviceModel::device_a().with_p99(rows).expect("the rates rise")
}

fn play(options: &Options, model: &DeviceModel, terms: RunPromises, seconds: u64) -> ChurnResults {
    let promised = model.clone().with_windows(terms.in_windows);
    let mut play = ChurnRun {
        stage: Scenario::new(Setup { model: promised, ..Setup::device_a(options.seed, WORKERS) }),
        chance: Rng::new(options.seed ^ 0xc4),
        model,
        terms,
        places: Vec::new(),
        leaving: Vec::new(),
        outcome: ChurnResults::default(),
    };
    let greedy = [0.5, 0.25].map(|reads| {
        let id = play.stage.register(BEST_EFFORT).expect("there is room");
        let load = Load { arrivals: SendingRule::Closed(16), reads, bytes: 4096 };
        (id, play.stage.add(id, load, &EVERYWHERE, 2))
    });
    for _ in 0..SLOTS {
        let until = play.time(AWAY);
        play.places.push(TenantSlot { guest: None, until });
    }
    let end = seconds * 1_000_000_000;
    let mut greedy_from = GREEDY_FROM;
    loop {
        let next = (0..SLOTS).min_by_key(|n| play.places[*n].until).expect("there are places");
        let at = play.places[next].until.min(end).min(greedy_from);
        play.run(at.saturating_sub(play.stage.now()));
        if at == end {
            break;
        }
        if at == greedy_from {
            greedy.iter().for_each(|(_, source)| play.stage.start(*source));
            greedy_from = u64::MAX;
            continue;
        }
        play.forget();
        play.turn(next);
    }
    for n in 0..SLOTS {
        if let Some(guest) = play.places[n].guest.take() {
            play.collect(&guest);
        }
    }
    play.outcome.used = greedy.iter().map(|(id, _)| play.stage.tokens(*id)).sum();
    play.stage.end();
    play.outcome
}

/// Makes the figure `churn`: 16 tenants with SLOs come and go at random, for ten minutes of virtual
/// time.
pub fn churn(options: &Options) -> Figure {
    let seconds = if options.quick { 20 } else { 600 };
    let mut figure = Figure {
        id: "churn",
        title: format!("{SLOTS} tenants with SLOs come and go at random for {seconds} s"),
        x_label: "seconds".to_string(),
        y_label: "p95 of a window over the tenant's SLO".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&[
            "promises",
            "seconds",
            "admitted",
            "refused",
            "of whom fit",
            "of the model's tokens",
            "1 000 reads",
            "worst",
            "1 s",
            "10 s",
            "BE K tokens/s",
        ]),
        notes: vec![format!(
            "Windows in which the percentile was within the SLO, of those whose tenant was never more \
             than {BURST} tokens ahead of its rate. p95 ≤ 500, 1 000 or 2 000 µs, or p99 ≤ 750, 1 500 \
             or 3 000 µs, 1 to 20 K IOPS, 70 to 100 % reads; half of the tenants pace themselves to \
             98 % of their SLO, half send 75 % of it at random. The model is the published one. \
             “Of the model's tokens”: up to which part of the rate at the strictest latency SLOs are \
             admitted. “Of whom fit”: refused tenants that 85 % of the rate had room for. \
             Best-effort tenants begin after 2 s: what a device that they had saturated still owes \
             when the first SLO comes takes it a fifth of a second to work off, and breaks that SLO's \
             first windows."
        )],
        verdicts: Vec::new(),
    };
    let model = model();
    for terms in TERMS {
        if options.quick && !terms.in_windows {
            continue;
        }
        let seconds = if terms.in_windows { seconds } else { seconds / 10 };
        let outcome = play(options, &model, terms, seconds);
        figure.table.row(row(&terms, seconds, &outcome));
        if terms.in_windows {
            judge(&mut figure, &terms, &outcome);
            let (name, points) = (terms.name.to_string(), worst_by_second(&outcome));
            figure.series.push(Series { name, points });
        }
    }
    figure
}

fn row(terms: &RunPromises, seconds: u64, outcome: &ChurnResults) -> Vec<String> {
    let share =
        |judged: &ExtentResults| format!("{:.3} % of {}", 100.0 * judged.share(), judged.kept);
    let [reads, second, seconds_10] = &outcome.frames;
    vec![
        terms.name.to_string(),
        seconds.to_string(),
        outcome.admitted.to_string(),
        outcome.refused.to_string(),
        outcome.wronged.to_string(),
        percent(outcome.admitted_tokens / outcome.model_tokens.max(1.0)),
        share(reads),
        percent(reads.worst),
        share(second),
        share(seconds_10),
        kilo(outcome.used),
    ]
}

/// Judges the windows for which the promises of a run hold.
fn judge(figure: &mut Figure, terms: &RunPromises, outcome: &ChurnResults) {
    let spans = match terms.percentile {
        Percentile::P95 => &[("1 000 reads", 0), ("1 s", 1)][..],
        Percentile::P99 => &[("10 s", 2)],
    };
    for (span, n) in spans {
        let judged = &outcome.frames[*n];
        let measured = format!("{:.3} % of {}", 100.0 * judged.share(), judged.kept);
        let what = format!("{}: windows of {span} within the SLO", terms.name);
        figure.judge(&what, "≥ 99.9 %", measured, judged.share() >= 0.999);
    }
    let part = outcome.admitted_tokens / outcome.model_tokens.max(1.0);
    let what = format!("{}: SLOs are admitted up to", terms.name);
    figure.judge(&what, "≥ 90 % of the model's tokens", percent(part), part >= 0.9);
    let measured = format!("{} of {}", outcome.wronged, outcome.refused);
    let what = format!("{}: refused tenants that would have fitted", terms.name);
    figure.judge(&what, "none", measured, outcome.wronged == 0);
}

/// Returns, for each second with a kept window, the largest tail of its windows divided by the
/// SLO's latency.
fn worst_by_second(outcome: &ChurnResults) -> Vec<(f64, f64)> {
    let mut seconds: Vec<(f64, f64)> = Vec::new();
    let mut points = outcome.points.clone();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, share) in points {
        match seconds.last_mut() {
            Some((second, worst)) if *second == at.floor() => *worst = worst.max(share),
            _ => seconds.push((at.floor(), share)),
        }
    }
    seconds
}
