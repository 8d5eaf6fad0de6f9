//! The figure `switches`: the extensions beyond the paper, each switched off and on.
//!
//! The online correction has a figure of its own (`ageing.rs`).

use std::time::Duration;

use contract::{Instant, Slo};
use qos::{CORRECTION_NANOS, DeviceModel, FairShare, RatePoint};

use super::text::{BEST_EFFORT, kilo_fine, micros, slo};
use super::{Figure, Options, Series, Table};
use crate::scenario::{Load, Scenario, SendingRule, Setup};

const EVERYWHERE: [usize; 2] = [0, 1];

/// The p95 and p99 in µs of a tenant with an SLO, and the tokens a second of two best-effort
/// tenants beside it.
struct SwitchResults {
    p95: f64,
    p99: f64,
    tokens: [f64; 2],
    /// The tokens a second of all three tenants together.
    used: f64,
}

/// Runs a tenant with an SLO that sends 150 K requests a second, 95 % of them reads, beside two
/// best-effort tenants.
fn play(
    options: &Options,
    model: DeviceModel,
    slo: &Slo,
    portions: [FairShare; 2],
    bounds_depth: bool,
) -> SwitchResults {
    let mut stage = Scenario::new(Setup { model, ..Setup::device_a(options.seed, 2) });
    let load = |arrivals, reads| Load { arrivals, reads, bytes: 4096 };
    let critical = stage.register(*slo).expect("it fits");
    let source = stage.add(critical, load(SendingRule::Paced(150e3), 0.95), &EVERYWHERE, 4);
    stage.start(source);
    let shared = [(0.95, portions[0]), (0.25, portions[1])].map(|(reads, portion)| {
        let id = stage.register(BEST_EFFORT).expect("there is room");
        let now = Instant::from_nanos(stage.now());
        stage.registry().set_portion(id, portion, now).expect("a sound portion");
        let source = stage.add(id, load(SendingRule::Closed(32), reads), &EVERYWHERE, 4);
        stage.start(source);
        id
    });
    let now = Instant::from_nanos(stage.now());
    stage.registry().bound_depth(bounds_depth, now);
    for window in 0..if options.quick { 15 } else { 55 } {
        if window == 5 {
            stage.clear();
        }
        stage.run(Duration::from_nanos(CORRECTION_NANOS));
        let now = Instant::from_nanos(stage.now());
        stage.registry().observe(Duration::ZERO, now);
    }
    let meter = stage.meter(source);
    let (p95, p99) = (meter.read_us(95.0), meter.read_us(99.0));
    let tokens = shared.map(|id| stage.tokens(id));
    let used = tokens.iter().sum::<f64>() + stage.tokens(critical);
    stage.end();
    SwitchResults { p95, p99, tokens, used }
}

/// Runs a tenant with an SLO of 100 K reads a second that sends 150 K and drops refused requests,
/// beside a best-effort tenant. Returns the first tenant's p95 in µs, and its answered and refused
/// requests a second.
fn overrun(options: &Options, fails_fast: bool) -> (f64, f64, f64) {
    let mut stage = Scenario::new(Setup::device_a(options.seed, 2));
    let load = |arrivals, reads| Load { arrivals, reads, bytes: 4096 };
    let critical = stage.register(slo(500, 100_000, 100)).expect("it fits");
    stage.registry().fail_fast(fails_fast);
    let source = stage.add(critical, load(SendingRule::Paced(150e3), 1.0), &EVERYWHERE, 4);
    stage.give_up(source);
    let other = stage.register(BEST_EFFORT).expect("there is room");
    let other = stage.add(other, load(SendingRule::Closed(32), 0.5), &EVERYWHERE, 4);
    stage.start(source);
    stage.start(other);
    stage.run(Duration::from_millis(500));
    stage.clear();
    stage.run(Duration::from_secs(1));
    let (p95, iops) = (stage.meter(source).read_us(95.0), stage.iops(source));
    let refused = stage.meter(source).retried as f64 / stage.seconds();
    stage.end();
    (p95, iops, refused)
}

fn fail_fast(options: &Options, figure: &mut Figure) {
    let [off, on] = [false, true].map(|fails_fast| overrun(options, fails_fast));
    let say = |(p95, iops, refused): (f64, f64, f64)| {
        let (iops, refused) = (kilo_fine(iops), kilo_fine(refused));
        format!("p95 {} µs of {iops} K/s, {refused} K/s refused", micros(p95))
    };
    figure.table.row(vec![
        "fail fast".to_string(),
        "150 K reads/s of 100 K promised: what is answered is in time".to_string(),
        say(off),
        say(on),
        wins(off.0 > 500.0 && on.0 <= 500.0 && on.1 >= 97e3),
    ]);
}

fn depth(options: &Options, figure: &mut Figure) {
    let wish = slo(500, 150_000, 95);
    let equal = [FairShare::default(); 2];
    let off = play(options, DeviceModel::device_a(), &wish, equal, false);
    let on = play(options, DeviceModel::device_a(), &wish, equal, true);
    let say = |got: &SwitchResults| {
        let (p95, p99) = (micros(got.p95), micros(got.p99));
        format!("p95 {p95}, p99 {p99} µs; {} K tokens/s used", kilo_fine(got.used))
    };
    figure.table.row(vec![
        "bound on the device's depth".to_string(),
        "p95 3 % lower, nothing lost".to_string(),
        say(&off),
        say(&on),
        wins(on.p95 <= 0.97 * off.p95 && on.used >= 0.99 * off.used),
    ]);
}

