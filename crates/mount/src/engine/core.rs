//! The state that all parts of an engine use: the kernel, the volume, the file system, and the
//! waiting requests.

use std::collections::VecDeque;
use std::sync::Arc;

use contigfs::{
    Attributes, AwaitedEvent, Caller, Errno, FileSystem, Ino, Move, Operation, OperationResult,
    Reply, Time,
};
use contract::{Buf, BufPool, Chores, Device, Instant};
use proto::fuse::ReplyMessage;

use super::task::{Task, WaitingRequest};
use super::translate::{EncodedReply, ReplyForm, errno, ino, said};
use crate::disk::Disk;
use crate::gates::Gates;
use crate::kernel::Kernel;

/// Commands at the device at most.
const COMMANDS_MAX: usize = 256;

/// A reply that waits for an event.
pub(super) struct HeldReply {
    until: AwaitedEvent,
    unique: u64,
    head: ReplyMessage,
    body: Option<(Buf, usize)>,
}

/// The writes and discards that the device has carried out, and those that are durable. They are
/// numbered in the order in which they ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteProgress {
    last: u64,
    durable: u64,
}

impl WriteProgress {
    /// Counts a write or discard that has ended.
    pub(super) fn note(&mut self) {
        self.last += 1;
    }

    /// Returns the last write that has ended. A flush or commit that is submitted from now on makes
    /// all writes up to it durable.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Notes that a flush or commit has ended well, which was submitted after this write.
    pub(super) fn note_durable(&mut self, last: u64) {
        self.durable = self.durable.max(last);
    }

    /// Returns `true` if all writes up to this one are durable.
    pub(super) fn has(&self, written: u64) -> bool {
        written <= self.durable
    }

    /// Returns `true` if all writes that have ended are durable.
    pub(super) fn is_durable(&self) -> bool {
        self.has(self.last)
    }
}

/// Replies and requests that wait.
#[derive(Default)]
pub(super) struct WaitingWork {
    /// Replies that wait for an event, such as a commit, with that event.
    pub(super) held: Vec<HeldReply>,
    /// Requests that are repeated after an event, with that event.
    pub(super) again: Vec<(AwaitedEvent, WaitingRequest)>,
    /// Requests that may continue, because other requests of the same file have ended.
    pub(super) admitted: VecDeque<WaitingRequest>,
    /// Requests that cannot go on, and why.
    pub(super) refused: Vec<(WaitingRequest, Errno)>,
    /// `true` if something has happened that may end a wait.
    pub(super) has_news: bool,
}

/// The state that all parts of an engine use.
pub(super) struct Core<K, D> {
    pub(super) kernel: K,
    pub(super) disk: Disk<D, Task>,
    pub(super) fs: FileSystem,
    pub(super) pool: BufPool,
    pub(super) gates: Gates<WaitingRequest>,
    pub(super) waits: WaitingWork,
    /// Moves that requests wait for, and that have not begun.
    pub(super) asked: Vec<(Move, WaitingRequest)>,
    pub(super) written: WriteProgress,
    /// `true` if changes of names are answered only once they are durable.
    names_are_durable: bool,
    /// The volume's view of its space; `None` if all of its pages have space.
    room: Option<Arc<dyn Chores>>,
    pub(super) now: Instant,
    /// The time of day.
    pub(super) wall: Time,
}

impl<K: Kernel, D: Device> Core<K, D> {
    /// Returns the state of a file system on a device at rest.
    pub(super) fn new(
        kernel: K,
        device: D,
        fs: FileSystem,
        pool: BufPool,
        room: Option<Arc<dyn Chores>>,
    ) -> Self {
        Core {
            kernel,
            disk: Disk::new(device, COMMANDS_MAX),
            fs,
            pool,
            gates: Gates::new(),
            waits: WaitingWork::default(),
            asked: Vec::new(),
            written: WriteProgress::default(),
            names_are_durable: false,
            room,
            now: Instant::ZERO,
            wall: Time::default(),
        }
    }

    /// Has changes of names answered only once they are durable.
    pub(super) fn make_names_durable(&mut self) {
        self.names_are_durable = true;
    }

    /// Returns the event to wait for before an operation is answered. A change that a commit makes
    /// durable later is answered at once, unless somebody has asked that it be durable, or commits
    /// have fallen behind.
    pub(super) fn awaited(&self, operation: &Operation<'_>, until: AwaitedEvent) -> AwaitedEvent {
        let waits = self.names_are_durable || matches!(operation, Operation::Fsync { .. });
        match until {
            AwaitedEvent::Commit(_) if !waits && !self.fs.has_full_commit() => AwaitedEvent::Now,
            until => until,
        }
    }

