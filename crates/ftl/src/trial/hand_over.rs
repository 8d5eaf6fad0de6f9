//! Tests of volumes that are handed over, or almost, at any moment, and then crash.

use std::format;
use std::string::String;

use super::power::{FULL, SIZES, THIN};
use super::run::{Sizes, Totals, TrialRun};

/// Runs requests with hand-overs between them, then a crash, a few times. Each page reads what it
/// read before, and each crash leaves what it would leave without hand-overs.
fn trial(seed: u64, sizes: &Sizes) -> Result<Totals, String> {
    let mut run = TrialRun::new(sizes, seed, None);
    let pages = run.volume.geometry().pages;
    for _ in 0..2 {
        for _ in 0..1 + run.chance.below(1500) {
            if run.flying.is_empty() || run.chance.one_in(2) {
                run.request(pages);
            }
            run.turn()?;
            run.complete_any()?;
            if run.chance.one_in(60) {
                let before = run.read_all()?;
                let keeps = run.chance.one_in(3);
                run.hand_over(keeps)?;
                // What was under way has ended since, so only still pages must be the same.
                let after = run.read_all()?;
                let older = before.iter().zip(&after).filter(|(old, new)| old > new && **new > 0);
                assert_eq!(older.count(), 0, "no page became older");
            }
        }
        let power = !run.chance.one_in(4);
        run.crash(power)?;
    }
    Ok(run.totals)
}

fn trials(count: u64, sizes: &Sizes) {
    let mut all = Totals::default();
    for seed in 0..count {
        let one = trial(seed, sizes).map_err(|error| format!("seed {seed}: {error}")).unwrap();
        all.handed += one.handed;
        all.moved += one.moved;
        all.checkpoints += one.checkpoints;
    }
    assert!(all.handed > 10 * count, "volumes are handed over: {}", all.handed);
    assert!(all.moved > 10 * count, "they collect garbage: {}", all.moved);
    assert!(all.checkpoints > count, "they write checkpoints: {}", all.checkpoints);
}

#[test]
fn a_volume_that_is_handed_over_loses_nothing() {
    trials(60, &SIZES);
}

#[test]
fn a_thin_volume_that_is_handed_over_loses_nothing() {
    trials(30, &THIN);
}

#[test]
fn a_volume_with_lone_writes_that_is_handed_over_loses_nothing() {
    let mut handed = 0;
    for seed in 0..10 {
        handed += trial(seed, &FULL).unwrap_or_else(|e| panic!("seed {seed}: {e}")).handed;
    }
    assert!(handed > 50);
}
