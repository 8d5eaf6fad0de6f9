//! A host's end of the network of streams, behind the ports of `contract`.

use std::time::Duration;

use contract::{
    Buf, CloseReason, ConnId, Dial, Frame, Instant, Migrate, NetEvent, Streams, TenantId, Ticket,
    Transport,
};

use super::NetHandle;
use super::conn::{FillTarget, Phase};
use crate::marks::Mark;

/// The time that the peer has to close a connection which this host has finished.
const FINISH_LIMIT: Duration = Duration::from_secs(2);

/// The network of streams as one host sees it.
#[derive(Clone)]
pub(crate) struct StreamPort {
    network: NetHandle,
    host: usize,
}

impl StreamPort {
    pub(crate) fn new(network: NetHandle, host: usize) -> Self {
        StreamPort { network, host }
    }

    /// Returns the time of the last event.
    pub(crate) fn now(&self) -> Instant {
        self.network.borrow().now
    }

    /// Kills the host's process: its connections are reset, and its unsent bytes are dropped.
    pub(crate) fn kill(&self, now: Instant) {
        self.network.borrow_mut().kill(self.host, now);
    }

    /// Returns the time of the network's next event for the host; `None` if none is possible.
    pub(crate) fn arrives_at(&self) -> Option<Instant> {
        self.network.borrow().wake_at(self.host)
    }

    /// Accepts connections again.
    pub(crate) fn listen(&self) {
        self.network.borrow_mut().listen(self.host);
    }

    pub(crate) fn connections(&self) -> usize {
        self.network.borrow().connections(self.host)
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.network.borrow().is_at_rest(self.host)
    }

    /// Describes why the host is not at rest, for a failure's message.
    pub(crate) fn describe(&self) -> String {
        self.network.borrow().describe(self.host)
    }

    /// Returns the host's number.
    pub(crate) fn host(&self) -> usize {
        self.host
    }
}

impl std::fmt::Debug for StreamPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Port of host {}", self.host)
    }
}

impl Streams for StreamPort {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        let mut network = self.network.borrow_mut();
        network.settle(now);
        network.advance(self.host);
        let inbox = &mut network.hosts[self.host].events;
        let take = max.min(inbox.len());
        let old = events.len();
        events.extend(inbox.drain(..take));
        for event in &events[old..] {
            if let NetEvent::Closed { conn, .. } = event
                && let Some(near) = network.hosts[self.host].parting.remove(conn)
            {
                network.partings.notice(near);
            }
        }
    }

    fn give(&mut self, buf: Buf) {
        let owner = &mut self.network.borrow_mut().hosts[self.host];
        assert!(owner.buffers.len() < owner.buffers_max, "a receive buffer was returned twice");
        owner.buffers.push(buf);
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        assert!(at < until && until <= buf.capacity(), "bytes {at} to {until} of {buf:?}");
        let mut network = self.network.borrow_mut();
        let is_its =
            |event: &NetEvent| matches!(event, NetEvent::Received { conn: id, .. } if *id == conn);
        let comes_first = network.hosts[self.host].events.iter().any(is_its);
        let refuses = network.chance.happens(0.1);
        match network.find(self.host, conn) {
            Some(found) if found.phase == Phase::Open && !found.paused && !comes_first => {
                assert!(found.target.is_none(), "one at a time");
                if refuses {
                    network.marks.hit(Mark::FillRefused);
                    return Err(buf);
                }
                found.target = Some(FillTarget { buf, at, until });
                Ok(())
            }
            _ => Err(buf),
        }
    }

    fn room(&self) -> usize {
        let owner = &self.network.borrow().hosts[self.host];
        owner.sizes.frames_max - owner.frames
    }

    fn send(&mut self, _now: Instant, conn: ConnId, frame: Frame) {
        let mut network = self.network.borrow_mut();
        let bytes = frame.wire_bytes();
        match network.find(self.host, conn) {
            Some(found) if found.is_live() => {
                found.unsent += bytes;
                found.queue.push_back(frame);
                let owner = &mut network.hosts[self.host];
                owner.frames += 1;
                let room = owner.sizes.frames_max.checked_sub(owner.frames);
                let room = room.expect("send() was called without asking for room()");
                if room == 0 {
                    network.marks.hit(Mark::FramesFull);
                }
            }
            _ => {
                network.marks.hit(Mark::SentToGone);
                if let Some(buf) = frame.body {
                    let inbox = &mut network.hosts[self.host].events;
                    inbox.push_back(NetEvent::Sent { conn, buf });
                }
            }
        }
    }

    fn kick(&mut self, now: Instant) {
        let mut network = self.network.borrow_mut();
        network.now = now;
        for index in 0..network.hosts[self.host].conns.len() as u32 {
            network.start_send(self.host, index);
        }
    }

    fn close(&mut self, conn: ConnId) {
        let mut network = self.network.borrow_mut();
        if network.find(self.host, conn).is_some() {
            network.end(self.host, conn.index, CloseReason::Local);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.network.borrow().wake_at(self.host)
    }
}

