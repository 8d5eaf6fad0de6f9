//! A miniature worker around the controller's end, and both ends joined by a pipe.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use contract::{
    BLOCK_BYTES, Command, CompletedPrelude, ConnId, ExpectedPayload, Fence, FrameHead, Instant,
    MigratableSession, ProtocolError, Reply, Request, SPEECH_BYTES_MAX, Session, SessionEvent,
    Slot, SlotTable, Status, TenantId, UnsolicitedOutput,
};
use nearflash_proto::nvme::{Fabric, HeldCommands, LockBusy, PortId};
use nearflash_proto::nvme_tcp::{
    ControllerSession, Digests, HostEvent, HostSession, TransferSizes, WorkerFabric,
};
use wire::nvme::{ConnectData, NvmOpcode, SglDescriptor, Submission};
use zerocopy::IntoBytes;

use super::nvme_host as host;
use super::support::Chance;

/// The number of blocks of the memory behind the target.
pub const BLOCKS: usize = 4096;

/// The most commands in progress, of the queue's 32 entries.
pub const DEPTH: u16 = 31;

/// The connection's identifier.
pub const CONN: ConnId = ConnId { index: 1, generation: 0 };

/// A request with its complete payload.
struct Whole {
    request: Request,
    payload: Vec<u8>,
}

/// The controller's end of a connection, and the state of a worker that serves it.
pub struct Target {
    pub session: ControllerSession,
    /// The bytes that the session has sent.
    pub out: Vec<u8>,
    /// The reason for which the session has ended the connection; `None` while it goes on.
    pub ended: Option<ProtocolError>,
    /// The tenants that the session has announced.
    pub charged: Vec<Option<TenantId>>,
    /// The fence that the session has announced.
    pub fence: Option<Arc<Fence>>,
    memory: Vec<u8>,
    awaited: SlotTable<Whole>,
    receiving: Option<Whole>,
    /// Requests that are not answered yet.
    waiting: Vec<Whole>,
    /// Awaited requests that have no buffer yet.
    put_off: VecDeque<Request>,
    /// The admin queue, which keeps the controller alive.
    admin: Option<host::Session>,
    /// The two workers' access to the fabric. The session moves between these workers.
    pub desks: [Rc<WorkerFabric>; 2],
    /// The number of moves between the two workers.
    pub moves: u32,
    /// Bytes that the session does not take yet.
    carried: Vec<u8>,
    /// `true` while another thread changes the fabric.
    is_shut: bool,
    /// The fabrics of the processes in which the session has been; the last one is current.
    fabrics: Vec<Arc<Fabric>>,
}

impl Target {
    /// Creates a connection without input, and the data of the Connect for its controller.
    pub fn new() -> (Target, ConnectData) {
        let fabric = host::fabric(&host::config());
        let who = host::host(1);
        let admin = host::connect(&fabric, &who, host::SUBSYSTEM, 1, host::place(0, 0));
        let data = host::connect_data(&who, host::SUBSYSTEM, admin.admin.cntlid());
        let desks = [0, 1].map(|worker| Rc::new(WorkerFabric::new(fabric.clone(), worker)));
        let session = ControllerSession::new(desks[0].clone(), PortId(1), CONN);
        let target = Target {
            session,
            out: Vec::new(),
            ended: None,
            charged: Vec::new(),
            fence: None,
            memory: vec![0; BLOCKS * BLOCK_BYTES],
            awaited: SlotTable::new(64),
            receiving: None,
            waiting: Vec::new(),
            put_off: VecDeque::new(),
            admin: Some(admin),
            desks,
            moves: 0,
            carried: Vec::new(),
            is_shut: false,
            fabrics: vec![fabric],
        };
        (target, data)
    }

    /// Makes the connection one over TLS, which began with the key of this identity.
    pub fn secured(self, identity: &str) -> Target {
        let heard = identity.as_bytes().into();
        let opening = CompletedPrelude { is_secured: true, heard, proven: None };
        Target { session: self.session.after(&opening), ..self }
    }

