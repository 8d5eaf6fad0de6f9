//! The results of a demonstration.

use std::fmt::Write as _;

use super::board::Phase;
use super::seconds::Second;
use super::tenants::{DEVICE_TOKENS, Got, Slo, TENANTS, Tenant};
use crate::report::{number_text, time_text};
use crate::stalls::Kept;

/// A part, and what each tenant got in it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) phase: Phase<'static>,
    pub(super) got: Vec<Got>,
    pub(super) seconds: Vec<Second>,
}

/// The results of all parts of the demonstration.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) slow: u32,
    pub(super) off: Part,
    pub(super) on: Part,
    /// B sends less.
    pub(super) less: Part,
}

/// A check: its subject, the expected value, the measured value, and true if it holds.
pub(crate) type Verdict = (String, String, String, bool);

/// The largest difference between the tokens of C and D, and the smallest share of all tokens in
/// use, on a machine that also does other work.
const APART_MOST: f64 = 0.05;
const USED_LEAST: f64 = 0.95;

impl Part {
    fn tenants(&self) -> impl Iterator<Item = (&Tenant, &Got)> {
        TENANTS.iter().zip(&self.got)
    }

    /// Returns true if every tenant got what was promised.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept_within(1.0)
    }

    /// Returns true if every tenant got what was promised, within this share of the latency.
    pub(super) fn is_kept_within(&self, share_of_latency: f64) -> bool {
        self.tenants().all(|(tenant, got)| {
            let share = self.phase.share(tenant.name);
            let within = |slo: Slo| Slo { p95: slo.p95.mul_f64(share_of_latency), ..slo };
            tenant.slo(self.phase.slow).is_none_or(|slo| got.meets(within(slo), share))
        })
    }

    /// Counts the seconds in which all promised latencies were within this share of the promise.
    pub(super) fn seconds_within(&self, share_of_latency: f64) -> usize {
        self.seconds.iter().filter(|second| self.is_within(second, share_of_latency)).count()
    }

    fn is_within(&self, second: &Second, share_of_latency: f64) -> bool {
        TENANTS.iter().zip(&second.got).all(|(tenant, got)| {
            let slo = tenant.slo(self.phase.slow);
            slo.is_none_or(|slo| got.p95_nanos <= share_of_latency * slo.p95.as_nanos() as f64)
        })
    }

    /// The seconds in a few lines, with what the machine did in those that were not kept.
    pub(super) fn by_second(&self) -> String {
        let (within, all) = (self.seconds_within(1.0), self.seconds.len());
        let kept = self.seconds.iter().fold(Kept::default(), |sum, second| sum.and(&second.kept));
        let mut text = format!("{within} of {all} seconds within the latency;\n{}.", kept.text());
        for (n, second) in (1..).zip(&self.seconds) {
            if !self.is_within(second, 1.0) {
                let [a, b] = [0, 1].map(|tenant: usize| time_text(second.got[tenant].p95_nanos));
                let waits = second.kept.text();
                let _ = write!(text, "\n  second {n}: p95 of A {a}, of B {b};\n  {waits}");
            }
        }
        text
    }

    fn tokens(&self) -> f64 {
        self.got.iter().map(|got| got.tokens).sum()
    }
}

impl Seen {
    /// Returns the factor by which the drive was slower than the paper's.
    pub(crate) fn slow(&self) -> u32 {
        self.slow
    }

    /// Returns true if the scheduler kept all promises.
    pub(crate) fn is_kept(&self) -> bool {
        self.on.is_kept() && self.less.is_kept()
    }

