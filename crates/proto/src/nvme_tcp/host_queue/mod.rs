//! A host's queue in the words of the contract: how it comes up, and how requests and their ends are
//! said on it.
//!
//! A connection is one queue. The admin queue comes first: connect, authenticate where the server
//! asks for it, enable the controller, look at the controller and the namespace, ask for I/O queues.
//! Then each I/O queue connects to the controller that was found.
//!
//! What is deliberately not here: several namespaces, events, multi-path, and a life beyond one
//! connection.

mod setup;
mod words;

use alloc::rc::Rc;
use alloc::vec::Vec;

use contract::{BLOCK_BYTES, Command, Fatal, FrameHead, HEAD_BYTES_MAX, Range, Status};
use wire::nvme::{
    AdminOpcode, BLOCK_FUA, CommandId, NvmOpcode, SglDescriptor, Status as NvmeStatus, Submission,
};

use super::{Carried, HostEvent, HostSession, Ready};
use setup::{Ask, Next, Setup};
pub use words::{Found, HostOptions, Refusal};

/// Commands in progress on an admin queue: one of the way up, and one that says that we live.
const ADMIN_COMMANDS: u16 = 2;
const ALIVE: CommandId = 1;

/// What a queue has to tell.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueEvent<'a> {
    /// Requests may be sent; of an admin queue: I/O queues may be made.
    Up,
    /// Data of a read, in order. Whether it may be used is told by its end.
    Data {
        /// The request.
        cid: CommandId,
        /// Where it belongs.
        offset: usize,
        /// The bytes, lent for this call; not empty.
        bytes: &'a [u8],
    },
    /// The server has room for the payload of a write: answer with [`HostQueue::payload`].
    Ready(Ready),
    /// A request has ended.
    Ended {
        /// The request.
        cid: CommandId,
        /// How.
        status: Status,
    },
}

/// A request, encoded: the second head stands around the payload, if that leaves at once.
#[derive(Debug)]
pub struct Encoded {
    /// The heads, in this order.
    pub heads: [FrameHead; 2],
    /// The payload leaves with them; otherwise the server asks for it.
    pub has_payload: bool,
}

/// The host's end of one queue.
#[derive(Debug)]
pub struct HostQueue {
    session: HostSession,
    options: Rc<HostOptions>,
    /// Zero for the admin queue.
    queue: u16,
    found: Found,
    /// How far it is on its way up; `None` once it is there.
    setup: Option<Setup>,
    is_up: bool,
    /// Data of the way up.
    inbox: Vec<u8>,
    /// What is to be sent.
    out: Vec<FrameHead>,
}

impl HostQueue {
    /// The admin queue of a new controller. Each attempt with the same options has another number.
    pub fn admin(options: Rc<HostOptions>, attempt: u64) -> HostQueue {
        HostQueue::new(options, 0, Found { attempt, ..Found::default() })
    }

    /// The I/O queue with this number, above zero, of the controller that an admin queue has found.
    pub fn io(options: Rc<HostOptions>, queue: u16, found: Found) -> HostQueue {
        assert!(queue > 0, "the admin queue is another");
        HostQueue::new(options, queue, found)
    }

    fn new(options: Rc<HostOptions>, queue: u16, found: Found) -> HostQueue {
        let commands_max = if queue == 0 { ADMIN_COMMANDS } else { options.queue_depth };
        let session = HostSession::new(options.digests, commands_max);
        let mut made = HostQueue {
            session,
            options,
            queue,
            found,
            setup: None,
            is_up: false,
            inbox: Vec::new(),
            out: Vec::new(),
        };
        let greeting = made.session.greeting();
        made.say(&greeting);
        made
    }

