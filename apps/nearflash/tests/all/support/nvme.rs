//! An NVMe host over a plain socket: it connects and enables a controller as Linux does, and sends
//! one command at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use proto::nvme_tcp::{Digests, HostEvent, HostSession, TransferSizes};
use wire::nvme::{
    AdminOpcode, AuthCommand, AuthDescriptor, AuthFailure, AuthFailureMessage, AuthHead, AuthKind,
    AuthMessage, AuthNegotiate, Completion, ConnectCommand, ConnectData, DISCOVERY_NQN, Event,
    FabricsKind, Feature, IdentifyCns, LogPage, NvmOpcode, Property, PropertyCommand,
    SglDescriptor, Status, Submission, notice,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::PATIENCE;

/// The command identifier of asynchronous event requests.
const EVENT_CID: u16 = 60;

/// A host's connection: one queue of a controller.
pub(crate) struct NvmeQueue {
    stream: TcpStream,
    session: HostSession,
    /// Bytes that were received and are not parsed yet.
    input: Vec<u8>,
    next_cid: u16,
    /// Completions that were received and that no caller has taken yet.
    early: Vec<Completion>,
    pub(crate) cntlid: u16,
}

/// The outcome of a command: its result and its data, or the status of its failure.
pub(crate) type Outcome = Result<(u64, Vec<u8>), Status>;

/// Returns the qualified name of the test host with this number.
pub(crate) fn host_nqn(number: u8) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-0000000000{number:02x}")
}

fn field(text: &str) -> [u8; 256] {
    let mut field = [0; 256];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}

impl NvmeQueue {
    /// Connects a queue of a host to the subsystem; queue 0, the admin queue, makes a new
    /// controller.
    pub(crate) fn connect(
        at: SocketAddr,
        host: u8,
        subsystem: &str,
        queue: u16,
        cntlid: u16,
    ) -> Result<NvmeQueue, Status> {
        let stream = TcpStream::connect(at).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let session = HostSession::new(Digests::default(), 64);
        let (input, early) = (Vec::new(), Vec::new());
        let mut own = NvmeQueue { stream, session, input, next_cid: 0, early, cntlid };
        own.stream.write_all(&own.session.greeting()).unwrap();
        while !own.take(|event| matches!(event, HostEvent::Open)) {
            own.receive().expect("it answers");
        }
        let data = ConnectData {
            host_id: [host; 16],
            cntlid: cntlid.into(),
            subsystem_nqn: field(subsystem),
            host_nqn: field(&host_nqn(host)),
            ..ConnectData::new_zeroed()
        };
        let command = ConnectCommand::new(queue, 32);
        let (result, _) = own.call(command.entry(), 0, data.as_bytes())?;
        own.cntlid = result as u16;
        Ok(own)
    }

    /// Connects an admin queue to a new controller of the subsystem. The controller is enabled, and
    /// an asynchronous event request is in flight.
    pub(crate) fn admin(at: SocketAddr, host: u8, subsystem: &str) -> Result<NvmeQueue, Status> {
        let mut own = NvmeQueue::connect(at, host, subsystem, 0, 0xffff)?;
        let command = PropertyCommand::set(Property::CONFIGURATION, 0x46_0001);
        own.call(command.entry(), 0, &[])?;
        let mut wanted = Submission::new(AdminOpcode::SET_FEATURES.0, 0, 0);
        wanted.dword10 = u32::from(Feature::EVENTS.0).into();
        let all = notice::NAMESPACE | notice::ANA | notice::DISCOVERY;
        wanted.dword11 = all.into();
        own.call(&wanted, 0, &[])?;
        own.request_event();
        Ok(own)
    }

    /// Begins an authentication with one hash and one group (Base 8.13.5.3). Fails with the
    /// explanation if the controller accepts them not.
    pub(crate) fn offer(&mut self, hash: u8, group: u8) -> Result<(), AuthFailure> {
        let mut descriptor = AuthDescriptor::new_zeroed();
        (descriptor.protocol, descriptor.hash_count, descriptor.group_count) = (1, 1, 1);
        (descriptor.hashes[0], descriptor.groups[0]) = (hash, group);
        let (kind, message) = (AuthKind::COMMON, AuthMessage::NEGOTIATE);
        let head = AuthHead { kind, message, reserved: 0.into(), transaction: 1.into() };
        let negotiate = AuthNegotiate { head, concatenation: 0, descriptors: 1 };
        let message = [negotiate.as_bytes(), descriptor.as_bytes()].concat();
        let length = message.len() as u32;
        let data = SglDescriptor::in_capsule(0, length);
        let send = AuthCommand::new(FabricsKind::AUTHENTICATION_SEND, length, data);
        self.call(send.entry(), 0, &message).expect("it is taken");
        let room = 4_096;
        let (kind, data) = (FabricsKind::AUTHENTICATION_RECEIVE, SglDescriptor::transport(room));
        let receive = AuthCommand::new(kind, room, data);
        let (_, said) = self.call(receive.entry(), room as usize, &[]).expect("there is an answer");
        let (said, _) = AuthFailureMessage::read_from_prefix(&said).expect("it is long enough");
        match said.head.message {
            AuthMessage::CHALLENGE => Ok(()),
            _ => Err(said.explanation),
        }
    }

