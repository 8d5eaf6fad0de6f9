//! A connection of a host: one queue of its controller.

use contract::{BufPool, ConnId, Frame, FrameHead, Instant, Streams};
use proto::nvme_tcp::{Digests, HostSession, ReadyToTransfer, TransferSizes};
use wire::nvme::{CommandId, Submission};

use crate::port::Port;

/// The purpose of a command in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandPurpose {
    /// The Connect that created the queue.
    Connect,
    /// The Property Set that enables the controller.
    Enable,
    /// The Set Features that asks for the number of queues.
    Queues,
    KeepAlive,
    /// An event request, which waits as long as nothing happens.
    Event,
    /// A request, by its index among the host's requests.
    Work(usize),
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionStage {
    /// The connection waits for the network.
    Dialling,
    /// The connection waits for the controller's acceptance, and for the answers to its first
    /// commands.
    Greeting,
    /// Commands may be sent.
    Up,
}

/// A connection and its queue.
#[derive(Debug)]
pub(super) struct NvmeConnection {
    pub(super) conn: ConnId,
    pub(super) stage: ConnectionStage,
    pub(super) session: HostSession,
    /// The commands in progress, by identifier.
    uses: Vec<Option<CommandPurpose>>,
    outbox: Vec<u8>,
    /// The time of the controller's last output, or of the first command after it had answered
    /// everything.
    heard: Instant,
}

impl NvmeConnection {
    pub(super) fn new(
        conn: ConnId,
        digests: Digests,
        commands_max: u16,
        now: Instant,
    ) -> NvmeConnection {
        NvmeConnection {
            conn,
            stage: ConnectionStage::Dialling,
            session: HostSession::new(digests, commands_max),
            uses: vec![None; usize::from(commands_max)],
            outbox: Vec::new(),
            heard: now,
        }
    }

    /// Returns `true` if the queue has room for this many more commands.
    pub(super) fn has_room(&self, commands: usize) -> bool {
        self.uses.iter().filter(|one| one.is_none()).count() >= commands
    }

    /// Takes a free identifier for a command with this purpose. There must be one.
    pub(super) fn name(&mut self, what: CommandPurpose, now: Instant) -> CommandId {
        if !self.is_owed() {
            self.heard = now;
        }
        let free = self.uses.iter().position(Option::is_none).expect("has_room() said so");
        self.uses[free] = Some(what);
        free as CommandId
    }

    /// Frees the identifier of a command that has ended, and returns the command's purpose.
    pub(super) fn release(&mut self, cid: CommandId) -> CommandPurpose {
        self.uses[usize::from(cid)].take().expect("the session knows what is in progress")
    }

    pub(super) fn find(&self, cid: CommandId) -> CommandPurpose {
        self.uses[usize::from(cid)].expect("the session knows what is in progress")
    }

    /// Returns the indices, among the host's requests, of those in progress on this queue.
    pub(super) fn works(&self) -> impl Iterator<Item = usize> + '_ {
        self.uses.iter().filter_map(|one| match one {
            Some(CommandPurpose::Work(place)) => Some(*place),
            _ => None,
        })
    }

    /// Returns `true` if the controller owes an answer.
    fn is_owed(&self) -> bool {
        self.stage != ConnectionStage::Up
            || self.uses.iter().flatten().any(|one| *one != CommandPurpose::Event)
    }

    pub(super) fn hear(&mut self, now: Instant) {
        self.heard = now;
    }

    /// Returns the time since which the controller has owed an answer and sent nothing; `None` if
    /// it owes none.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.is_owed().then_some(self.heard)
    }

    pub(super) fn greet(&mut self) {
        self.outbox.extend_from_slice(&self.session.greeting());
    }

    pub(super) fn command(&mut self, entry: &Submission, carried: TransferSizes, capsule: &[u8]) {
        self.session.command(entry, carried, capsule, &mut self.outbox);
    }

    /// Sends everything that the controller has requested of this payload.
    pub(super) fn data(&mut self, ready: &ReadyToTransfer, payload: &[u8]) {
        let mut rest = &payload[ready.offset..ready.offset + ready.bytes];
        while !rest.is_empty() {
            let (head, bytes) = self.session.data(ready, rest);
            self.outbox.extend_from_slice(head.bytes());
            self.outbox.extend_from_slice(&rest[..bytes]);
            self.outbox.extend_from_slice(head.tail());
            rest = &rest[bytes..];
        }
    }

    /// Returns the number of bytes that wait to be sent.
    pub(super) fn unsent(&self) -> usize {
        self.outbox.len()
    }

    /// Drops the output behind the first `bytes` bytes.
    pub(super) fn truncate(&mut self, bytes: usize) {
        self.outbox.truncate(bytes);
    }

    /// Sends as much output as possible. Returns `true` if any was sent.
    pub(super) fn flush(&mut self, now: Instant, port: &mut Port, bufs: &mut BufPool) -> bool {
        let mut sent = 0;
        while self.stage != ConnectionStage::Dialling && sent < self.outbox.len() && port.room() > 0
        {
            let Some(mut buf) = bufs.take(1) else { break };
            let body_len = buf.capacity().min(self.outbox.len() - sent);
            buf.prefix_mut(body_len).copy_from_slice(&self.outbox[sent..sent + body_len]);
            let frame = Frame { head: FrameHead::new(&[]), body: Some(buf), body_len };
            port.send(now, self.conn, frame);
            sent += body_len;
        }
        self.outbox.drain(..sent);
        sent > 0
    }
}

/// The connections of a host to one controller at a time.
#[derive(Debug, Default)]
pub(super) struct Association {
    /// The connections, that of the admin queue first; empty while there is none.
    pub(super) lines: Vec<NvmeConnection>,
    /// The controller's identifier, once the admin queue is connected.
    pub(super) cntlid: u16,
    /// The time at which the host dials again, while there is no connection.
    pub(super) rested_at: Instant,
    /// The time to send the next keep-alive.
    pub(super) keep_alive_at: Instant,
    /// The time at which a connection is to be cut; its output was cut already.
    pub(super) cut: Option<Instant>,
    /// The number of times that all queues were connected.
    pub(super) count: u64,
}

impl Association {
    /// Returns the index in `lines` of a connection.
    pub(super) fn line_of(&self, conn: ConnId) -> Option<usize> {
        self.lines.iter().position(|line| line.conn == conn)
    }

    /// Returns `true` if the admin queue and all I/O queues accept commands.
    pub(super) fn is_whole(&self, queues: usize) -> bool {
        self.lines.len() > queues && self.lines.iter().all(|line| line.stage == ConnectionStage::Up)
    }

    /// Returns the earliest time since which the controller has owed an answer on one of the
    /// connections and sent nothing there; `None` if it owes none.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.lines.iter().filter_map(NvmeConnection::silent_since).min()
    }
}
