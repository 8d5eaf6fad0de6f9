//! Figures 6a and 6b of the paper: the load that a server carries, by its number of workers (a) and
//! of tenants (b).

use std::time::Duration;

use contract::{Slo, TenantId};

use super::text::{BEST_EFFORT, kilo, kilo_fine, micros, off, percent, slo};
use super::{Figure, Options, Series, Table};
use crate::scenario::{Load, Scenario, SendingRule, Setup};

/// The tokens a second of device A at a p95 of 2 ms.
const RATE: f64 = 570e3;
/// The number of cores of the paper's server.
const CORES: usize = 12;

/// The results of Figure 6a for one number of cores: rates a second, and the busiest worker's share
/// of time.
struct Scale {
    critical_iops: f64,
    best_effort_iops: f64,
    tokens: f64,
    /// The worst p95 read latency of the tenants with an SLO, in µs.
    p95: f64,
    busy: f64,
}

fn scale(options: &Options, cores: usize, scheduled: bool) -> Scale {
    let workers = cores.max(2);
    let setup = Setup { scheduled, ..Setup::device_a(options.seed, workers) };
    let mut stage = Scenario::new(setup);
    let load = |arrivals, reads| Load { arrivals, reads, bytes: 4096 };
    let mut critical = Vec::new();
    for core in 0..cores {
        let id = stage.register(slo(2_000, 20_000, 90)).expect("twelve fit");
        critical.push((id, stage.add(id, load(SendingRule::Paced(20e3), 0.9), &[core], 4)));
    }
    let mut best_effort = Vec::new();
    for n in 0..2 {
        let id = stage.register(BEST_EFFORT).expect("there is room");
        let core = if cores == 1 { 0 } else { n };
        best_effort.push((id, stage.add(id, load(SendingRule::Closed(64), 0.8), &[core], 4)));
    }
    critical.iter().chain(&best_effort).for_each(|(_, source)| stage.start(*source));
    stage.run(Duration::from_millis(if options.quick { 200 } else { 500 }));
    stage.clear();
    stage.run(Duration::from_millis(if options.quick { 500 } else { 2_000 }));
    let iops = |list: &[(TenantId, _)]| {
        list.iter().fold(0.0, |sum, (_, source)| sum + stage.iops(*source))
    };
    let mut scale = Scale {
        critical_iops: iops(&critical),
        best_effort_iops: iops(&best_effort),
        tokens: critical.iter().chain(&best_effort).map(|(id, _)| stage.tokens(*id)).sum(),
        p95: 0.0,
        busy: (0..workers).map(|n| stage.busy(n).0).fold(0.0, f64::max),
    };
    for (_, source) in &critical {
        scale.p95 = scale.p95.max(stage.meter(*source).read_us(95.0));
    }
    stage.end();
    scale
}

/// Makes Figure 6a of the paper: one tenant with an SLO a core, and two without on two of the
/// cores.
pub fn fig6a(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "fig6a",
        title: "workers: one tenant of 20 K IOPS (90 % reads, 2 ms) each, and two best-effort \
                tenants (80 % reads)"
            .to_string(),
        x_label: "workers with a tenant that has an SLO".to_string(),
        y_label: "thousands a second".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&[
            "workers",
            "LC K IOPS",
            "off linear",
            "BE K IOPS",
            "K tokens/s",
            "worst LC p95 µs",
            "busiest worker",
            "the paper",
        ]),
        notes: vec![
            "The tenants with an SLO pace themselves to it. The paper's text says that 12 of them \
             fit; its arithmetic (570 K over 38 K tokens/s) admits 15, and so does nearflash. \
             Without them, the two others get what the device has: of this mix, hardly more."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let cores: Vec<usize> =
        if options.quick { vec![0, 1, 4, 8, 12] } else { (0..=CORES).collect() };
    let runs: Vec<(usize, Scale)> =
        cores.into_iter().map(|n| (n, scale(options, n, true))).collect();
    for (n, run) in &runs {
        let linear = match n {
            0 => "–".to_string(),
            _ => off(run.critical_iops / (20e3 * *n as f64) - 1.0),
        };
        let paper = match n {
            0 => "uncapped".to_string(),
            _ => format!("{} K IOPS, 570 K tokens/s", 20 * n),
        };
        let p95 = if *n == 0 { "–".to_string() } else { micros(run.p95) };
        figure.table.row(vec![
            n.to_string(),
            kilo_fine(run.critical_iops),
            linear,
            kilo_fine(run.best_effort_iops),
            kilo(run.tokens),
            p95,
            percent(run.busy),
            paper,
        ]);
    }
    let line = |name: &str, value: fn(&Scale) -> f64| Series {
        name: name.to_string(),
        points: runs.iter().map(|(n, run)| (*n as f64, value(run) / 1e3)).collect(),
    };
    figure.series.push(line("LC IOPS", |run| run.critical_iops));
    figure.series.push(line("BE IOPS", |run| run.best_effort_iops));
    figure.series.push(line("tokens/s", |run| run.tokens));
    judge_fig6a(&mut figure, &runs, &scale(options, 0, false));
    figure
}

