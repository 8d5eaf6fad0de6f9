//! The figure `gc-slo`: the tenants of Figure 5 over flash translation that collects garbage all
//! the time, with and without the tax on writes that pays for collection, and over bare flash.

use std::time::Duration;

use contract::{Instant, Slo};

use super::text::{kilo_fine, micros, off, percent, slo};
use super::{Figure, Options, Series, Table};
use crate::four::TENANTS;
use crate::scenario::{Load, Meter, Scenario, SendingRule, Setup, SourceId, Translation};

/// The number of workers: a volume of flash translation has one.
const WORKERS: usize = 1;
/// The spare space of the volume, in thousandths.
const SPARE_PER_MILLE: u32 = 100;
/// The requests a second of tenant B before `SLOW`: a seventh of Figure 5's rate, as each of its
/// writes costs ten times as much with the collection that it may cause.
const B_IOPS: f64 = 10e3;
/// The factor by which the drive is slower than the paper's, so that the worker is not the
/// bottleneck. Rates and latencies are scaled alike.
const SLOW: u32 = 2;
/// The objective of A and B: the bound of their p95 read latency, in microseconds.
const OBJECTIVE_US: u32 = 500 * SLOW;
/// The length of the windows in which the objectives are judged one by one.
const WINDOW: Duration = Duration::from_secs(1);
/// The least share of its promised requests that a tenant must get answered in a window that counts
/// as kept.
const SERVED_LEAST: f64 = 0.99;

/// The note below the table.
const NOTE: &str = "\
One worker serves a volume of flash translation, so the drive is half as fast as the paper's, and
rates and latencies are scaled alike. B sends a seventh of Figure 5's rate: promises are priced with
the collection of uniform writes. The volume has 10 % spare space and was overwritten twice at
random before, so that collection is in its steady state. A and B pace themselves; C and D keep 32
requests in flight on each of 4 connections. A window of 1 s is kept if the p95 of reads is at most
1 ms and 99 % of the promised requests are answered.";

/// The device below the workers in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceBelow {
    /// Flash without translation.
    Bare,
    /// Flash translation, whose collection a tax on writes pays for.
    Taxed,
    /// Flash translation whose garbage collection is not charged to tenants.
    Untaxed,
}

/// The runs and their names.
const RUNS: [(DeviceBelow, &str); 3] = [
    (DeviceBelow::Bare, "no translation"),
    (DeviceBelow::Taxed, "collection, tax on"),
    (DeviceBelow::Untaxed, "collection, tax off"),
];

/// The rate and the read latency that a tenant got in a run.
struct TenantFigures {
    iops: f64,
    p95: f64,
    /// The p95 of each window, in µs.
    windows: Vec<f64>,
    /// The number of windows in which the tenant got its objective and its rate.
    kept: usize,
}

/// The results of a run: one entry for each of the tenants A to D, and the volume's counters.
struct CollectionResults {
    got: [TenantFigures; 4],
    /// Pages written to the flash for each page that hosts wrote; `None` on bare flash.
    amplification: Option<f64>,
    /// The tax on a write in tokens, first at the end of the run, then as priced into promises;
    /// `None` on bare flash.
    taxes: Option<[f64; 2]>,
}

fn objective(name: &str, iops: Option<f64>, read_percent: u8) -> (Option<Slo>, SendingRule) {
    let iops = iops.map(|iops| if name == "B" { B_IOPS } else { iops } / f64::from(SLOW));
    let slo = iops.map(|iops| slo(OBJECTIVE_US, iops as u32, read_percent));
    (slo, iops.map_or(SendingRule::Closed(32), SendingRule::Paced))
}

fn stage(options: &Options, below: DeviceBelow) -> Scenario {
    let pages = if options.quick { 1 << 16 } else { 1 << 18 };
    let translation = Translation { pages, spare_per_mille: SPARE_PER_MILLE };
    let translation = (below != DeviceBelow::Bare).then_some(translation);
    let device = Setup::device_a(options.seed, WORKERS);
    let (flash, model) = (device.flash.slowed(SLOW), device.model.slowed(SLOW));
    let mut stage = Scenario::new(Setup { translation, flash, model, ..device });
    let now = Instant::from_nanos(stage.now());
    stage.registry().taxes().turn(below != DeviceBelow::Untaxed, now);
    stage
}