    /// What the way up has found out; whole once the admin queue is up.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Whether requests can be sent.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// What it has to say by itself, to be sent in this order: at first, and after each
    /// [`next_event`](HostQueue::next_event).
    pub fn speech(&mut self) -> impl Iterator<Item = FrameHead> + '_ {
        self.out.drain(..)
    }

    /// Says that the host lives, on an admin queue that is up. `false`: the server has not answered
    /// when this was said last.
    pub fn keep_alive(&mut self) -> bool {
        if self.session.is_in_progress(ALIVE) {
            return false;
        }
        let entry = Submission::new(AdminOpcode::KEEP_ALIVE.0, ALIVE, 0);
        self.out.extend(self.session.capsule(&entry, Carried::default(), &[]));
        true
    }

    /// Encodes a request on an I/O queue that is up, with a name that is not in use below
    /// [`HostOptions::queue_depth`].
    ///
    /// # Errors
    /// Nothing was encoded: `Unsupported` for commands that are not said here, `BadLength` for
    /// ranges that are too large or do not consist of whole blocks of the namespace.
    pub fn request(
        &mut self,
        cid: CommandId,
        command: Command,
        payload: &[u8],
    ) -> Result<Encoded, Status> {
        let (opcode, flags) = match command {
            Command::Read(_) => (NvmOpcode::READ, 0),
            Command::Write { fua, .. } => (NvmOpcode::WRITE, if fua { BLOCK_FUA } else { 0 }),
            Command::WriteZeroes { fua, .. } => {
                (NvmOpcode::WRITE_ZEROES, if fua { BLOCK_FUA } else { 0 })
            }
            Command::Compare(_) => (NvmOpcode::COMPARE, 0),
            Command::Flush => (NvmOpcode::FLUSH, 0),
            _ => return Err(Status::Unsupported),
        };
        let mut entry = Submission::new(opcode.0, cid, self.options.nsid);
        if let Some(range) = command.range() {
            let (lba, blocks) = self.blocks(range)?;
            entry.dword10 = (lba as u32).into();
            entry.dword11 = ((lba >> 32) as u32).into();
            entry.dword12 = ((blocks - 1) | flags).into();
        }
        let receives = command.reply_bytes();
        let bytes = receives.max(payload.len());
        if bytes > self.found.request_bytes_max {
            return Err(Status::BadLength);
        }
        let has_payload = !payload.is_empty()
            && self.options.in_capsule
            && payload.len() <= self.found.capsule_bytes;
        entry.data = match (has_payload, bytes) {
            (_, 0) => entry.data,
            (true, _) => SglDescriptor::in_capsule(0, bytes as u32),
            (false, _) => SglDescriptor::transport(bytes as u32),
        };
        let sends = if has_payload { 0 } else { payload.len() };
        let carried = Carried { receives, sends, ..Carried::default() };
        let data = if has_payload { payload } else { &[] };
        Ok(Encoded { heads: self.session.capsule(&entry, carried, data), has_payload })
    }

    /// The head around a payload that the server is ready for.
    ///
    /// # Errors
    /// It wants less than all of it at once.
    pub fn payload(&mut self, ready: &Ready, payload: &[u8]) -> Result<FrameHead, Refusal> {
        if ready.offset != 0
            || ready.bytes != payload.len()
            || ready.bytes > self.session.data_bytes_max()
        {
            return Err(Refusal::Pieces);
        }
        Ok(self.session.data(ready, payload).0)
    }

    /// The read whose data the next bytes are, where in it they belong, and how many they are.
    /// Whoever has received them there shows them to [`next_event`](HostQueue::next_event) there.
    pub fn expects(&self) -> Option<(CommandId, usize, usize)> {
        self.session.expects().filter(|_| self.is_up && self.queue > 0)
    }

    /// Takes the next event off the front of `input`. `None`: all of `input` was taken and more
    /// bytes are needed.
    ///
    /// # Errors
    /// Why there is no such queue, or no more: it must not be used again.
    pub fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<QueueEvent<'a>>, Refusal> {
        loop {
            let Some(event) = self.session.next_event(input).map_err(Refusal::Protocol)? else {
                return Ok(None);
            };
            match event {
                HostEvent::Open => {
                    let (setup, ask) = Setup::begin(self.queue, &self.options, &self.found);
                    self.setup = Some(setup);
                    self.ask(&ask);
                }
                HostEvent::Data { bytes, .. } if !self.is_up => self.inbox.extend_from_slice(bytes),
                HostEvent::Data { cid, offset, bytes } => {
                    return Ok(Some(QueueEvent::Data { cid, offset, bytes }));
                }
                HostEvent::Ready(ready) if self.is_up => return Ok(Some(QueueEvent::Ready(ready))),
                HostEvent::Ready(_) => return Err(Refusal::Protocol(Fatal::OutOfRange)),
                HostEvent::Ended { completion, data } if self.setup.is_some() => {
                    if !data.is_ok() {
                        return Err(Refusal::Step(
                            "send undamaged data",
                            NvmeStatus::TRANSIENT_TRANSPORT,
                        ));
                    }
                    if self.climb(&completion)? {
                        return Ok(Some(QueueEvent::Up));
                    }
                }
                // The server knows that we live, or does not keep time; either way it answered.
                HostEvent::Ended { .. } if self.queue == 0 => {}
                HostEvent::Ended { completion, data } => {
                    let status = match status(completion.status()) {
                        Status::Ok => data,
                        status => status,
                    };
                    return Ok(Some(QueueEvent::Ended { cid: completion.cid.get(), status }));
                }
            }
        }
    }

    /// One step further; whether it is there.
    fn climb(&mut self, completion: &wire::nvme::Completion) -> Result<bool, Refusal> {
        let setup = self.setup.as_mut().expect("it is on its way");
        let next = setup.take(completion, &self.inbox, &self.options, &mut self.found)?;
        self.inbox.clear();
        match next {
            Next::Ask(ask) => self.ask(&ask),
            Next::Up => {
                self.setup = None;
                self.inbox = Vec::new();
                self.is_up = true;
            }
        }
        Ok(self.is_up)
    }

    fn ask(&mut self, ask: &Ask) {
        let mut bytes = Vec::new();
        self.session.command(&ask.entry, ask.carried, &ask.data, &mut bytes);
        self.say(&bytes);
    }

    fn say(&mut self, bytes: &[u8]) {
        self.out.extend(bytes.chunks(HEAD_BYTES_MAX).map(FrameHead::new));
    }

    /// A range in blocks of the namespace.
    fn blocks(&self, range: Range) -> Result<(u64, u32), Status> {
        let each = self.found.block_bytes / BLOCK_BYTES as u32;
        let fits = range.blocks > 0
            && range.blocks.is_multiple_of(each)
            && range.lba.is_multiple_of(u64::from(each))
            && range.blocks / each <= 1 << 16;
        if !fits {
            return Err(Status::BadLength);
        }
        Ok((range.lba / u64::from(each), range.blocks / each))
    }
}

