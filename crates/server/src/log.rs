//! The program's log on standard error: the choice of events, their form, and limits on their
//! number.
//!
//! A peer can cause events as often as it likes by doing something wrong. Some of these are errors,
//! such as a reservation that a full disk does not keep. Therefore each place in the code may write
//! a limited number of events per period, and a larger number of errors. Further events are
//! counted, and one line reports their number after the period. Errors are counted apart, so that
//! warnings cannot use up their limit. Files and their rotation are left to journals and
//! containers.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use contract::ServerEvent;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

/// Maximum number of events, errors aside, that one place in the code may write in a [`PERIOD`].
const BURST: u32 = 20;

/// Maximum number of errors that one place in the code may write in a [`PERIOD`].
const BURST_OF_ERRORS: u32 = 100;

/// The period over which events are counted.
const PERIOD: Duration = Duration::from_secs(10);

/// Maximum number of lines that wait for a slow reader of standard error.
const TOLD_MAX: usize = 64;

/// Number of counters for places in the code; a power of two. Places with the same counter share a
/// limit.
const CELLS: usize = 256;

/// The target of events that report changes by operators. The limits do not apply to it.
const AUDIT: &str = "audit";

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    #[default]
    Text,
    /// Write one JSON object a line, for programs
    Json,
}

/// Starts the log. Without a `filter` the environment variable `NEARFLASH_LOG` selects the events
/// (`debug`, `warn,nearflash_worker=debug`); the default is warnings. `nearflash_target` is the
/// worker's former name and still works.
///
/// # Errors
/// Fails if the filter makes no sense.
pub fn start(form: Form, filter: Option<&str>) -> Result<(), String> {
    let given = filter.map(str::to_owned).or_else(|| std::env::var("NEARFLASH_LOG").ok());
    let given = given.map(|filter| filter.replace("nearflash_target", "nearflash_worker"));
    let chosen = given.as_deref().unwrap_or("warn");
    let which = targets(chosen).map_err(|error| {
        format!("the log filter {chosen:?} makes no sense: {error}; expected a level such as info, or TARGET=LEVEL,…")
    })?;
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = match form {
        Form::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Form::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(RateLimitFilter::new()))
        .with(which)
        .init();
    Ok(())
}

/// Parses a filter. The empty filter selects errors.
fn targets(filter: &str) -> Result<Targets, ParseError> {
    let parts = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    match parts.collect::<Vec<_>>().join(",") {
        parts if parts.is_empty() => Ok(Targets::new().with_default(LevelFilter::ERROR)),
        parts => parts.parse(),
    }
}

/// Reports the number of dropped events from time to time, as long as the process lives.
pub(crate) fn tell_what_is_left_out() {
    let telling = || {
        give_up_rights();
        loop {
            std::thread::sleep(PERIOD);
            let left_out = LIMITS.take_left_out() + ERRORS.take_left_out();
            if left_out > 0 {
                tracing::warn!(
                    left_out,
                    "repeated events were left out of the log in the last {} s",
                    PERIOD.as_secs()
                );
            }
        }
    };
    let started = std::thread::Builder::new().name("log".to_owned()).spawn(telling);
    if let Err(error) = started {
        tracing::warn!(%error, "cannot report which events are left out of the log");
    }
}

/// Gives up the calling thread's rights to network cards. Listeners may be opened later, and rights
/// are given up then for the threads that follow.
fn give_up_rights() {
    if let Err(error) = io::give_up_card_rights() {
        tracing::debug!(%error, "a thread of the log keeps its rights");
    }
}

/// Writes a line to standard error, and ignores a closed output, at which `eprintln!` would panic.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "nearflash: {line}");
}

/// Parses the command line. If that fails, writes the reason in the form of all other messages and
/// ends the process.
pub fn parsed<C: clap::Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| match error.to_string().strip_prefix("error: ") {
        Some(why) => {
            say(why.trim_end());
            std::process::exit(USAGE)
        }
        None => error.exit(),
    })
}

/// The exit code for a command line that cannot be parsed.
const USAGE: i32 = 2;

/// Writes a line without waiting for the reader of standard error: a thread waits instead. Lines
/// beyond [`TOLD_MAX`] are dropped.
pub(crate) fn tell(line: String) {
    static TELLER: OnceLock<LogWriter> = OnceLock::new();
    TELLER.get_or_init(|| LogWriter::start(say)).tell(line);
}

/// A background thread that writes the log's lines one after another, so that callers never wait
/// for the output.
struct LogWriter {
    lines: SyncSender<String>,
    /// The number of lines that were dropped for lack of room, since a line was last queued.
    left_out: AtomicU64,
}

impl LogWriter {
    fn start(say: impl Fn(String) + Send + 'static) -> LogWriter {
        let (lines, told) = sync_channel::<String>(TOLD_MAX);
        let saying = move || {
            give_up_rights();
            told.into_iter().for_each(say);
        };
        // Without a thread nobody is told.
        let _ = std::thread::Builder::new().name("tell".to_owned()).spawn(saying);
        LogWriter { lines, left_out: AtomicU64::new(0) }
    }

    fn tell(&self, line: String) {
        let missing = self.left_out.swap(0, Ordering::Relaxed);
        let line = match missing {
            0 => line,
            missing => format!("({missing} lines before this one were left out) {line}"),
        };
        if self.lines.try_send(line).is_err() {
            self.left_out.fetch_add(missing + 1, Ordering::Relaxed);
        }
    }
}

