//! Act 1 of the demonstration: the paper's drive at its full rate, on a simulated clock.
//!
//! Workers, sessions and the scheduler are those of the server; the drive, the network and time are
//! simulated. The results are the same on every machine.

use std::thread;
use std::time::Duration;

use figures::Options;
use figures::fig5::{self, Fig5Run};
use figures::four::{PAPER, PaperTenant, TENANTS};

use super::board::Board;
use super::part::{Part, parts};
use crate::four::TenantResult;

/// The share of their promised rates that A and B send: all of it, since nothing stalls them in
/// virtual time.
const SENT: f64 = 1.0;

/// The options of each part's run: short runs, which measure one second of virtual time.
const OPTIONS: Options = Options { seed: 1, quick: true };

/// The pause in real time between two frames on a terminal, for people to follow.
const PAUSE: Duration = Duration::from_millis(25);

/// Plays the three parts. Returns `true` if the scheduler kept all promises.
pub(super) fn play() -> bool {
    parts(PAPER, SENT).into_iter().map(play_part).fold(true, |all, kept| all & kept)
}

/// Plays a part. Returns `true` if the part has no scheduler, or all promises were kept.
fn play_part(part: Part) -> bool {
    let mut board = Board::new(part);
    let b_iops = TENANTS[1].iops.expect("B has an SLO") * part.b_share;
    let run = Fig5Run::sending(&OPTIONS, part.is_scheduled, b_iops);
    let got = fig5::watch(&OPTIONS, run, |got, elapsed| {
        if board.is_live() {
            board.show(&shown(got), &format!("{} ms", elapsed.as_millis()));
            thread::sleep(PAUSE);
        }
    });
    let got = shown(&got);
    board.finish(&got, true, "");
    !part.is_scheduled || part.is_kept(&got)
}

/// Converts the simulated results to those of the board's table. Without a scheduler no tokens are
/// counted, so they are computed from each tenant's mix of requests.
fn shown(got: &[fig5::TenantFigures; 4]) -> Vec<TenantResult> {
    let one = |(tenant, got): (&PaperTenant, &fig5::TenantFigures)| TenantResult {
        iops: got.iops,
        p95_nanos: got.p95 * 1e3,
        tokens: got.iops * tenant.tokens(),
    };
    TENANTS.iter().zip(got).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_keeps_what_is_broken_without_it() {
        let [off, on, less] = parts(PAPER, SENT);
        assert!(play_part(on) && play_part(less));
        let run = Fig5Run::sending(&OPTIONS, false, 70e3);
        assert!(!off.is_kept(&shown(&fig5::watch(&OPTIONS, run, |_, _| ()))));
    }
}
