//! The results of a `bench` measurement, as a table for people and as JSON for programs.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

use client::load::{Failure, Side, Tally};
use serde::Serialize;

/// The results of all threads of a measurement.
#[derive(Debug)]
pub(crate) struct Report {
    headline: String,
    request_bytes: usize,
    seconds: f64,
    tally: Tally,
    end: ThreadResult,
    has_probe: bool,
}

/// The final results of a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadResult {
    /// The first few verification failures.
    pub(crate) failures: Vec<Failure>,
    /// The number of requests of an open loop that were due but never sent.
    pub(crate) unsent: u64,
    /// The number of requests that had not ended some seconds after the end of the load.
    pub(crate) stuck: usize,
    /// Number of lost connections.
    pub(crate) losses: u64,
}

/// The results as one JSON object. Programs rely on its fixed shape.
#[derive(Debug, Serialize)]
struct Json {
    iops: f64,
    errors: u64,
    verify_failures: u64,
    seconds: f64,
    read: JsonSide,
    write: JsonSide,
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<JsonSide>,
}

#[derive(Debug, Serialize)]
struct JsonSide {
    count: u64,
    iops: f64,
    bytes_per_s: f64,
    latency_us: JsonLatency,
}

#[derive(Debug, Serialize)]
struct JsonLatency {
    min: f64,
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// The quantiles of latencies that the table shows, with their titles.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// Columns of the narrowest usual terminal, which the table fits.
const COLUMNS_MAX: usize = 80;

impl Report {
    /// Creates the report of a measurement that took `seconds` without its warm-up.
    pub(crate) fn new(
        headline: &str,
        request_bytes: usize,
        seconds: Duration,
        tally: Tally,
        end: ThreadResult,
        has_probe: bool,
    ) -> Report {
        let headline = headline.to_owned();
        Report { headline, request_bytes, seconds: seconds.as_secs_f64(), tally, end, has_probe }
    }

    /// Returns `true` if no request failed and no read returned wrong data.
    pub(crate) fn is_good(&self) -> bool {
        self.errors() == 0 && self.tally.verify_failures == 0
    }

    /// Returns the results of reads.
    pub(crate) fn read(&self) -> &Side {
        &self.tally.read
    }

    /// Returns the results of writes.
    pub(crate) fn write(&self) -> &Side {
        &self.tally.write
    }

    /// Returns the completed requests a second.
    pub(crate) fn iops(&self) -> f64 {
        self.per_second(self.tally.count())
    }

