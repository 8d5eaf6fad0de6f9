//! The figure `fairness`: equal best-effort tenants, which should get the same tokens for any
//! workload.

use std::time::Duration;

use super::models::{sized, slowed};
use super::text::{BEST_EFFORT, categories, jain, kilo_fine, micros, percent, slo};
use super::{Figure, Options, Series, Table};
use crate::scenario::{Load, Scenario, SendingRule, Setup};

/// The best-effort tenants: the bytes of their requests, and their share of reads from 0 to 1.
const TENANTS: [(u32, f64); 8] = [
    (512, 1.0),
    (4096, 0.95),
    (8192, 0.75),
    (16 << 10, 0.5),
    (64 << 10, 0.25),
    (128 << 10, 0.0),
    (1 << 20, 0.8),
    (4096, 0.0),
];

fn size(bytes: u32) -> String {
    match bytes {
        1024.. => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Makes the figure `fairness`: eight equal best-effort tenants with different sizes and mixes of
/// requests, beside one tenant with an SLO.
pub fn fairness(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "fairness",
        title: "eight best-effort tenants of different sizes and mixes".to_string(),
        x_label: categories(
            "tenant",
            TENANTS.iter().map(|(bytes, reads)| format!("{} {:.0} %", size(*bytes), 100.0 * reads)),
        ),
        y_label: "tokens/s (thousands)".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&["tenant", "request", "reads", "requests/s", "K tokens/s"]),
        notes: vec![
            "Two workers, each tenant on both. LC: 50 K IOPS, 90 % reads, 500 µs; it sends 40 K, \
             and what it leaves is shared too. Device A is taken for 5 % slower, because large \
             reads are late with their slowest page."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let mut stage =
        Scenario::new(Setup { model: slowed(&sized(), 95), ..Setup::device_a(options.seed, 2) });
    let critical = stage.register(slo(500, 50_000, 90)).expect("it fits");
    let load = Load { arrivals: SendingRule::Paced(40e3), reads: 0.9, bytes: 4096 };
    let critical_source = stage.add(critical, load, &[0, 1], 4);
    stage.start(critical_source);
    let shared = TENANTS.map(|(bytes, reads)| {
        let id = stage.register(BEST_EFFORT).expect("there is room");
        let load = Load { arrivals: SendingRule::Closed(16), reads, bytes };
        let source = stage.add(id, load, &[0, 1], 4);
        stage.start(source);
        (id, source)
    });
    stage.run(Duration::from_millis(500));
    stage.clear();
    stage.run(Duration::from_secs(if options.quick { 3 } else { 10 }));
    let tokens = shared.map(|(id, _)| stage.tokens(id));
    for (n, (bytes, reads)) in TENANTS.into_iter().enumerate() {
        figure.table.row(vec![
            format!("BE {}", n + 1),
            size(bytes),
            format!("{:.0} %", 100.0 * reads),
            format!("{:.0}", stage.iops(shared[n].1)),
            kilo_fine(tokens[n]),
        ]);
    }
    let points = (1..).map(f64::from).zip(tokens.map(|tokens| tokens / 1e3)).collect();
    figure.series.push(Series { name: "best effort".to_string(), points });
    let jain = jain(&tokens);
    figure.judge("Jain's index over tokens", "≥ 0.99", format!("{jain:.4}"), jain >= 0.99);
    let used = (tokens.iter().sum::<f64>() + stage.tokens(critical)) / (0.95 * 420e3);
    figure.judge("tokens used", "≥ 97 %", percent(used), used >= 0.97);
    let p95 = stage.meter(critical_source).read_us(95.0);
    figure.judge("p95 of the tenant with an SLO", "≤ 500 µs", micros(p95), p95 <= 500.0);
    stage.end();
    figure
}
