//! `nearflash demo`: Figure 5 of the paper, live. Four tenants share one simulated flash drive behind
//! a server on loopback, first as they like, then with the scheduler that keeps its promises.

mod board;
mod pace;
mod seconds;
mod seen;
mod tenants;

use std::process::ExitCode;
use std::time::Duration;

use client::load::Tally;

use crate::child::{self, Server};
use crate::crowd::{Crowd, Times};
use crate::report::time_text;
use crate::stage::{Promise, Stage};
use crate::stalls::Kept;
use board::{Board, Phase};
use pace::Pace;
use seconds::Seconds;
use seen::Part;
pub(crate) use seen::Seen;
use tenants::{B_SENDS_LESS, Got, TENANTS};

/// Play four tenants on one drive, without and with promises
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds to measure each of the three parts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Factor by which drive and objectives are slowed down [default: measured at the start]
    #[arg(long, value_name = "TIMES", value_parser = clap::value_parser!(u32).range(1..=1000))]
    slow: Option<u32>,
}

/// Bytes of the drive, which are in memory.
const DRIVE: &str = "256MiB";
const DRIVE_BYTES: u64 = 256 << 20;

/// The warm-up before each measurement.
const WARMUP: Duration = Duration::from_secs(1);

/// The times of a rehearsal, which checks that the machine can drive the pace that it found.
const REHEARSAL: Times =
    Times { warmup: Duration::from_millis(500), measured: Duration::from_millis(3_000) };

/// The share of an objective that a rehearsal may need, over all and in each of its seconds. Where
/// nothing but the drive adds latency it needs 0.9 of it.
const REHEARSED_MOST: f64 = 0.95;

/// The factor by which a second attempt is slower, so that stalls of the machine matter less.
const SLOWER: u32 = 8;

/// And how slow it is at most: an objective of 50 ms.
const SLOWEST: u32 = 100;

/// The interval at which the table is drawn.
const FRAME: Duration = Duration::from_millis(250);

const INTRODUCTION: &str = "\
nearflash demo: one flash drive, one server core, four tenants on loopback
(Figure 5 of the ReFlex paper; the drive is simulated, everything else is real).

A and B are promised so many requests a second with a p95 latency of reads;
C and D were promised nothing and take what they can get, D mostly with writes.
A write costs the drive as much as ten reads.
";

