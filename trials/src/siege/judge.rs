//! The verdict on an attack: compares the read latencies of neighbouring tenants with their bounds.
//!
//! A bound that is exceeded is checked again after subtracting the time that the machine took from
//! each read (steal time and other processes). A bound that is only met after the subtraction is
//! marked so in the table, which also states the time subtracted.

use std::time::{Duration, Instant};

use super::fixture::ProbeReads;
use super::probe::ProbeRead;

/// The longest time that a read of a neighbour may take.
const READ_MAX: Duration = Duration::from_millis(100);

/// The maximum factor by which an attack may raise the p95 latency of a neighbour without a
/// promise.
const SLOWER_MAX: f64 = 1.1;

/// The promised latency, and the share of reads that must meet it.
const PROMISED: Duration = Duration::from_millis(20);
const PROMISED_SHARE: f64 = 0.95;

/// The share of windows in which the promise has to be kept.
const KEPT_MIN: f64 = 0.999;

/// The number of broken windows whose times are reported.
const TIMES_TOLD: usize = 12;

/// The length of a window for which the promise is judged: 60 reads at the load's rate.
const WINDOW: Duration = Duration::from_millis(100);

/// The largest share of the attack's time that the machine may have taken for a corrected p95 to be
/// valid.
const TAKEN_MAX: f64 = 0.2;

/// The indices of the neighbours whose p95 has a bound: those without a promise.
const BEST_EFFORT: [usize; 2] = [1, 2];

/// The phases of a measurement. Reads before the first and after the last time are ignored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phases {
    pub(super) begins: Instant,
    pub(super) attack_begins: Instant,
    /// The end of the attack and of its after-effects.
    pub(super) attack_over: Instant,
    pub(super) ends: Instant,
}

impl Phases {
    fn is_attack(&self, read: &ProbeRead) -> bool {
        (self.attack_begins..self.attack_over).contains(&read.at)
    }

    fn is_quiet(&self, read: &ProbeRead) -> bool {
        let before = (self.begins..self.attack_begins).contains(&read.at);
        before || (self.attack_over..self.ends).contains(&read.at)
    }
}

/// A figure as measured, and after subtracting the time that the machine took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawAndNet<T> {
    pub(super) raw: T,
    pub(super) net: T,
}

/// The read latencies of one neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct NeighbourFigures {
    /// The longest read during the attack.
    pub(super) longest: RawAndNet<Duration>,
    pub(super) p95_with: RawAndNet<Duration>,
    pub(super) p95_without: RawAndNet<Duration>,
    /// The longest read outside the attack.
    pub(super) longest_without: RawAndNet<Duration>,
}

/// The latencies and promise windows of one attack.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) sides: Vec<NeighbourFigures>,
    /// The promise windows during the attack; `windows_without` has those outside it.
    pub(super) windows: Windows,
    pub(super) windows_without: Windows,
    /// The share of the attack's time that the machine took from the worker that lost most.
    pub(super) taken: f64,
}

/// The number of windows for which the promise was judged, and the number in which it was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) all: u64,
    pub(super) kept: RawAndNet<u64>,
    /// The start times of the windows in which the promise was broken after subtracting the
    /// machine's time, from the start of the first window on.
    pub(super) broken_at: Vec<Duration>,
}

impl Windows {
    fn is_kept(&self) -> RawAndNet<bool> {
        let enough = |kept: u64| kept as f64 >= KEPT_MIN * self.all as f64;
        RawAndNet { raw: enough(self.kept.raw), net: enough(self.kept.net) }
    }

    fn and(&self, other: &Windows) -> Windows {
        let (one, two) = (self.kept, other.kept);
        let kept = RawAndNet { raw: one.raw + two.raw, net: one.net + two.net };
        let broken_at = [&self.broken_at[..], &other.broken_at[..]].concat();
        Windows { all: self.all + other.all, kept, broken_at }
    }
}

/// The outcome of an attack for its neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Met,
    /// All bounds are met, but those listed only after subtracting the machine's time.
    MetWithout(Vec<String>),
    /// The listed bounds cannot be judged: the machine took too much time, or the bound is exceeded
    /// without an attack too.
    Undecided(Vec<String>),
    Broken(Vec<String>),
}

impl Figures {
    /// Computes the figures of an attack from the reads of all phases.
    pub(super) fn new(reads: &ProbeReads, phases: &Phases, taken: f64) -> Figures {
        let side = |reads: &Vec<ProbeRead>| NeighbourFigures {
            longest: pair(reads, |read| phases.is_attack(read), longest),
            p95_with: pair(reads, |read| phases.is_attack(read), p95),
            p95_without: pair(reads, |read| phases.is_quiet(read), p95),
            longest_without: pair(reads, |read| phases.is_quiet(read), longest),
        };
        let sides = reads.alone.iter().map(side).collect();
        let between = |begins, ends| windows(&reads.paced, begins, ends);
        let before = between(phases.begins, phases.attack_begins);
        let after = between(phases.attack_over, phases.ends);
        let windows = between(phases.attack_begins, phases.attack_over);
        Figures { sides, windows, windows_without: before.and(&after), taken }
    }

