//! The figure `ageing`: a device ages in the middle of a run, so that its model is wrong from then
//! on.

use std::time::Duration;

use contract::Instant;
use qos::{Adjustment, CORRECTION_NANOS};

use super::models::dearer;
use super::text::{BEST_EFFORT, kilo, micros, percent, slo};
use super::{Figure, Options, Series, Table};
use crate::scenario::{Load, Scenario, SendingRule, Setup};

const WORKERS: usize = 2;
const EVERYWHERE: [usize; WORKERS] = [0, 1];
/// The index of the 100 ms window at whose start the device ages: after 2 s.
const AGES_AT: usize = 20;
/// The number of windows after the ageing within which an SLO has to be kept again: 5 s of 100 ms
/// each.
const RESTORED: usize = 50;
/// The number of windows, after the `RESTORED` ones, in which the SLOs are judged: 3 s.
const JUDGED: usize = 30;

/// The measurements of one window of 100 ms.
#[derive(Clone, Copy, Debug)]
struct WindowMeasurement {
    /// The larger of the p95 read latencies of A and B, in µs.
    p95: f64,
    /// The share of the requests sent by A and B that were answered in the window.
    share: f64,
    best_effort: f64,
    adjustment: Adjustment,
}

/// The device model that the scheduler uses in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AssumedModel {
    /// The model of the new device.
    Static,
    /// The model of the new device, corrected online.
    Corrected,
    /// The model of the new device with writes three times as dear, which keeps the SLO on the aged
    /// device.
    Dear,
}

fn play(options: &Options, belief: AssumedModel) -> Vec<WindowMeasurement> {
    let mut setup = Setup::device_a(options.seed, WORKERS);
    if belief == AssumedModel::Dear {
        setup.model = dearer(&setup.model, 3);
    }
    let corrected = belief == AssumedModel::Corrected;
    let mut stage = Scenario::new(setup);
    let now = Instant::from_nanos(stage.now());
    stage.registry().correct_online(corrected, now);
    let sent = [100e3, 30e3];
    let critical = [slo(500, 105_000, 100), slo(500, 32_000, 80)];
    let critical: Vec<_> = critical
        .iter()
        .zip(sent)
        .map(|(slo, iops)| {
            let id = stage.register(*slo).expect("it fits");
            let reads = f64::from(slo.read_percent) / 100.0;
            stage.add(
                id,
                Load { arrivals: SendingRule::Paced(iops), reads, bytes: 4096 },
                &EVERYWHERE,
                4,
            )
        })
        .collect();
    let shared = [0.95, 0.25].map(|reads| {
        let id = stage.register(BEST_EFFORT).expect("there is room");
        let load = Load { arrivals: SendingRule::Closed(32), reads, bytes: 4096 };
        (id, stage.add(id, load, &EVERYWHERE, 4))
    });
    critical.iter().chain(shared.iter().map(|(_, source)| source)).for_each(|s| stage.start(*s));
    let mut moments = Vec::new();
    for n in 0..AGES_AT + RESTORED + JUDGED {
        if n == AGES_AT {
            stage.volume().set_age(2.0);
        }
        stage.clear();
        stage.run(Duration::from_nanos(CORRECTION_NANOS));
        let p95 = critical.iter().map(|source| stage.meter(*source).read_us(95.0));
        let p95 = p95.collect::<Vec<_>>().into_iter().fold(0.0, f64::max);
        let got: f64 = critical.iter().map(|source| stage.iops(*source)).sum();
        let best_effort = shared.iter().map(|(_, source)| stage.iops(*source)).sum();
        let now = Instant::from_nanos(stage.now());
        let adjustment = stage.registry().observe(Duration::ZERO, now);
        let share = got / sent.iter().sum::<f64>();
        moments.push(WindowMeasurement { p95, share, best_effort, adjustment });
    }
    stage.end();
    moments
}

/// Returns the mean of a quantity over windows.
fn mean(moments: &[WindowMeasurement], of: impl Fn(&WindowMeasurement) -> f64) -> f64 {
    moments.iter().map(of).sum::<f64>() / moments.len() as f64
}

/// Makes the figure `ageing`: p95 over time of A and B on a device that ages twofold, for each
/// model that the scheduler may use.
pub fn ageing(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "ageing",
        title: "the device ages: from 2 s on, programs and erases take twice as long".to_string(),
        x_label: "seconds".to_string(),
        y_label: "p95 read latency in windows of 100 ms (µs)".to_string(),
        log_y: true,
        series: Vec::new(),
        table: Table::new(&[
            "model",
            "seconds",
            "p95 µs",
            "late windows",
            "A and B get",
            "BE K IOPS",
            "rate",
            "write price",
        ]),
        notes: vec![
            "A: 105 K reads/s, B: 32 K IOPS with 80 % reads, both 500 µs; they send 95 % of that. \
             C and D are best effort, with 95 and 25 % reads. p95 is the worse of A's and B's, mean \
             over windows of 100 ms. Twice the age is more than twice the price: slices that \
             reads wait for are longer, too. With writes three times as dear from the start the SLO \
             is just kept; what best effort gets beyond the corrected run is what the correction gives away."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    let runs = [
        ("static", AssumedModel::Static),
        ("corrected", AssumedModel::Corrected),
        ("static, writes 3 × as dear", AssumedModel::Dear),
    ];
    let runs = runs.map(|(name, belief)| {
        let moments = play(options, belief);
        let points = (1..).map(|n: u32| f64::from(n) / 10.0);
        let points = points.zip(moments.iter().map(|moment| moment.p95)).collect();
        figure.series.push(Series { name: name.to_string(), points });
        let parts = [(5, AGES_AT), (AGES_AT, AGES_AT + 10), (AGES_AT + RESTORED, moments.len())];
        for (from, to) in parts {
            let part = &moments[from..to];
            let Adjustment { rate_permille, write_permille } = part[part.len() - 1].adjustment;
            let late = part.iter().filter(|moment| moment.p95 > 500.0).count();
            figure.table.row(vec![
                name.to_string(),
                format!("{:.1} to {:.1}", from as f64 / 10.0, to as f64 / 10.0),
                micros(mean(part, |moment| moment.p95)),
                format!("{late} of {}", part.len()),
                percent(mean(part, |moment| moment.share)),
                kilo(mean(part, |moment| moment.best_effort)),
                percent(f64::from(rate_permille) / 1e3),
                percent(f64::from(write_permille) / 1e3),
            ]);
        }
        mean(&moments[AGES_AT + RESTORED..], |moment| moment.p95)
    });
    let what = "static model, 5 s after ageing";
    figure.judge(what, "p95 > 500 µs", micros(runs[0]), runs[0] > 500.0);
    let what = "online correction, 5 s after ageing";
    figure.judge(what, "p95 ≤ 500 µs", micros(runs[1]), runs[1] <= 500.0);
    figure
}
