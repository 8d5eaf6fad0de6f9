//! Figure 5 of the paper: two tenants with SLOs and two without share a device, with and without
//! the scheduler.

use std::time::Duration;

use contract::Slo;

use super::text::{kilo, kilo_fine, micros, off, percent, slo};
use super::{Figure, Options, Series, Table};
use crate::four::{self, TENANTS};
use crate::scenario::{Load, Scenario, SendingRule, Setup, StallPattern};

/// The number of workers of a run, enough that processors are not the bottleneck. Each tenant has
/// connections to all of them.
const WORKERS: usize = 2;
/// The tokens a second of device A at a p95 of 500 µs.
pub(crate) const RATE: f64 = 420e3;

/// A tenant of Figure 5 and its load on the unscaled device.
struct TenantLoad {
    name: &'static str,
    slo: Option<Slo>,
    /// Requests a second that the tenant tries to send; `None` for as many as possible.
    iops: Option<f64>,
    reads: f64,
}

/// The rates and latencies that a tenant got in a run.
#[derive(Clone, Copy, Debug)]
pub struct TenantFigures {
    /// Rate of the tenant's answered requests, in requests per second.
    pub iops: f64,
    /// The p95 latency of the tenant's reads, in µs.
    pub p95: f64,
    p99: f64,
    pub(crate) tokens: f64,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Fig5Run {
    pub(crate) workers: usize,
    pub(crate) scheduled: bool,
    /// The requests a second of tenant B on the unscaled device.
    pub(crate) b_iops: f64,
    /// The factor by which the device is slower than the paper's; rates and latencies are scaled
    /// alike.
    pub(crate) slow: u32,
    pub(crate) pays_arrears: bool,
    pub(crate) worker_stalls: StallPattern,
    pub(crate) client_stalls: StallPattern,
    pub(crate) measured: Duration,
}

impl Fig5Run {
    /// Returns the run of scenario 1 of the paper's Figure 5.
    pub(crate) fn new(options: &Options) -> Fig5Run {
        Fig5Run {
            workers: WORKERS,
            scheduled: true,
            b_iops: 70e3,
            slow: 1,
            pays_arrears: true,
            worker_stalls: StallPattern::NEVER,
            client_stalls: StallPattern::NEVER,
            measured: Duration::from_millis(if options.quick { 1_000 } else { 5_000 }),
        }
    }