    /// Returns the number of requests that ended in errors or did not end.
    pub(crate) fn errors(&self) -> u64 {
        self.tally.errors + self.end.stuck as u64
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the results as one JSON object on one line.
    pub(crate) fn json(&self) -> String {
        let json = Json {
            iops: self.per_second(self.tally.count()),
            errors: self.errors(),
            verify_failures: self.tally.verify_failures,
            seconds: self.seconds,
            read: self.json_side(&self.tally.read),
            write: self.json_side(&self.tally.write),
            probe: self.has_probe.then(|| self.json_side(&self.tally.probe)),
        };
        serde_json::to_string(&json).expect("numbers and words are always JSON")
    }

    fn json_side(&self, side: &Side) -> JsonSide {
        let latency = &side.latency;
        let micros = |nanos: f64| nanos / 1000.0;
        // An empty histogram answers zero to everything.
        let quantile = |q: f64| micros(latency.value_at_quantile(q) as f64);
        let iops = self.per_second(side.count);
        JsonSide {
            count: side.count,
            iops,
            bytes_per_s: iops * self.request_bytes as f64,
            latency_us: JsonLatency {
                min: micros(latency.min() as f64),
                mean: micros(latency.mean()),
                p50: quantile(0.5),
                p95: quantile(0.95),
                p99: quantile(0.99),
                p999: quantile(0.999),
                max: micros(latency.max() as f64),
            },
        }
    }

    /// Returns the results as a table for a terminal, with remarks below.
    pub(crate) fn table(&self) -> String {
        let style = Style::of_terminal();
        let mut rows = vec![header()];
        for (name, side) in [("read", &self.tally.read), ("write", &self.tally.write)] {
            if !side.latency.is_empty() {
                rows.push(self.row(name, side));
            }
        }
        if self.has_probe {
            rows.push(self.row("probe", &self.tally.probe));
        }
        let mut text = "\n".to_owned();
        for line in wrapped(&self.headline, COLUMNS_MAX) {
            let _ = writeln!(text, "{}", style.bold(&line));
        }
        text.push('\n');
        if rows.len() == 1 {
            text.push_str("  no request ended well\n");
        } else {
            lay_out(&mut text, &rows, 2, style);
        }
        self.remarks(&mut text, style);
        text
    }

    fn row(&self, name: &str, side: &Side) -> Vec<String> {
        let iops = self.per_second(side.count);
        let mib = iops * self.request_bytes as f64 / f64::from(1 << 20);
        let latency = &side.latency;
        let mut row = vec![name.to_owned(), number_text(iops), number_text(mib)];
        row.push(time_text(latency.mean()));
        row.extend(QUANTILES.map(|(_, q)| time_text(latency.value_at_quantile(q) as f64)));
        row.push(time_text(latency.max() as f64));
        row
    }

    /// Appends remarks on errors, verification and lateness to `text`, bad ones in red.
    fn remarks(&self, text: &mut String, style: Style) {
        text.push('\n');
        let mut line = |bad: bool, words: String| {
            let words = if bad { style.red(&words) } else { words };
            let _ = writeln!(text, "  {words}");
        };
        let total = self.tally.count();
        let measured = format!(
            "{} requests in {} s, {} a second",
            number_text(total as f64),
            number_text(self.seconds),
            number_text(self.per_second(total))
        );
        let errors = self.errors();
        line(false, measured);
        if errors == 0 {
            line(false, "no errors".to_owned());
        } else {
            line(true, format!("{} requests ended in an error", number_text(errors as f64)));
        }
        if self.end.stuck > 0 {
            line(true, format!("{} of them had not ended 5 s after the end", self.end.stuck));
        }
        if self.end.losses > 0 {
            line(true, format!("{} times a connection was lost", self.end.losses));
        }
        // A few arrivals fall between the last turn and the end.
        if self.end.unsent > 10 + total / 1000 {
            line(
                true,
                format!(
                    "about {} arrivals were never sent: the rate is more than this can do",
                    number_text(self.end.unsent as f64)
                ),
            );
        }
        let failures = self.tally.verify_failures;
        if failures > 0 {
            line(true, format!("{} sectors failed verification", number_text(failures as f64)));
            for failure in failure_lines(&self.end.failures) {
                line(true, format!("  {failure}"));
            }
        }
    }
}

/// Returns the first failures of a verification, a line for each, and one line for several that
/// follow each other with the same fault.
fn failure_lines(failures: &[Failure]) -> Vec<String> {
    let alike = failures.chunk_by(|a, b| a.found == b.found);
    alike
        .take(8)
        .map(|blocks| match blocks {
            [failure] => failure.to_string(),
            [failure, .., last] => {
                let more = blocks.len() - 1;
                format!("{failure} (and {more} more, up to block {})", last.lba)
            }
            [] => String::new(),
        })
        .collect()
}

/// Returns a headline, `TARGET: PART, PART, …`, as lines of at most `columns` characters: whole, or
/// broken between parts, with all lines but the first indented. A part that is longer than a line
/// stays whole.
fn wrapped(headline: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    if headline.chars().count() <= columns {
        lines.push(headline.to_owned());
        return lines;
    }
    let (target, parts) = headline.split_once(": ").unwrap_or(("", headline));
    lines.push(format!("{target}:"));
    let mut line = String::new();
    for part in parts.split_inclusive(", ") {
        let is_full = line.chars().count() + part.trim_end().chars().count() > columns;
        if is_full && !line.trim().is_empty() {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
        if line.is_empty() {
            line.push_str("  ");
        }
        line.push_str(part);
    }
    lines.push(line);
    lines
}

fn header() -> Vec<String> {
    let mut titles = vec![String::new(), "IOPS".to_owned(), "MiB/s".to_owned()];
    titles.push("mean".to_owned());
    titles.extend(QUANTILES.map(|(title, _)| title.to_owned()));
    titles.push("max".to_owned());
    titles
}

/// Appends rows to `text` in aligned columns with `gap` spaces between them, the first column to
/// the left and the others to the right. The first row is the heading.
pub(crate) fn lay_out(text: &mut String, rows: &[Vec<String>], gap: usize, style: Style) {
    let gap = " ".repeat(gap);
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for (n, row) in rows.iter().enumerate() {
        let mut line = format!("  {:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "{gap}{cell:>width$}");
        }
        let line = if n == 0 { style.dim(&line) } else { line };
        let _ = writeln!(text, "{line}");
    }
}

/// A style of text: with the terminal's colours, or plain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    plain: bool,
}

impl Style {
    /// The style without colours.
    #[cfg(test)]
    pub(crate) const PLAIN: Style = Style { plain: true };

