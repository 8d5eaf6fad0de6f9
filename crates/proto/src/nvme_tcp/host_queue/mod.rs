//! A host's queue in terms of the contract: how it is set up, and how requests and their ends are
//! encoded.
//!
//! Each connection is one queue. The admin queue comes first. It connects, authenticates if the
//! server requires it, enables the controller, identifies the controller and the namespace, and
//! asks for I/O queues. Then each I/O queue connects to the controller that was found.
//!
//! Deliberately left out: several namespaces, events, multi-path, and reconnecting.

mod setup;
mod words;

use alloc::rc::Rc;
use alloc::vec::Vec;

use contract::{BLOCK_BYTES, Command, FrameHead, HEAD_BYTES_MAX, ProtocolError, Range, Status};
use wire::nvme::{
    AdminOpcode, BLOCK_FUA, CommandId, NvmOpcode, SglDescriptor, Status as NvmeStatus, Submission,
};

use super::{HostEvent, HostSession, ReadyToTransfer, TransferSizes};
use setup::{Setup, SetupCommand, SetupStep};
pub use words::{Found, HostOptions, Refusal};

/// The most commands in progress on an admin queue: one of the setup, and one Keep Alive.
const ADMIN_COMMANDS: u16 = 2;
const ALIVE: CommandId = 1;

/// An event of a host's queue.
#[derive(Debug, PartialEq, Eq)]
pub enum QueueEvent<'a> {
    /// The queue is set up. Requests may be sent; on an admin queue, I/O queues may be created.
    Up,
    /// Data of a read, in order. The read's end says whether the data may be used.
    Data {
        /// The request's identifier.
        cid: CommandId,
        /// The offset of the bytes in the read's data.
        offset: usize,
        /// The bytes, lent for this call; not empty.
        bytes: &'a [u8],
    },
    /// The server requests the payload of a write: answer with [`HostQueue::payload`].
    Ready(ReadyToTransfer),
    /// A request has ended.
    Ended {
        /// The request's identifier.
        cid: CommandId,
        /// The status of the request.
        status: Status,
    },
}

/// An encoded request. The second head surrounds the payload if that is sent at once.
#[derive(Debug)]
pub struct EncodedRequest {
    /// The heads, in sending order.
    pub heads: [FrameHead; 2],
    /// `true` if the payload is sent with the heads; otherwise the server requests it.
    pub has_payload: bool,
}

/// The host's end of one queue.
#[derive(Debug)]
pub struct HostQueue {
    session: HostSession,
    options: Rc<HostOptions>,
    /// The queue's identifier; zero for the admin queue.
    queue: u16,
    found: Found,
    /// The progress of the setup; `None` before it begins and after it ends.
    setup: Option<Setup>,
    is_up: bool,
    /// The data received for the present command of the setup.
    inbox: Vec<u8>,
    /// The heads of frames that have yet to be sent.
    out: Vec<FrameHead>,
}

impl HostQueue {
    /// Creates the admin queue of a new controller. `attempt` must differ for each attempt with the
    /// same options, since unpredictable bytes are derived from it.
    pub fn admin(options: Rc<HostOptions>, attempt: u64) -> HostQueue {
        HostQueue::new(options, 0, Found { attempt, ..Found::default() })
    }

    /// Creates an I/O queue, numbered from 1, of the controller that an admin queue has found.
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

    /// Returns the server's properties, which are complete once the admin queue is up.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Returns `true` if requests can be sent.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Returns the heads to send, in this order. To be called at first, and after each
    /// [`next_event`](HostQueue::next_event).
    pub fn speech(&mut self) -> impl Iterator<Item = FrameHead> + '_ {
        self.out.drain(..)
    }

    /// Sends a Keep Alive, on an admin queue that is up. Returns `false` if the server has not
    /// answered the last one.
    pub fn keep_alive(&mut self) -> bool {
        if self.session.is_in_progress(ALIVE) {
            return false;
        }
        let entry = Submission::new(AdminOpcode::KEEP_ALIVE.0, ALIVE, 0);
        self.out.extend(self.session.capsule(&entry, TransferSizes::default(), &[]));
        true
    }

    /// Encodes a request on an I/O queue that is up. `cid` must not be in use, and below
    /// [`HostOptions::queue_depth`].
    ///
    /// # Errors
    /// Returns `Unsupported` for commands that have no encoding here, and `BadLength` for ranges
    /// that are too large or do not consist of whole blocks of the namespace. Nothing was encoded
    /// then.
    pub fn request(
        &mut self,
        cid: CommandId,
        command: Command,
        payload: &[u8],
    ) -> Result<EncodedRequest, Status> {
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
        let carried = TransferSizes { receives, sends, ..TransferSizes::default() };
        let data = if has_payload { payload } else { &[] };
        Ok(EncodedRequest { heads: self.session.capsule(&entry, carried, data), has_payload })
    }

    /// Returns the head around a payload that the server has requested.
    ///
    /// # Errors
    /// Returns [`Refusal::Pieces`] if the server does not request all of it at once.
    pub fn payload(
        &mut self,
        ready: &ReadyToTransfer,
        payload: &[u8],
    ) -> Result<FrameHead, Refusal> {
        if ready.offset != 0
            || ready.bytes != payload.len()
            || ready.bytes > self.session.data_bytes_max()
        {
            return Err(Refusal::Pieces);
        }
        Ok(self.session.data(ready, payload).0)
    }

    /// Returns the read whose data comes next, the data's offset in the read, and its length in
    /// bytes; `None` if something else comes next. A caller may receive the bytes in place and pass
    /// that slice to [`next_event`](HostQueue::next_event).
    pub fn expects(&self) -> Option<(CommandId, usize, usize)> {
        self.session.expects().filter(|_| self.is_up && self.queue > 0)
    }

    /// Takes the next event off the front of `input`. Returns `None` when all of `input` was taken
    /// and more bytes are needed.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if the queue cannot be set up or has ended. The queue must not be used
    /// again.
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
                HostEvent::Ready(_) => return Err(Refusal::Protocol(ProtocolError::OutOfRange)),
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
                // The answer to a Keep Alive, whatever it says.
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

    /// Continues the setup after a completion. Returns `true` once it has ended.
    fn climb(&mut self, completion: &wire::nvme::Completion) -> Result<bool, Refusal> {
        let setup = self.setup.as_mut().expect("it is on its way");
        let next = setup.take(completion, &self.inbox, &self.options, &mut self.found)?;
        self.inbox.clear();
        match next {
            SetupStep::Ask(ask) => self.ask(&ask),
            SetupStep::Up => {
                self.setup = None;
                self.inbox = Vec::new();
                self.is_up = true;
            }
        }
        Ok(self.is_up)
    }

    fn ask(&mut self, ask: &SetupCommand) {
        let mut bytes = Vec::new();
        self.session.command(&ask.entry, ask.carried, &ask.data, &mut bytes);
        self.say(&bytes);
    }

    fn say(&mut self, bytes: &[u8]) {
        self.out.extend(bytes.chunks(HEAD_BYTES_MAX).map(FrameHead::new));
    }

    /// Converts a range of 512-byte blocks to the first block and the number of blocks of the
    /// namespace.
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

/// Converts an NVMe status to the contract's.
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
