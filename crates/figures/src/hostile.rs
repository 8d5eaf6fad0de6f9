//! The figures `hostile-be` and `hostile-lc`: hostile tenants and their effects on neighbours.

use std::time::Duration;

use super::models::{sized, slowed};
use super::text::{BEST_EFFORT, categories, kilo_fine, micros, off, percent, slo};
use super::{Figure, Options, Series, Table};
use crate::scenario::{Load, Scenario, SendingRule, Setup};

const WORKERS: usize = 2;
const EVERYWHERE: [usize; WORKERS] = [0, 1];

fn time(options: &Options) -> Duration {
    Duration::from_millis(if options.quick { 1_000 } else { 5_000 })
}

/// A best-effort tenant that runs beside A and B of Figure 5.
struct HostileTenant {
    name: &'static str,
    /// The tenant's name below its bar in the plot.
    label: &'static str,
    reads: f64,
    bytes: u32,
    depth: u32,
    /// The number of connections on each worker.
    connections: usize,
    /// `true` if the scheduler's model prices large requests as the simulated device does; `false`
    /// if its prices are linear in the size.
    sized: bool,
}

const POLITE: HostileTenant = HostileTenant {
    name: "polite: 4 KiB writes",
    label: "4 KiB writes",
    reads: 0.0,
    bytes: 4096,
    depth: 32,
    connections: 4,
    sized: true,
};

const HOSTILE: HostileTenant = HostileTenant {
    name: "hostile: 1 MiB writes, 2 000 connections",
    label: "1 MiB × 2 000",
    reads: 0.0,
    bytes: 1 << 20,
    depth: 16,
    connections: 1_000,
    sized: true,
};

const GUESTS: [HostileTenant; 5] = [
    POLITE,
    HostileTenant { name: "polite: 4 KiB, half reads", label: "half reads", reads: 0.5, ..POLITE },
    HostileTenant {
        name: "hostile: 1 MiB writes, 2 000 connections, cost linear",
        label: "1 MiB linear cost",
        sized: false,
        ..HOSTILE
    },
    HostileTenant {
        name: "hostile: 4 KiB writes, 2 000 connections",
        label: "4 KiB × 2 000",
        bytes: 4096,
        ..HOSTILE
    },
    HOSTILE,
];

/// The share of their SLO's rate that A and B send. At exactly that rate, a queue that a
/// disturbance left behind would never shrink.
const SENT: f64 = 0.95;

/// The results of a run of A, B and one hostile tenant.
struct HostileRunResults {
    /// The p95 read latencies of A and B, in µs.
    p95: [f64; 2],
    /// The share of the requests sent by A and B that were answered.
    share: f64,
    guest_tokens: f64,
    guest_iops: f64,
}

fn stay(options: &Options, guest: &HostileTenant) -> HostileRunResults {
    let mut setup = Setup::device_a(options.seed, WORKERS);
    if guest.sized {
        setup.model = sized();
    }
    let mut stage = Scenario::new(setup);
    let neighbours = [(120_000, 100), (70_000, 80)].map(|(iops, reads)| {
        let id = stage.register(slo(500, iops, reads)).expect("the paper admits it");
        let arrivals = SendingRule::Paced(SENT * f64::from(iops));
        let load = Load { arrivals, reads: f64::from(reads) / 100.0, bytes: 4096 };
        stage.add(id, load, &EVERYWHERE, 4)
    });
    let id = stage.register(BEST_EFFORT).expect("there is room");
    let HostileTenant { reads, bytes, depth, connections, .. } = *guest;
    let load = Load { arrivals: SendingRule::Closed(depth), reads, bytes };
    let source = stage.add(id, load, &EVERYWHERE, connections);
    stage.run(Duration::from_millis(50));
    neighbours.iter().for_each(|neighbour| stage.start(*neighbour));
    stage.start(source);
    stage.run(Duration::from_millis(1_000));
    stage.clear();
    stage.run(time(options));
    let stay = HostileRunResults {
        p95: neighbours.map(|neighbour| stage.meter(neighbour).read_us(95.0)),
        share: neighbours.map(|neighbour| stage.iops(neighbour)).iter().sum::<f64>()
            / (SENT * 190e3),
        guest_tokens: stage.tokens(id),
        guest_iops: stage.iops(source),
    };
    stage.end();
    stay
}