impl Transport for StreamPort {
    fn pause(&mut self, conn: ConnId) {
        let mut network = self.network.borrow_mut();
        let Some(found) = network.find(self.host, conn) else { return };
        if std::mem::replace(&mut found.paused, true) {
            return;
        }
        let open = found.phase == Phase::Open;
        network.marks.hit(Mark::Paused);
        // Bytes that the kernel had accepted before it heard of the pause.
        if open && network.chance.happens(0.5) && network.receive_piece(self.host, conn.index) {
            network.marks.hit(Mark::PausedStillDelivered);
        }
        network.release_target(self.host, conn.index);
    }

    fn resume(&mut self, conn: ConnId) {
        let mut network = self.network.borrow_mut();
        let Some(found) = network.find(self.host, conn) else { return };
        if std::mem::replace(&mut found.paused, false) {
            network.marks.hit(Mark::Resumed);
        }
    }

    fn unsent(&self, conn: ConnId) -> usize {
        self.network.borrow_mut().find(self.host, conn).map_or(0, |found| found.unsent)
    }

    fn charge(&mut self, conn: ConnId, account: TenantId) {
        if let Some(found) = self.network.borrow_mut().find(self.host, conn) {
            found.account = account;
        }
    }

    fn queued(&self, account: TenantId) -> usize {
        let owner = &self.network.borrow().hosts[self.host];
        let all = owner.conns.iter().filter(|conn| conn.account == account);
        all.map(|conn| conn.queue.len()).sum()
    }

    fn finish(&mut self, conn: ConnId) {
        let mut network = self.network.borrow_mut();
        let by = network.now + FINISH_LIMIT;
        let Some(found) = network.find(self.host, conn) else { return };
        if found.phase != Phase::Open {
            return;
        }
        found.phase = Phase::Finishing;
        found.finish_by = by;
        found.paused = false; // to see the peer's close
        if found.queue.is_empty() {
            network.shut(self.host, conn.index);
        }
    }

    fn stop_listening(&mut self) {
        self.network.borrow_mut().hosts[self.host].listening = false;
    }
}

impl Migrate for StreamPort {
    fn still(&mut self, conn: ConnId) {
        self.pause(conn);
    }

    fn is_still(&self, conn: ConnId) -> bool {
        self.network.borrow_mut().is_still(self.host, conn)
    }

    fn detach(&mut self, conn: ConnId, _to: u16) -> Ticket {
        self.network.borrow_mut().detach(self.host, conn)
    }

    fn attach(&mut self, ticket: Ticket) -> Option<ConnId> {
        self.network.borrow_mut().attach(self.host, ticket)
    }
}

impl Dial for StreamPort {
    fn dial(&mut self, now: Instant) -> ConnId {
        self.network.borrow_mut().dial(self.host, now)
    }
}
