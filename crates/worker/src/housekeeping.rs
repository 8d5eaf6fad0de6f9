//! A scan of all connections once a second, for stuck peers and for the count of protocols.

use std::time::Duration;

use contract::{Device, EndCause, Instant, Mailbox, Protocol, Scheduler, Session, Transport};

use crate::SessionFactory;
use crate::connections::{Connection, HelloStage, PayloadDestination};
use crate::engine::Engine;
use crate::migration::{Migration, MigrationContext};

/// The period at which connections are checked for being stuck.
const PERIOD: Duration = Duration::from_secs(1);

/// The time of a worker's next scan of its connections.
#[derive(Debug)]
pub(crate) struct Housekeeping {
    at: Instant,
}

impl Housekeeping {
    /// Returns a schedule whose first scan is in the first turn.
    pub(crate) fn new() -> Self {
        Housekeeping { at: Instant::ZERO }
    }

    /// Returns the time of the next scan.
    pub(crate) fn due(&self) -> Instant {
        self.at
    }

    /// Returns whether a scan is due, and schedules the next one.
    #[inline]
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        let is_due = self.at <= now;
        if is_due {
            self.at = now + PERIOD;
        }
        is_due
    }
}

/// Ends connections whose peers leave a message half sent or replies unread for too long, and a
/// drain that takes too long. Returns whether the meters need the new counts of protocols.
pub(crate) fn look_at_all<T, D, S, P, M, N>(
    around: &mut MigrationContext<'_, T, D, S, P, M, N>,
    migration: &mut Migration,
) -> bool
where
    T: Transport,
    D: Device,
    S: Scheduler,
    P: Session,
    M: Mailbox,
    N: SessionFactory<P>,
{
    let front = &mut around.engine.front;
    let limits = &front.limits;
    let periods_of = |limit: Duration| limit.as_secs().max(1) as u32;
    let (patient, pressed) = (periods_of(limits.stuck), periods_of(limits.stuck_under_pressure));
    let is_short = front.is_short;
    let overdue = front.drain_until.is_some_and(|until| until <= front.now);
    if overdue {
        around.give_up(migration);
    }
    let Engine { front, lanes, namespaces, .. } = &mut *around.engine;
    let mut protocols = [0; Protocol::ALL.len()];
    migration.messages_lately = 0;
    for place in 0..front.conns.places() {
        let Some(id) = front.conns.at(place).map(|conn| conn.id) else { continue };
        let unsent = front.net.unsent(id);
        let conn = front.conns.get(id);
        protocols[conn.session.protocol() as usize] += 1;
        let idle = note_progress(conn, unsent);
        conn.follow(namespaces.removals());
        migration.messages_lately += u64::from(conn.progress.messages_lately);
        let stalled = conn.intake.stalled.is_some();
        // Reads of the tenant wait for what its connections hold.
        let account = conn.intake.account;
        let is_pressed = is_short || lanes.iter().any(|lane| lane.parked.has(account));
        let periods = if is_pressed { pressed } else { patient };
        front.attend(id);
        if stalled {
            // Frames without a body leave without an event.
            front.conns.call(id);
        }
        if idle.receiving > periods {
            let why = "its message, or its credentials, took too long to arrive";
            front.disconnect(id, EndCause::Stuck, why);
        } else if idle.sending > periods {
            front.disconnect(id, EndCause::Stuck, "replies were not read for too long");
        } else if overdue {
            front.disconnect(id, EndCause::Drained, "the drain took too long");
        }
    }
    // Connections that do nothing are told of, too.
    front.gauges.set_protocols(protocols) && !front.progressed
}

/// The numbers of scans since a connection last made progress.
struct IdleScans {
    receiving: u32,
    sending: u32,
}

/// Compares a connection's counters with those of the last scan, and returns the numbers of scans
/// without progress.
fn note_progress<P: Session>(conn: &mut Connection<P>, unsent: usize) -> IdleScans {
    let progress = &mut conn.progress;
    let is_waiting = matches!(conn.intake.receiving, PayloadDestination::Waiting(_));
    let is_held = conn.intake.stalled.is_some() || is_waiting;
    let half_received = conn.session.is_mid_message() && !is_held;
    let news = progress.messages.wrapping_sub(progress.messages_seen);
    let received = news > 0;
    progress.messages_lately = progress.messages_lately / 2 + news.div_ceil(2);
    let left = progress.queued - unsent as u64;
    let sent = left != progress.left_seen;
    // Whoever has no right to anything, and is not kept waiting for one, may not stay either.
    let is_stranger = conn.membership.grant.is_none() && conn.greeting != HelloStage::Throttled;
    let owes = is_stranger || (half_received && !received);
    progress.idle_receiving = if owes { progress.idle_receiving + 1 } else { 0 };
    progress.idle_sending = if unsent > 0 && !sent { progress.idle_sending + 1 } else { 0 };
    (progress.messages_seen, progress.left_seen) = (progress.messages, left);
    IdleScans { receiving: progress.idle_receiving, sending: progress.idle_sending }
}
