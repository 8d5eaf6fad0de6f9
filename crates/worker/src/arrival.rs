//! The arrival of connections from other workers; `migration.rs` has their departure.

use std::sync::Arc;

use contract::{
    ConnId, Device, EndCause, Mailbox, MigratingConnection, Scheduler, Session, TenantId,
    Transport, WorkerMessage,
};

use crate::connections::{Connection, Membership, PayloadDestination, StalledBytes};
use crate::migration::{Migration, MigrationContext};
use crate::{Grant, SessionFactory, UnpackError};

/// The reason that a parcel did not become a connection.
enum LandingError {
    /// The worker has no room for the connection.
    NoRoom(Box<MigratingConnection>),
    /// Another thread uses shared state that the connection needs. The worker may unpack the parcel
    /// in a later turn.
    Early(Box<MigratingConnection>),
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox, N: SessionFactory<P>>
    MigrationContext<'_, T, D, S, P, M, N>
{
    /// Adds a connection that came from another worker, and replies to that worker whether there
    /// was room. If another thread uses shared state that the connection needs, keeps the parcel
    /// for a later turn.
    pub(crate) fn arrive(&mut self, migration: &mut Migration, parcel: Box<MigratingConnection>) {
        let (from, ticket, paused_at) = (parcel.from, parcel.ticket, parcel.paused_at);
        let front = &mut self.engine.front;
        let account = parcel.grant.as_ref().map_or(TenantId::DEFAULT, |grant| grant.tenant);
        let is_too_much = !front.conns.carried.allows(account, parcel.unparsed.len());
        let landed = match is_too_much || front.is_draining() {
            true => Err(LandingError::NoRoom(parcel)),
            false => self.land(parcel),
        };
        let front = &mut self.engine.front;
        let tell = match landed {
            Ok(conn) => {
                front.gauges.meters().worker.count_arrived();
                WorkerMessage::Landed { ticket, conn, pause: front.now.since(paused_at) }
            }
            Err(LandingError::NoRoom(parcel)) => WorkerMessage::Returned(parcel),
            Err(LandingError::Early(parcel)) => return migration.early.push(*parcel),
        };
        migration.post(&mut self.line.mailbox, from, tell);
    }

    /// Takes back a connection that found no room elsewhere, and returns its identifier. Returns
    /// `None` if there is no room here, either, or not yet: then the parcel is kept for a later
    /// turn.
    pub(crate) fn come_home(
        &mut self,
        migration: &mut Migration,
        parcel: Box<MigratingConnection>,
    ) -> Option<ConnId> {
        match self.land(parcel) {
            Ok(id) => {
                let front = &mut self.engine.front;
                if front.is_draining() {
                    front.finish(id);
                }
                Some(id)
            }
            Err(LandingError::NoRoom(parcel) | LandingError::Early(parcel)) => {
                migration.stranded.push(*parcel);
                None
            }
        }
    }

    /// Unpacks a parcel into a connection of this worker. Fails if there is no room for the
    /// connection, or if another thread uses shared state that the connection needs.
    fn land(&mut self, mut parcel: Box<MigratingConnection>) -> Result<ConnId, LandingError> {
        let front = &mut self.engine.front;
        let rejoined = parcel.place.map(|place| front.shared.fences.rejoin(place));
        let place = match rejoined {
            Some(None) => return Err(LandingError::Early(parcel)),
            rejoined => rejoined.flatten(),
        };
        let mut session = match self.sessions.unpack(&parcel.session) {
            Ok(session) => session,
            Err(UnpackError::Later) => return Err(LandingError::Early(parcel)),
            Err(UnpackError::Unknown) => return Err(LandingError::NoRoom(parcel)),
        };
        let Some(id) = front.net.attach(parcel.ticket) else {
            match session.pack() {
                Some(packed) => parcel.session = packed,
                // A session that cannot be packed at this very instant is lost: wherever its bytes
                // go, they make one that ends. No fence holds its requests, so none may begin.
                None => {
                    parcel.requests.clear();
                    parcel.waiting = None;
                    parcel.put_off.clear();
                }
            }
            return Err(LandingError::NoRoom(parcel));
        };
        let (listener, fence) = (parcel.listener, session.landed(id));
        let mut conn = Connection::new(id, parcel.peer, session);
        conn.listener = parcel.listener;
        conn.view = parcel.view;
        conn.membership = Membership {
            grant: parcel.grant.map(|grant| Arc::new(Grant::from_parcel(grant))),
            entered: parcel.entered,
            handles: parcel.handles,
        };
        conn.place = place;
        conn.fence = conn.place.as_ref().map(|place| place.fence().clone()).or(fence);
        conn.put_off = parcel.put_off;
        conn.intake.receiving = match (parcel.waiting, parcel.discards) {
            (Some(request), _) => PayloadDestination::Waiting(request),
            (None, true) => PayloadDestination::Discard,
            (None, false) => PayloadDestination::Nothing,
        };
        conn.membership.join_all(front.gauges.meters());
        // They count from now on, so that nobody believes that their tenants have nothing to do.
        conn.outstanding.count = parcel.requests.len();
        for request in &parcel.requests {
            conn.outstanding.owed += request.command.reply_bytes();
            front.gauges.meter(request.tenant).admit();
        }
        conn.arrived = parcel.requests.into();
        front.conns.carried.add(conn.intake.account, parcel.unparsed.len());
        conn.intake.stalled = Some(StalledBytes { bytes: parcel.unparsed, taken: 0 });
        conn.follow(self.engine.namespaces.removals());
        front.conns.seat(conn, front.gauges.meters());
        front.settle_account(id);
        front.net.pause(id); // until all that is done
        front.conns.call(id);
        front.progressed = true;
        if self.drains.includes(listener) {
            // The drain was told of while it was on its way.
            front.dismiss(id, EndCause::Drained);
        }
        Ok(id)
    }
}
