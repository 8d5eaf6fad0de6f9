//! Connections arrive from other workers: the way in of `moving.rs`.

use std::sync::Arc;

use contract::{
    ConnId, Device, End, Mailbox, Parcel, ParcelRequest, Payload, Scheduler, Session, Status, Tell,
    Transport,
};

use crate::Grant;
use crate::connection::{Connection, Receiving, Stalled};
use crate::inflight::InFlight;
use crate::ingest::Stop;
use crate::namespaces::verdict;
use crate::worker::Worker;

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A connection comes from another worker, which is told whether it found room.
    pub(crate) fn arrive(&mut self, parcel: Box<Parcel>) {
        let (from, ticket, paused_at) = (parcel.from, parcel.ticket, parcel.paused_at);
        let is_too_much = self.carried + parcel.unparsed.len() > self.limits.carried;
        let landed = match is_too_much || self.is_draining() {
            true => Err(parcel),
            false => self.land(parcel),
        };
        let tell = match landed {
            Ok(conn) => {
                let pause = self.now.since(paused_at);
                self.line.meters.worker.count_arrived();
                Tell::Landed { ticket, conn, pause }
            }
            Err(parcel) => Tell::Returned(parcel),
        };
        self.moves.post(&mut self.line.mailbox, from, tell);
    }

    /// A connection that found no room elsewhere goes on here, under this name; `None`: not yet, as there
    /// is no room here, either.
    pub(crate) fn come_home(&mut self, parcel: Box<Parcel>) -> Option<ConnId> {
        match self.land(parcel) {
            Ok(id) => {
                if self.is_draining() {
                    self.finish(id);
                }
                Some(id)
            }
            Err(parcel) => {
                self.moves.stranded.push(*parcel);
                None
            }
        }
    }

    /// Makes a parcel a connection of this worker, unless there is no place for it.
    fn land(&mut self, parcel: Box<Parcel>) -> Result<ConnId, Box<Parcel>> {
        let Some(mut session) = self.sessions.unpack(&parcel.session) else { return Err(parcel) };
        let Some(id) = self.transport.attach(parcel.ticket) else { return Err(parcel) };
        let (listener, fence) = (parcel.listener, session.landed(id));
        let mut conn = Connection::new(id, parcel.peer, session);
        conn.listener = parcel.listener;
        conn.namespace = parcel.namespace;
        conn.membership.grant = parcel.grant.map(|grant| Arc::new(Grant::from_parcel(grant)));
        conn.membership.entered = parcel.entered;
        conn.membership.handles = parcel.handles;
        conn.place = parcel.place.map(|place| self.shared.fences.rejoin(place));
        conn.fence = conn.place.as_ref().map(|place| place.fence().clone()).or(fence);
        conn.put_off = parcel.put_off;
        conn.intake.receiving = match (parcel.waiting, parcel.discards) {
            (Some(request), _) => Receiving::Waiting(request),
            (None, true) => Receiving::Discard,
            (None, false) => Receiving::Nothing,
        };
        self.join_all(&conn);
        // They count from now on, so that nobody believes that their tenants have nothing to do.
        conn.outstanding.count = parcel.requests.len();
        for request in &parcel.requests {
            conn.outstanding.owed += request.command.reply_bytes();
            self.meter(request.tenant).admit();
        }
        conn.arrived = parcel.requests.into();
        self.carried += parcel.unparsed.len();
        conn.intake.stalled = Some(Stalled { bytes: parcel.unparsed, taken: 0 });
        self.seat(conn);
        self.transport.pause(id); // until all that is done
        self.look_again(id);
        self.progressed = true;
        if self.is_drained_at(Some(listener)) {
            // The drain was told of while it was on its way.
            self.dismiss(id, End::Drained);
        }
        Ok(id)
    }

    /// Goes on with the requests that a connection brought along, in their order.
    pub(crate) fn unpack(&mut self, id: ConnId) -> Result<(), Stop> {
        while let Some(conn) = self.find(id).filter(|conn| !conn.life.is_broken()) {
            let Some(request) = conn.arrived.front() else { return Ok(()) };
            let (tenant, bytes) = (request.tenant, request.command.payload_bytes());
            if self.batch >= self.limits.batch {
                return Err(Stop::Batch);
            }
            if !self.has_room() {
                return Err(Stop::Shortage);
            }
            let buf = self.supply_in_line(id, tenant, bytes)?;
            self.batch += 1;
            let conn = self.find(id).expect("looked at above");
            conn.intake.stand = None;
            let request = conn.arrived.pop_front().expect("looked at above");
            self.unpack_request(id, request, buf);
        }
        Err(Stop::Gone)
    }

    fn unpack_request(
        &mut self,
        id: ConnId,
        request: ParcelRequest,
        mut buf: Option<contract::Buf>,
    ) {
        let ParcelRequest {
            tag,
            stream,
            tenant,
            command,
            namespace,
            device,
            lba,
            payload,
            received_at,
        } = request;
        let (bytes, is_whole) = match &payload {
            Payload::Whole(bytes) => (bytes, true),
            Payload::Begun(bytes) => (bytes, false),
        };
        if let Some(buf) = &mut buf {
            buf.prefix_mut(bytes.len()).copy_from_slice(bytes);
        }
        let payload_class = buf.as_ref().map(|buf| self.pool.class_of(buf));
        let mut entry = InFlight {
            conn: id,
            tag,
            stream,
            tenant,
            command,
            namespace,
            verdict: Status::Ok,
            device,
            lba,
            buf,
            payload_class,
            filled: bytes.len(),
            is_awaited: false,
            fence: None,
            received_at,
            submitted_at: None,
            links: crate::chain::Links::default(),
        };
        // The namespace may have changed on the way.
        entry.verdict = verdict(&entry, self.namespaces.find(namespace));
        self.quotas.hold(tenant, payload_class);
        let slot = self.insert_held(|| entry);
        match is_whole {
            true => self.start(id, slot),
            false => {
                self.find(id).expect("the caller looked").intake.receiving = Receiving::Into(slot)
            }
        }
    }

    /// The connection is gone with requests that had not been unpacked.
    pub(crate) fn lose_luggage(&mut self, conn: &Connection<P>) {
        conn.arrived.iter().for_each(|request| self.meter(request.tenant).retire(1));
    }
}