    /// Connects an admin queue to a discovery controller.
    pub(crate) fn discovery(at: SocketAddr, host: u8) -> NvmeQueue {
        NvmeQueue::admin(at, host, DISCOVERY_NQN).expect("everybody may look")
    }

    /// Connects I/O queue 1 to the controller of this admin queue.
    pub(crate) fn io(&self, at: SocketAddr, host: u8, subsystem: &str) -> NvmeQueue {
        NvmeQueue::connect(at, host, subsystem, 1, self.cntlid).expect("its controller is there")
    }

    /// Sends an asynchronous event request, which the controller answers at the next event.
    fn request_event(&mut self) {
        let entry = Submission::new(AdminOpcode::ASYNC_EVENT_REQUEST.0, EVENT_CID, 0);
        let mut out = Vec::new();
        self.session.command(&entry, TransferSizes::default(), &[], &mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// Waits for the next event, and sends another asynchronous event request.
    pub(crate) fn event(&mut self) -> Event {
        while !self.has_event() {
            self.receive().expect("an event comes");
        }
        let at = self.early.iter().position(|done| done.cid.get() == EVENT_CID);
        let done = self.early.remove(at.expect("it is there"));
        self.request_event();
        let result = done.result.get() as u32;
        let known = [Event::NAMESPACE, Event::ANA, Event::DISCOVERY, Event::RESERVATION];
        let found = known.into_iter().find(|event| event.to_result() == result);
        found.unwrap_or_else(|| panic!("an event {result:#x}"))
    }

    /// Returns `true` if an event is among the messages received so far.
    pub(crate) fn has_event(&mut self) -> bool {
        self.take(|_| false);
        self.early.iter().any(|done| done.cid.get() == EVENT_CID)
    }

    /// Returns the first `bytes` bytes of a log page.
    pub(crate) fn log(&mut self, page: LogPage, bytes: u32) -> Vec<u8> {
        let mut entry = Submission::new(AdminOpcode::GET_LOG_PAGE.0, 0, 0);
        entry.dword10 = (u32::from(page.0) | (bytes / 4 - 1) << 16).into();
        entry.data = SglDescriptor::transport(bytes);
        self.call(&entry, bytes as usize, &[]).expect("the log is served").1
    }

    /// Returns the identifiers of the namespaces that the host sees.
    pub(crate) fn namespaces(&mut self) -> Vec<u32> {
        let list = self.identify(IdentifyCns::ACTIVE_NAMESPACES, 0).expect("it is served");
        words(&list)
    }

    /// Returns the size of the namespace in blocks, or the status of a refusal.
    pub(crate) fn blocks(&mut self, nsid: u32) -> Result<u64, Status> {
        let data = self.identify(IdentifyCns::NAMESPACE, nsid)?;
        Ok(u64::from_le_bytes(data[..8].try_into().unwrap()))
    }

    /// Returns `true` if a namespace reports write protection: bit 0 of its attributes.
    pub(crate) fn is_protected(&mut self, nsid: u32) -> bool {
        let data = self.identify(IdentifyCns::NAMESPACE, nsid).expect("it is served");
        data[99] & 1 == 1
    }

    /// Returns the descriptor of a namespace's UUID, which no other namespace has.
    pub(crate) fn uuid(&mut self, nsid: u32) -> Vec<u8> {
        let list = self.identify(IdentifyCns::NAMESPACE_DESCRIPTORS, nsid).expect("it is served");
        list[4..20].to_vec()
    }

    /// Registers a key for reservations of a namespace, and sets whether registrations and
    /// reservations persist through power loss.
    pub(crate) fn register(&mut self, nsid: u32, key: u64, persists: bool) -> Result<(), Status> {
        let mut entry = Submission::new(NvmOpcode::RESERVATION_REGISTER.0, 0, nsid);
        entry.dword10 = (if persists { 3_u32 << 30 } else { 2 << 30 }).into();
        self.call_with(entry, &[[0; 8], key.to_le_bytes()].concat())
    }

    /// Acquires the reservation of a namespace with a registered key, so that other hosts cannot
    /// write.
    pub(crate) fn acquire(&mut self, nsid: u32, key: u64) -> Result<(), Status> {
        let mut entry = Submission::new(NvmOpcode::RESERVATION_ACQUIRE.0, 0, nsid);
        entry.dword10 = (1_u32 << 8).into();
        self.call_with(entry, &[key.to_le_bytes(), [0; 8]].concat())
    }

    fn call_with(&mut self, mut entry: Submission, data: &[u8]) -> Result<(), Status> {
        entry.data = SglDescriptor::in_capsule(0, data.len() as u32);
        self.call(&entry, 0, data).map(drop)
    }

    pub(crate) fn identify(&mut self, cns: IdentifyCns, nsid: u32) -> Result<Vec<u8>, Status> {
        let mut entry = Submission::new(AdminOpcode::IDENTIFY.0, 0, nsid);
        entry.dword10 = u32::from(cns.0).into();
        entry.data = SglDescriptor::transport(4096);
        self.call(&entry, 4096, &[]).map(|(_, data)| data)
    }

    /// Writes a block of a namespace.
    pub(crate) fn write(&mut self, nsid: u32, lba: u64, block: &[u8; 512]) -> Result<(), Status> {
        let mut entry = io_entry(NvmOpcode::WRITE, nsid, lba);
        entry.data = SglDescriptor::in_capsule(0, 512);
        self.call(&entry, 0, block).map(drop)
    }

    /// Reads a block of a namespace.
    pub(crate) fn read(&mut self, nsid: u32, lba: u64) -> Result<Vec<u8>, Status> {
        let mut entry = io_entry(NvmOpcode::READ, nsid, lba);
        entry.data = SglDescriptor::transport(512);
        self.call(&entry, 512, &[]).map(|(_, data)| data)
    }

    /// Sends a command with a new identifier, and waits for its completion. `receives` is the
    /// number of bytes that it reads, `capsule` the data that it sends.
    pub(crate) fn call(&mut self, entry: &Submission, receives: usize, capsule: &[u8]) -> Outcome {
        self.next_cid = (self.next_cid + 1) % EVENT_CID;
        let cid = self.next_cid;
        let mut entry = *entry;
        entry.cid = cid.into();
        let mut out = Vec::new();
        self.session.command(
            &entry,
            TransferSizes { receives, ..TransferSizes::default() },
            capsule,
            &mut out,
        );
        self.stream.write_all(&out).map_err(|_| Status::PATH_INTERNAL)?;
        let mut data = vec![0; receives];
        loop {
            self.take(|event| {
                if let HostEvent::Data { offset, bytes, .. } = event {
                    data[*offset..*offset + bytes.len()].copy_from_slice(bytes);
                }
                false
            });
            if let Some(at) = self.early.iter().position(|done| done.cid.get() == cid) {
                let done = self.early.remove(at);
                return match done.status() {
                    status if status.is_ok() => Ok((done.result.get(), data)),
                    status => Err(status),
                };
            }
            self.receive().map_err(|_| Status::PATH_INTERNAL)?;
        }
    }

    /// Parses received bytes into events, up to the first for which `look` returns `true`. Returns
    /// `true` if there was one.
    fn take(&mut self, mut look: impl FnMut(&HostEvent<'_>) -> bool) -> bool {
        let mut input = &self.input[..];
        let mut found = false;
        while !found {
            match self.session.next_event(&mut input).expect("the controller keeps the protocol") {
                None => break,
                Some(event) => {
                    found = look(&event);
                    if let HostEvent::Ended { completion, .. } = event {
                        self.early.push(completion);
                    }
                }
            }
        }
        let taken = self.input.len() - input.len();
        self.input.drain(..taken);
        found
    }

    /// Waits for more bytes and receives them. Fails if the controller has closed the connection.
    pub(crate) fn receive(&mut self) -> std::io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.input.extend_from_slice(&bytes[..n]);
                Ok(())
            }
        }
    }
}

fn io_entry(opcode: NvmOpcode, nsid: u32, lba: u64) -> Submission {
    let mut entry = Submission::new(opcode.0, 0, nsid);
    entry.dword10 = (lba as u32).into();
    entry.dword11 = ((lba >> 32) as u32).into();
    entry
}

/// Returns the little-endian numbers of 32 bits of a list that ends with a zero.
pub(crate) fn words(list: &[u8]) -> Vec<u32> {
    let words = list.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    words.take_while(|word| *word != 0).collect()
}
