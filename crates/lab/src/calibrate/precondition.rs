//! Preconditioning of a device before a calibration: writes the whole device in order, then as much
//! again at random, so that the device is as slow as in use, with garbage to collect.

use std::time::Duration;

use client::load::{Ended, Local, Path};
use contract::{BLOCK_BYTES, Buf, Command, Instant, Range, SizeClass, TurnOutcome};
use dataplane::{FileBackend, Volume};
use indicatif::{ProgressBar, ProgressStyle};
use io::{Clock, Ring, SpinPolicy};

use super::stop::CalibrationError;

/// Bytes of each sequential write: large, to be fast.
const ORDERED_BYTES: usize = 128 << 10;

/// Bytes of each random write: small, which is the worst for a drive.
const RANDOM_BYTES: usize = 4 << 10;

/// The number of writes in flight.
const IN_FLIGHT: usize = 64;

/// The interval at which the progress bar is drawn.
const SHOW_GAP: Duration = Duration::from_millis(100);

/// Preconditions the device. With `None`, which is simulated flash in virtual time, prints a note
/// and does nothing.
pub(super) fn run(
    volume: Option<&Volume>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), CalibrationError> {
    let Some(volume) = volume else {
        errln!("note: simulated flash is worn in already; there is nothing to precondition");
        return Ok(());
    };
    let ring = Ring::new().map_err(|e| e.to_string())?;
    let device = volume.open_queue(&FileBackend::Ring(&ring), 0, 0)?;
    let class = SizeClass { bytes: ORDERED_BYTES, count: IN_FLIGHT };
    let bufs = io::carve(&[class]).map_err(|e| e.to_string())?.bufs;
    let mut random = client::Random::new(0);
    let mut filler = Filler {
        path: Local::new(device, IN_FLIGHT),
        free: bufs.into_iter().map(|buf| filled(buf, &mut random)).collect(),
        ended: Vec::with_capacity(IN_FLIGHT),
        failed: 0,
    };
    let ordered = volume.bytes() / ORDERED_BYTES as u64;
    let mut next = 0..ordered;
    filler.write(&ring, "writing in order", ORDERED_BYTES, ordered, is_stopped, || next.next())?;
    let places = volume.bytes() / RANDOM_BYTES as u64;
    let mut left = 0..places;
    filler.write(&ring, "writing at random", RANDOM_BYTES, places, is_stopped, || {
        left.next().map(|_| random.below(places))
    })
}

/// Fills a buffer with random bytes, which do not compress.
fn filled(mut buf: Buf, random: &mut client::Random) -> Buf {
    for piece in buf.bytes_mut().chunks_exact_mut(8) {
        piece.copy_from_slice(&random.bits().to_le_bytes());
    }
    buf
}

/// A load that writes to the device as fast as the device completes writes, with one write in
/// flight for each buffer.
struct Filler<P> {
    path: P,
    free: Vec<Buf>,
    ended: Vec<Ended>,
    failed: u64,
}

impl<P: Path> Filler<P> {
    /// Writes at the positions that `next` returns, counted in writes of `bytes` bytes, until
    /// `next` returns `None`. `count` is the expected number of writes, for the progress bar.
    fn write(
        &mut self,
        ring: &Ring,
        what: &'static str,
        bytes: usize,
        count: u64,
        is_stopped: &dyn Fn() -> bool,
        mut next: impl FnMut() -> Option<u64>,
    ) -> Result<(), CalibrationError> {
        let bar = ProgressBar::new(count);
        let style =
            ProgressStyle::with_template("{msg} {bar:30.cyan/dim} {percent:>3} % · {eta} left");
        bar.set_style(style.expect("the template is sound"));
        bar.set_message(what);
        let clock = Clock::start();
        let mut show_at = clock.now();
        let (mut done, mut is_over, mut stopped) = (0, false, false);
        io::run(ring, &clock, SpinPolicy::default(), |now| {
            let ended = self.take(now);
            done += ended;
            is_over |= stopped;
            let mut sent = 0;
            while !is_over && self.path.room() > 0 && !self.free.is_empty() {
                match next() {
                    Some(place) => self.send(now, bytes, place),
                    None => is_over = true,
                }
                sent += 1;
            }
            self.path.flush(now);
            if now >= show_at {
                show_at = now + SHOW_GAP;
                bar.set_position(done);
                stopped = is_stopped();
            }
            if is_over && self.free.len() == IN_FLIGHT {
                return None;
            }
            let wake_at = self.path.wake_at().map_or(show_at, |at| at.min(show_at));
            Some(TurnOutcome { progressed: ended > 0 || sent > 0, wake_at: Some(wake_at) })
        });
        bar.finish_and_clear();
        match (stopped, self.failed) {
            (true, _) => Err(CalibrationError::Interrupted),
            (false, 0) => Ok(()),
            (false, count) => Err(CalibrationError::of_errors(count)),
        }
    }

    fn send(&mut self, now: Instant, bytes: usize, place: u64) {
        let blocks = (bytes / BLOCK_BYTES) as u32;
        let range = Range::new(place * u64::from(blocks), blocks);
        let buf = self.free.pop();
        self.path.submit(now, 0, Command::Write { range, fua: false }, buf);
    }

    fn take(&mut self, now: Instant) -> u64 {
        self.path.turn(now, &mut self.ended);
        let count = self.ended.len() as u64;
        for ended in self.ended.drain(..) {
            self.failed += u64::from(!ended.status.is_ok());
            self.free.extend(ended.buf);
        }
        count
    }
}
