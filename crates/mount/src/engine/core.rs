//! The state that all parts of an engine use: the kernel, the volume, the file system, and the
//! waiting requests.

use std::collections::VecDeque;
use std::sync::Arc;

use contigfs::{
    Answer, Attributes, Caller, Errno, FileSystem, Ino, Move, Operation, Reply, Time, Until,
};
use contract::{Buf, BufPool, Chores, Device, Instant};
use proto::fuse::Head;

use super::task::{Pending, Task};
use super::translate::{Form, Said, errno, ino, said};
use crate::disk::Disk;
use crate::gates::Gates;
use crate::kernel::Kernel;

/// Commands at the device at most.
const COMMANDS_MAX: usize = 256;

/// A reply that waits for an event.
pub(super) struct Held {
    until: Until,
    unique: u64,
    head: Head,
    body: Option<(Buf, usize)>,
}

/// Replies and requests that wait.
#[derive(Default)]
pub(super) struct Waits {
    /// Replies that wait for an event, such as a commit, with that event.
    pub(super) held: Vec<Held>,
    /// Requests that are repeated after an event, with that event.
    pub(super) again: Vec<(Until, Pending)>,
    /// Requests that may continue, because other requests of the same file have ended.
    pub(super) admitted: VecDeque<Pending>,
    /// Requests that cannot go on, and why.
    pub(super) refused: Vec<(Pending, Errno)>,
    /// `true` if something has happened that may end a wait.
    pub(super) has_news: bool,
}

/// The state that all parts of an engine use.
pub(super) struct Core<K, D> {
    pub(super) kernel: K,
    pub(super) disk: Disk<D, Task>,
    pub(super) fs: FileSystem,
    pub(super) pool: BufPool,
    pub(super) gates: Gates<Pending>,
    pub(super) waits: Waits,
    /// Moves that requests wait for, and that have not begun.
    pub(super) asked: Vec<(Move, Pending)>,
    /// `true` if the device has carried out writes since the last flush.
    pub(super) has_written: bool,
    /// Flushes for requests in flight.
    pub(super) flushes: u32,
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
            waits: Waits::default(),
            asked: Vec::new(),
            has_written: false,
            flushes: 0,
            room,
            now: Instant::ZERO,
            wall: Time::default(),
        }
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
    pub(super) fn ask_move(&mut self, order: Move, waiting: Pending) {
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
            Reply::Answer(Answer::Attributes(of), _) => Ok(of),
            _ => Err(Errno::IO),
        }
    }

    /// Sends the reply to request `unique` in the given form, once the event `until` has occurred.
    pub(super) fn answer(&mut self, unique: u64, form: Form, answer: Answer, until: Until) {
        if let (Form::Created { write }, Answer::Entry(made)) = (form, &answer) {
            let operation = Operation::Open { ino: made.ino, write };
            let opened = self.fs.apply(self.wall, &Caller::default(), operation);
            debug_assert!(matches!(opened, Ok(Reply::Answer(..))), "{opened:?}");
        }
        let (head, body) = match said(unique, form, answer) {
            Ok(Said::Head(head)) => (head, None),
            Ok(Said::Bytes(bytes)) => {
                let mut buf = self.take(bytes.len());
                buf.prefix_mut(bytes.len()).copy_from_slice(&bytes);
                (Head::data(unique, bytes.len()), Some((buf, bytes.len())))
            }
            Err(why) => return self.refuse(unique, why),
        };
        let held = Held { until, unique, head, body };
        if let Some(held) = self.release(held) {
            self.waits.held.push(held);
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
    fn release(&mut self, held: Held) -> Option<Held> {
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
    pub(super) fn send(&mut self, head: &Head) {
        self.kernel.reply(head.bytes(), None);
    }

    /// Replies with an error.
    pub(super) fn refuse(&mut self, unique: u64, why: Errno) {
        self.send(&Head::error(unique, errno(why)));
    }

    /// Takes a buffer for so many bytes.
    ///
    /// # Panics
    /// If there is none: each request in service, each reader and upkeep have one.
    pub(super) fn take(&mut self, bytes: usize) -> Buf {
        self.pool.take(bytes).expect("each request in service has a buffer")
    }
}