    /// Returns the style for standard output: with colours if it is a terminal and NO_COLOR is not
    /// set.
    pub(crate) fn of_terminal() -> Style {
        let plain = !std::io::stdout().is_terminal() || std::env::var_os("NO_COLOR").is_some();
        Style { plain }
    }

    fn wrap(self, code: u8, text: &str) -> String {
        if self.plain { text.to_owned() } else { format!("\x1b[{code}m{text}\x1b[0m") }
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap(1, text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap(2, text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap(31, text)
    }

    pub(crate) fn green(self, text: &str) -> String {
        self.wrap(32, text)
    }
}

/// Returns a number as text with its thousands apart, and with useful decimal places: `512 345`,
/// `12.5`.
pub fn number_text(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 100.0 || n == n.trunc() => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    let plain = format!("{number:.places$}");
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    let mut text = String::new();
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n).is_multiple_of(3) && whole.starts_with(|c| c != '-') {
            text.push(' ');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        let _ = write!(text, ".{fraction}");
    }
    text
}

/// Returns a number with its noun, in the plural unless it is one: `1 connection`, `2 requests`.
pub fn count_text(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", number_text(number as f64))
}

/// Returns microseconds as text, as [`time_text`] does.
pub fn micros_text(micros: f64) -> String {
    time_text(micros * 1e3)
}

/// Returns nanoseconds as text with a fitting unit and three digits: `8.61 µs`, `120 µs`,
/// `1.35 ms`.
pub fn time_text(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n < 999_500.0 => (n / 1e3, "µs"),
        n if n < 999_500_000.0 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let places = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.places$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::load::{Failure, Found};
    use serde_json::Value;

    fn report(tally: Tally, end: ThreadResult, has_probe: bool) -> Report {
        Report::new("null:1GiB: a test", 4096, Duration::from_secs(2), tally, end, has_probe)
    }

    fn measured() -> Tally {
        let mut tally = Tally::new();
        tally.read.count = 1000;
        tally.read.latency.record_n(20_000, 1000).unwrap();
        tally
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn json_has_the_fixed_shape_and_finite_numbers() {
        let text = report(measured(), ThreadResult::default(), false).json();
        assert!(!text.contains('\n') && text.starts_with(r#"{"iops":500.0,"errors":0,"verify_"#));
        let json: Value = serde_json::from_str(&text).unwrap();
        let mut found = keys(&json);
        found.sort_unstable();
        assert_eq!(found, ["errors", "iops", "read", "seconds", "verify_failures", "write"]);
        for side in [&json["read"], &json["write"]] {
            let mut found = keys(side);
            found.sort_unstable();
            assert_eq!(found, ["bytes_per_s", "count", "iops", "latency_us"]);
            let latency = side["latency_us"].as_object().unwrap();
            assert_eq!(latency.len(), 7);
            for name in ["min", "mean", "p50", "p95", "p99", "p999", "max"] {
                assert!(latency[name].as_f64().unwrap().is_finite());
            }
        }
        assert_eq!(json["read"]["count"], 1000);
        assert_eq!(json["read"]["bytes_per_s"], 2_048_000.0);
        let p95 = json["read"]["latency_us"]["p95"].as_f64().unwrap();
        assert!((19.9..20.1).contains(&p95), "{p95}");
        // Nothing was measured: zeroes, never null.
        assert!(!report(Tally::new(), ThreadResult::default(), false).json().contains("null"));
    }

    #[test]
    fn the_probe_is_told_only_when_it_was_asked_for() {
        let json: Value =
            serde_json::from_str(&report(measured(), ThreadResult::default(), true).json())
                .unwrap();
        assert_eq!(json["probe"]["count"], 0);
    }

    #[test]
    fn the_table_lines_up() {
        let table = report(measured(), ThreadResult::default(), false).table();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "null:1GiB: a test");
        assert_eq!(lines[3].chars().count(), lines[4].chars().count());
        assert!(lines[3].ends_with("max") && lines[4].contains("500"), "{table}");
        assert!(table.contains("no errors"));
    }

    #[test]
    fn the_table_fits_a_terminal_of_80_columns() {
        let headline = "reflex://storage-7.example.net:7420: 4 KiB 90 % reads, zipf 0.99 over \
                        1.0 TiB, 128 connections × depth 32, 16 threads, open loop at 1 000 000 a \
                        second";
        let mut tally = measured();
        tally.read.count = 2_469_134;
        tally.write = tally.read.clone();
        for nanos in [999_000, 99_900_000, 9_990_000_000] {
            tally.write.latency.record_n(nanos, 10).unwrap();
        }
        let seconds = Duration::from_secs(2);
        let table =
            Report::new(headline, 4096, seconds, tally, ThreadResult::default(), true).table();
        for line in table.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "{line}\n{table}");
        }
        let said: Vec<&str> = table.split_whitespace().collect();
        assert!(said.join(" ").contains(headline), "nothing of the headline is lost: {table}");
        let short = wrapped("null:1GiB: 4 KiB reads, random", COLUMNS_MAX);
        assert_eq!(short, ["null:1GiB: 4 KiB reads, random"]);
    }

    #[test]
    fn trouble_is_told_and_makes_the_run_bad() {
        let mut tally = measured();
        tally.verify_failures = 1;
        let failure = Failure { lba: 7, found: Found::Foreign };
        let end = ThreadResult { failures: vec![failure], unsent: 50, stuck: 2, losses: 1 };
        let report = report(tally, end, false);
        assert!(!report.is_good());
        let table = report.table();
        for words in ["2 requests ended", "block 7: bytes", "arrivals were never sent", "lost"] {
            assert!(table.contains(words), "{words}: {table}");
        }
    }

    #[test]
    fn blocks_with_the_same_fault_share_a_line() {
        let failure = |lba, found| Failure { lba, found };
        let failures = [
            failure(7, Found::Damaged),
            failure(8, Found::Foreign),
            failure(9, Found::Foreign),
            failure(12, Found::Foreign),
        ];
        let lines = failure_lines(&failures);
        assert_eq!(lines[0], "block 7: does not match its checksum");
        let shared = "block 8: bytes that no verifying run wrote (and 2 more, up to block 12)";
        assert_eq!(lines[1..], [shared]);
        assert_eq!(failure_lines(&[failure(1, Found::Foreign); 20]).len(), 1);
    }

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(number_text(512_345.4), "512 345");
        assert_eq!(number_text(12.54), "12.5");
        assert_eq!(number_text(1.234), "1.23");
        assert_eq!(number_text(10.0), "10");
        assert_eq!(time_text(8_613.0), "8.61 µs");
        assert_eq!(time_text(99_960.0), "100 µs");
        assert_eq!(time_text(1_350_000.0), "1.35 ms");
        assert_eq!(time_text(2e9), "2.00 s");
    }
}