/// The limit, for all threads together, on the events other than errors that each place in the code
/// writes.
static LIMITS: Throttle = Throttle::new(BURST);

/// The limit, for all threads together, on the errors that each place in the code writes.
static ERRORS: Throttle = Throttle::new(BURST_OF_ERRORS);

struct Throttle {
    burst: u32,
    cells: [Cell; CELLS],
    left_out: AtomicU64,
}

struct Cell {
    /// The number of the period in which `written` is counted; 0 before the first event.
    period: AtomicU64,
    written: AtomicU32,
}

impl Throttle {
    const fn new(burst: u32) -> Throttle {
        let cells =
            [const { Cell { period: AtomicU64::new(0), written: AtomicU32::new(0) } }; CELLS];
        Throttle { burst, cells, left_out: AtomicU64::new(0) }
    }

    /// Returns `true` if a place in the code may write an event in this period. Two threads at the
    /// beginning of a period may write a few more.
    fn takes(&self, place: usize, period: u64) -> bool {
        let cell = &self.cells[place % CELLS];
        if cell.period.swap(period, Ordering::Relaxed) != period {
            cell.written.store(0, Ordering::Relaxed);
        }
        let is_taken = cell.written.fetch_add(1, Ordering::Relaxed) < self.burst;
        if !is_taken {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            ServerEvent::LogLeftOut.count();
        }
        is_taken
    }

    fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }
}

/// The filter that limits the number of events from each place in the code.
struct RateLimitFilter {
    started: Instant,
}

impl RateLimitFilter {
    #[expect(clippy::disallowed_methods, reason = "a log is written in real time")]
    fn new() -> RateLimitFilter {
        RateLimitFilter { started: Instant::now() }
    }
}

impl Filter<Registry> for RateLimitFilter {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, Registry>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, Registry>) -> bool {
        let metadata = event.metadata();
        // Who asks for more than what is told wants all of it. What is said of changes is bounded
        // where it is said.
        if *metadata.level() > Level::INFO || metadata.target() == AUDIT {
            return true;
        }
        let limits = if *metadata.level() == Level::ERROR { &ERRORS } else { &LIMITS };
        let place = metadata.file().map_or(0, |file| file.len() * 31)
            + metadata.line().unwrap_or(0) as usize;
        let period = 1 + self.started.elapsed().as_secs() / PERIOD.as_secs();
        limits.takes(place, period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_burst_a_period_and_others_have_theirs() {
        let limits = Throttle::new(20);
        let written = |place, period| (0..1_000).filter(|_| limits.takes(place, period)).count();
        assert_eq!([written(7, 1), written(8, 1), written(7, 2)], [20, 20, 20]);
        assert_eq!((limits.take_left_out(), limits.take_left_out()), (3 * 980, 0));
    }

    /// Tests that errors are limited too, and not by warnings, since a peer may cause any number of
    /// errors.
    #[test]
    fn errors_are_limited_too_and_not_by_warnings() {
        #[derive(Clone, Default)]
        struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Lines {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().extend(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
        let subscriber =
            tracing_subscriber::registry().with(layer.with_filter(RateLimitFilter::new()));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..1_000 {
                tracing::warn!("a warning");
                tracing::error!("an error");
            }
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let count = |what: &str| text.matches(what).count();
        // A period may end in between.
        assert!((20..=40).contains(&count("a warning")), "{}", count("a warning"));
        assert!((100..=200).contains(&count("an error")), "{}", count("an error"));
    }

    #[test]
    fn filters_have_levels_by_target() {
        let passes = |filter: &str, target: &str, level: Level| {
            targets(filter).unwrap().would_enable(target, &level)
        };
        assert!(passes("warn", "nearflash_worker", Level::WARN));
        assert!(!passes("warn", "nearflash_worker", Level::INFO));
        let by_target = "warn, nearflash_worker=debug,";
        assert!(passes(by_target, "nearflash_worker::engine", Level::DEBUG));
        assert!(!passes(by_target, "nearflash_server", Level::DEBUG));
        assert!(passes("", "nearflash_server", Level::ERROR));
        assert!(!passes("", "nearflash_server", Level::WARN));
        assert!(!passes("off", "nearflash_server", Level::ERROR));
        for nonsense in ["nearflash_worker=loud", "a=b=c"] {
            assert!(targets(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn whoever_does_not_read_costs_one_thread_and_some_lines() {
        let (reads, reading) = sync_channel(0);
        let (heard, hearing) = std::sync::mpsc::channel();
        let (begins, begun) = std::sync::mpsc::channel();
        let teller = LogWriter::start(move |line| {
            begins.send(()).unwrap();
            let _: () = reading.recv().unwrap();
            heard.send(line).unwrap();
        });
        teller.tell("line 0".to_owned());
        begun.recv().unwrap();
        for n in 1..1_000 {
            teller.tell(format!("line {n}"));
        }
        let left_out = teller.left_out.load(Ordering::Relaxed);
        assert_eq!(left_out, 1_000 - TOLD_MAX as u64 - 1);
        let listen = || {
            reads.send(()).unwrap();
            hearing.recv().unwrap()
        };
        for n in 0..1_000 - left_out {
            assert_eq!(listen(), format!("line {n}"));
        }
        teller.tell("at last".to_owned());
        assert_eq!(listen(), format!("({left_out} lines before this one were left out) at last"));
    }
}
