//! The task of one load thread: it runs its generator to the end and publishes the measurements.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::load::{Generator, Path, Shape, Tally};
use contract::{BufPool, Instant, SizeClass, TurnOutcome};
use io::{Clock, Reactor, SpinPolicy};

use crate::report::ThreadResult;

/// The interval at which a thread publishes its measurements.
const REPORT_GAP: Duration = Duration::from_millis(200);

/// The time before a timed request at which a thread stops sleeping, to cover its wake-up.
const WAKE_LEAD: Duration = Duration::from_micros(80);

/// The time limit for all connections together to open.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(15);

/// Maximum number of notes about lost connections that one thread gives to the user.
const NOTES_MAX: usize = 5;

/// The state shared by a load thread and the main thread.
#[derive(Debug, Default)]
pub(super) struct ThreadShared {
    pub(super) tally: Mutex<Tally>,
    pub(super) notes: Mutex<Vec<String>>,
    /// `true` to end the load early.
    pub(super) stopped: AtomicBool,
}

/// The task of a load thread.
pub(super) struct Job {
    pub(super) shape: Shape,
    pub(super) clock: Clock,
    pub(super) spin: bool,
    pub(super) desk: Arc<ThreadShared>,
    /// The channel that signals that the thread is ready.
    pub(super) ready: Sender<()>,
    /// The channel that brings the start time of the load, equal for all threads.
    pub(super) go: Receiver<Instant>,
    pub(super) _running: Sender<()>,
}

impl Job {
    /// Runs the load generator to its end. `reports` calls its second argument for each connection
    /// that the path lost, with `true` if the connection was established before, and a note for the
    /// user.
    pub(super) fn drive<P: Path>(
        self,
        reactor: &impl Reactor,
        path: P,
        mut reports: impl FnMut(&mut P, &mut dyn FnMut(bool, String)),
    ) -> Result<ThreadResult, String> {
        let Job { shape, clock, spin, desk, ready, go, .. } = self;
        let count = shape.in_flight_max();
        let classes = [SizeClass { bytes: shape.request_bytes, count }];
        let pool = BufPool::new(io::carve(&classes).map_err(|e| e.to_string())?.bufs);
        let _ = ready.send(());
        drop(ready);
        let Ok(start) = go.recv() else {
            return Err(String::new()); // Another thread says why.
        };
        let mut generator = Generator::new(start, shape, path, pool).map_err(|e| e.to_string())?;
        let policy = SpinPolicy { spin: if spin { Duration::MAX } else { WAKE_LEAD } };
        let mut report_at = start + REPORT_GAP;
        let mut end = ThreadResult::default();
        let mut notes = 0;
        io::run(reactor, &clock, policy, |now| {
            if desk.stopped.load(Ordering::Relaxed) {
                generator.stop(now);
            }
            let progressed = generator.turn(now);
            let finished = generator.is_finished(now);
            if now >= report_at || finished {
                report_at = now + REPORT_GAP;
                generator.report(&mut desk.tally.lock().expect("no holder panics"));
                reports(generator.path(), &mut |reached, text| {
                    // A dial in vain is not one more loss.
                    end.losses += u64::from(reached);
                    notes += 1;
                    if notes <= NOTES_MAX {
                        desk.notes.lock().expect("no holder panics").push(text);
                    }
                });
            }
            if finished {
                return None;
            }
            let wake_at = generator.wake_at(now).unwrap_or(report_at).min(report_at);
            Some(TurnOutcome { progressed, wake_at: Some(wake_at) })
        });
        end.failures = generator.failures().to_vec();
        end.unsent = generator.unsent();
        end.stuck = generator.in_flight();
        Ok(end)
    }
}
