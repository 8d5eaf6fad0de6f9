//! Act 2 of the demonstration: a server and four clients on this machine, with a small simulated
//! drive.

use std::time::Duration;

use client::load::Tally;
use figures::four::{PaperTenant, TENANTS};

use super::board::Board;
use super::part::{Part, parts};
use super::seconds::{Seconds, Verdict};
use crate::child::Server;
use crate::crowd::{Crowd, Times};
use crate::four::{self, SMALL, SMALL_BYTES, SMALL_SPEC, TenantResult};
use crate::report::{number_text, time_text};
use crate::stage::TemporaryConfig;
use crate::stalls::StallTime;

/// The share of their promised rates that A and B send. At the full rate, a queue that a long stall
/// left behind would never shrink, since requests arrive as fast as they are served.
const SENT: f64 = 0.95;

/// The warm-up before each measurement.
const WARMUP: Duration = Duration::from_millis(500);

/// The interval at which the table is drawn.
const FRAME: Duration = Duration::from_millis(250);

/// The largest share of seconds that may be unjudged. With more of them, the demonstration is
/// inconclusive.
const NOT_JUDGED_MOST: f64 = 0.2;

/// The largest relative difference between the tokens of C and D, and the smallest share of the
/// drive's tokens that must be in use, on a machine that also does other work.
const APART_MOST: f64 = 0.05;
const USED_LEAST: f64 = 0.95;

/// A check: its subject, the expected value, the measured value, and true if it holds.
pub(crate) type Check = (String, String, String, bool);

/// The measurements and verdicts of one part of the demonstration.
#[derive(Debug)]
struct PartResult {
    part: Part,
    got: Vec<TenantResult>,
    verdicts: Vec<Verdict>,
    taken: Duration,
}

/// The results of the three parts: without the scheduler, with it, and with it while B sends less.
#[derive(Debug)]
pub(crate) struct LiveResults([PartResult; 3]);

/// Plays the three parts live, each for `seconds` seconds. If `is_shown`, draws tables meanwhile.
pub(crate) fn play(seconds: usize, is_shown: bool) -> Result<LiveResults, String> {
    let [off, on, less] = parts(SMALL, SENT);
    let stage = stage()?;
    let server = stage.serve(&["--no-scheduler"])?;
    let off = measure(off, &server, seconds, is_shown)?;
    server.stop()?;
    let server = stage.serve(&[])?;
    let on = measure(on, &server, seconds, is_shown)?;
    let less = measure(less, &server, seconds, is_shown)?;
    server.stop()?;
    Ok(LiveResults([off, on, less]))
}

/// Returns the configuration of a server with the small drive and the four tenants.
fn stage() -> Result<TemporaryConfig, String> {
    TemporaryConfig::new(SMALL_SPEC, &TENANTS.map(|tenant| four::promise(&tenant, SMALL)))
}

/// Serves the tenants and runs their loads, with the dashboard, until the program is stopped.
pub(super) fn keep() -> Result<(), String> {
    let [_, on, _] = parts(SMALL, SENT);
    let (server, dashboard) = stage()?.serve_with_dashboard()?;
    outln!("The demo goes on at {dashboard} until you press Ctrl-C.");
    let forever = Times { warmup: WARMUP, measured: Duration::from_hours(24) };
    let crowd = crowd(on, &server, forever)?;
    crowd.join()?;
    server.stop()
}

fn crowd(part: Part, server: &Server, times: Times) -> Result<Crowd, String> {
    let member = |tenant: &PaperTenant| four::member(tenant, part.drive, part.share(tenant.name));
    let members = TENANTS.iter().map(member).collect();
    Crowd::start(server.address(), members, SMALL_BYTES, times, 1)
}