    /// Returns the run in which B sends `b_iops` requests a second, with or without the scheduler.
    pub fn sending(options: &Options, scheduled: bool, b_iops: f64) -> Fig5Run {
        Fig5Run { scheduled, b_iops, ..Fig5Run::new(options) }
    }
}

fn tenants(b_iops: f64) -> [TenantLoad; 4] {
    TENANTS.map(|four::PaperTenant { name, read_percent, iops }| TenantLoad {
        name,
        slo: iops.map(|iops| slo(500, iops as u32, read_percent)),
        iops: iops.map(|iops| if name == "B" { b_iops } else { iops }),
        reads: f64::from(read_percent) / 100.0,
    })
}

pub(crate) fn play(options: &Options, run: Fig5Run) -> [TenantFigures; 4] {
    watch(options, run, |_, _| ())
}

/// The virtual time between two calls of `look` in [`watch`].
const LOOK: Duration = Duration::from_millis(50);

/// Simulates a run and returns the results of its tenants A to D. Every 50 ms of virtual time calls
/// `look` with the results so far and the virtual time that they cover.
pub fn watch(
    options: &Options,
    run: Fig5Run,
    mut look: impl FnMut(&[TenantFigures; 4], Duration),
) -> [TenantFigures; 4] {
    let device = Setup::device_a(options.seed, run.workers);
    let setup = Setup {
        scheduled: run.scheduled,
        flash: device.flash.slowed(run.slow),
        model: device.model.slowed(run.slow),
        pays_arrears: run.pays_arrears,
        worker_stalls: run.worker_stalls,
        client_stalls: run.client_stalls,
        ..device
    };
    let mut stage = Scenario::new(setup);
    let everywhere: Vec<usize> = (0..run.workers).collect();
    let cast = tenants(run.b_iops).map(|TenantLoad { slo, iops, reads, .. }| {
        let times = run.slow;
        let slo = slo.map(|slo| Slo {
            latency_us: slo.latency_us * times,
            iops: (slo.iops + times / 2) / times,
            ..slo
        });
        let id = stage.register(slo).expect("the paper admits it");
        let paced = |iops| SendingRule::Paced(iops / f64::from(times));
        let arrivals = iops.map_or(SendingRule::Closed(32), paced);
        let load = Load { arrivals, reads, bytes: 4096 };
        (id, stage.add(id, load, &everywhere, 4))
    });
    cast.iter().for_each(|(_, source)| stage.start(*source));
    stage.run(Duration::from_millis(200) * run.slow.min(5));
    stage.clear();
    let got = |stage: &mut Scenario| {
        cast.map(|(id, source)| TenantFigures {
            iops: stage.iops(source),
            p95: stage.meter(source).read_us(95.0),
            p99: stage.meter(source).read_us(99.0),
            tokens: stage.tokens(id),
        })
    };
    let mut elapsed = Duration::ZERO;
    while elapsed < run.measured {
        let step = LOOK.min(run.measured - elapsed);
        stage.run(step);
        elapsed += step;
        look(&got(&mut stage), elapsed);
    }
    let got = got(&mut stage);
    stage.end();
    got
}

fn add(figure: &mut Figure, run: &str, paper: [&str; 4], b_iops: f64, got: &[TenantFigures; 4]) {
    let points = (1..).map(f64::from).zip(got.iter().map(|got| got.p95)).collect();
    figure.series.push(Series { name: run.to_string(), points });
    for ((tenant, got), paper) in tenants(b_iops).iter().zip(got).zip(paper) {
        let wanted = match (tenant.slo.map_or(0, |slo| slo.latency_us), tenant.iops) {
            (0, _) | (_, None) => "best effort".to_string(),
            (us, Some(iops)) => format!("{} K, {us} µs", kilo(iops)),
        };
        let tokens = if got.tokens > 0.0 { kilo_fine(got.tokens) } else { "–".to_string() };
        figure.table.row(vec![
            run.to_string(),
            tenant.name.to_string(),
            format!("{:.0} %", 100.0 * tenant.reads),
            wanted,
            kilo_fine(got.iops),
            micros(got.p95),
            micros(got.p99),
            tokens,
            paper.to_string(),
        ]);
    }
}

/// Adds two verdicts to the figure: whether A and B got the p95 and the rate of their SLOs.
fn judge_slos(figure: &mut Figure, run: &str, b_iops: f64, got: &[TenantFigures; 4]) {
    for (tenant, got) in tenants(b_iops).iter().zip(got).take(2) {
        let share = got.iops / tenant.iops.expect("it has an SLO");
        let what = format!("{run}: {} keeps its SLO", tenant.name);
        let target = "p95 ≤ 500 µs and ≥ 99 % of its IOPS";
        let measured = format!("{} µs, {}", micros(got.p95), percent(share));
        figure.judge(&what, target, measured, got.p95 <= 500.0 && share >= 0.99);
    }
}

/// Makes Figure 5 of the paper.
pub fn fig5(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "fig5",
        title: "four tenants share device A".to_string(),
        x_label: "tenant (1 = A, 2 = B, 3 = C, 4 = D)".to_string(),
        y_label: "p95 read latency (µs)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "run",
            "tenant",
            "reads",
            "sends",
            "K IOPS",
            "p95 µs",
            "p99 µs",
            "K tokens/s",
            "the paper",
        ]),
        notes: vec![format!(
            "{WORKERS} workers, each tenant with 4 connections to each. A and B pace themselves: a \
             tenant that sends at random has, at the very rate of its SLO, a queue without bound. C \
             and D keep 32 requests in flight on each connection."
        )],
        verdicts: Vec::new(),
    };
    let off_run = play(options, Fig5Run::sending(options, false, 70e3));
    let broken = "p95 above 2 ms";
    add(&mut figure, "scheduler off", [broken; 4], 70e3, &off_run);
    let best = off_run.iter().map(|got| got.p95).fold(f64::INFINITY, f64::min);
    let what = "scheduler off: p95 of every tenant";
    figure.judge(what, "> 2 000 µs", format!("at least {} µs", micros(best)), best > 2_000.0);

    let run = "scenario 1";
    let on = play(options, Fig5Run::new(options));
    let paper = ["SLO met, 120 K tokens/s", "SLO met, 196 K", "52 K tokens/s", "52 K tokens/s"];
    add(&mut figure, run, paper, 70e3, &on);
    judge_slos(&mut figure, run, 70e3, &on);
    let apart = on[2].tokens / on[3].tokens - 1.0;
    let what = "scenario 1: tokens of C over those of D";
    figure.judge(what, "within 3 %", off(apart), apart.abs() <= 0.03);
    let used = on.iter().map(|got| got.tokens).sum::<f64>() / RATE;
    figure.judge("scenario 1: tokens used", "≥ 97 %", percent(used), used >= 0.97);

    let run = "scenario 2";
    let on = play(options, Fig5Run::sending(options, true, 45e3));
    let paper = ["SLO met", "45 K IOPS, SLO met", "more than in 1", "more than in 1"];
    add(&mut figure, run, paper, 45e3, &on);
    judge_slos(&mut figure, run, 45e3, &on);
    let left = RATE - on[0].tokens - on[1].tokens;
    let taken = (on[2].tokens + on[3].tokens) / left;
    let what = "scenario 2: C and D take what A and B leave";
    figure.judge(what, "≥ 95 %", percent(taken), taken >= 0.95);
    figure
}
