//! A host's access to the simulated network of its world: streams or packets.

use contract::{
    Buf, ConnId, Dial, Frame, Instant, Migrate, NetEvent, Streams, TenantId, Ticket, Transport,
};

use crate::network::{PacketPort, StreamPort};

/// The simulated network as one host sees it.
#[derive(Clone, Debug)]
pub(crate) enum Port {
    Streams(StreamPort),
    Packets(PacketPort),
}

contract::variants!(each, Port: Streams, Packets);

/// Evaluates an expression for each kind of transport.
macro_rules! either {
    ($port:expr, $one:ident => $body:expr) => {
        match $port {
            Port::Streams($one) => $body,
            Port::Packets(port) => {
                #[allow(unused_mut, reason = "not every method needs it")]
                let mut $one = port.packets();
                $body
            }
        }
    };
}

impl Port {
    /// Returns the time of the last event.
    pub(crate) fn now(&self) -> Instant {
        each!(self, port => port.now())
    }

    /// Returns the host's number in its network.
    pub(crate) fn host(&self) -> usize {
        each!(self, port => port.host())
    }

    /// Returns when the network has something for the host.
    pub(crate) fn arrives_at(&self) -> Option<Instant> {
        each!(self, port => port.arrives_at())
    }

    /// Kills the host's process. The host's user is told that all of its connections have ended.
    pub(crate) fn kill(&self, now: Instant) {
        each!(self, port => port.kill(now));
    }

    /// Kills the host's process with its user.
    pub(crate) fn bury(&self, now: Instant) {
        match self {
            Port::Streams(port) => port.kill(now),
            Port::Packets(port) => port.bury(now),
        }
    }

    /// Accepts connections again after a kill, in the same process or in a new one.
    pub(crate) fn listen(&self, is_new: bool) {
        match self {
            Port::Streams(port) => port.listen(),
            Port::Packets(port) => port.listen(is_new),
        }
    }

    /// Returns the number of connections that are not vacant.
    pub(crate) fn connections(&self) -> usize {
        each!(self, port => port.connections())
    }

    /// Returns `true` if every receive buffer is back and no frame is queued.
    pub(crate) fn is_at_rest(&self) -> bool {
        each!(self, port => port.is_at_rest())
    }

    /// Returns `true` unless a process without connections still has packets under way.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self, Port::Streams(_)) || self.is_at_rest()
    }

    /// Describes why the host is not at rest, for a failure's message.
    pub(crate) fn describe(&self) -> String {
        each!(self, port => port.describe())
    }

    fn settle(&self, now: Instant) {
        if let Port::Packets(port) = self {
            port.settle(now);
        }
    }
}

impl Streams for Port {
    fn poll(&mut self, now: Instant, events: &mut Vec<NetEvent>, max: usize) {
        self.settle(now);
        either!(self, port => port.poll(now, events, max));
    }

    fn give(&mut self, buf: Buf) {
        either!(self, port => port.give(buf));
    }

    fn receive_into(&mut self, conn: ConnId, buf: Buf, at: usize, until: usize) -> Result<(), Buf> {
        either!(self, port => port.receive_into(conn, buf, at, until))
    }

    fn room(&self) -> usize {
        either!(self, port => port.room())
    }

    fn send(&mut self, now: Instant, conn: ConnId, frame: Frame) {
        self.settle(now);
        either!(self, port => port.send(now, conn, frame));
    }

    fn kick(&mut self, now: Instant) {
        self.settle(now);
        either!(self, port => port.kick(now));
    }

    fn close(&mut self, conn: ConnId) {
        either!(self, port => port.close(conn));
    }

    fn wake_at(&self) -> Option<Instant> {
        either!(self, port => port.wake_at())
    }
}

impl Transport for Port {
    fn pause(&mut self, conn: ConnId) {
        either!(self, port => port.pause(conn));
    }

    fn resume(&mut self, conn: ConnId) {
        either!(self, port => port.resume(conn));
    }

    fn unsent(&self, conn: ConnId) -> usize {
        either!(self, port => port.unsent(conn))
    }

    fn charge(&mut self, conn: ConnId, account: TenantId) {
        either!(self, port => port.charge(conn, account));
    }

    fn queued(&self, account: TenantId) -> usize {
        either!(self, port => port.queued(account))
    }

    fn finish(&mut self, conn: ConnId) {
        either!(self, port => port.finish(conn));
    }

    fn stop_listening(&mut self) {
        either!(self, port => port.stop_listening());
    }
}

impl Migrate for Port {
    fn moves_to(&self, conn: ConnId, to: u16) -> bool {
        either!(self, port => port.moves_to(conn, to))
    }

    fn still(&mut self, conn: ConnId) {
        either!(self, port => port.still(conn));
    }

    fn is_still(&self, conn: ConnId) -> bool {
        either!(self, port => port.is_still(conn))
    }

    fn detach(&mut self, conn: ConnId, to: u16) -> Ticket {
        either!(self, port => port.detach(conn, to))
    }

    fn attach(&mut self, ticket: Ticket) -> Option<ConnId> {
        either!(self, port => port.attach(ticket))
    }
}

impl Dial for Port {
    fn dial(&mut self, now: Instant) -> ConnId {
        self.settle(now);
        either!(self, port => port.dial(now))
    }
}
