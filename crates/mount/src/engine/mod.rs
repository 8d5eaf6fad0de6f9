//! The engine of a mounted file system: requests of the kernel become operations of the file system
//! and commands of the device, and their ends become replies.
//!
//! One thread runs the engine, in turns that do not wait. A request holds what it needs until its
//! reply: the memory of its data, its place among the requests of its file (`Gates`), and the event
//! after which its answer may be given.
//!
//! Deliberately left out: how the file system keeps names and places (`contigfs`), the messages
//! (`proto::fuse`), and the loop around the turns.

mod core;
mod data;
mod task;
#[cfg(test)]
mod tests;
mod translate;
mod upkeep;

use std::sync::Arc;

use contigfs::{AwaitedEvent, Caller, Errno, FileSystem, Ino, Operation, Reply, Time};
use contract::{BufPool, Chores, Command, Device, Instant, SizeClass, TurnOutcome};
use io::fuse::{FuseRequest, MESSAGE_BYTES_MAX};
use proto::fuse::{self, Agreement, Listing, ListingEntry, ReplyMessage, Request, is_write, parse};

use self::core::Core;
use crate::disk::EndedCommand;
use crate::kernel::Kernel;
use data::DataRequests;
use task::{PAGE_BYTES, Task, WaitingRequest};
use translate::{CACHED, ReplyForm, change, entry, failed, ino};
use upkeep::{MountStage, Upkeep};

/// Maximum number of requests that are being served at the same time.
pub(crate) const DEPTH: usize = 48;

/// The buffers of an engine. The large ones take a message, and the data of a read or write that
/// begins and ends within pages: one for each request in service, for readers, and for upkeep.
pub(crate) const BUFFERS: [SizeClass; 2] = [
    SizeClass { bytes: PAGE_BYTES, count: 256 },
    SizeClass { bytes: MESSAGE_BYTES_MAX + 2 * PAGE_BYTES, count: DEPTH + 16 },
];

/// Messages and ends of commands of a turn.
#[derive(Default)]
struct Inbox {
    messages: Vec<FuseRequest>,
    freed: Vec<contract::Buf>,
    ended: Vec<EndedCommand<Task>>,
    /// The message that is being served, in one piece.
    message: Vec<u8>,
}

/// The engine of a mounted file system.
pub(crate) struct Engine<K, D> {
    core: Core<K, D>,
    data: DataRequests,
    upkeep: Upkeep,
    inbox: Inbox,
}

impl<K: Kernel, D: Device> Engine<K, D> {
    /// Returns the engine of a file system on a device at rest. `pool` has the [`BUFFERS`]; `room`
    /// returns the physical space of a thin device, which may be less than its pages need.
    pub(crate) fn new(
        kernel: K,
        device: D,
        fs: FileSystem,
        pool: BufPool,
        room: Option<Arc<dyn Chores>>,
    ) -> Self {
        Engine {
            core: Core::new(kernel, device, fs, pool, room),
            data: DataRequests::new(DEPTH),
            upkeep: Upkeep::new(),
            inbox: Inbox::default(),
        }
    }

    /// Has changes of names answered only once they are durable.
    pub(crate) fn make_names_durable(&mut self) {
        self.core.make_names_durable();
    }