/// Makes the figure `hostile-be`: best-effort tenants with large writes, deep queues or thousands
/// of connections, each beside A and B.
pub fn hostile_best_effort(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "hostile-be",
        title: "a hostile best-effort tenant beside A and B of Figure 5".to_string(),
        x_label: categories("guest", GUESTS.iter().map(|guest| guest.label.to_string())),
        y_label: "p95 read latency of A (µs)".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&[
            "best-effort tenant",
            "its K tokens/s",
            "its requests/s",
            "p95 of A µs",
            "p95 of B µs",
            "against polite writes",
            "A and B get",
        ]),
        notes: vec![
            "A and B have 4 connections to each of 2 workers and send 95 % of what they registered \
             for. Every guest spends what they leave. The paper's cost is linear in size; with it, \
             large writes disturb more than they pay for. Measured figures begin a second after the \
             guest."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let stays = GUESTS.map(|guest| (stay(options, &guest), guest));
    let polite = stays[0].0.p95;
    let worse = |p95: [f64; 2]| (p95[0] / polite[0]).max(p95[1] / polite[1]) - 1.0;
    for (stay, guest) in &stays {
        figure.table.row(vec![
            guest.name.to_string(),
            kilo_fine(stay.guest_tokens),
            format!("{:.0}", stay.guest_iops),
            micros(stay.p95[0]),
            micros(stay.p95[1]),
            off(worse(stay.p95)),
            percent(stay.share),
        ]);
    }
    let points = (1..).map(f64::from).zip(stays.iter().map(|(stay, _)| stay.p95[0])).collect();
    figure.series.push(Series { name: "A".to_string(), points });
    for (stay, guest) in &stays[3..] {
        let p95 = stay.p95[0].max(stay.p95[1]);
        figure.judge(guest.name, "LC p95 ≤ 500 µs", micros(p95), p95 <= 500.0);
        let worse = worse(stay.p95);
        let target = "within 5 % of the p95 beside polite writes";
        figure.judge(guest.name, target, off(worse), worse.abs() <= 0.05);
    }
    figure
}

/// Runs a tenant that keeps to its SLO, a tenant that sends `times` the rate of its SLO, and a
/// best-effort tenant. Returns `times`, their three p95s in µs, their IOPS, and the best-effort
/// tenant's tokens a second.
fn meet(options: &Options, times: f64) -> (f64, [f64; 3], [f64; 3], f64) {
    let mut setup = Setup::device_a(options.seed, WORKERS);
    setup.model = slowed(&setup.model, 95);
    let mut stage = Scenario::new(setup);
    let load = |arrivals, reads| Load { arrivals, reads, bytes: 4096 };
    let ids = [Some(slo(500, 80_000, 90)), Some(slo(500, 10_000, 100)), BEST_EFFORT]
        .map(|slo| stage.register(slo).expect("it fits"));
    let loads = [
        load(SendingRule::Paced(80e3), 0.9),
        load(SendingRule::Paced(10e3 * times), 1.0),
        load(SendingRule::Closed(32), 0.5),
    ];
    let all = [(4, 0), (64, 1), (4, 2)]
        .map(|(lines, n)| stage.add(ids[n], loads[n].clone(), &EVERYWHERE, lines));
    all.iter().for_each(|source| stage.start(*source));
    stage.run(Duration::from_millis(500));
    stage.clear();
    stage.run(time(options));
    let p95 = all.map(|source| stage.meter(source).read_us(95.0));
    let iops = all.map(|source| stage.iops(source));
    let tokens = stage.tokens(ids[2]);
    stage.end();
    (times, p95, iops, tokens)
}

/// Makes the figure `hostile-lc`: a tenant with an SLO of 10 K reads a second sends ten times as
/// many.
pub fn hostile_critical(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "hostile-lc",
        title: "a tenant sends ten times what its SLO says".to_string(),
        x_label: "tenant (1 = polite, 2 = the other)".to_string(),
        y_label: "p95 read latency (µs)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "the other sends",
            "polite p95 µs",
            "polite K IOPS",
            "its p95 µs",
            "its K IOPS",
            "best-effort K tokens/s",
        ]),
        notes: vec![
            "Polite: 80 K IOPS, 90 % reads, 500 µs. The other: 10 K reads a second, 500 µs, \
             64 connections to each of 2 workers. The rest of the device is a best-effort tenant's. \
             Device A is taken for 5 % slower: of this mix it serves a little less than of others."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let runs = [1.0, 10.0].map(|times| meet(options, times));
    for (times, p95, iops, tokens) in runs {
        let name = format!("{times:.0} × its SLO");
        figure.table.row(vec![
            name.clone(),
            micros(p95[0]),
            kilo_fine(iops[0]),
            micros(p95[1]),
            kilo_fine(iops[1]),
            kilo_fine(tokens),
        ]);
        figure.series.push(Series { name, points: vec![(1.0, p95[0]), (2.0, p95[1])] });
    }
    let [(_, before, _, left), (_, p95, iops, tokens)] = runs;
    let kept = p95[0] <= 500.0 && iops[0] >= 0.99 * 80e3;
    let measured = format!("{} µs, {} K IOPS", micros(p95[0]), kilo_fine(iops[0]));
    figure.judge("polite tenant", "p95 ≤ 500 µs and ≥ 99 % of its IOPS", measured, kept);
    let change = p95[0] / before[0] - 1.0;
    let target = "within 5 % of the p95 beside a tenant that keeps to its SLO";
    figure.judge("polite tenant", target, off(change), change.abs() <= 0.05);
    let change = tokens / left - 1.0;
    let target = "within 3 % of their tokens before";
    figure.judge("best-effort tenant", target, off(change), change.abs() <= 0.03);
    let measured = format!("{} µs, {} K IOPS", micros(p95[1]), kilo_fine(iops[1]));
    let suffers = p95[1] > 10_000.0 && iops[1] <= 10.1e3;
    figure.judge("the other", "p95 > 10 ms, and no more than its IOPS", measured, suffers);
    figure
}
