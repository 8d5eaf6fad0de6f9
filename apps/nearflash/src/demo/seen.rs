//! What a demonstration has shown.

use super::board::Phase;
use super::tenants::{DEVICE_TOKENS, Got, Slo, TENANTS, Tenant};
use crate::report::{number_text, time_text};

/// A part, and what each tenant got in it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) phase: Phase<'static>,
    pub(super) got: Vec<Got>,
}

/// All parts.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(super) slow: u32,
    pub(super) off: Part,
    pub(super) on: Part,
    /// B sends less.
    pub(super) less: Part,
}

/// What was looked at, what it should be, what it was, and whether that is so.
pub(crate) type Verdict = (String, String, String, bool);

/// How far the tokens of C and D may be apart, and how many of all have to be used, on a machine
/// that has other things to do as well.
const APART_MOST: f64 = 0.05;
const USED_LEAST: f64 = 0.95;

impl Part {
    fn tenants(&self) -> impl Iterator<Item = (&Tenant, &Got)> {
        TENANTS.iter().zip(&self.got)
    }

    /// Whether everybody got what was promised.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept_within(1.0)
    }

    /// Whether everybody got what was promised, within this share of the latency.
    pub(super) fn is_kept_within(&self, share_of_latency: f64) -> bool {
        self.tenants().all(|(tenant, got)| {
            let share = self.phase.share(tenant.name);
            let within = |slo: Slo| Slo { p95: slo.p95.mul_f64(share_of_latency), ..slo };
            tenant.slo(self.phase.slow).is_none_or(|slo| got.meets(within(slo), share))
        })
    }

    fn tokens(&self) -> f64 {
        self.got.iter().map(|got| got.tokens).sum()
    }
}

impl Seen {
    /// How many times slower than the paper's the drive was.
    pub(crate) fn slow(&self) -> u32 {
        self.slow
    }

    /// Whether the scheduler kept what was promised.
    pub(crate) fn is_kept(&self) -> bool {
        self.on.is_kept() && self.less.is_kept()
    }

    /// The targets of Figure 5.
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
                    format!("{}, {percent:.1} %", time_text(got.p95_nanos)),
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

    /// What there was to be seen, in words.
    pub(super) fn text(&self) -> String {
        let off = match self.off.is_kept() {
            true => "Off, nobody was hurt: this run has shown nothing.",
            false => "Off, the writes of D and C broke what A and B were promised.",
        };
        let on = match self.is_kept() {
            true => "On, A and B got their requests and their latency.",
            false => "On, A or B did not get what was promised: THE PROMISE WAS BROKEN.",
        };
        let tokens = |part: &Part, n: usize| number_text(part.got[n].tokens.round());
        format!(
            "{off}\n{on}\n\
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