    /// Returns `true` if the session can move to another worker now.
    pub fn is_settled(&self) -> bool {
        self.session.is_settled()
    }

    /// Moves the session to the other worker, if that is possible now. Every third time, another
    /// thread changes the fabric at each step.
    pub fn travel(&mut self) {
        if self.ended.is_some() || !self.awaited.is_empty() || !self.session.is_settled() {
            return;
        }
        assert!(self.session.moves_to(0) && !self.session.moves_to(2), "there are two");
        let (fabric, is_shut) = (self.fabric(), self.moves % 3 == 1);
        let packed = match is_shut {
            true => fabric.shut_while(|| self.session.pack()),
            false => None,
        };
        let packed = packed.or_else(|| self.session.pack()).unwrap();
        self.moves += 1;
        let desk = self.desks[self.moves as usize % 2].clone();
        self.session = ControllerSession::unpack_at(desk, &packed).expect("it was packed");
        if is_shut && ControllerSession::number(&packed).is_some() {
            assert_eq!(fabric.shut_while(|| self.session.claim_queue()), Err(LockBusy));
        }
        self.session.claim_queue().unwrap();
        let conn = ConnId { index: 1, generation: self.moves };
        let fence = match is_shut {
            true => fabric.shut_while(|| self.session.landed(conn)),
            false => self.session.landed(conn),
        };
        match (&self.fence, fence) {
            (Some(before), Some(now)) => assert!(Arc::ptr_eq(before, &now), "it keeps its fence"),
            (before, now) => {
                assert!(before.is_none(), "it has a fence still");
                self.fence = now;
            }
        }
        self.go_on();
    }

    /// Returns the fabric of the process in which the session is now.
    pub fn fabric(&self) -> Arc<Fabric> {
        self.fabrics[self.fabrics.len() - 1].clone()
    }

    /// Returns `true` if the worker's fabric has news for the session's connection.
    pub fn hears_news(&self) -> bool {
        self.desks[self.moves as usize % 2].news(Instant::ZERO).is_some()
    }

    /// Lets the session do its own work (`attend`), and collects what it sends.
    pub fn attend(&mut self) {
        self.ended = self.session.attend(Instant::ZERO).err();
        self.say();
    }

    /// Moves the session and its controller to another process, where `held` commands wait.
    pub fn export(&mut self, held: HeldCommands) {
        let (from, to) = (self.fabric(), host::fabric(&host::config()));
        let mut admin = self.admin.take().expect("it goes once").admin;
        let cntlid = admin.cntlid();
        to.hold(held);
        from.set_exporting(cntlid, true);
        assert!(self.session.moves_to(2) && self.session.is_settled());
        let packed = self.session.pack().unwrap();
        let numbers =
            [admin.detach().unwrap(), ControllerSession::number(&packed).expect("it has a queue")];
        let exported = from.export(cntlid, &numbers).expect("all of it is here");
        let there = to.prepare_import(exported).expect("it may come");
        let desks = [0, 1].map(|worker| Rc::new(WorkerFabric::new(to.clone(), worker)));
        let (session, packed) =
            ControllerSession::from_other_process(desks[0].clone(), &packed, there[&1], PortId(1))
                .expect("it makes sense");
        let tags = self.put_off.iter().map(|request| request.tag);
        assert!(session.answers(tags), "they are its requests");
        from.hand_over(cntlid, &numbers).expect("nothing has happened");
        from.forget_exported(cntlid);
        assert!(to.import(cntlid, Instant::ZERO));
        let admin =
            host::attach(&to, there[&0], 0, host::place(0, 0).conn).expect("it was admitted");
        let who = host::host(1);
        let place = host::place(0, 0);
        self.admin = Some(host::Session::again(&to, &who, host::SUBSYSTEM, admin, place));
        self.desks = desks;
        self.moves = 0;
        self.session =
            ControllerSession::unpack_at(self.desks[0].clone(), &packed).expect("it was packed");
        self.session.claim_queue().unwrap();
        self.fence = self.session.landed(CONN);
        self.fabrics.push(to);
        self.feed(&[]);
    }