    /// Runs one turn of the engine; `wall` is the time of day. Returns `None` once the file system
    /// is unmounted and everything is written.
    pub(crate) fn turn(&mut self, now: Instant, wall: Time) -> Option<TurnOutcome> {
        (self.core.now, self.core.wall) = (now, wall);
        self.core.look_at_room();
        let mut inbox = std::mem::take(&mut self.inbox);
        let Core { kernel, pool, .. } = &mut self.core;
        let mut supply = || pool.take(MESSAGE_BYTES_MAX);
        kernel.poll(&mut inbox.messages, &mut inbox.freed, &mut supply);
        // A reader that had no buffer takes one at the next turn.
        let mut progressed = !inbox.messages.is_empty() || !inbox.freed.is_empty();
        inbox.freed.drain(..).for_each(|buf| self.core.pool.give(buf));
        for message in inbox.messages.drain(..) {
            self.serve(message, &mut inbox.message);
        }
        self.core.disk.poll(now, &mut inbox.ended);
        self.core.look_at_room();
        progressed |= !inbox.ended.is_empty();
        for ended in inbox.ended.drain(..) {
            self.end(ended);
        }
        self.inbox = inbox;
        progressed |= self.upkeep.start(&mut self.core);
        self.resume();
        self.upkeep.start(&mut self.core);
        if self.data.is_idle() {
            self.upkeep.close(&mut self.core);
        }
        self.core.disk.kick(now);
        if self.core.kernel.has_ended() && self.upkeep.stage == MountStage::Serving {
            self.upkeep.stage = MountStage::Closing;
        }
        let upkeep_at = match self.upkeep.stage {
            MountStage::Serving => self.upkeep.wake_at(),
            MountStage::Closing | MountStage::Flushing => Some(now),
            MountStage::Closed { .. } => return None,
        };
        let wake_at = [self.core.disk.wake_at(), upkeep_at].into_iter().flatten().min();
        Some(TurnOutcome { progressed, wake_at })
    }

    /// Returns `true` if the volume has carried out the flush that ends the service.
    pub(crate) fn has_flushed(&self) -> bool {
        self.upkeep.stage == MountStage::Closed { is_durable: true }
    }

    /// Returns the kernel interface, the device and the file system of which the engine was made,
    /// once the engine has closed.
    pub(crate) fn into_parts(self) -> (K, D, FileSystem) {
        (self.core.kernel, self.core.disk.into_device(), self.core.fs)
    }

    /// Serves a message of the kernel.
    fn serve(&mut self, message: FuseRequest, piece: &mut Vec<u8>) {
        let (head, rest) = message.parts();
        let behind = if is_write(head) { rest.len() } else { 0 };
        piece.clear();
        piece.extend_from_slice(head);
        piece.extend_from_slice(&rest[behind..]);
        match parse(piece, behind) {
            Ok(request) => match &request.operation {
                fuse::Operation::Write { offset, bytes, kill_suidgid, flags, .. } => {
                    let range = (*offset, *bytes);
                    self.data.start_write(
                        &mut self.core,
                        &request,
                        range,
                        *kill_suidgid,
                        translate::syncs(*flags),
                        message.buf,
                    );
                }
                _ => {
                    self.core.pool.give(message.buf);
                    self.carry_out(&request, piece);
                }
            },
            Err(mistake) => {
                self.core.pool.give(message.buf);
                match mistake.unique {
                    Some(unique) => self.core.refuse(unique, Errno(mistake.errno.0)),
                    None => self.core.kernel.ignore(),
                }
            }
        }
    }

    /// Carries out a request other than a write.
    fn carry_out(&mut self, request: &Request<'_>, message: &[u8]) {
        use fuse::Operation as O;
        let unique = request.unique;
        match &request.operation {
            O::Init(greeting) => match Agreement::with(greeting) {
                Ok(Some(agreed)) => self.core.send(&agreed.reply(unique)),
                Ok(None) => self.core.send(&Agreement::reply_other_major(unique)),
                Err(why) => {
                    tracing::error!("this kernel's FUSE is older than version 7.31");
                    self.core.send(&ReplyMessage::error(unique, why));
                }
            },
            O::Forget(forgets) => {
                for (node, lookups) in forgets.iter() {
                    if let Ok(at) = ino(node) {
                        self.core.fs.forget(at, lookups);
                    }
                }
                self.core.waits.has_news = true;
                self.core.kernel.ignore();
            }
            O::Read { offset, bytes, .. } => {
                self.data.start_read(&mut self.core, request, *offset, *bytes)
            }
            O::Fsync { .. } => self.flush(unique, ino(request.node).ok()),
            O::SyncFs => self.flush(unique, None),
            O::Flush { .. } | O::Destroy => self.core.send(&ReplyMessage::done(unique)),
            O::ReadDir { cookie, bytes, with_attributes, .. } => {
                let room = (*bytes as usize).min(MESSAGE_BYTES_MAX);
                if let Err(why) = self.list(request, *cookie, room, *with_attributes) {
                    self.core.refuse(unique, why);
                }
            }
            O::SetAttr { changes, .. } => match self.core.mode(request.node) {
                Ok((at, mode)) => {
                    let change = change(changes, mode);
                    let operation = Operation::Change { ino: at, change };
                    self.apply(request, message, operation, ReplyForm::Attributes);
                }
                Err(why) => self.core.refuse(unique, why),
            },
            operation => match translate::asked(request.node, operation) {
                Ok(Some(asked)) => self.apply(request, message, asked.operation, asked.form),
                Ok(None) => self.core.send(&ReplyMessage::error(unique, wire::fuse::Errno::NOSYS)),
                Err(why) => self.core.refuse(unique, why),
            },
        }
    }

