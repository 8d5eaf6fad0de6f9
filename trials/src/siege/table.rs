//! The table of a siege, and the page with it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attackers::Counts;
use super::fixture::{self, NEIGHBOURS};
use super::judge::{Figures, RawAndNet, Verdict, Windows};

/// The time that other work on the machine took from the server in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StolenTime {
    pub(super) seconds: u64,
    /// The number of seconds in which it took 25 ms or more.
    pub(super) taken: u64,
    /// The time that it took from the worker that lost most.
    pub(super) lost: Duration,
    /// The processor time of all workers.
    pub(super) workers: Duration,
    /// The whole time.
    pub(super) time: Duration,
}

impl StolenTime {
    /// Returns the sum of two times.
    pub(super) fn and(&self, other: &StolenTime) -> StolenTime {
        StolenTime {
            seconds: self.seconds + other.seconds,
            taken: self.taken + other.taken,
            lost: self.lost + other.lost,
            workers: self.workers + other.workers,
            time: self.time + other.time,
        }
    }

    /// Returns the share of the time that other work on the machine took.
    pub(super) fn share(&self) -> f64 {
        self.lost.as_secs_f64() / self.time.as_secs_f64()
    }
}

/// A row that was measured.
pub(super) struct MeasuredAttack {
    pub(super) name: &'static str,
    pub(super) about: String,
    pub(super) figures: Figures,
    pub(super) verdict: Verdict,
    pub(super) counts: Counts,
    /// The connections that ended, by the cause that the server gives.
    pub(super) ended: BTreeMap<String, u64>,
    /// The server's private memory before and after the attack, in bytes.
    pub(super) memory: (u64, u64),
    pub(super) attack: StolenTime,
    pub(super) quiet: StolenTime,
    pub(super) command: String,
}

impl MeasuredAttack {
    /// Returns the verdict with its reasons, as a line.
    pub(super) fn summary(&self) -> String {
        let (word, why) = self.verdict_text();
        let ended = self.ended.iter().map(|(cause, count)| format!("{cause} {count}"));
        let ended: Vec<String> = ended.collect();
        format!("    {word}{why}\n    ended: {}", ended.join(", "))
    }

    fn verdict_text(&self) -> (&'static str, String) {
        let list = |what: &[String]| format!(": {}", what.join("; "));
        match &self.verdict {
            Verdict::Met => ("met", String::new()),
            Verdict::MetWithout(what) => ("met without the machine's part", list(what)),
            Verdict::Undecided(what) => ("undecided", list(what)),
            Verdict::Broken(what) => ("BROKEN", list(what)),
        }
    }

    fn line(&self) -> String {
        let (sides, counts) = (&self.figures.sides, &self.counts);
        let each = |of: &dyn Fn(usize) -> String| {
            (0..sides.len()).map(of).collect::<Vec<String>>().join(", ")
        };
        let cpu = |time: Duration| 100.0 * time.as_secs_f64() / self.attack.time.as_secs_f64();
        let mib = |bytes: u64| bytes >> 20;
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} ({}) | {} | {} → {} | \
             {} of {}, {} of {} | {:.0} %, {:.0} % | {} |\n",
            self.about,
            each(&|n| times(sides[n].longest_without)),
            each(&|n| times(sides[n].longest)),
            each(&|n| ms(sides[n].p95_without.raw)),
            each(&|n| ms(sides[n].p95_with.raw)),
            each(&|n| {
                let RawAndNet { raw, net } = sides[n].slower();
                format!("{raw:.2} ({net:.2})")
            }),
            shares(&self.figures.windows_without),
            shares(&self.figures.windows),
            counts.made,
            counts.cut,
            counts.cut_early,
            counts.open_max,
            mib(self.memory.0),
            mib(self.memory.1),
            self.quiet.taken,
            self.quiet.seconds,
            self.attack.taken,
            self.attack.seconds,
            cpu(self.attack.workers),
            cpu(counts.cpu),
            self.verdict_text().0,
        )
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

fn times(time: RawAndNet<Duration>) -> String {
    format!("{} ({})", ms(time.raw), ms(time.net))
}

fn shares(windows: &Windows) -> String {
    let percent = |part: u64| 100.0 * part as f64 / windows.all as f64;
    let RawAndNet { raw, net } = windows.kept;
    format!("{:.2} % ({:.2} %) of {}", percent(raw), percent(net), windows.all)
}

/// Returns the table as Markdown.
pub(super) fn markdown(measured: &[MeasuredAttack]) -> String {
    let neighbours = NEIGHBOURS.join(", ");
    let mut text = format!(
        "Of three: {neighbours}. In brackets: without what the machine took.\n\n\
         | attack | longest read ms, quiet | attacked (≤ 100) | \
         p95 ms, quiet | attacked | ratio (≤ 1.1 of TCP, Unix) | \
         windows of the promise kept, quiet | attacked (≥ 99.9 %) | \
         connections made | cut (within 2 s) | open | private MiB before → after | \
         seconds with 25 ms taken: quiet, attacked | CPU of workers, attackers | verdict |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
    );
    measured.iter().for_each(|row| text.push_str(&row.line()));
    text
}

/// Returns the page with the machine, the table and the command lines.
pub(super) fn document(
    machine: &str,
    network: &str,
    seconds: u64,
    measured: &[MeasuredAttack],
) -> String {
    let table = markdown(measured);
    let reasons = measured.iter().map(|row| format!("- `{}`: {}", row.name, row.summary().trim()));
    let reasons: Vec<String> = reasons.collect();
    let reasons = reasons.join("\n").replace("    ended", "  ended");
    let command = &measured[0].command;
    let folder = std::path::Path::new("FOLDER");
    let config = fixture::configuration(folder, [1, 2, 3, 4]);
    format!(
        "# A besieged server\n\nMade by `cargo xtask siege --seconds {seconds}`, {network}. Each row \
         starts a server, which is quiet, is attacked for {seconds} s by connections of the default \
         tenant, and is quiet again. Connections that are cut are replaced.\n\n\
         ```text\n{machine}\n```\n\n{table}\n## What became of each row\n\n{}\n\n\
         ## How to read the table\n\n\
         - *half payloads*: version 1 announces a write of 1 MiB, sends 600 000 bytes, and nothing \
         more.\n\
         - *unread*: version 2 says hello, asks for 1 MiB 200 times, and reads no reply.\n\
         - Server, attackers and probes share the processors of one machine. What it *takes* is the \
         time for which a probe or a worker could have run and other work ran, that of the attackers \
         included.\n\
         - A p95 that is met only without the machine's part counts only if the machine took at most \
         a fifth of the attack's time from each worker; else the row is undecided. So it is where a \
         bound is broken without the machine's part while nobody attacks.\n\
         - *Within 2 s*: half payloads, and connections that read nothing, that were cut earlier than \
         the shorter time-out. The limit `carried` ends those whose bytes it has no room for.\n\
         - A window has 100 ms and 60 reads of the load of the tenant with a promise. The promise is \
         kept in it if 95 of 100 of them take at most 20 ms.\n\n\
         ## The server\n\n\
         ```sh\n{command}\n```\n\n\
         The configuration, with 1 to 4 for the ports:\n\n```toml\n{config}```\n",
        reasons
    )
}
