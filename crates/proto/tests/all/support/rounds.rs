//! The rounds of the fuzz tests: a fixed number, or as many as fit into `FUZZ_SECONDS`, from the
//! seed in `FUZZ_SEED` on.

use std::time::{Duration, Instant};

/// The seed of a running round, which is printed if the round panics.
struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay this round with FUZZ_SEED={}", self.0);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a whole number"))
}

/// Returns `true` if `FUZZ_SEED` sets the first seed.
pub(crate) fn is_replay() -> bool {
    number("FUZZ_SEED").is_some()
}

/// Calls `round` with one seed after the other, `count` times if no time is given.
#[expect(
    clippy::disallowed_methods,
    reason = "only how long the rounds go on depends on the clock"
)]
pub(crate) fn rounds(count: u64, mut round: impl FnMut(u64)) {
    let first = number("FUZZ_SEED").unwrap_or(0);
    let seconds = number("FUZZ_SECONDS").map(Duration::from_secs);
    let begun = Instant::now();
    for seed in first.. {
        let goes_on = seconds.map_or(seed - first < count, |limit| begun.elapsed() < limit);
        if !goes_on {
            println!("{} rounds from seed {first}", seed - first);
            break;
        }
        let _round = Round(seed);
        round(seed);
    }
}