    /// Restores a packed session, which gets no connection; `None` if the bytes are invalid.
    pub fn unpack(&self, packed: &[u8]) -> Option<ControllerSession> {
        ControllerSession::unpack_at(self.desks[0].clone(), packed)
    }

    /// Passes bytes to the session while another thread changes the fabric, and goes on afterwards.
    pub fn feed_shut(&mut self, bytes: &[u8]) {
        self.is_shut = true;
        self.fabric().shut_while(|| self.feed(bytes));
        self.is_shut = false;
        self.go_on();
    }

    /// Lets the session go on for as long as its worker's fabric has news for it.
    fn go_on(&mut self) {
        while self.ended.is_none() && self.hears_news() {
            self.attend();
            self.feed(&[]);
        }
        assert!(self.carried.is_empty() || self.ended.is_some(), "nobody would call it again");
    }

    /// Passes bytes to the session, processes its events, and keeps what it does not take.
    pub fn feed(&mut self, bytes: &[u8]) {
        let all = [std::mem::take(&mut self.carried), bytes.to_vec()].concat();
        let mut input = &all[..];
        while self.ended.is_none() && (!input.is_empty() || self.session.has_more()) {
            let (expected, here) = (self.session.expects(), input.len());
            match self.session.next_event(&mut input) {
                Ok(Some(event)) => {
                    if let (Some(ExpectedPayload { place, bytes }), 1..) = (expected, here) {
                        let (where_to, len) = match &event {
                            SessionEvent::Payload { bytes, .. } => (None, bytes.len()),
                            SessionEvent::Piece { slot, offset, bytes, .. } => {
                                (Some((*slot, *offset)), bytes.len())
                            }
                            other => panic!("payload was expected, not {other:?}"),
                        };
                        assert_eq!((where_to, len), (place, bytes.min(here)));
                    }
                    self.handle(event);
                }
                Ok(None) => {
                    assert!(input.is_empty() || self.is_shut, "bytes left behind");
                    self.carried = input.to_vec();
                    break;
                }
                Err(fatal) => self.ended = Some(fatal),
            }
        }
        self.say();
    }

    fn handle(&mut self, event: SessionEvent<'_>) {
        match event {
            SessionEvent::Request(request) if request.payload_bytes == 0 => {
                self.waiting.push(Whole { request, payload: Vec::new() });
            }
            SessionEvent::Request(request) => {
                assert!(self.receiving.is_none(), "a payload was not ended");
                self.receiving = Some(Whole { request, payload: Vec::new() });
            }
            SessionEvent::Payload { bytes, end } => {
                let mut whole = self.receiving.take().expect("behind its request");
                whole.payload.extend_from_slice(bytes);
                match end {
                    None => self.receiving = Some(whole),
                    Some(status) => self.whole(whole, status),
                }
            }
            SessionEvent::Awaited(request) => self.put_off.push_back(request),
            SessionEvent::Piece { slot, offset, bytes, end } => {
                let whole = self.awaited.get(slot);
                whole.payload[offset..offset + bytes.len()].copy_from_slice(bytes);
                if let Some(status) = end {
                    let whole = self.awaited.remove(slot);
                    self.whole(whole, status);
                }
            }
            SessionEvent::Own => {
                self.ended = self.session.attend(Instant::ZERO).err();
                self.say();
            }
            SessionEvent::Attached(tenant) => self.charged.push(tenant),
            SessionEvent::Fenced(fence) => self.fence = Some(fence),
            SessionEvent::Control(control) => panic!("{control:?} is of another protocol"),
        }
    }

    fn whole(&mut self, whole: Whole, status: Status) {
        assert_eq!(whole.payload.len(), whole.request.payload_bytes);
        match status {
            Status::Ok => self.waiting.push(whole),
            status => self.answer(&whole.request, status, &[]),
        }
    }