    /// Has the file system carry out an operation, and replies in this form.
    fn apply(
        &mut self,
        request: &Request<'_>,
        message: &[u8],
        operation: Operation<'_>,
        form: ReplyForm,
    ) {
        let caller =
            Caller { uid: request.caller.uid, gid: request.caller.gid, ..Caller::default() };
        let unique = request.unique;
        self.core.waits.has_news = true;
        match self.core.fs.apply(self.core.wall, &caller, operation) {
            Ok(Reply::Answer(answer, until)) => {
                let until = self.core.awaited(&operation, until);
                self.core.answer(unique, form, answer, until);
            }
            Ok(Reply::Again(until)) => {
                self.core.waits.again.push((until, WaitingRequest::Request(message.into())));
            }
            Ok(Reply::Move(order)) => {
                self.core.ask_move(order, WaitingRequest::Request(message.into()))
            }
            Err(Errno::NOENT) if matches!(operation, Operation::Lookup { .. }) => {
                self.core.send(&fuse::no_such_name(unique, CACHED));
            }
            Err(why) => self.core.refuse(unique, why),
        }
    }

    /// Lists a directory.
    fn list(
        &mut self,
        request: &Request<'_>,
        cookie: u64,
        room: usize,
        with_attributes: bool,
    ) -> Result<(), Errno> {
        let at = ino(request.node)?;
        let mut buf = self.core.take(room);
        let mut listing = Listing::new(buf.prefix_mut(room));
        let mut listed = Vec::new();
        let visited = self.core.fs.read_directory(at, cookie, |found| {
            let is_dot = matches!(found.name, b"." | b"..");
            let place = ListingEntry {
                ino: u64::from(found.ino),
                next: found.cookie,
                mode: found.kind,
                name: found.name,
            };
            // The kernel has references to both nodes, and wants no others.
            let of = match is_dot {
                true => fuse::NodeEntry::default(),
                false => entry(&found.attributes),
            };
            let has_room = listing.add(&place, with_attributes.then_some(&of));
            if has_room && with_attributes && !is_dot {
                listed.push(found.ino);
            }
            has_room
        });
        let bytes = listing.len();
        if let Err(why) = visited {
            self.core.pool.give(buf);
            return Err(why);
        }
        for found in listed {
            self.core.fs.remember(found).expect("it was just listed");
        }
        self.core
            .kernel
            .reply(ReplyMessage::data(request.unique, bytes).bytes(), Some((buf, 0..bytes)));
        Ok(())
    }

    /// Makes the data and the attributes of a file durable, or of all.
    fn flush(&mut self, unique: u64, at: Option<Ino>) {
        if at.is_none() {
            self.core.fs.flush_attributes();
        }
        // The last commit has the attributes of the root too.
        self.commit_attributes(unique, at.unwrap_or(contigfs::ROOT));
    }

    /// Answers a request once all attributes that have changed are durable, and all data that was
    /// written before. A commit makes all durable that was written before it was submitted; so the
    /// device is flushed only where no commit is still to be submitted.
    fn commit_attributes(&mut self, unique: u64, at: Ino) {
        self.core.waits.has_news = true;
        match self.core.fs.apply(self.core.wall, &Caller::default(), Operation::Fsync { ino: at }) {
            Ok(Reply::Answer(_, until))
                if !self.core.written.is_durable() && !self.core.fs.is_to_be_taken(until) =>
            {
                let written = self.core.written.last();
                let task = Task::Fsync { unique, at, written };
                self.core.disk.submit(self.core.now, Command::Flush, None, task);
            }
            Ok(Reply::Answer(answer, until)) => {
                self.core.answer(unique, ReplyForm::Done, answer, until)
            }
            Ok(Reply::Again(until)) => {
                self.core.waits.again.push((until, WaitingRequest::Fsync { unique, at }));
            }
            Ok(Reply::Move(order)) => {
                self.core.ask_move(order, WaitingRequest::Fsync { unique, at })
            }
            Err(why) => self.core.refuse(unique, why),
        }
    }