/// Runs the four clients against the server for `count` seconds and returns the results. If
/// `is_shown`, draws the progress.
fn measure(
    part: Part,
    server: &Server,
    count: usize,
    is_shown: bool,
) -> Result<PartResult, String> {
    let mut board = is_shown.then(|| Board::new(part));
    // A client's clock starts when all are connected, and ends with a part of a second.
    let longer = Times { measured: Duration::from_secs(count as u64 + 1), warmup: WARMUP };
    let crowd = crowd(part, server, longer)?;
    let mut seconds = Seconds::new(part);
    let mut errors = 0;
    while let Some(now) = crowd.next(FRAME) {
        let mut latest = vec![Tally::new(); TENANTS.len()];
        crowd.collect(&mut latest);
        errors += latest.iter().map(|tally| tally.errors).sum::<u64>();
        if seconds.count() == count {
            continue;
        }
        seconds.add(&latest, now, || StallTime::until_now(server.id()));
        if let (Some(board), Some(got)) = (&mut board, seconds.latest()) {
            board.show(&got, &format!("{} s of {count} s", seconds.count()));
        }
    }
    crowd.join()?;
    if errors > 0 {
        return Err(format!("{errors} requests ended in an error"));
    }
    let (got, verdicts, taken) = (seconds.got(), seconds.verdicts(), seconds.taken());
    let played = PartResult { part, got, verdicts, taken };
    if let Some(board) = &mut board {
        board.finish(&played.got, played.is_judged(), &played.by_second());
    }
    Ok(played)
}

impl PartResult {
    fn count(&self, verdict: Verdict) -> usize {
        self.verdicts.iter().filter(|other| **other == verdict).count()
    }

    /// Returns `false` if too many seconds of a part with the scheduler could not be judged,
    /// because the machine was busy.
    fn is_judged(&self) -> bool {
        let most = NOT_JUDGED_MOST * self.verdicts.len() as f64;
        !self.part.is_scheduled || self.count(Verdict::NotJudged) as f64 <= most
    }

    fn tokens(&self) -> f64 {
        self.got.iter().map(|got| got.tokens).sum()
    }

    /// Returns one line that counts the kept, broken and unjudged seconds; empty for a part without
    /// the scheduler.
    fn by_second(&self) -> String {
        if !self.part.is_scheduled {
            return String::new();
        }
        let (kept, broken) = (self.count(Verdict::Kept), self.count(Verdict::Broken));
        let mut text = format!("A and B were in time in {kept} of {} seconds", kept + broken);
        let not_judged = self.count(Verdict::NotJudged);
        if not_judged > 0 {
            let taken = time_text(self.taken.as_nanos() as f64);
            text += &format!("; {not_judged} not judged, since this machine paused for {taken}");
        }
        text
    }
}

/// The judgement of act 2: whether the scheduler kept the promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DemoVerdict {
    Kept,
    Broken,
    /// Too many seconds could not be judged, because the machine was too busy.
    Undecided,
}

impl LiveResults {
    fn scheduled(&self) -> &[PartResult] {
        &self.0[1..]
    }

    /// Returns the judgement of the two parts with the scheduler.
    pub(super) fn outcome(&self) -> DemoVerdict {
        let count = |verdict| -> usize {
            self.scheduled().iter().map(|played| played.count(verdict)).sum()
        };
        let seconds: usize = self.scheduled().iter().map(|played| played.verdicts.len()).sum();
        let is_kept = self.scheduled().iter().all(|played| played.part.is_kept(&played.got));
        if count(Verdict::NotJudged) as f64 > NOT_JUDGED_MOST * seconds as f64 {
            DemoVerdict::Undecided
        } else if count(Verdict::Broken) == 0 && is_kept {
            DemoVerdict::Kept
        } else {
            DemoVerdict::Broken
        }
    }

