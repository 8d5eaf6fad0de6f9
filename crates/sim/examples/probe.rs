use contract::Slo;
use nearflash_sim::scenario::*;
use std::time::Duration;
fn main() {
    let arg = |n: usize, d: f64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(d);
    let workers = arg(1, 4.0) as usize;
    let on = arg(2, 1.0) > 0.0;
    let secs = arg(3, 1.0);
    let conns = arg(4, 2.0) as usize;
    let mut setup = Setup::device_a(1, workers);
    setup.scheduled = on;
    let mut stage = Stage::new(setup);
    let all: Vec<usize> = (0..workers).collect();
    let slo = |us, iops, r| Slo { latency_us: us, iops, read_percent: r, ..Slo::default() };
    let mut t = vec![];
    for s in [slo(500, 120_000, 100), slo(500, 70_000, 80), slo(0, 0, 0), slo(0, 0, 0)] {
        t.push(stage.register(&s).unwrap());
    }
    let l = |arrivals, reads| Load { arrivals, reads, bytes: 4096 };
    let loads = [
        l(Loop::Paced(120e3), 1.0),
        l(Loop::Paced(arg(5, 70e3)), 0.8),
        l(Loop::Closed(32), 0.95),
        l(Loop::Closed(32), 0.25),
    ];
    let s: Vec<_> = t.iter().zip(loads).map(|(t, l)| stage.add(*t, l, &all, conns)).collect();
    s.iter().for_each(|s| stage.start(*s));
    stage.run(Duration::from_millis(200));
    stage.clear();
    stage.run(Duration::from_secs_f64(secs));
    let mut total = 0.0;
    for (t, s) in t.iter().zip(&s) {
        total += stage.tokens(*t);
        println!(
            "{:?} {:8.0} iops  p95 {:7.0} p99 {:7.0} p50 {:7.0} us  {:8.0} tokens/s",
            t,
            stage.iops(*s),
            stage.meter(*s).read_us(95.0),
            stage.meter(*s).read_us(99.0),
            stage.meter(*s).read_us(50.0),
            stage.tokens(*t)
        );
    }
    println!(
        "tokens {total:.0}; busy {:?}",
        (0..workers).map(|w| stage.busy(w)).collect::<Vec<_>>()
    );
    stage.end();
}