fn judge_fig6a(figure: &mut Figure, runs: &[(usize, Scale)], free: &Scale) {
    let with = || runs.iter().filter(|(n, _)| *n > 0);
    let worst = |of: &dyn Fn(usize, &Scale) -> f64| {
        with().map(|(n, run)| of(*n, run).abs()).fold(0.0, f64::max)
    };
    let linear = worst(&|n, run| run.critical_iops / (20e3 * n as f64) - 1.0);
    figure.judge("LC IOPS to 12 workers", "linear, ≤ 2 % off", percent(linear), linear <= 0.02);
    let share = runs[0].1.best_effort_iops / free.best_effort_iops;
    let target = "uncapped: ≥ 98 % of what they get without a scheduler";
    figure.judge("BE IOPS without LC tenants", target, percent(share), share >= 0.98);
    let held = worst(&|_, run| run.tokens / RATE - 1.0);
    figure.judge("with them", "570 K tokens/s, within 3 %", percent(held), held <= 0.03);
    let p95 = worst(&|_, run| run.p95);
    figure.judge("p95 of every LC tenant", "≤ 2 000 µs", micros(p95), p95 <= 2_000.0);
}

/// The requests a second that each tenant of Figure 6b sends.
const SMALL: f64 = 100.0;
/// The bound of the p95 of reads of the tenants of Figure 6b, in µs.
const SMALL_BOUND: f64 = 2_000.0;

/// The results of Figure 6b for one number of tenants.
struct CrowdResults {
    workers: usize,
    tenants: usize,
    /// The number of tenants whose SLO was admitted; the others are best effort.
    admitted: usize,
    iops: f64,
    p95: f64,
    busy: f64,
    scheduling: f64,
}

impl CrowdResults {
    fn is_served(&self) -> bool {
        self.iops >= 0.99 * SMALL * self.tenants as f64 && self.p95 <= SMALL_BOUND
    }
}

fn crowd(options: &Options, workers: usize, tenants: usize) -> CrowdResults {
    let setup = Setup { tenants_max: tenants, ..Setup::device_a(options.seed, workers) };
    let mut stage = Scenario::new(setup);
    // A tenth more than the tenant sends: at exactly its rate, a queue has no bound.
    let small = Slo { request_bytes: 1024, ..slo(2_000, 110, 100) };
    let homes: Vec<usize> = (0..workers).collect();
    let mut admitted = 0;
    let mut crowd = Vec::new();
    for n in 0..tenants {
        let id = match stage.register(small) {
            Ok(id) => {
                admitted += 1;
                id
            }
            Err(_) => stage.register(BEST_EFFORT).expect("there is room"),
        };
        let home = n % workers;
        crowd.push((id, &homes[home..=home]));
    }
    let arrivals = SendingRule::Random(SMALL * tenants as f64);
    let load = Load { arrivals, reads: 1.0, bytes: 1024 };
    let all = stage.add_group(&crowd, load, 1);
    stage.run(Duration::from_millis(50));
    stage.start(all);
    // Wait until the device counts as read-only.
    stage.run(Duration::from_millis(200));
    stage.clear();
    stage.run(Duration::from_millis(if options.quick { 300 } else { 2_000 }));
    let (busy, scheduling) = stage.busy(0);
    let (iops, p95) = (stage.iops(all), stage.meter(all).read_us(95.0));
    stage.end();
    CrowdResults { workers, tenants, admitted, iops, p95, busy, scheduling }
}

/// Makes Figure 6b of the paper: tenants that each read 100 times a second.
pub fn fig6b(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "fig6b",
        title: "tenants: 100 reads of 1 KiB a second each, one connection each".to_string(),
        x_label: "tenants".to_string(),
        y_label: "IOPS (thousands)".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&[
            "workers",
            "tenants",
            "with SLO",
            "K IOPS",
            "of what they send",
            "p95 µs",
            "busy",
            "scheduling of it",
            "within SLO",
        ]),
        notes: vec![
            "Each registers 110 reads a second at p95 ≤ 2 ms and sends 100 at random (Poisson); \
             those that admission has no tokens for are best effort, and held to the same bound. \
             The paper serves 2 500 tenants on one core, 5 000 on two and nearly 10 000 on four."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let shares: &[usize] = match options.quick {
        true => &[1_000, 2_200, 2_500],
        false => &[500, 1_000, 1_500, 2_000, 2_100, 2_200, 2_300, 2_400, 2_500, 2_750],
    };
    let mut runs = Vec::new();
    for workers in [1, 2, 4] {
        let of = |share: &usize| crowd(options, workers, workers * share);
        let group: Vec<CrowdResults> = shares.iter().map(of).collect();
        let points = group.iter().map(|run| (run.tenants as f64, run.iops / 1e3)).collect();
        let name = if workers == 1 { "1 worker".into() } else { format!("{workers} workers") };
        figure.series.push(Series { name, points });
        runs.extend(group);
    }
    for run in &runs {
        figure.table.row(vec![
            run.workers.to_string(),
            run.tenants.to_string(),
            run.admitted.to_string(),
            kilo(run.iops),
            percent(run.iops / SMALL / run.tenants as f64),
            micros(run.p95),
            percent(run.busy),
            percent(run.scheduling),
            if run.is_served() { "yes" } else { "no" }.to_string(),
        ]);
    }
    for (workers, target) in [(1, 2_500), (2, 5_000), (4, 10_000)] {
        let served = runs.iter().filter(|run| run.workers == workers && run.is_served());
        let most = served.map(|run| run.tenants).max().unwrap_or(0);
        let what = format!("most tenants within SLO on {workers}");
        figure.judge(&what, &format!("≥ {target}"), most.to_string(), most >= target);
    }
    figure
}