/// A status in the words of the contract.
fn status(status: NvmeStatus) -> Status {
    match status.plain() {
        NvmeStatus::SUCCESS => Status::Ok,
        NvmeStatus::INVALID_OPCODE => Status::Unsupported,
        NvmeStatus::INVALID_FIELD => Status::Invalid,
        NvmeStatus::INVALID_NAMESPACE => Status::NoNamespace,
        NvmeStatus::LBA_OUT_OF_RANGE => Status::OutOfRange,
        NvmeStatus::CAPACITY_EXCEEDED => Status::NoSpace,
        NvmeStatus::WRITE_PROTECTED => Status::ReadOnly,
        NvmeStatus::INTERRUPTED | NvmeStatus::NAMESPACE_NOT_READY => Status::Retry,
        NvmeStatus::TRANSIENT_TRANSPORT => Status::BadChecksum,
        NvmeStatus::DENIED
        | NvmeStatus::ACCESS_DENIED
        | NvmeStatus::RESERVATION_CONFLICT
        | NvmeStatus::AUTHENTICATION_REQUIRED => Status::Denied,
        NvmeStatus::DATA_SGL_LENGTH | NvmeStatus::SGL_OFFSET | NvmeStatus::SIZE_LIMIT => {
            Status::BadLength
        }
        NvmeStatus::COMPARE_FAILURE => Status::CompareFailed,
        NvmeStatus::WRITE_FAULT | NvmeStatus::READ_ERROR => Status::MediaError,
        _ => Status::Internal,
    }
}
