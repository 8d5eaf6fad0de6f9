//! The table of tenants: drawn over and over in place on a terminal, as plain lines elsewhere.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use client::load::Tally;

use super::tenants::{Got, TENANTS};
use crate::report::{Style, lay_out, number_text, time_text};

/// The number of latest measurements that the live figures combine.
const WINDOW: usize = 4;

/// The properties of a phase that the table shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase<'a> {
    pub(super) title: &'a str,
    /// The factor by which the device is slower than the paper's.
    pub(super) slow: u32,
    /// The share of its usual rate that tenant B sends.
    pub(super) b_share: f64,
}

impl Phase<'_> {
    /// The share of its promise that a tenant sends.
    pub(super) fn share(&self, name: &str) -> f64 {
        SENT * if name == "B" { self.b_share } else { 1.0 }
    }
}

/// The share of what they were promised that A and B send. At all of it, a queue that came about
/// while the machine did something else for longer than is made up for would never end, since the
/// rate that empties it is the rate that fills it.
const SENT: f64 = 0.95;

/// Shows a phase while it runs, and what it came to.
pub(super) struct Board<'a> {
    phase: Phase<'a>,
    style: Style,
    is_live: bool,
    /// The latest measurements, with the seconds that each took.
    latest: VecDeque<(f64, Vec<Tally>)>,
    /// Lines that stand on the terminal and will be drawn again.
    drawn: usize,
    /// Whole seconds that were told as plain lines.
    told: u64,
}

impl<'a> Board<'a> {
    pub(super) fn new(phase: Phase<'a>) -> Board<'a> {
        Board {
            phase,
            style: Style::of_terminal(),
            is_live: std::io::stdout().is_terminal(),
            latest: VecDeque::new(),
            drawn: 0,
            told: 0,
        }
    }

    /// Shows what was measured in the latest while, `elapsed` after the beginning.
    pub(super) fn show(
        &mut self,
        tallies: Vec<Tally>,
        took: Duration,
        elapsed: Duration,
        all: Duration,
    ) {
        self.latest.push_back((took.as_secs_f64(), tallies));
        if self.latest.len() > WINDOW {
            self.latest.pop_front();
        }
        let got = self.window();
        let when = format!("{} s of {} s", elapsed.as_secs(), all.as_secs());
        if self.is_live {
            let text = table(self.phase, &got, &when, self.style);
            self.draw(&text);
        } else if elapsed.as_secs() > self.told {
            self.told = elapsed.as_secs();
            outln!("   {when}: {}", line(&got));
        }
    }

    /// Leaves the table of the whole phase standing, with these words below.
    pub(super) fn finish(&mut self, got: &[Got], below: &str) {
        let text = table(self.phase, got, "", self.style);
        self.draw(&text);
        outln!("{below}\n");
    }

    fn window(&self) -> Vec<Got> {
        let seconds: f64 = self.latest.iter().map(|(seconds, _)| seconds).sum();
        let sum = |n: usize| {
            let mut sum = Tally::new();
            self.latest.iter().for_each(|(_, tallies)| sum.add(&tallies[n]));
            Got::of(&sum, seconds)
        };
        (0..TENANTS.len()).map(sum).collect()
    }

    fn draw(&mut self, text: &str) {
        let mut screen = String::new();
        if self.drawn > 0 {
            // Back to the first line, and away with everything below.
            let _ = write!(screen, "\x1b[{}A\x1b[J", self.drawn);
        }
        screen.push_str(text);
        self.drawn = if self.is_live { text.lines().count() } else { 0 };
        out!("{screen}");
        let _ = std::io::stdout().flush(); // the next word to nobody ends it
    }
}

/// Formats the figures of all tenants in one line.
fn line(got: &[Got]) -> String {
    let words = TENANTS.iter().zip(got).map(|(tenant, got)| {
        let (iops, p95) = (number_text(got.iops.round()), time_text(got.p95_nanos));
        format!("{} {iops} IOPS, p95 {p95}", tenant.name)
    });
    words.collect::<Vec<_>>().join("; ")
}

/// The title, the tenants under headings, and the sum of tokens.
fn table(phase: Phase<'_>, got: &[Got], when: &str, style: Style) -> String {
    let headings = ["tenant", "reads", "IOPS", "promised", "p95", "promised", "tokens/s", ""];
    let mut rows: Vec<Vec<String>> = vec![headings.map(str::to_owned).to_vec()];
    for (tenant, got) in TENANTS.iter().zip(got) {
        let slo = tenant.slo(phase.slow);
        let whole = |number: f64| number_text(number.round());
        let verdict = match slo {
            None => String::new(),
            Some(slo) if got.meets(slo, phase.share(tenant.name)) => "kept".to_owned(),
            Some(_) => "BROKEN".to_owned(),
        };
        rows.push(vec![
            tenant.name.to_owned(),
            format!("{} %", tenant.read_percent),
            whole(got.iops),
            slo.map_or("best effort".to_owned(), |slo| whole(slo.iops)),
            time_text(got.p95_nanos),
            slo.map_or("-".to_owned(), |slo| time_text(slo.p95.as_nanos() as f64)),
            whole(got.tokens),
            verdict,
        ]);
    }
    let mut text = format!("{}   {}\n", style.bold(phase.title), style.dim(when));
    let mut body = String::new();
    lay_out(&mut body, &rows, style);
    for line in body.lines() {
        let line = match line {
            line if line.ends_with("BROKEN") => line.replace("BROKEN", &style.red("BROKEN")),
            line if line.ends_with("kept") => line.replace("kept", &style.green("kept")),
            line => line.to_owned(),
        };
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_who_got_what_was_promised() {
        let phase = Phase { title: "Scheduler on", slow: 4, b_share: 1.0 };
        let kept = Got { iops: 30_000.0, p95_nanos: 1.5e6, tokens: 30_000.0 };
        let broken = Got { p95_nanos: 9e6, ..kept };
        let text = table(phase, &[kept, broken, kept, kept], "", Style::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[2].contains("30 000") && lines[2].contains("2.00 ms"), "{text}");
        assert!(lines[2].ends_with("kept") && lines[3].ends_with("BROKEN"), "{text}");
        assert!(lines[4].contains("best effort"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }
}
