//! The figure `stalls`: Figure 5 with stalled threads. The worker, or its clients, do not run for a
//! while, as on a shared machine.

use std::time::Duration;

use super::fig5::{Fig5Run, RATE, TenantFigures, play};
use super::text::{off, percent};
use super::{Figure, Options, Series, Table};
use crate::scenario::StallPattern;

const NEVER: StallPattern = StallPattern::NEVER;

/// The stalls of a thread on a quiet virtual machine, where 10 to 25 stalls of 1 to 8 ms were seen
/// in 10 s.
const SHORT: StallPattern = StallPattern { a_second: 2.0, shortest: 1_000_000, longest: 8_000_000 };

/// The stalls of a thread on a machine with other work.
const LONG: StallPattern = StallPattern { longest: 20_000_000, ..SHORT };

/// The stalls of a thread on a processor that is shared with busy threads, which leave it about
/// half of the time.
const STARVED: StallPattern =
    StallPattern { a_second: 150.0, shortest: 3_000_000, longest: 10_000_000 };

/// A case of the figure: the stalls of the worker and of each client. `is_kept` is `true` if the
/// SLOs can be kept despite the stalls on a slower device.
struct StallCase {
    name: &'static str,
    worker: StallPattern,
    clients: StallPattern,
    is_kept: bool,
}

const CASES: [StallCase; 6] = [
    StallCase { name: "nobody", worker: NEVER, clients: NEVER, is_kept: true },
    StallCase { name: "worker", worker: SHORT, clients: NEVER, is_kept: true },
    StallCase { name: "clients", worker: NEVER, clients: SHORT, is_kept: true },
    StallCase { name: "both", worker: SHORT, clients: SHORT, is_kept: true },
    StallCase { name: "both, longer", worker: LONG, clients: LONG, is_kept: false },
    StallCase { name: "worker, half of the time", worker: STARVED, clients: NEVER, is_kept: false },
];

/// The factors by which the device is slower than device A of the paper.
const SCALES: [u32; 3] = [1, 8, 64];

/// The smallest of the `SCALES` whose results are judged: from there on, one worker and the machine
/// are fast enough for the device.
const JUDGED_FROM: u32 = 8;

/// The results of a run, as ratios: the p95 latencies of A and B to their bounds, their rates to
/// the promised rates, the tokens used to those of the device, and C's surplus of tokens over D's.
struct StallResults {
    p95: [f64; 2],
    iops: f64,
    used: f64,
    apart: f64,
}

fn run(options: &Options, case: &StallCase, slow: u32, pays_arrears: bool) -> StallResults {
    let got = play(
        options,
        Fig5Run {
            workers: 1,
            slow,
            pays_arrears,
            worker_stalls: case.worker,
            client_stalls: case.clients,
            measured: Duration::from_secs(if options.quick { 4 } else { 20 }),
            ..Fig5Run::new(options)
        },
    );
    let times = f64::from(slow);
    let tokens: f64 = got.iter().map(|got| got.tokens).sum();
    let of_bound = |got: &TenantFigures| got.p95 / (500.0 * times);
    StallResults {
        p95: [of_bound(&got[0]), of_bound(&got[1])],
        iops: times * (got[0].iops / 120e3).min(got[1].iops / 70e3),
        used: times * tokens / RATE,
        apart: got[2].tokens / got[3].tokens - 1.0,
    }
}

/// Makes the figure `stalls`: scenario 1 of Figure 5 with stalled threads.
pub fn stalls(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "stalls",
        title: "Figure 5 where threads are stalled".to_string(),
        x_label: "times slower than device A".to_string(),
        y_label: "p95 of B (share of its SLO)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "stalled",
            "device",
            "arrears",
            "p95 of A",
            "p95 of B",
            "A and B get",
            "tokens used",
            "C over D",
        ]),
        notes: vec![
            "Scenario 1 on one worker; p95s are shares of the SLO, and count from when a request was \
             meant to be sent. A stalled thread does not run for 1 to 8 ms (longer: to 20 ms), twice \
             a second on average; the clients are one thread. One worker is not enough for the \
             device as it is, whoever is stalled. In the last rows but three more than one request in \
             twenty is sent while somebody is stalled or right behind, so nobody could keep a p95 \
             that is not much longer than the stalls."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    for case in &CASES {
        for pays_arrears in [false, true] {
            let mut points = Vec::new();
            for slow in SCALES {
                let outcome = run(options, case, slow, pays_arrears);
                add(&mut figure, case, slow, pays_arrears, &outcome);
                points.push((f64::from(slow), outcome.p95[1]));
            }
            let arrears = if pays_arrears { "with arrears" } else { "without" };
            figure.series.push(Series { name: format!("{}, {arrears}", case.name), points });
        }
    }
    figure
}

fn add(
    figure: &mut Figure,
    case: &StallCase,
    slow: u32,
    pays_arrears: bool,
    outcome: &StallResults,
) {
    let StallResults { p95, iops, used, apart } = outcome;
    figure.table.row(vec![
        case.name.to_string(),
        format!("1/{slow}"),
        if pays_arrears { "paid" } else { "not" }.to_string(),
        percent(p95[0]),
        percent(p95[1]),
        percent(*iops),
        percent(*used),
        off(*apart),
    ]);
    if !pays_arrears || slow < JUDGED_FROM {
        return;
    }
    let what = format!("stalled: {}; device 1/{slow}", case.name);
    if case.is_kept {
        let met = p95.iter().all(|p95| *p95 <= 1.0) && *iops >= 0.99;
        let measured = format!("{}, {}, {}", percent(p95[0]), percent(p95[1]), percent(*iops));
        figure.judge(&what, "p95 within the SLOs, ≥ 99 % of the IOPS", measured, met);
    } else {
        let measured = format!("{}, {}", percent(*iops), percent(*used));
        let met = *iops >= 0.99 && *used >= 0.9;
        figure.judge(&what, "≥ 99 % of the IOPS, ≥ 90 % of the tokens", measured, met);
    }
}