    /// Returns for each target of Figure 5 whether it was met.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let broken = |got: &Got| got.p95_nanos > f64::from(self.slow) * 2e6;
        let times = |got: &[Got]| {
            let p95 = got.iter().map(|got| time_text(got.p95_nanos));
            p95.collect::<Vec<_>>().join(", ")
        };
        let four = time_text(f64::from(self.slow) * 2e6);
        let mut verdicts = vec![(
            "scheduler off: p95 of A, B, C and D".to_owned(),
            format!("> {four}"),
            times(&self.off.got),
            self.off.got.iter().all(broken),
        )];
        for (name, part) in [("scenario 1", &self.on), ("scenario 2", &self.less)] {
            for (tenant, got) in part.tenants() {
                let Some(slo) = tenant.slo(self.slow) else { continue };
                let share = part.phase.share(tenant.name);
                let percent = 100.0 * got.iops / (slo.iops * share);
                verdicts.push((
                    format!("{name}: {} keeps its SLO", tenant.name),
                    format!(
                        "p95 ≤ {} and ≥ 99 % of its IOPS",
                        time_text(slo.p95.as_nanos() as f64)
                    ),
                    format!(
                        "{}, {percent:.1} %; within it in {} of {} s",
                        time_text(got.p95_nanos),
                        part.seconds_within(1.0),
                        part.seconds.len()
                    ),
                    got.meets(slo, share),
                ));
            }
        }
        let apart = self.on.got[2].tokens / self.on.got[3].tokens - 1.0;
        verdicts.push((
            "scenario 1: tokens of C over those of D".to_owned(),
            format!("within {:.0} %", 100.0 * APART_MOST),
            format!("{:+.1} %", 100.0 * apart),
            apart.abs() <= APART_MOST,
        ));
        for (name, part) in [("scenario 1", &self.on), ("scenario 2", &self.less)] {
            let used = part.tokens() * f64::from(self.slow) / DEVICE_TOKENS;
            verdicts.push((
                format!("{name}: tokens used"),
                format!("≥ {:.0} %", 100.0 * USED_LEAST),
                format!("{:.1} %", 100.0 * used),
                used >= USED_LEAST,
            ));
        }
        verdicts
    }

    /// Summarizes the demonstration in words.
    pub(super) fn text(&self) -> String {
        let off = match self.off.is_kept() {
            true => "Off, nobody was hurt: this run has shown nothing.",
            false => "Off, the writes of D and C broke what A and B were promised.",
        };
        let on = match self.is_kept() {
            true => "On, A and B got their requests and their latency.",
            false => "On, A or B did not get what was promised: THE PROMISE WAS BROKEN.",
        };
        let within = self.on.seconds_within(1.0) + self.less.seconds_within(1.0);
        let seconds = self.on.seconds.len() + self.less.seconds.len();
        let tokens = |part: &Part, n: usize| number_text(part.got[n].tokens.round());
        format!(
            "{off}\n{on}\n\
             Second by second, both were within their latency in {within} of {seconds}.\n\
             C and D shared the rest: {} and {} tokens/s; when B sent less, {} and {}.\n\n\
             Next: nearflash serve --device file:./volume?size=1GiB, and in another terminal\n\
             \x20     nearflash bench reflex://127.0.0.1:7420 --queue-depth 32 --connections 4\n",
            tokens(&self.on, 2),
            tokens(&self.on, 3),
            tokens(&self.less, 2),
            tokens(&self.less, 3),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_broken_second_is_named_with_what_the_machine_did() {
        let phase = Phase { title: "", slow: 8, b_share: 1.0 };
        let second = |p95_millis: f64, waited| {
            let got = Got { iops: 1.0, p95_nanos: p95_millis * 1e6, tokens: 0.0 };
            let kept = Kept { server: Duration::from_millis(waited), ..Kept::default() };
            Second { got: vec![got; TENANTS.len()], kept }
        };
        let seconds = vec![second(3.5, 1), second(4.5, 20), second(4.0, 0)];
        let part = Part { phase, got: Vec::new(), seconds };
        assert_eq!((part.seconds_within(1.0), part.seconds_within(0.9)), (2, 1));
        let text = part.by_second();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("2 of 3 seconds") && lines[1].contains("21.0 ms"), "{text}");
        assert!(lines[2].starts_with("  second 2: p95 of A 4.50 ms, of B 4.50 ms;"), "{text}");
        assert!(lines[3].contains("server waiting 20.0 ms"), "{text}");
        assert!(lines.len() == 4 && lines.iter().all(|line| line.len() <= 100), "{text}");
    }
}
