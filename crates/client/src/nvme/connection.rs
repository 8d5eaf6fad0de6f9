//! A connection of a host: a queue, and the requests in flight on it.

use std::collections::VecDeque;

use contract::{Buf, Command, ConnId, Status};
use proto::nvme_tcp::HostQueue;

/// The identifier of a command on its queue.
pub(super) type CommandId = u16;

/// A connection of a host.
#[derive(Debug)]
pub(super) struct QueueConnection {
    /// The transport's identifier of the connection; `None` without a connection.
    pub(super) conn: Option<ConnId>,
    pub(super) queue: HostQueue,
    /// Requests in flight, by command identifier.
    pub(super) flights: Box<[Option<Flight>]>,
    /// Command identifiers that are not in use.
    pub(super) vacant: Vec<CommandId>,
    /// Commands whose payload the transport holds, in the order of sending.
    pub(super) lent: VecDeque<CommandId>,
    /// The read whose buffer was lent to the transport for a direct receive; `None` if there is
    /// none.
    pub(super) filling: Option<CommandId>,
}

impl QueueConnection {
    /// Returns the position in `lent` of the payload at this address.
    pub(super) fn lent_at(&self, address: usize) -> Option<usize> {
        self.lent.iter().position(|cid| {
            let flight = self.flights[usize::from(*cid)].as_ref();
            flight.is_some_and(|flight| flight.lent == Some(address))
        })
    }
}

/// A request on the queue that has not ended.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) command: Command,
    pub(super) buf: Option<Buf>,
    /// The address of the payload while the transport holds it; `None` otherwise.
    pub(super) lent: Option<usize>,
    /// The answer that came before the transport gave the payload back.
    pub(super) answer: Option<Status>,
}