/// Returns device A with rates at which the 99th percentile of reads stays within each latency, as
/// measured on the simulated device.
fn with_p99() -> DeviceModel {
    let point = |latency_us, tokens: u64| {
        let rate = tokens * 100;
        RatePoint { latency_us, mixed: rate, read_only: 2 * rate }
    };
    let points = vec![point(750, 400_000), point(1_000, 450_000), point(2_000, 500_000)];
    DeviceModel::device_a().with_p99(points).expect("sound rates")
}

fn p99(options: &Options, figure: &mut Figure) {
    let equal = [FairShare::default(); 2];
    let wish = slo(1_000, 150_000, 95);
    let off = play(options, DeviceModel::device_a(), &wish, equal, false);
    let strict = Slo { percentile_tenths: 990, ..wish };
    let on = play(options, with_p99(), &strict, equal, false);
    let say = |got: &SwitchResults| {
        let (p95, p99) = (micros(got.p95), micros(got.p99));
        format!("p95 {p95}, p99 {p99} µs; {} K tokens/s used", kilo_fine(got.used))
    };
    figure.table.row(vec![
        "p99 objectives".to_string(),
        "p99 ≤ 1 000 µs".to_string(),
        say(&off),
        say(&on),
        wins(off.p99 > 1_000.0 && on.p99 <= 1_000.0),
    ]);
    let measured = format!("{} µs, without {} µs", micros(on.p99), micros(off.p99));
    figure.judge("p99 objective of 1 000 µs", "p99 ≤ 1 000 µs", measured, on.p99 <= 1_000.0);
    let points = vec![(1.0, off.p99), (2.0, on.p99)];
    figure.series.push(Series { name: "p99".to_string(), points });
}

fn portions(options: &Options, figure: &mut Figure) {
    let wish = slo(500, 150_000, 95);
    let model = DeviceModel::device_a;
    let equal = FairShare::default();
    let off = play(options, model(), &wish, [equal; 2], false);
    let heavy = play(options, model(), &wish, [FairShare { weight: 3, ..equal }, equal], false);
    let cap = FairShare { cap: Some(2_000_000), ..equal };
    let capped = play(options, model(), &wish, [cap, equal], false);
    let say = |got: &SwitchResults| {
        format!("{} and {} K tokens/s", kilo_fine(got.tokens[0]), kilo_fine(got.tokens[1]))
    };
    let share = heavy.tokens[0] / heavy.tokens[1] / 3.0 - 1.0;
    let is_weighed = share.abs() <= 0.03;
    figure.table.row(vec![
        "weights for best effort".to_string(),
        "3 : 1".to_string(),
        say(&off),
        say(&heavy),
        wins(is_weighed),
    ]);
    let measured = format!("{:.2} : 1", heavy.tokens[0] / heavy.tokens[1]);
    figure.judge("weights of 3 and 1", "3 : 1 within 3 %", measured, is_weighed);
    let is_capped = capped.tokens[0] <= 20.2e3 && capped.used >= 0.97 * off.used;
    figure.table.row(vec![
        "caps for best effort".to_string(),
        "≤ 20 K tokens/s, nothing lost".to_string(),
        say(&off),
        say(&capped),
        wins(is_capped),
    ]);
    let target = "≤ 20 K tokens/s, and others take the rest";
    figure.judge("cap of 20 K tokens/s", target, say(&capped), is_capped);
    let worst = [&off, &heavy, &capped].iter().map(|got| got.p95).fold(0.0, f64::max);
    figure.judge("p95 with weights and caps", "≤ 500 µs", micros(worst), worst <= 500.0);
}

fn wins(does: bool) -> String {
    if does { "yes" } else { "no" }.to_string()
}

/// Makes the figure `switches`: each extension of the paper, off and on.
pub fn switches(options: &Options) -> Figure {
    let mut figure = Figure {
        id: "switches",
        title: "what goes beyond the paper, off and on".to_string(),
        x_label: "switch (1 = off, 2 = on)".to_string(),
        y_label: "p99 read latency (µs)".to_string(),
        log_y: false,
        series: Vec::new(),
        table: Table::new(&["switch", "wanted", "off", "on", "wins"]),
        notes: vec![
            "A tenant of 150 K IOPS with 95 % reads, which paces itself to that, beside two \
             best-effort tenants with 95 and 25 % reads, all on two workers. The online correction is \
             in `ageing`. The bound on the depth does nothing where tokens keep the device's queue \
             shorter than that. Failing fast looks at one worker's queue alone, so a tenant on two \
             workers waits about twice as long as it may."
                .to_string(),
        ],
        verdicts: Vec::new(),
    };
    p99(options, &mut figure);
    portions(options, &mut figure);
    depth(options, &mut figure);
    fail_fast(options, &mut figure);
    figure
}
