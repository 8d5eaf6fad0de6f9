//! The figure `tyche`: the share of a 10 Gbit/s link that Tyche's adaptive batching uses, beside
//! fixed batches, no batches and nearflash's own rule. It covers Figures 5, 6 and 7 of the Tyche
//! paper, in virtual time.
//!
//! Costs go in, throughput comes out (`model`). Deliberately left out: Figures 1 and 8, and the
//! breakdown of one request.

mod model;

use packets::batch::Batch;

use super::text::{off, percent};
use super::{Figure, Options, Series, Table};
use model::{BatchingCase, BatchingResults, adaptive, run};

/// Requests of 4 KiB that the 10 Gbit/s link carries in a second, as the Tyche paper has it.
const LINK_IOPS: f64 = 315e3;
/// The largest difference to the Tyche paper that meets a target, in shares of the link.
const OFF_MOST: f64 = 0.10;
/// The number of outstanding requests at which the Tyche paper's link is as busy as it gets.
const MOST: u32 = 512;

/// The Tyche paper's gain of adaptive batches over no batches with 32 outstanding requests: for
/// reads (`false`) and for writes (`true`).
const GAINS: [(bool, f64); 2] = [(false, 0.281), (true, 0.358)];
/// The most by which adaptive batches stay behind the best fixed level in the Tyche paper, in
/// shares of the link.
const BEHIND_MOST: f64 = 0.086;

/// The note below the table.
const NOTE: &str = "\
In virtual time: no network and no thread of this machine took part. 4 KiB requests, so many always
outstanding; shares of the 315 000 that a link of 10 Gbit/s carries in a second. Behind a share is
the mean number of requests in a message. Tyche's level is of a whole run, from level 1.

Costs of threads are the differences between the columns of the paper's Table II, and a switch 4 µs;
the costs of the two threads that receive are taken as one thread's. Locks, caches and the load of
processors are left out, so writes in batches reach the link, which the paper's do not.

The paper reads the outstanding requests of its rule in the batch queue. Here they are all that the
application has outstanding. So where few are outstanding, half of them wait for the other half,
and Tyche's batching is little better than none, or worse.";

/// Cases of the Tyche paper: writes, data of two requests in one frame, and the shares of the link
/// with adaptive batches and without batches. The last one is computed from the gain that the paper
/// states.
const PAPER: [(bool, bool, f64, f64); 4] = [
    (false, false, 0.807, 0.807 / 1.442),
    (true, false, 0.792, 0.792 / 1.495),
    (false, true, 0.880, 0.880 / 1.569),
    (true, true, 0.811, 0.811 / 1.53),
];

/// Returns the batching rules that a row of the table compares, with their names, in the order of
/// its columns.
fn rules() -> [(&'static str, Batch); 6] {
    [
        ("no batches", Batch::Never),
        ("2", Batch::Static(2)),
        ("8", Batch::Static(8)),
        ("64", Batch::Static(64)),
        ("Tyche", adaptive()),
        ("turn", Batch::Turn),
    ]
}

/// Makes the figure `tyche`: the shares of the link that the batching rules use.
pub fn tyche(options: &Options) -> Figure {
    let depths: &[u32] =
        if options.quick { &[4, 32, MOST] } else { &[4, 8, 16, 32, 64, 128, 256, MOST] };
    let mut figure = empty();
    let mut behind = 0.0_f64;
    for (writes, pairs, paper, paper_alone) in PAPER {
        let kind = name(writes, pairs);
        let mut series =
            rules().map(|(rule, _)| Series { name: format!("{kind}, {rule}"), points: Vec::new() });
        for &outstanding in depths {
            let outcomes = rules().map(|(_, batch)| {
                let seconds = match batch {
                    Batch::Adaptive(_) if options.quick => 6,
                    Batch::Adaptive(_) => 60,
                    _ => 1,
                };
                // Without batches no data shares a frame.
                let pairs = pairs && !matches!(batch, Batch::Never);
                run(&BatchingCase {
                    writes,
                    outstanding,
                    batch,
                    pairs,
                    nanos: seconds * 1_000_000_000,
                })
            });
            for (series, outcome) in series.iter_mut().zip(outcomes) {
                series.points.push((f64::from(outstanding), 100.0 * share(outcome)));
            }
            if let Some((_, gain)) = GAINS.iter().find(|(of, _)| *of == writes)
                && (outstanding, pairs) == (32, false)
            {
                judge_gain(&mut figure, &kind, &outcomes, *gain);
            }
            let best = outcomes[1..4].iter().map(|o| share(*o)).fold(0.0, f64::max);
            behind = behind.max(best - share(outcomes[4]));
            let most = outstanding == MOST;
            figure.table.row(cells(&kind, outstanding, &outcomes, most.then_some(paper)));
            if most {
                judge(&mut figure, &kind, "no batches", outcomes[0], paper_alone);
                judge(&mut figure, &kind, "Tyche", outcomes[4], paper);
            }
        }
        figure.series.extend(series);
    }
    let what = "Tyche behind the best fixed level, at the most";
    let target = format!("{} of the link", percent(BEHIND_MOST));
    figure.judge(what, &target, percent(behind), behind <= BEHIND_MOST);
    figure
}

fn empty() -> Figure {
    Figure {
        id: "tyche",
        title: "share of a 10 Gbit/s link by the rule of batches, in virtual time".to_string(),
        x_label: "outstanding requests".to_string(),
        y_label: "share of the link (%)".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&[
            "requests",
            "outstanding",
            "no batches",
            "2",
            "8",
            "64",
            "Tyche",
            "turn",
            "Tyche in the paper",
        ]),
        notes: vec![NOTE.to_string()],
        verdicts: Vec::new(),
    }
}

fn name(writes: bool, pairs: bool) -> String {
    let kind = if writes { "writes" } else { "reads" };
    if pairs { format!("{kind}, two a frame") } else { kind.to_string() }
}

fn share(outcome: BatchingResults) -> f64 {
    outcome.iops / LINK_IOPS
}

fn cells(
    kind: &str,
    outstanding: u32,
    outcomes: &[BatchingResults],
    paper: Option<f64>,
) -> Vec<String> {
    let mut cells = vec![kind.to_string(), outstanding.to_string()];
    cells.extend(outcomes.iter().map(|o| format!("{} ({:.1})", percent(share(*o)), o.level)));
    cells.push(paper.map_or("–".to_string(), percent));
    cells
}

/// Adds a verdict that compares a share of the link with the Tyche paper's share.
fn judge(figure: &mut Figure, kind: &str, rule: &str, outcome: BatchingResults, paper: f64) {
    let what = format!("{kind}, {MOST} outstanding, {rule}");
    let target = format!("{}, to within 10 points", percent(paper));
    let met = (share(outcome) - paper).abs() <= OFF_MOST;
    figure.judge(&what, &target, percent(share(outcome)), met);
}

/// Adds a verdict that compares the gain of adaptive batches over no batches with the Tyche paper's
/// gain.
fn judge_gain(figure: &mut Figure, kind: &str, outcomes: &[BatchingResults], paper: f64) {
    let gain = outcomes[4].iops / outcomes[0].iops - 1.0;
    let what = format!("{kind}, 32 outstanding, Tyche to no batches");
    let target = format!("{}, to within 10 points", off(paper));
    figure.judge(&what, &target, off(gain), (gain - paper).abs() <= OFF_MOST);
}