    /// Carries out one waiting request, or requests the payload of an awaited one. Returns `false`
    /// if there is none.
    pub fn work(&mut self, chance: &mut Chance) -> bool {
        let many = self.waiting.len() + usize::from(!self.put_off.is_empty());
        if many == 0 || self.ended.is_some() {
            return false;
        }
        match chance.below(many) {
            n if n < self.waiting.len() => {
                let whole = self.waiting.swap_remove(n);
                self.perform(&whole);
            }
            _ => {
                let request = self.put_off.pop_front().expect("counted above");
                let payload = vec![0; request.payload_bytes];
                let slot = self.awaited.insert(Whole { request, payload });
                let slot: Slot = slot.ok().expect("there are enough");
                let room = &mut self.awaited.get(slot).payload;
                let head = self.session.invite(request.tag, slot, room);
                if head.is_empty() {
                    let whole = self.awaited.remove(slot);
                    self.whole(whole, Status::Ok);
                }
                self.send(&head, &[]);
            }
        }
        true
    }

    fn perform(&mut self, whole: &Whole) {
        let Whole { request, payload } = whole;
        let bytes = |range: contract::Range| {
            let from = range.lba as usize * BLOCK_BYTES;
            from..from + range.bytes()
        };
        let within = |range: contract::Range| range.fits(BLOCKS as u64);
        match request.command {
            command if !command.range().is_none_or(within) => {
                self.answer(request, Status::OutOfRange, &[]);
            }
            Command::Read(range) => {
                let body = self.memory[bytes(range)].to_vec();
                self.answer(request, Status::Ok, &body);
            }
            Command::Write { range, .. } => {
                self.memory[bytes(range)].copy_from_slice(payload);
                self.answer(request, Status::Ok, &[]);
            }
            Command::CompareAndWrite(range) => {
                let (compare, write) = payload.split_at(range.bytes());
                let is_equal = self.memory[bytes(range)] == *compare;
                if is_equal {
                    self.memory[bytes(range)].copy_from_slice(write);
                }
                let status = if is_equal { Status::Ok } else { Status::CompareFailed };
                self.answer(request, status, &[]);
            }
            Command::Discard(range) | Command::WriteZeroes { range, .. } => {
                self.memory[bytes(range)].fill(0);
                self.answer(request, Status::Ok, &[]);
            }
            _ => self.answer(request, Status::Ok, &[]),
        }
    }

    fn answer(&mut self, request: &Request, status: Status, body: &[u8]) {
        let reply = Reply::Done { tag: request.tag, command: request.command, status };
        let head = self.session.reply(&reply, body).expect("a command can be answered");
        let body = if head.leaves_body() { &[] } else { body };
        self.send(&head, body);
    }

    fn send(&mut self, head: &FrameHead, body: &[u8]) {
        self.out.extend_from_slice(head.bytes());
        self.out.extend_from_slice(body);
        self.out.extend_from_slice(head.tail());
    }

    pub fn say(&mut self) {
        let mut to = vec![0; SPEECH_BYTES_MAX];
        while self.session.unsaid() > 0 {
            let bytes = self.session.speak(&mut to);
            assert!(bytes > 0, "what was announced is said");
            self.out.extend_from_slice(&to[..bytes]);
        }
    }

    /// Charges the subsystem's I/O to another tenant.
    pub fn charge(&self, tenant: Option<TenantId>) {
        let fabric = &self.admin.as_ref().expect("its controller lives").fabric;
        fabric.set_subsystem_tenant(&host::nqn(host::SUBSYSTEM), tenant).unwrap();
    }

    /// Returns `true` if the host owes the session bytes.
    pub fn session_owes_bytes(&self) -> bool {
        self.session.is_mid_message()
    }

    /// Returns `true` if no request waits.
    pub fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && self.put_off.is_empty() && self.awaited.is_empty()
    }
}

