//! A place for the connections of an NBD client, one after the other.

use contract::{BufPool, Command, ConnId, Frame, FrameHead, Instant, Streams};
use proto::nbd::NbdClient;
use wire::nbd::{CommandKind, REQUEST_MAGIC, RequestHead};
use zerocopy::IntoBytes;

use crate::port::Port;

/// A request that the client has sent and that is not answered.
#[derive(Clone, Debug)]
pub(super) struct SentRequest {
    /// The model's number of the request.
    pub(super) op: u32,
    pub(super) command: Command,
    pub(super) is_probe: bool,
    /// The room for a read's data.
    pub(super) data: Vec<u8>,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionStage {
    /// There is no connection until this time.
    Resting(Instant),
    /// The connection waits for the network.
    Dialling(ConnId),
    /// The export is being chosen, or requests may be sent.
    Open(ConnId),
    /// The client has said that no more requests come.
    Leaving(ConnId),
}

/// A place for successive connections.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) stage: ConnectionStage,
    pub(super) session: NbdClient,
    /// The requests in progress, by cookie.
    pub(super) works: Vec<Option<SentRequest>>,
    outbox: Vec<u8>,
    /// The time of the server's last output, or of the first request after it had answered
    /// everything.
    heard: Instant,
    /// The time at which the client cuts the connection; `None` if it does not.
    pub(super) cut: Option<Instant>,
}

impl ConnectionSlot {
    pub(super) fn new(depth: usize) -> ConnectionSlot {
        ConnectionSlot {
            stage: ConnectionStage::Resting(Instant::ZERO),
            session: NbdClient::new("", depth),
            works: vec![None; depth],
            outbox: Vec::new(),
            heard: Instant::ZERO,
            cut: None,
        }
    }

    pub(super) fn dial(&mut self, now: Instant, conn: ConnId) {
        self.session = NbdClient::new("", self.works.len());
        self.stage = ConnectionStage::Dialling(conn);
        self.heard = now;
    }

    /// Removes the connection until the time `rested`. Returns the requests in progress on it.
    pub(super) fn lose(&mut self, rested: Instant) -> Vec<SentRequest> {
        self.stage = ConnectionStage::Resting(rested);
        self.outbox.clear();
        self.cut = None;
        self.works.iter_mut().filter_map(Option::take).collect()
    }

    pub(super) fn conn(&self) -> Option<ConnId> {
        match self.stage {
            ConnectionStage::Resting(_) => None,
            ConnectionStage::Dialling(conn)
            | ConnectionStage::Open(conn)
            | ConnectionStage::Leaving(conn) => Some(conn),
        }
    }

    /// Returns `true` if a request may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.is_up() && self.works.iter().any(Option::is_none)
    }

    /// Returns `true` if the client uses the connection.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.stage, ConnectionStage::Open(_)) && self.session.is_up() && self.cut.is_none()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.works.iter().flatten().count()
    }

    /// Appends a request to the output.
    pub(super) fn send(&mut self, now: Instant, work: SentRequest, payload: &[u8]) {
        if !self.is_owed() {
            self.heard = now;
        }
        let cookie = self.works.iter().position(Option::is_none).expect("has_room() said so");
        let head = self.session.request(cookie as u64, work.command);
        self.outbox.extend_from_slice(head.expect("the protocol has it").bytes());
        self.outbox.extend_from_slice(payload);
        self.works[cookie] = Some(work);
    }

    /// Tells the server that no more requests come (`NBD_CMD_DISC`).
    pub(super) fn say_goodbye(&mut self, now: Instant) {
        let ConnectionStage::Open(conn) = self.stage else { return };
        let head = RequestHead {
            magic: REQUEST_MAGIC.into(),
            flags: 0.into(),
            command: CommandKind::DISC.0.into(),
            cookie: 0.into(),
            offset: 0.into(),
            bytes: 0.into(),
        };
        self.outbox.extend_from_slice(head.as_bytes());
        self.stage = ConnectionStage::Leaving(conn);
        self.heard = now;
    }

    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Returns the time since which the server has owed something and sent nothing; `None` if it
    /// owes nothing.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.is_owed().then_some(self.heard)
    }

    fn is_owed(&self) -> bool {
        match self.stage {
            ConnectionStage::Resting(_) => false,
            ConnectionStage::Dialling(_) | ConnectionStage::Leaving(_) => true,
            ConnectionStage::Open(_) => !self.session.is_up() || self.in_flight() > 0,
        }
    }

    /// Returns the number of bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Drops the output after the first `bytes` bytes.
    pub(super) fn truncate(&mut self, bytes: usize) {
        self.outbox.truncate(bytes);
    }

    /// Sends as much of the output as the network and the buffers take. Returns `true` if any was
    /// sent.
    pub(super) fn flush(&mut self, now: Instant, port: &mut Port, bufs: &mut BufPool) -> bool {
        let (ConnectionStage::Open(conn) | ConnectionStage::Leaving(conn)) = self.stage else {
            return false;
        };
        for head in self.session.speech() {
            self.outbox.extend_from_slice(head.bytes());
        }
        let mut sent = 0;
        while sent < self.outbox.len() && port.room() > 0 {
            let Some(mut buf) = bufs.take(1) else { break };
            let body_len = buf.capacity().min(self.outbox.len() - sent);
            buf.prefix_mut(body_len).copy_from_slice(&self.outbox[sent..sent + body_len]);
            port.send(now, conn, Frame { head: FrameHead::new(&[]), body: Some(buf), body_len });
            sent += body_len;
        }
        self.outbox.drain(..sent);
        sent > 0
    }
}