    /// Returns `true` if a reply or a request waits for an event that has not come, such as a
    /// commit.
    pub(super) fn is_awaited(&self) -> bool {
        let held = self.waits.held.iter().map(|held| held.until);
        let again = self.waits.again.iter().map(|(until, _)| *until);
        held.chain(again).any(|until| self.fs.outcome(until).is_none())
    }

    /// Tells the file system the space of the volume.
    pub(super) fn look_at_room(&mut self) {
        if let Some(room) = &self.room {
            self.fs.set_room(room.pages(), room.room());
        }
    }

    /// Returns `true` if no request is being served, and all replies were passed to the kernel.
    pub(super) fn is_idle(&self) -> bool {
        self.waits.held.is_empty()
            && self.waits.again.is_empty()
            && self.gates.is_idle()
            && self.asked.is_empty()
            && self.kernel.has_sent_all()
    }

    /// Has a file moved, for which a request waits.
    pub(super) fn ask_move(&mut self, order: Move, waiting: WaitingRequest) {
        self.asked.push((order, waiting));
    }

    /// Returns the inode of a node, and its mode.
    ///
    /// # Errors
    /// Says why there is none.
    pub(super) fn mode(&mut self, node: u64) -> Result<(Ino, u32), Errno> {
        let at = ino(node)?;
        Ok((at, self.attributes(at)?.mode))
    }

    /// Returns the attributes of an inode.
    ///
    /// # Errors
    /// Says why there are none.
    pub(super) fn attributes(&mut self, ino: Ino) -> Result<Attributes, Errno> {
        let operation = Operation::Attributes { ino };
        match self.fs.apply(self.wall, &Caller::default(), operation)? {
            Reply::Answer(OperationResult::Attributes(of), _) => Ok(of),
            _ => Err(Errno::IO),
        }
    }

    /// Sends the reply to request `unique` in the given form, once the event `until` has occurred.
    pub(super) fn answer(
        &mut self,
        unique: u64,
        form: ReplyForm,
        answer: OperationResult,
        until: AwaitedEvent,
    ) {
        if let (ReplyForm::Created { write }, OperationResult::Entry(made)) = (form, &answer) {
            let operation = Operation::Open { ino: made.ino, write };
            let opened = self.fs.apply(self.wall, &Caller::default(), operation);
            debug_assert!(matches!(opened, Ok(Reply::Answer(..))), "{opened:?}");
        }
        let (head, body) = match said(unique, form, answer) {
            Ok(EncodedReply::Head(head)) => (head, None),
            Ok(EncodedReply::Bytes(bytes)) => {
                let mut buf = self.take(bytes.len());
                buf.prefix_mut(bytes.len()).copy_from_slice(&bytes);
                (ReplyMessage::data(unique, bytes.len()), Some((buf, bytes.len())))
            }
            Err(why) => return self.refuse(unique, why),
        };
        let held = HeldReply { until, unique, head, body };
        if let Some(held) = self.release(held) {
            self.waits.held.push(held);
        }
    }

    /// Sends a reply without data once the event has occurred, or an error at once.
    pub(super) fn send_after(
        &mut self,
        until: Result<AwaitedEvent, Errno>,
        unique: u64,
        head: ReplyMessage,
    ) {
        match until {
            Ok(until) => {
                let held = self.release(HeldReply { until, unique, head, body: None });
                self.waits.held.extend(held);
            }
            Err(why) => self.refuse(unique, why),
        }
    }

    /// Sends the replies whose events have come.
    pub(super) fn release_all(&mut self) {
        for held in std::mem::take(&mut self.waits.held) {
            if let Some(held) = self.release(held) {
                self.waits.held.push(held);
            }
        }
    }

    /// Sends a reply whose event has come; returns another one.
    fn release(&mut self, held: HeldReply) -> Option<HeldReply> {
        match self.fs.outcome(held.until) {
            Some(Ok(())) => {
                let body = held.body.map(|(buf, bytes)| (buf, 0..bytes));
                self.kernel.reply(held.head.bytes(), body);
                None
            }
            Some(Err(why)) => {
                held.body.into_iter().for_each(|(buf, _)| self.pool.give(buf));
                self.refuse(held.unique, why);
                None
            }
            None => Some(held),
        }
    }

    /// Sends a reply without data.
    pub(super) fn send(&mut self, head: &ReplyMessage) {
        self.kernel.reply(head.bytes(), None);
    }

    /// Replies with an error.
    pub(super) fn refuse(&mut self, unique: u64, why: Errno) {
        self.send(&ReplyMessage::error(unique, errno(why)));
    }

    /// Takes a buffer for so many bytes.
    ///
    /// # Panics
    /// If there is none: each request in service, each reader and upkeep have one.
    pub(super) fn take(&mut self, bytes: usize) -> Buf {
        self.pool.take(bytes).expect("each request in service has a buffer")
    }
}
