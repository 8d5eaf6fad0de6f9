//! The table of tenants of the demonstration. On a terminal it is redrawn in place; elsewhere it is
//! printed once, at the end.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use figures::four::TENANTS;

use super::part::Part;
use crate::four::TenantResult;
use crate::report::{Style, lay_out, number_text, time_text};

/// The display of one part of the demonstration: its progress, then its result.
pub(super) struct Board {
    part: Part,
    style: Style,
    is_live: bool,
    /// The number of lines on the terminal that the next drawing replaces.
    drawn: usize,
}

impl Board {
    pub(super) fn new(part: Part) -> Board {
        let is_live = std::io::stdout().is_terminal();
        Board { part, style: Style::of_terminal(), is_live, drawn: 0 }
    }

    /// Returns `true` if standard output is a terminal, on which intermediate results are shown.
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    /// Draws the results so far on a terminal, with the text `when` beside the title. Does nothing
    /// elsewhere.
    pub(super) fn show(&mut self, got: &[TenantResult], when: &str) {
        if self.is_live {
            let text = table(self.part, got, when, true, self.style);
            self.draw(&text);
        }
    }

    /// Prints the table with the results of the whole part, and the line `below` under it. If
    /// `is_judged` is `false`, no promise is called broken.
    pub(super) fn finish(&mut self, got: &[TenantResult], is_judged: bool, below: &str) {
        let text = table(self.part, got, "", is_judged, self.style);
        self.draw(&text);
        let line = if below.is_empty() { String::new() } else { format!("  {below}\n") };
        outln!("{}", self.style.dim(&line).trim_end_matches('\n'));
        if !line.is_empty() {
            outln!();
        }
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

/// Returns the text of the table: the title, headings, and a row for each tenant.
fn table(part: Part, got: &[TenantResult], when: &str, is_judged: bool, style: Style) -> String {
    let headings = ["", "reads", "IOPS", "promised", "p95", "promised", "tokens/s", ""];
    let mut rows: Vec<Vec<String>> = vec![headings.map(str::to_owned).to_vec()];
    for (tenant, got) in TENANTS.iter().zip(got) {
        let slo = tenant.slo(part.drive);
        let whole = |number: f64| number_text(number.round());
        let verdict = match slo {
            None => String::new(),
            Some(slo) if got.meets(slo, part.share(tenant.name)) => "kept".to_owned(),
            Some(_) if !is_judged => "not judged".to_owned(),
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
    let title = format!("{}   {}", style.bold(part.title), style.dim(when));
    let mut text = format!("{}\n", title.trim_end());
    let mut body = String::new();
    lay_out(&mut body, &rows, 3, style);
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
    use figures::four::PAPER;

    #[test]
    fn the_table_says_who_got_what_was_promised() {
        let part = Part { title: "On", is_scheduled: true, drive: PAPER, b_share: 1.0, sent: 1.0 };
        let kept = TenantResult { iops: 120_000.0, p95_nanos: 449e3, tokens: 120_000.0 };
        let broken = TenantResult { p95_nanos: 9e6, ..kept };
        let got = [kept, broken, kept, kept];
        assert!(!part.is_kept(&got) && part.is_kept(&[kept; 4]));
        let text = table(part, &got, "", true, Style::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        assert!(lines[2].contains("120 000") && lines[2].contains("449 µs"), "{text}");
        assert!(lines[2].ends_with("kept") && lines[3].ends_with("BROKEN"), "{text}");
        assert!(lines[4].contains("best effort"), "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        let text = table(part, &got, "", false, Style::PLAIN);
        assert!(text.contains("kept") && text.contains("not judged"), "{text}");
        assert!(!text.contains("BROKEN"), "{text}");
    }
}