    /// Judges the figures. `names` are the names of the neighbours.
    pub(super) fn verdict(&self, names: &[&str]) -> Verdict {
        let (mut broken, mut excused, mut unclear) = (Vec::new(), Vec::new(), Vec::new());
        for (side, name) in self.sides.iter().zip(names) {
            let RawAndNet { raw, net } = side.longest;
            let what = format!("a read of {name} took {} ms", raw.as_millis());
            match (raw <= READ_MAX, net <= READ_MAX) {
                (true, _) => {}
                (false, true) => excused.push(what),
                (false, false) if side.longest_without.net > READ_MAX => unclear.push(what),
                (false, false) => broken.push(what),
            }
        }
        for n in BEST_EFFORT {
            let Some(side) = self.sides.get(n) else { continue };
            let slower = side.slower();
            let what = format!("the p95 of {} is {:.2} times what it was", names[n], slower.raw);
            match (slower.raw <= SLOWER_MAX, slower.net <= SLOWER_MAX) {
                (true, _) => {}
                (false, true) if self.taken <= TAKEN_MAX => excused.push(what),
                (false, true) => unclear.push(what),
                (false, false) => broken.push(what),
            }
        }
        let Windows { all, kept, broken_at } = &self.windows;
        let (all, mut what) = (*all, format!("the promise was kept in {} of {all}", kept.raw));
        if !broken_at.is_empty() {
            let times =
                broken_at.iter().take(TIMES_TOLD).map(|at| format!("{:.1}", at.as_secs_f64()));
            let times: Vec<String> = times.collect();
            what.push_str(&format!(" (broken {} s after the attack began)", times.join(", ")));
        }
        let is_kept = self.windows.is_kept();
        match (is_kept.raw, is_kept.net) {
            _ if all == 0 => broken.push("the promise has no window".to_owned()),
            (true, _) => {}
            (false, true) => excused.push(what),
            (false, false) if !self.windows_without.is_kept().net => unclear.push(what),
            (false, false) => broken.push(what),
        }
        if !broken.is_empty() {
            Verdict::Broken(broken)
        } else if !unclear.is_empty() {
            Verdict::Undecided(unclear)
        } else if !excused.is_empty() {
            Verdict::MetWithout(excused)
        } else {
            Verdict::Met
        }
    }
}

impl NeighbourFigures {
    /// Returns the ratio of the p95 latency during the attack to that outside it.
    pub(super) fn slower(&self) -> RawAndNet<f64> {
        let ratio = |with: Duration, without: Duration| with.as_secs_f64() / without.as_secs_f64();
        RawAndNet {
            raw: ratio(self.p95_with.raw, self.p95_without.raw),
            net: ratio(self.p95_with.net, self.p95_without.net),
        }
    }
}

fn pair(
    reads: &[ProbeRead],
    is_one: impl Fn(&ProbeRead) -> bool,
    of: fn(Vec<Duration>) -> Duration,
) -> RawAndNet<Duration> {
    let chosen = || reads.iter().filter(|read| is_one(read));
    RawAndNet {
        raw: of(chosen().map(|read| read.took).collect()),
        net: of(chosen().map(ProbeRead::net).collect()),
    }
}

fn longest(times: Vec<Duration>) -> Duration {
    times.into_iter().max().unwrap_or_default()
}