    /// Answers a request whose data a flush has made durable, once the commits are durable that
    /// were there before.
    fn flushed(&mut self, unique: u64, at: Ino) {
        self.core.waits.has_news = true;
        match self.core.fs.apply(self.core.wall, &Caller::default(), Operation::Fsync { ino: at }) {
            Ok(Reply::Answer(answer, until)) => {
                self.core.answer(unique, ReplyForm::Done, answer, until)
            }
            Ok(_) => self.core.refuse(unique, Errno::IO),
            Err(why) => self.core.refuse(unique, why),
        }
    }

    /// Takes the end of a command in.
    fn end(&mut self, ended: EndedCommand<Task>) {
        let EndedCommand { task, status, buf } = ended;
        match task {
            Task::Read(slot, part) => self.data.read_ended(&mut self.core, slot, part, status, buf),
            Task::Edge(slot, edge) => self.data.edge_ended(&mut self.core, slot, edge, status, buf),
            Task::Write(slot) => self.data.write_ended(&mut self.core, slot, status, buf),
            Task::Fsync { unique, at, written } if status.is_ok() => {
                self.core.written.note_durable(written);
                self.flushed(unique, at);
            }
            Task::Fsync { unique, .. } => self.core.refuse(unique, failed(status)),
            Task::Upkeep(task) => self.upkeep.ended(&mut self.core, task, status, buf),
        }
    }

    /// Continues all requests whose awaited event has happened.
    fn resume(&mut self) {
        while self.core.waits.has_news || !self.core.waits.admitted.is_empty() {
            self.core.waits.has_news = false;
            for (pending, why) in std::mem::take(&mut self.core.waits.refused) {
                self.refuse(pending, why);
            }
            while let Some(pending) = self.core.waits.admitted.pop_front() {
                self.go_on(pending, true);
            }
            self.core.release_all();
            let fs = &self.core.fs;
            let is_due =
                |(until, _): &mut (AwaitedEvent, WaitingRequest)| fs.outcome(*until).is_some();
            let due: Vec<_> = self.core.waits.again.extract_if(.., is_due).collect();
            due.into_iter().for_each(|(_, pending)| self.go_on(pending, false));
        }
    }

    /// Refuses a request that has waited outside of the gate of its file.
    fn refuse(&mut self, pending: WaitingRequest, why: Errno) {
        match pending {
            WaitingRequest::Request(message) => {
                let request = parse(&message, 0).expect("it was parsed before");
                self.core.refuse(request.unique, why);
            }
            WaitingRequest::Fsync { unique, .. } => self.core.refuse(unique, why),
            WaitingRequest::Write(slot) => self.data.refuse_write(&mut self.core, slot, why),
            WaitingRequest::Read(_) | WaitingRequest::Move => {
                unreachable!("neither asks for a move")
            }
        }
    }

    /// Continues a request that has waited. `is_admitted` is `true` if the request has its turn
    /// among the requests of its file.
    fn go_on(&mut self, pending: WaitingRequest, is_admitted: bool) {
        match pending {
            WaitingRequest::Request(message) => {
                let request = parse(&message, 0).expect("it was parsed before");
                self.carry_out(&request, &message);
            }
            WaitingRequest::Fsync { unique, at } => self.commit_attributes(unique, at),
            WaitingRequest::Read(slot) => self.data.place_read(&mut self.core, slot),
            WaitingRequest::Write(slot) if is_admitted => {
                self.data.place_write(&mut self.core, slot)
            }
            WaitingRequest::Write(slot) => self.data.enter_write(&mut self.core, slot),
            WaitingRequest::Move => self.upkeep.end_move(&mut self.core),
        }
    }
}