fn play(options: &Options, below: DeviceBelow) -> CollectionResults {
    let mut stage = stage(options, below);
    let cast = TENANTS.map(|tenant| {
        let (slo, arrivals) = objective(tenant.name, tenant.iops, tenant.read_percent);
        let id = stage.register(slo).expect("it fits beside the collection of uniform writes");
        let load = Load { arrivals, reads: f64::from(tenant.read_percent) / 100.0, bytes: 4096 };
        (slo, stage.add(id, load, &[0], 4))
    });
    cast.iter().for_each(|(_, source)| stage.start(*source));
    // Until the tax follows the collection that these tenants cause.
    stage.run(WINDOW * if options.quick { 1 } else { 20 });
    let before = stage.translation();
    let windows = if options.quick { 2 } else { 250 };
    let mut meters = [(); 4].map(|()| Meter::default());
    let mut got =
        [(); 4].map(|()| TenantFigures { iops: 0.0, p95: 0.0, windows: Vec::new(), kept: 0 });
    for _ in 0..windows {
        stage.clear();
        stage.run(WINDOW);
        for ((got, meter), (slo, source)) in got.iter_mut().zip(&mut meters).zip(&cast) {
            let (p95, is_kept) = judge_window(&mut stage, *slo, *source);
            got.windows.push(p95);
            got.kept += usize::from(is_kept);
            meter.add(stage.meter(*source));
        }
    }
    for (got, meter) in got.iter_mut().zip(&meters) {
        got.iops = meter.count() as f64 / (f64::from(windows) * WINDOW.as_secs_f64());
        got.p95 = meter.read_us(95.0);
    }
    let amplification =
        stage.translation().zip(before).map(|(after, before)| after.since(&before).amplification());
    let view = qos::Taxes::view(stage.registry());
    let taxes =
        view.map(|view| [view.tax, view.promised_tax].map(|units| f64::from(units) / 100.0));
    stage.end();
    CollectionResults { got, amplification, taxes }
}

/// Returns the p95 of a tenant's reads in the present window in µs, and `true` if the tenant got
/// its objective and its rate.
fn judge_window(stage: &mut Scenario, slo: Option<Slo>, source: SourceId) -> (f64, bool) {
    let (p95, iops) = (stage.meter(source).read_us(95.0), stage.iops(source));
    let promised = slo.map_or(0.0, |slo| f64::from(slo.iops));
    (p95, p95 <= f64::from(OBJECTIVE_US) && iops >= SERVED_LEAST * promised)
}

fn add(figure: &mut Figure, run: &str, outcome: &CollectionResults) {
    for (tenant, got) in TENANTS.iter().zip(&outcome.got) {
        let (slo, _) = objective(tenant.name, tenant.iops, tenant.read_percent);
        let (wanted, kept) = match slo {
            None => ("best effort".to_string(), "–".to_string()),
            Some(slo) => (
                format!("{} K, {OBJECTIVE_US} µs", slo.iops / 1_000),
                format!("{} of {}", got.kept, got.windows.len()),
            ),
        };
        let worst = got.windows.iter().copied().fold(0.0, f64::max);
        figure.table.row(vec![
            run.to_string(),
            tenant.name.to_string(),
            format!("{} %", tenant.read_percent),
            wanted,
            kilo_fine(got.iops),
            micros(got.p95),
            micros(worst),
            kept,
        ]);
    }
    let points = (1..).map(f64::from).zip(outcome.got[0].windows.iter().copied()).collect();
    figure.series.push(Series { name: format!("A, {run}"), points });
    if let (Some(amplification), Some([tax, promised])) = (outcome.amplification, outcome.taxes) {
        figure.notes.push(format!(
            "{run}: {amplification:.1} pages written for each of hosts; tax {tax:.0} tokens a write, \
             {promised:.0} in promises."
        ));
    }
}

fn empty() -> Figure {
    Figure {
        id: "gc-slo",
        title: "the tenants of Figure 5 while garbage is collected".to_string(),
        x_label: "window of 1 s".to_string(),
        y_label: "p95 of A's reads (µs)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "run",
            "tenant",
            "reads",
            "wants",
            "K IOPS",
            "p95 µs",
            "worst window µs",
            "windows kept",
        ]),
        notes: vec![NOTE.to_string()],
        verdicts: Vec::new(),
    }
}

/// Makes the figure `gc-slo`: A and B keep their objectives while garbage is collected, if writes
/// pay for it.
pub fn gc_slo(options: &Options) -> Figure {
    let mut figure = empty();
    let [bare, taxed, untaxed] = RUNS.map(|(below, name)| {
        let outcome = play(options, below);
        add(&mut figure, name, &outcome);
        outcome
    });
    let share = |got: &TenantFigures| got.kept as f64 / got.windows.len() as f64;
    for (n, name) in [(0, "A"), (1, "B")] {
        let kept = share(&taxed.got[n]);
        let what = format!("tax on: windows in which {name} keeps its objective");
        figure.judge(&what, "≥ 99.9 %", percent(kept), kept >= 0.999);
    }
    let kept = share(&untaxed.got[0]).max(share(&untaxed.got[1]));
    let what = "tax off: windows in which A or B keeps its objective";
    figure.judge(what, "≤ 50 %", percent(kept), kept <= 0.5);
    let dearer = taxed.got[0].p95 / bare.got[0].p95 - 1.0;
    let what = "tax on: A's p95 to that without translation";
    figure.judge(what, "+10 % or less", off(dearer), dearer <= 0.10);
    figure
}