fn p95(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let rank = (times.len() * 95).div_ceil(100);
    times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Returns the whole windows from `begins` to `ends`.
fn windows(reads: &[ProbeRead], begins: Instant, ends: Instant) -> Windows {
    let all = (ends - begins).as_nanos() / WINDOW.as_nanos();
    let mut counts = vec![(0_u64, RawAndNet { raw: 0_u64, net: 0_u64 }); all as usize];
    for read in reads.iter().filter(|read| read.at >= begins) {
        let number = (read.at - begins).as_nanos() / WINDOW.as_nanos();
        let Some((count, in_time)) = counts.get_mut(number as usize) else { continue };
        *count += 1;
        in_time.raw += u64::from(read.took <= PROMISED);
        in_time.net += u64::from(read.net() <= PROMISED);
    }
    let mut found = Windows::default();
    for (number, (count, in_time)) in counts.iter().enumerate().filter(|(_, (count, _))| *count > 0)
    {
        let is_kept = |in_time: u64| in_time as f64 >= PROMISED_SHARE * *count as f64;
        found.all += 1;
        found.kept.raw += u64::from(is_kept(in_time.raw));
        found.kept.net += u64::from(is_kept(in_time.net));
        if !is_kept(in_time.net) {
            found.broken_at.push(WINDOW * number as u32);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["promised", "TCP", "Unix"];

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns the figures of a row of four seconds, the middle two of attack, with a read of 2 ms
    /// every 10 ms; `change` changes those that are due in the attack.
    fn figures(change: fn(usize, &mut ProbeRead), taken: f64) -> Figures {
        let begins = Instant::now();
        let at = |count| begins + ms(count);
        let phases =
            Phases { begins, attack_begins: at(1000), attack_over: at(3000), ends: at(4000) };
        let read = |n: usize| {
            let mut read = ProbeRead { at: at(n as u64 * 10), took: ms(2), taken: ms(0) };
            if phases.is_attack(&read) {
                change(n, &mut read);
            }
            read
        };
        let reads: Vec<ProbeRead> = (0..400).map(read).collect();
        Figures::new(&ProbeReads { alone: vec![reads.clone(); 3], paced: reads }, &phases, taken)
    }

    #[test]
    fn an_attack_that_nobody_notices_is_met() {
        let figures = figures(|_, _| {}, 0.0);
        assert_eq!(figures.verdict(&NAMES), Verdict::Met);
        let windows =
            Windows { all: 20, kept: RawAndNet { raw: 20, net: 20 }, broken_at: Vec::new() };
        assert_eq!((&figures.windows, &figures.windows_without), (&windows, &windows));
        let side = figures.sides[1];
        assert_eq!((side.longest.raw, side.p95_without.raw), (ms(2), ms(2)));
    }

    #[test]
    fn one_long_read_breaks_its_bound() {
        let figures = figures(|n, read| read.took = ms(if n == 200 { 101 } else { 2 }), 0.0);
        let Verdict::Broken(what) = figures.verdict(&NAMES) else { panic!("{figures:?}") };
        // Also a window of the promise, which has ten reads here.
        assert_eq!(what.len(), 4, "{what:?}");
        assert!(what[0].contains("promised took 101 ms"), "{what:?}");
        assert!(what[3].contains("19 of 20 (broken 1.0 s after"), "{what:?}");
    }

    #[test]
    fn a_p95_that_grows_breaks_its_bound() {
        let figures = figures(|n, read| read.took = ms(if n % 10 == 0 { 3 } else { 2 }), 0.0);
        let Verdict::Broken(what) = figures.verdict(&NAMES) else { panic!("{figures:?}") };
        assert_eq!(what.len(), 2, "the tenant with a promise has no such bound: {what:?}");
        assert!(what[0].contains("1.50 times"), "{what:?}");
    }

    #[test]
    fn what_the_machine_took_is_taken_off_and_told() {
        let slow = |n: usize, read: &mut ProbeRead| {
            if n == 200 {
                (read.took, read.taken) = (ms(300), ms(295));
            }
        };
        let verdict = figures(slow, 0.0).verdict(&NAMES);
        let Verdict::MetWithout(what) = verdict else { panic!("{verdict:?}") };
        assert_eq!(what.len(), 4, "{what:?}");
        let partly = |n: usize, read: &mut ProbeRead| {
            if n == 200 {
                (read.took, read.taken) = (ms(300), ms(150));
            }
        };
        assert!(matches!(figures(partly, 0.0).verdict(&NAMES), Verdict::Broken(_)));
    }

    #[test]
    fn a_machine_that_takes_much_leaves_a_p95_undecided() {
        let slow = |_: usize, read: &mut ProbeRead| (read.took, read.taken) = (ms(4), ms(2));
        assert!(matches!(figures(slow, 0.1).verdict(&NAMES), Verdict::MetWithout(_)));
        assert!(matches!(figures(slow, 0.5).verdict(&NAMES), Verdict::Undecided(_)));
    }

    #[test]
    fn what_is_broken_while_nobody_attacks_is_undecided() {
        let mut figures = figures(|n, read| read.took = ms(if n == 200 { 300 } else { 2 }), 0.0);
        assert!(matches!(figures.verdict(&NAMES), Verdict::Broken(_)));
        figures.windows_without.kept.net -= 1;
        figures.sides.iter_mut().for_each(|side| side.longest_without.net = ms(101));
        let verdict = figures.verdict(&NAMES);
        let Verdict::Undecided(what) = verdict else { panic!("{verdict:?}") };
        assert_eq!(what.len(), 4, "{what:?}");
    }

    #[test]
    fn without_reads_nothing_is_met() {
        let mut none = figures(|_, _| {}, 0.0);
        none.windows = Windows::default();
        assert!(matches!(none.verdict(&NAMES), Verdict::Broken(_)));
    }
}
