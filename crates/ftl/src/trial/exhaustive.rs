//! Tests of a small scope, tried whole: all sequences of three requests over two pages, all crash
//! points between their steps, and all subsets of the unflushed writes that may survive.

use std::format;
use std::string::String;
use std::vec;

use super::run::{Sizes, TrialRun};
use crate::policy::Policy;

const SIZES: Sizes = Sizes {
    members: 1,
    member_pages: 130,
    segment_pages: 8,
    spare_per_mille: 1500,
    policy: Policy::baseline(10),
    commits: false,
    virtual_pages: None,
};

/// Number of requests in a sequence.
const REQUESTS: usize = 3;

/// Number of different requests.
const KINDS: usize = 7;

fn request(run: &mut TrialRun, kind: usize) {
    let taken = match kind {
        0 => run.write(0, 1, false, false),
        1 => run.write(0, 2, false, true),
        2 => run.write(1, 1, true, false),
        3 => run.discard(0, 1),
        4 => run.discard(0, 2),
        5 => run.commit(vec![1, 0]),
        _ => run.flush(),
    };
    // What overlaps with a request under way may be refused: then the sequence is a shorter one.
    let _ = taken;
}

/// Takes `count` steps of a sequence. A step submits the next request if no command is in flight or
/// the request's bit in `eager` is set; otherwise it ends the oldest command. Returns `false` if
/// the sequence has fewer steps.
fn steps(
    run: &mut TrialRun,
    mut sequence: usize,
    eager: usize,
    count: usize,
) -> Result<bool, String> {
    let mut left = REQUESTS;
    for _ in 0..count {
        if left > 0 && (run.flying.is_empty() || eager & (1 << left) != 0) {
            request(run, sequence % KINDS);
            (sequence, left) = (sequence / KINDS, left - 1);
        } else if run.flying.is_empty() {
            return Ok(false);
        } else {
            run.complete(0)?;
        }
        run.turn()?;
    }
    Ok(true)
}

/// Crashes after `count` steps with each subset of the unflushed writes. Returns the number of
/// crashes; zero if the sequence has fewer steps.
fn crashes(sequence: usize, eager: usize, count: usize) -> Result<usize, String> {
    let mut subset = 0;
    loop {
        let mut run = TrialRun::new(&SIZES, 1, None);
        if !steps(&mut run, sequence, eager, count)? {
            return Ok(0);
        }
        let writes = run.members.0[0].unflushed();
        run.members.0[0].cut(|write, _| subset & (1 << write) != 0);
        run.reopen(true).map_err(|error| format!("subset {subset:b}: {error}"))?;
        subset += 1;
        if subset == 1 << writes {
            return Ok(subset);
        }
    }
}

#[test]
fn no_crash_of_the_small_scope_loses_tears_or_revives() {
    let mut tried = 0;
    for sequence in 0..KINDS.pow(REQUESTS as u32) {
        for eager in [0, 0b1110] {
            for count in 1.. {
                let crashes = crashes(sequence, eager, count)
                    .unwrap_or_else(|e| panic!("{sequence} {eager} {count}: {e}"));
                if crashes == 0 {
                    break;
                }
                tried += crashes;
            }
        }
    }
    assert!(tried > 1000, "{tried} crashes");
}
