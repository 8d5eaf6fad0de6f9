//! The share of time in which the responder had work.
//!
//! The responder spins, so the system's accounts always show it busy. It counts its turns instead:
//! an empty turn takes the mean time of a thousand empty turns at start.

use std::time::{Duration, Instant};

/// Number of turns between two looks at the clock.
const TURNS_A_LOOK: u64 = 4096;

/// Counts of turns and requests since the last printed line. While there is work, a line is printed
/// each second.
pub(crate) struct Report {
    empty_turn: Duration,
    since: Instant,
    turns: u64,
    empty_turns: u64,
    requests: u64,
}

impl Report {
    /// Creates the counts, and measures the time of an empty turn by calling `empty` a thousand
    /// times.
    pub(crate) fn new(mut empty: impl FnMut() -> std::io::Result<()>) -> std::io::Result<Report> {
        let count = 1000;
        let started = Instant::now();
        for _ in 0..count {
            empty()?;
        }
        let empty_turn = started.elapsed() / count;
        Ok(Report { empty_turn, since: Instant::now(), turns: 0, empty_turns: 0, requests: 0 })
    }

    /// Counts a turn that answered `requests` requests, which may be zero.
    pub(crate) fn turn(&mut self, requests: usize) {
        self.turns += 1;
        self.empty_turns += u64::from(requests == 0);
        self.requests += requests as u64;
        if self.turns.is_multiple_of(TURNS_A_LOOK) && self.since.elapsed().as_secs() >= 1 {
            self.print();
        }
    }

    fn print(&mut self) {
        let elapsed = self.since.elapsed().as_secs_f64();
        let idle = self.empty_turn.as_secs_f64() * self.empty_turns as f64;
        let busy = (1.0 - idle / elapsed).max(0.0);
        let requests = self.requests;
        if requests > 0 {
            let each = busy * elapsed * 1e9 / requests as f64;
            let rate = requests as f64 / elapsed;
            let batch = requests as f64 / (self.turns - self.empty_turns) as f64;
            println!(
                "requests_per_s {rate:.0} busy {busy:.3} ns_per_request {each:.0} a_turn {batch:.1}"
            );
        }
        (self.since, self.turns, self.empty_turns, self.requests) = (Instant::now(), 0, 0, 0);
    }
}
