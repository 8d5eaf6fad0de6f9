//! The log of latencies in HdrHistogram's interval format, for its standard tools. Each second has
//! one line for each kind of request. Values are in nanoseconds, maxima in milliseconds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use client::load::{Side, Tally};
use contract::Instant;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use io::Clock;

use super::problem::Problem;

/// The interval of time that one line of the log covers.
const INTERVAL: Duration = Duration::from_secs(1);

/// The header line of the log, with the names of the columns.
const LEGEND: &str = "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
                      \"Interval_Compressed_Histogram\"";

/// The divisor from the values' nanoseconds to the maximum's milliseconds, as is customary.
const MAXIMUM_DIVISOR: f64 = 1_000_000.0;

/// The writer of the log.
pub(super) struct Log {
    path: PathBuf,
    file: BufWriter<File>,
    clock: Clock,
    interval_began: Instant,
    interval: Tally,
}

impl Log {
    /// Creates the file and writes the log's header.
    #[expect(clippy::disallowed_methods, reason = "the log says when it was made")]
    pub(super) fn create(path: &Path) -> Result<Log, Problem> {
        let failed =
            |e: std::io::Error| Problem::Failed(format!("cannot write {}: {e}", path.display()));
        let mut file = BufWriter::new(File::create(path).map_err(failed)?);
        let now = SystemTime::now();
        IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment("[latencies of nearflash bench: values in nanoseconds]")
            .with_start_time(now)
            .with_base_time(now)
            .begin_log_with(&mut file, &mut V2DeflateSerializer::new())
            .map_err(failed)?;
        writeln!(file, "{LEGEND}").map_err(failed)?;
        let clock = Clock::start();
        Ok(Log {
            path: path.to_owned(),
            file,
            clock,
            interval_began: clock.now(),
            interval: Tally::new(),
        })
    }

    /// Adds the measurements since the last call. When the interval is over, writes its lines.
    pub(super) fn add(&mut self, latest: &Tally) -> Result<(), Problem> {
        self.interval.add(latest);
        if self.clock.now().since(self.interval_began) >= INTERVAL {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the lines of the last interval and flushes the file.
    pub(super) fn finish(mut self) -> Result<(), Problem> {
        self.write()?;
        self.file.flush().map_err(|e| self.failed(&e))
    }

    fn write(&mut self) -> Result<(), Problem> {
        let now = self.clock.now();
        let start = self.interval_began.since(Instant::ZERO);
        let length = now.since(self.interval_began);
        let Tally { read, write, probe, .. } = &self.interval;
        let mut text = Vec::new();
        for (tag, side) in [("read", read), ("write", write), ("probe", probe)] {
            if !side.latency.is_empty() {
                line(&mut text, start, length, tag, side).map_err(|e| self.failed(&e))?;
            }
        }
        self.file.write_all(&text).map_err(|e| self.failed(&e))?;
        self.interval.reset();
        self.interval_began = now;
        Ok(())
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Problem {
        Problem::Failed(format!("cannot write {}: {error}", self.path.display()))
    }
}

/// Appends the log line of one kind of request (`tag`: read, write or probe) to `text`.
fn line(
    text: &mut Vec<u8>,
    start: Duration,
    length: Duration,
    tag: &str,
    side: &Side,
) -> std::io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut lines = Vec::new();
    IntervalLogWriterBuilder::new()
        .with_max_value_divisor(MAXIMUM_DIVISOR)
        .begin_log_with(&mut lines, &mut serializer)?
        .write_histogram(&side.latency, start, length, Tag::new(tag))
        .map_err(|e| std::io::Error::other(e.to_string()))?;
    // The writer begins with a comment about its divisor, which is the customary one.
    for line in lines.split_inclusive(|&byte| byte == b'\n') {
        if !line.starts_with(b"#") {
            text.extend_from_slice(line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn a_standard_reader_understands_the_log() {
        let path = std::env::temp_dir().join(format!("nearflash-log-{}", std::process::id()));
        let mut log = Log::create(&path).unwrap();
        let mut tally = Tally::new();
        tally.read.latency.record_n(2_000_000, 10).unwrap();
        tally.write.latency.record(3_000_000).unwrap();
        log.add(&tally).unwrap();
        log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.contains("#[StartTime: ") && text.contains(LEGEND), "{text}");
        let found: Vec<(String, f64)> = IntervalLogIterator::new(text.as_bytes())
            .filter_map(|entry| match entry.expect("the log is sound") {
                LogEntry::Interval(line) => {
                    Some((line.tag().unwrap().as_str().to_owned(), line.max()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(found[0].0, "read");
        assert!((found[0].1 - 2.0).abs() < 0.01, "{found:?}");
        assert_eq!(found[1].0, "write");
    }
}