/// Runs the demonstration; fails when a promise was broken although the scheduler was on.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    child::end_with_us()?;
    outln!("{INTRODUCTION}");
    let mut seen = play(args.slow, args.seconds, true)?;
    if !seen.is_kept() && args.slow.is_none() {
        // A stall longer than an objective breaks it, whoever schedules; at a slower pace the
        // scheduler alone is seen.
        outln!("A or B was held up; once more, and slower, to tell why.\n");
        let slower = (seen.slow() * SLOWER).min(SLOWEST);
        seen = play(Some(slower), args.seconds, true)?;
    }
    out!("{}", seen.text());
    Ok(if seen.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays the three parts of so many seconds each, on a drive so many times slower (or as fast as this
/// machine drives); `show` draws tables while it goes on.
pub(crate) fn play(slow: Option<u32>, seconds: u64, show: bool) -> Result<Seen, String> {
    let pace = match slow {
        Some(slow) => Pace { slow, held_up_nanos: None },
        None => find_pace()?,
    };
    if show {
        outln!("{}\n", pace_text(pace));
    }
    let slow = pace.slow;
    let times = Times { warmup: WARMUP, measured: Duration::from_secs(seconds) };
    let play = |phase: Phase<'static>, server: &Server| {
        let board = show.then(|| Board::new(phase));
        measure(phase, server, times, board)
    };
    let [off, on, less] = phases(slow);
    let stage = stage(slow)?;
    let server = stage.serve(&["--no-scheduler"])?;
    let off = play(off, &server)?;
    server.stop()?;
    let server = stage.serve(&[])?;
    let (on, less) = (play(on, &server)?, play(less, &server)?);
    server.stop()?;
    Ok(Seen { slow, off, on, less })
}

/// The fastest pace at which this machine serves the requests alone, and keeps the promises of the
/// second part with something to spare for a while.
pub(crate) fn find_pace() -> Result<Pace, String> {
    let mut pace = pace::find()?;
    while pace.slow < SLOWEST && !rehearse(pace.slow)? {
        pace.slow = (2 * pace.slow).min(SLOWEST);
    }
    Ok(pace)
}

/// Rehearses the second part. Returns true if this machine keeps its promises with a margin.
fn rehearse(slow: u32) -> Result<bool, String> {
    let [_, phase, _] = phases(slow);
    let server = stage(slow)?.serve(&[])?;
    let part = measure(phase, &server, REHEARSAL, None)?;
    server.stop()?;
    let kept = part.seconds_within(REHEARSED_MOST);
    Ok(part.is_kept_within(REHEARSED_MOST) && kept == part.seconds.len())
}

fn phases(slow: u32) -> [Phase<'static>; 3] {
    let phase = |title, b_share| Phase { title, slow, b_share };
    [
        phase("1. Scheduler off: everybody for themselves", 1.0),
        phase("2. Scheduler on: promises come first", 1.0),
        phase("3. B sends less than it may: C and D get what it leaves", B_SENDS_LESS),
    ]
}

/// The drive with the four tenants.
fn stage(slow: u32) -> Result<Stage, String> {
    let promises = TENANTS.map(|tenant| Promise {
        name: tenant.name,
        read_percent: tenant.read_percent,
        slo: tenant.slo(slow).map(|slo| (slo.p95, slo.iops)),
    });
    Stage::new(&format!("sim:a?size={DRIVE}&slow={slow}"), &promises)
}

fn pace_text(pace: Pace) -> String {
    let Pace { slow, held_up_nanos } = pace;
    let found = held_up_nanos.map(|nanos| {
        let held_up = time_text(nanos);
        format!("This machine by itself now holds one request in a hundred up for {held_up}.\n")
    });
    let found = found.unwrap_or_default();
    if slow == 1 {
        return format!("{found}The drive is as fast as the paper's.");
    }
    format!(
        "{found}The drive is {slow} times slower than the paper's, and all rates and latencies\n\
         are scaled alike: 500 µs there are {} here.",
        time_text(f64::from(slow) * 500e3)
    )
}

/// Lets the tenants at the server; shows how it goes, and says what each got, over all and in each
/// second.
fn measure(
    phase: Phase<'static>,
    server: &Server,
    times: Times,
    mut board: Option<Board<'_>>,
) -> Result<Part, String> {
    let members = TENANTS.iter().map(|tenant| tenant.member(phase.slow, phase.share(tenant.name)));
    let crowd = Crowd::start(server.address(), members.collect(), DRIVE_BYTES, times, 1)?;
    let clock = io::Clock::start();
    let mut total = vec![Tally::new(); TENANTS.len()];
    let mut last = clock.now() + times.warmup;
    let mut seconds = Seconds::from(last);
    loop {
        let finished = crowd.wait(FRAME);
        let now = clock.now();
        let mut latest = vec![Tally::new(); TENANTS.len()];
        crowd.collect(&mut latest);
        for (total, latest) in total.iter_mut().zip(&latest) {
            total.add(latest);
        }
        seconds.add(&latest, now, finished, || Kept::until_now(server.id()));
        if finished {
            break;
        }
        if let Some(board) = board.as_mut().filter(|_| now > last) {
            let elapsed = now.since(contract::Instant::ZERO + times.warmup).min(times.measured);
            board.show(latest, now.since(last), elapsed, times.measured);
            last = now;
        }
    }
    crowd.join()?;
    let errors: u64 = total.iter().map(|tally| tally.errors).sum();
    if errors > 0 {
        return Err(format!("{errors} requests ended in an error"));
    }
    let measured = times.measured.as_secs_f64();
    let got: Vec<Got> = total.iter().map(|tally| Got::of(tally, measured)).collect();
    let part = Part { phase, got, seconds: seconds.over };
    if let Some(board) = &mut board {
        board.finish(&part.got, &part.by_second());
    }
    Ok(part)
}
