//! Figure 5 where threads are stalled: one worker, or its clients, do not run for a while, as on a
//! shared machine.

use std::time::Duration;

use super::fig5::{Got, RATE, Run, play};
use super::text::{off, percent};
use super::{Figure, Options, Series, Table};
use crate::scenario::Stalling;

/// What a quiet virtual machine was seen to do to its threads: 10 to 25 stalls of 1 to 8 ms in 10 s.
const QUIET: Stalling = Stalling { a_second: 2.0, shortest: 1_000_000, longest: 8_000_000 };

/// And one with other work to do.
const BUSY: Stalling = Stalling { a_second: 4.0, shortest: 1_000_000, longest: 20_000_000 };

/// How many times slower than the paper's the device is.
const SCALES: [u32; 3] = [1, 8, 64];

/// What happens to whom.
const RUNS: [(&str, Stalling, Stalling); 5] = [
    ("nobody", Stalling::NEVER, Stalling::NEVER),
    ("worker", QUIET, Stalling::NEVER),
    ("clients", Stalling::NEVER, QUIET),
    ("worker, often", BUSY, Stalling::NEVER),
    ("both, often", BUSY, BUSY),
];

fn run(options: &Options, slow: u32, sent: f64, stalls: (Stalling, Stalling)) -> [Got; 4] {
    let (worker_stalls, client_stalls) = stalls;
    let measured = Duration::from_secs(if options.quick { 4 } else { 20 });
    let run =
        Run { workers: 1, sent, slow, worker_stalls, client_stalls, measured, ..Run::new(options) };
    play(options, run)
}

/// Figure 5, scenario 1, with stalled threads.
pub fn stalls(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "stalls",
        title: "Figure 5 where threads are stalled".to_string(),
        x_label: "times slower than device A".to_string(),
        y_label: "p95 of A (share of its SLO)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "stalled",
            "device",
            "A and B send",
            "A: p95 of its SLO",
            "B: p95 of its SLO",
            "A gets",
            "B gets",
            "tokens used",
            "C over D",
        ]),
        notes: vec![
            "Scenario 1 on one worker. A stalled thread does not run for 1 to 8 ms, 2 times a second \
             on average, or often: for 1 to 20 ms, 4 times a second. The clients are stalled together; \
             latencies count from when a request was meant to be sent. One worker is too few for the \
             device as it is, whoever is stalled."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    for (who, worker, clients) in RUNS {
        for sent in [1.0, 0.95] {
            let mut points = Vec::new();
            for slow in SCALES {
                let got = run(options, slow, sent, (worker, clients));
                let bound = 500.0 * f64::from(slow);
                let share = |n: usize, iops: f64| got[n].iops * f64::from(slow) / (iops * sent);
                let used = got.iter().map(|got| got.tokens).sum::<f64>() * f64::from(slow) / RATE;
                figure.table.row(vec![
                    who.to_string(),
                    format!("1/{slow}"),
                    percent(sent),
                    percent(got[0].p95 / bound),
                    percent(got[1].p95 / bound),
                    percent(share(0, 120e3)),
                    percent(share(1, 70e3)),
                    percent(used),
                    off(got[2].tokens / got[3].tokens - 1.0),
                ]);
                points.push((f64::from(slow), got[0].p95 / bound));
            }
            figure.series.push(Series { name: format!("{who}, {sent}"), points });
        }
    }
    figure
}