/// Feeds the bytes in pieces of any length; the session may move in between.
pub fn feed_cut(target: &mut Target, chance: &mut Chance, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        if chance.below(8) == 0 {
            target.travel();
        }
        let most = [1, 7, 100, 5000][chance.below(4)];
        let (piece, left) = rest.split_at((1 + chance.below(most)).min(rest.len()));
        match chance.below(8) {
            0 => target.feed_shut(piece),
            _ => target.feed(piece),
        }
        rest = left;
    }
}

/// A host and a controller, with a connected queue.
pub struct Pair {
    pub target: Target,
    pub host: HostSession,
    /// All bytes that the host has sent since it was connected.
    pub said: Vec<u8>,
}

pub fn any_digests(chance: &mut Chance) -> Digests {
    Digests { header: chance.flip(), data: chance.flip() }
}

/// Returns the Connect of an I/O queue with 32 entries.
pub fn connect_entry(without_flow_control: bool) -> Submission {
    let mut entry = host::connect_entry(1, 32, 0);
    entry.attributes = if without_flow_control { 4 } else { 0 };
    *entry.entry()
}

impl Pair {
    pub fn connect(chance: &mut Chance, digests: Digests) -> Pair {
        let (mut target, data) = Target::new();
        let mut host = HostSession::new(digests, DEPTH);
        feed_cut(&mut target, chance, &host.greeting());
        let said = std::mem::take(&mut target.out);
        assert_eq!(host.next_event(&mut &said[..]), Ok(Some(HostEvent::Open)));
        let entry = connect_entry(chance.flip());
        let mut out = Vec::new();
        host.command(&entry, TransferSizes::default(), data.as_bytes(), &mut out);
        feed_cut(&mut target, chance, &out);
        let said = std::mem::take(&mut target.out);
        let event = host.next_event(&mut &said[..]).unwrap();
        let Some(HostEvent::Ended { completion, .. }) = event else { panic!("{event:?}") };
        assert!(completion.status().is_ok(), "{completion:?}");
        Pair { target, host, said: Vec::new() }
    }

    /// Creates both ends with a write that waits for its payload to be requested. Returns the
    /// payload, too.
    pub fn with_a_write() -> (Pair, Vec<u8>) {
        let mut pair = Pair::connect(&mut Chance(7), Digests { header: true, data: true });
        let (entry, data) = (ranged(NvmOpcode::WRITE, 3, 8, 32), vec![5; 32 * 512]);
        let mut out = Vec::new();
        let carried = TransferSizes { sends: data.len(), ..TransferSizes::default() };
        pair.host.command(&entry, carried, &[], &mut out);
        pair.target.feed(&out);
        (pair, data)
    }

    /// Requests the payload of the write, passes it, and checks that the write succeeds.
    pub fn end_write(&mut self, data: &[u8]) {
        assert!(self.target.work(&mut Chance(1)));
        let said = std::mem::take(&mut self.target.out);
        let Ok(Some(HostEvent::Ready(ready))) = self.host.next_event(&mut &said[..]) else {
            panic!("it was not asked for");
        };
        let (head, bytes) = self.host.data(&ready, data);
        let pdu = [head.bytes(), &data[..bytes], head.tail()].concat();
        self.target.feed(&pdu);
        assert!(self.target.work(&mut Chance(1)));
        let said = std::mem::take(&mut self.target.out);
        let Ok(Some(HostEvent::Ended { completion, .. })) = self.host.next_event(&mut &said[..])
        else {
            panic!("it was not answered");
        };
        assert_eq!(completion.status(), wire::nvme::Status::SUCCESS);
    }
}

/// Returns a command with a range.
pub fn ranged(opcode: NvmOpcode, cid: u16, lba: u64, blocks: u32) -> Submission {
    let mut entry = Submission::new(opcode.0, cid, 1);
    entry.dword10 = (lba as u32).into();
    entry.dword12 = (blocks - 1).into();
    entry.data = SglDescriptor::transport(blocks * BLOCK_BYTES as u32);
    entry
}
