//! The row of an upgrade under load over packets: a new process takes over, and the client dials
//! its associations again (`cargo xtask takeover` measures connections that move).
//!
//! A connection keeps one request in flight, so the longest latency of the load is the longest
//! pause of a connection, and the 99th percentile of pauses is at most that. The client and both
//! servers share the processors, over loopback.

use super::fixture::Cable;
use super::judge::{Bound, ComparedSide, Comparison, TargetResult, Verdict, verdict};
use super::watch::OtherWorkWatch;
use crate::bench::takeover;

const CONNECTIONS: usize = 256;

/// The most milliseconds that 99 of 100 connections may pause.
const PAUSE_P99_MS_MAX: f64 = 100.0;

/// The seconds of the measured load, at least.
const SECONDS_MIN: u64 = 4;

/// Measures upgrades with one association, and with one for each connection.
pub(super) fn measure(bed: &mut Cable) -> Vec<Comparison> {
    let names = ["1 association", "256 associations"].map(str::to_owned);
    let (mut sides, mut wrong) = (names.map(ComparedSide::new), 0);
    let seconds = SECONDS_MIN.max(bed.seconds.ceil() as u64);
    for _ in 0..bed.rounds {
        for (side, associations) in sides.iter_mut().zip([1, CONNECTIONS]) {
            let others = OtherWorkWatch::begin();
            let crowd = (CONNECTIONS, associations);
            let round = takeover::over_packets(&bed.program, crowd, seconds);
            let round = round.and_then(|round| match round.requests {
                0 => Err("the load made no request".to_owned()),
                _ => Ok(round),
            });
            wrong += round.as_ref().map_or(0, |round| round.wrong);
            side.add(round.map(|round| (round.longest_ms, others.share())));
        }
    }
    let bound = Bound::AtMost(PAUSE_P99_MS_MAX);
    let mut judged: Vec<TargetResult> = sides.iter().map(|side| pause(side, bound)).collect();
    let is_whole = sides.iter().all(|side| side.obstacle.is_none());
    let failures = is_whole.then_some(wrong as f64);
    let what = "failed requests and wrong data".to_owned();
    judged.push(verdict(what, Bound::AtMost(0.0), failures, wrong.to_string(), &[]));
    let about = format!("{CONNECTIONS} connections over UDP, 1 request each, verified");
    let (name, unit) = ("upgrade", "ms, longest request");
    vec![Comparison { name, about, unit, sides: sides.into(), judged }]
}

/// Judges the pauses by the longest of all rounds. If that is too long, the 99th percentile may be
/// short enough.
fn pause(side: &ComparedSide, bound: Bound) -> TargetResult {
    let worst = side.values.iter().copied().reduce(f64::max);
    let result = worst.map_or(String::new(), |worst| format!("at most {worst:.1}"));
    let what = format!("{}: ms of pause, p99", side.name);
    let mut judged = verdict(what, bound, worst, result, &[side]);
    if judged.verdict == Verdict::Missed {
        let why = "the longest pause is longer, and no other is known";
        judged.verdict = Verdict::NotDecided(why.to_owned());
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_can_prove_the_target_and_not_refute_it() {
        let judged = |values: &[f64]| {
            let taken = vec![0.0; values.len()];
            let side = ComparedSide {
                values: values.to_vec(),
                taken,
                ..ComparedSide::new("UDP".to_owned())
            };
            pause(&side, Bound::AtMost(100.0)).verdict
        };
        assert_eq!(judged(&[20.0, 100.0, 30.0]), Verdict::Met);
        assert!(matches!(judged(&[20.0, 100.1, 30.0]), Verdict::NotDecided(_)));
        assert!(matches!(judged(&[]), Verdict::NotDecided(_)));
    }
}