    /// Returns the checks of the measured parts against the targets of Figure 5 of the paper.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let [off, on, less] = &self.0;
        let times = |got: &[TenantResult]| {
            let p95 = got.iter().map(|got| time_text(got.p95_nanos));
            p95.collect::<Vec<_>>().join(", ")
        };
        let four = 4.0 * SMALL.p95.as_nanos() as f64;
        let mut checks = vec![(
            "scheduler off: p95 of A, B, C and D".to_owned(),
            format!("> {}", time_text(four)),
            times(&off.got),
            off.got.iter().all(|got| got.p95_nanos > four),
        )];
        for (name, played) in [("scenario 1", on), ("scenario 2", less)] {
            checks.extend(kept(name, played));
        }
        let apart = on.got[2].tokens / on.got[3].tokens - 1.0;
        checks.push((
            "scenario 1: tokens of C over those of D".to_owned(),
            format!("within {:.0} %", 100.0 * APART_MOST),
            format!("{:+.1} %", 100.0 * apart),
            apart.abs() <= APART_MOST,
        ));
        for (name, played) in [("scenario 1", on), ("scenario 2", less)] {
            let used = played.tokens() / SMALL.tokens;
            checks.push((
                format!("{name}: tokens used"),
                format!("≥ {:.0} %", 100.0 * USED_LEAST),
                format!("{:.1} %", 100.0 * used),
                used >= USED_LEAST,
            ));
        }
        checks
    }

    /// Returns the results of act 2 as text for the user.
    pub(super) fn text(&self) -> String {
        let [_, on, less] = &self.0;
        let verdict = match self.outcome() {
            DemoVerdict::Kept => "Live, A and B got their requests and their latency.",
            DemoVerdict::Broken => {
                "Live, A or B did not get what was promised: THE PROMISE WAS BROKEN."
            }
            DemoVerdict::Undecided => {
                "Live, this machine paused too often to tell. Act 1 does not depend on it."
            }
        };
        let tokens = |played: &PartResult, n: usize| number_text(played.got[n].tokens.round());
        format!(
            "{verdict}\n\
             C and D shared the rest: {} and {} tokens/s; when B sent less, {} and {}.\n",
            tokens(on, 2),
            tokens(on, 3),
            tokens(less, 2),
            tokens(less, 3),
        )
    }
}

/// Returns, for each tenant with a promise in this part, a check of its rate and its latency.
fn kept<'a>(name: &'a str, played: &'a PartResult) -> impl Iterator<Item = Check> + 'a {
    TENANTS.iter().zip(&played.got).filter_map(move |(tenant, got)| {
        let slo = tenant.slo(played.part.drive)?;
        let share = played.part.share(tenant.name);
        let p95 = time_text(slo.p95.as_nanos() as f64);
        let percent = 100.0 * got.iops / (slo.iops * share);
        let found = time_text(got.p95_nanos);
        Some((
            format!("{name}: {} keeps its SLO", tenant.name),
            format!("p95 ≤ {p95} and ≥ 99 % of its IOPS"),
            format!("{found}, {percent:.1} %; {}", played.by_second()),
            got.meets(slo, share),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(verdicts: [&[Verdict]; 2]) -> LiveResults {
        let got = |part: Part| {
            let kept = |tenant: &PaperTenant| {
                let iops = tenant.slo(SMALL).map_or(100.0, |slo| slo.iops);
                TenantResult { iops, p95_nanos: 9e5, tokens: iops * tenant.tokens() }
            };
            let got = TENANTS.iter().map(kept).collect();
            PartResult { part, got, verdicts: Vec::new(), taken: Duration::from_millis(80) }
        };
        let mut played = parts(SMALL, SENT).map(got);
        for (played, verdicts) in played[1..].iter_mut().zip(verdicts) {
            played.verdicts = verdicts.to_vec();
        }
        LiveResults(played)
    }

    #[test]
    fn an_unexplained_second_breaks_the_promise_and_too_many_pauses_decide_nothing() {
        use Verdict::{Broken, Kept, NotJudged};
        let outcome = |first: &[Verdict]| seen([first, &[Kept; 5]]).outcome();
        assert_eq!(outcome(&[Kept; 5]), DemoVerdict::Kept);
        assert_eq!(outcome(&[Kept, NotJudged, NotJudged, Kept, Kept]), DemoVerdict::Kept);
        assert_eq!(outcome(&[Kept, Broken, Kept, Kept, Kept]), DemoVerdict::Broken);
        assert_eq!(outcome(&[NotJudged, NotJudged, NotJudged, Kept, Kept]), DemoVerdict::Undecided);
        let seen = seen([&[Kept, NotJudged], &[Kept]]);
        let line = seen.0[1].by_second();
        let told = "A and B were in time in 1 of 1 seconds; 1 not judged, since this machine \
                    paused for 80.0 ms";
        assert_eq!(line, told);
        assert!(seen.0[0].by_second().is_empty(), "nothing was promised without the scheduler");
    }
}
