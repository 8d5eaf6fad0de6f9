//! Figures 1 and 3 of the paper: latency against load of the simulated devices, without any server.

use flash::sim_flash::Preset;
use flash::sim_flash::sweep::{Load, iops_at, offer};

use super::text::{kilo, off};
use super::{Figure, Options, Series, Table};

const MIXES: [f64; 5] = [0.99, 0.95, 0.90, 0.75, 0.50];

/// The simulated devices, their tokens a second at a p95 of 500 µs, and their cost of a write in
/// tokens. Device A has the published values; for B and C only the cost is published
/// (docs/explanation/flash-model.md).
const DEVICES: [(Preset, f64, f64); 3] =
    [(Preset::A, 420e3, 10.0), (Preset::B, 280e3, 20.0), (Preset::C, 390e3, 16.0)];

fn load(options: &Options, iops: f64, reads: f64, requests: usize) -> Load {
    let requests = if options.quick { requests / 4 } else { requests };
    Load { iops, reads, requests, pages: 1, seed: options.seed }
}

fn name(reads: f64) -> String {
    format!("{:.0} % reads", 100.0 * reads)
}

fn weight(write_cost: f64, reads: f64) -> f64 {
    reads + write_cost * (1.0 - reads)
}

/// Returns points (IOPS, p95 of reads in µs) of a device, evenly spaced up to one and a half times
/// `full`, its IOPS at 500 µs. `reads` is the share of reads.
fn curve(options: &Options, preset: Preset, reads: f64, full: f64) -> Vec<(f64, f64)> {
    let steps = if options.quick { 5 } else { 15 };
    let at = |step: usize| full * 1.5 * step as f64 / steps as f64;
    let point = |iops: f64| {
        let outcome = offer(&preset.model(), 1.0, load(options, iops, reads, 200_000));
        (iops, outcome.read_p95_us)
    };
    (1..=steps).map(|step| point(at(step))).collect()
}

/// Makes Figure 1 of the paper: the tail latency of reads depends on the load and on the share of
/// writes in it.
pub fn fig1(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "fig1",
        title: "p95 read latency against IOPS, simulated device A".to_string(),
        x_label: "IOPS (thousands)".to_string(),
        y_label: "p95 read latency (µs)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&["reads", "K IOPS at p95 500 µs", "the paper", "off"]),
        notes: vec![
            "4 KiB requests to random places at random times (Poisson), no server. The paper's \
             figures are 420 K tokens/s over the cost of the mix; read-only it halves the cost."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let paper = |reads: f64| match reads {
        1.0 => 2.0 * 420e3,
        reads => 420e3 / weight(10.0, reads),
    };
    let mut worst: f64 = 0.0;
    for reads in [1.0].into_iter().chain(MIXES) {
        let meant = paper(reads);
        let model = Preset::A.model();
        let found = iops_at(&model, 1.0, 500.0, load(options, meant, reads, 300_000));
        let points = curve(options, Preset::A, reads, meant);
        let points = points.into_iter().map(|(iops, p95)| (iops / 1e3, p95)).collect();
        figure.series.push(Series { name: name(reads), points });
        let share = found / meant - 1.0;
        worst = worst.max(share.abs());
        figure.table.row(vec![name(reads), kilo(found), kilo(meant), off(share)]);
    }
    let target = "within 10 % of the paper";
    figure.judge("IOPS at a p95 of 500 µs", target, off(worst), worst <= 0.10);
    figure
}

/// Makes Figure 3 of the paper: against tokens a second instead of IOPS, the latency curves of all
/// mixes coincide.
pub fn fig3(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "fig3",
        title: "p95 read latency against weighted IOPS, simulated devices A, B and C".to_string(),
        x_label: "tokens/s (thousands)".to_string(),
        y_label: "p95 read latency (µs)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "device",
            "write cost (paper)",
            "reads",
            "K tokens/s at p95 500 µs",
            "off their mean",
        ]),
        notes: vec![
            "Of devices B and C the paper gives the write costs alone; their rates are choices \
             (docs/explanation/flash-model.md)."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    for (preset, tokens, cost) in DEVICES {
        let device = preset.name().to_uppercase();
        let mut found = Vec::new();
        for reads in MIXES {
            let full = tokens / weight(cost, reads);
            let iops = iops_at(&preset.model(), 1.0, 500.0, load(options, full, reads, 200_000));
            found.push((reads, iops * weight(cost, reads)));
            let points = curve(options, preset, reads, full);
            let weighted = |(iops, p95): (f64, f64)| (iops * weight(cost, reads) / 1e3, p95);
            let points = points.into_iter().map(weighted).collect();
            figure.series.push(Series { name: format!("{device}, {}", name(reads)), points });
        }
        let mean = found.iter().map(|(_, tokens)| tokens).sum::<f64>() / found.len() as f64;
        let mut worst: f64 = 0.0;
        for (reads, tokens) in found {
            let share = tokens / mean - 1.0;
            worst = worst.max(share.abs());
            let cost = format!("{cost:.0}");
            figure.table.row(vec![device.clone(), cost, name(reads), kilo(tokens), off(share)]);
        }
        let what = format!("device {device}: tokens/s at a p95 of 500 µs, over all mixes");
        figure.judge(&what, "within 10 % of their mean", off(worst), worst <= 0.10);
    }
    figure
}
