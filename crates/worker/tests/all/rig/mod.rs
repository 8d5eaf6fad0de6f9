//! A worker with a network, a scheduler and sessions that a test controls.
//!
//! The sessions speak a protocol of two bytes: `T n` belongs to tenant n from now on (0: to its
//! own), `F n` has the rig's fence, `W n` asks to write n times 4 KiB when invited, `C n` to
//! compare and write them, `P n` is the whole payload of its n-th request, `R n` reads n times 4
//! KiB, `O n` is a barrier, `X n` breaks the protocol. `Q n` writes n times 4 KiB that follow:
//! `B n` is all of them, `E n` their check, good (0) or not. A frame's head is `I n` for an
//! invitation and `R n status` for an answer.

#![allow(dead_code, reason = "each test uses its part")]

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use contract::{
    Buf, BufPool, CloseReason, Command, CompletedPrelude, ConnId, ExpectedPayload, Feedback, Fence,
    Frame, FrameHead, Instant, IoKind, ListenerId, Mailbox, Meters, MigratableSession, Migrate,
    MigratingConnection, NetEvent, Peer, ProtocolError, QueueFull, Range, Reply, Report, Request,
    RestorableSession, RevocablePermissions, Scheduler, Session, SessionEvent, Slot, Status,
    Streams, Tag, TenancyRequest, TenantId, Ticket, Transport, UnsolicitedOutput, WorkerMessage,
};
use flash::Null;
use nearflash_worker::{
    AccessRules, ControlPlaneLink, DeviceLane, Fences, Limits, Listeners, Namespace, Namespaces,
    SessionFactory, SharedState, UnpackError, Worker,
};

/// Bytes of a write of one unit.
pub(crate) const UNIT: usize = 4096;

/// The network, as the worker and the test share it.
#[derive(Debug, Default)]
struct NetworkState {
    events: VecDeque<NetEvent>,
    /// The heads of the frames that the worker has sent, each with the index of its connection.
    said: Vec<(u32, Vec<u8>)>,
    /// `true` if connections that the worker ends stay open until their peers hang up.
    lingers: bool,
    /// The indices of the connections whose peers read nothing.
    deaf: Vec<u32>,
    /// The indices of the connections that no other worker can have.
    bound: Vec<u32>,
    /// The events by which peers that read nothing would return the bodies sent to them, oldest
    /// first.
    unread: VecDeque<NetEvent>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Network(Rc<RefCell<NetworkState>>);

impl Streams for Network {
    fn poll(&mut self, _: Instant, events: &mut Vec<NetEvent>, _: usize) {
        events.extend(self.0.borrow_mut().events.drain(..));
    }
    fn give(&mut self, _: Buf) {}
    fn room(&self) -> usize {
        usize::MAX
    }
    fn send(&mut self, _: Instant, conn: ConnId, frame: Frame) {
        let mut wire = self.0.borrow_mut();
        wire.said.push((conn.index, frame.head.bytes().to_vec()));
        if let Some(buf) = frame.body {
            let sent = NetEvent::Sent { conn, buf };
            match wire.deaf.contains(&conn.index) {
                true => wire.unread.push_back(sent),
                false => wire.events.push_back(sent),
            }
        }
    }
    fn kick(&mut self, _: Instant) {}
    fn close(&mut self, conn: ConnId) {
        let mut wire = self.0.borrow_mut();
        if !wire.lingers {
            wire.events.push_back(NetEvent::Closed { conn, reason: CloseReason::Local });
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl Transport for Network {
    fn pause(&mut self, _: ConnId) {}
    fn resume(&mut self, _: ConnId) {}
    fn unsent(&self, _: ConnId) -> usize {
        0
    }
    fn finish(&mut self, conn: ConnId) {
        self.close(conn);
    }
    fn stop_listening(&mut self) {}
}

impl Migrate for Network {
    fn moves_to(&self, conn: ConnId, _: u16) -> bool {
        !self.0.borrow().bound.contains(&conn.index)
    }
    fn still(&mut self, _: ConnId) {}
    fn is_still(&self, _: ConnId) -> bool {
        true
    }
    fn detach(&mut self, conn: ConnId, _: u16) -> Ticket {
        Ticket(u64::from(conn.index))
    }
    /// Attaches a connection under the index behind the one that it had.
    fn attach(&mut self, Ticket(place): Ticket) -> Option<ConnId> {
        Some(ConnId { index: place as u32 + 1, generation: 0 })
    }
}

/// A scheduler in the test's hand: first come, first served, while it is open.
#[derive(Debug, Default)]
pub(crate) struct TestScheduler {
    queue: VecDeque<(TenantId, Slot)>,
    is_open: Rc<RefCell<bool>>,
    /// Tenants that have no tokens.
    poor: Rc<RefCell<Vec<TenantId>>>,
    /// Number of requests that were released, less those that were refunded.
    paid: Rc<RefCell<usize>>,
    /// Tenants with a promise.
    promised: Rc<RefCell<Vec<TenantId>>>,
}

impl Feedback for TestScheduler {
    fn yields(&self, tenant: TenantId) -> bool {
        let promised = self.promised.borrow();
        !promised.is_empty() && !promised.contains(&tenant)
    }
}

impl Scheduler for TestScheduler {
    fn enqueue(
        &mut self,
        tenant: TenantId,
        _: IoKind,
        _: usize,
        slot: Slot,
    ) -> Result<(), QueueFull> {
        self.queue.push_back((tenant, slot));
        Ok(())
    }
    fn begin_round(&mut self, _: Instant) {}
    fn next(&mut self) -> Option<Slot> {
        let is_rich = |(tenant, _): &(TenantId, Slot)| !self.poor.borrow().contains(tenant);
        let first = self.queue.iter().position(is_rich).filter(|_| *self.is_open.borrow());
        let (_, next) = self.queue.remove(first?).expect("it was found there");
        *self.paid.borrow_mut() += 1;
        Some(next)
    }
    fn refund(&mut self, _: IoKind, _: usize) {
        *self.paid.borrow_mut() -= 1;
    }
    fn discard(&mut self) -> Option<Slot> {
        self.queue.pop_front().map(|(_, slot)| slot)
    }
    fn withdraw(
        &mut self,
        _: TenantId,
        wanted: &mut impl FnMut(Slot) -> bool,
        taken: &mut Vec<Slot>,
    ) {
        let (out, stay): (VecDeque<_>, _) = self.queue.drain(..).partition(|of| wanted(of.1));
        self.queue = stay;
        taken.extend(out.into_iter().map(|(_, slot)| slot));
    }
    fn queued(&self) -> usize {
        self.queue.len()
    }
    fn wake_at(&self, now: Instant) -> Option<Instant> {
        (!self.queue.is_empty()).then_some(now)
    }
}

/// A session of the rig's protocol, which the module's comment describes.
#[derive(Debug, Default)]
pub(crate) struct TestSession {
    /// The units of each request's payload and the slot of its invitation, by number of the
    /// request.
    requests: Vec<(usize, Option<Slot>)>,
    /// The rig's fence, which becomes the session's own.
    given: Rc<RefCell<Arc<Fence>>>,
    fence: Option<Arc<Fence>>,
    /// The epoch of the fence from which a request is allowed, by tag; absent for the first epoch.
    as_of: HashMap<Tag, u32>,
}

impl TestSession {
    /// Returns a request with this command, and a payload of so many units.
    fn request(&mut self, command: Command, payload: usize) -> Request {
        self.requests.push((payload, None));
        let tag = self.requests.len() as Tag - 1;
        Request { payload_bytes: payload * UNIT, ..Request::plain(tag, command) }
    }
}

thread_local! {
    /// The packed sessions. The bytes of a packed session are its index here.
    static PACKED: RefCell<Vec<TestSession>> = const { RefCell::new(Vec::new()) };
}

impl Session for TestSession {
    fn next_event<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<SessionEvent<'a>>, ProtocolError> {
        static ZEROES: [u8; 16 * UNIT] = [0; 16 * UNIT];
        let Some((&[what, n], rest)) = input.split_first_chunk() else { return Ok(None) };
        *input = rest;
        let units = usize::from(n);
        let range = Range::new(0, (units * UNIT / 512) as u32);
        Ok(Some(match what {
            b'T' => SessionEvent::Attached((n > 0).then(|| TenantId(u32::from(n)))),
            b'F' => {
                let fence = self.given.borrow().clone();
                self.fence = Some(fence.clone());
                SessionEvent::Fenced(fence)
            }
            b'W' => {
                SessionEvent::Awaited(self.request(Command::Write { range, fua: false }, units))
            }
            b'C' => SessionEvent::Awaited(self.request(Command::CompareAndWrite(range), 2 * units)),
            b'R' => SessionEvent::Request(self.request(Command::Read(range), 0)),
            b'D' => SessionEvent::Request(self.request(Command::Discard(range), 0)),
            b'O' => SessionEvent::Request(self.request(Command::Barrier, 0)),
            b'Q' => {
                SessionEvent::Request(self.request(Command::Write { range, fua: false }, units))
            }
            b'B' => SessionEvent::Payload { bytes: &ZEROES[..units * UNIT], end: None },
            b'E' => {
                let end = if n == 0 { Status::Ok } else { Status::BadChecksum };
                SessionEvent::Payload { bytes: &[], end: Some(end) }
            }
            b'P' => {
                let (units, slot) = self.requests[units];
                let (slot, bytes) = (slot.expect("it was invited"), &ZEROES[..units * UNIT]);
                SessionEvent::Piece { slot, offset: 0, bytes, end: Some(Status::Ok) }
            }
            _ => return Err(ProtocolError::OutOfOrder),
        }))
    }

    fn expects(&self) -> Option<ExpectedPayload> {
        None
    }

    fn reply(&mut self, reply: &Reply, _: &[u8]) -> Result<FrameHead, ProtocolError> {
        let Reply::Done { tag, status, .. } = *reply else { unreachable!("nothing else is asked") };
        Ok(FrameHead::new(&[b'R', tag as u8, status as u8]))
    }

    fn invite(&mut self, tag: Tag, slot: Slot, _: &mut [u8]) -> FrameHead {
        self.requests[tag as usize].1 = Some(slot);
        FrameHead::new(&[b'I', tag as u8])
    }

    fn is_mid_message(&self) -> bool {
        false
    }

    fn takes_notices(&self) -> bool {
        false
    }
}

impl RevocablePermissions for TestSession {
    fn allowed_as_of(&self, tag: Tag) -> u32 {
        self.as_of.get(&tag).copied().unwrap_or(0)
    }

    /// Allows requests with odd tags again, and denies the others.
    fn allow_again(&mut self, tag: Tag) -> Result<u32, Status> {
        let now = self.fence.as_ref().expect("it has a fence").epoch();
        self.as_of.insert(tag, now);
        if tag.is_multiple_of(2) { Err(Status::Denied) } else { Ok(now) }
    }
}

impl UnsolicitedOutput for TestSession {
    fn leave(&mut self) {
        if let Some(fence) = &self.fence {
            fence.supersede();
        }
    }
}

impl MigratableSession for TestSession {
    fn moves_to(&self, _: u16) -> bool {
        true
    }

    fn pack(&mut self) -> Option<Vec<u8>> {
        PACKED.with_borrow_mut(|packed| {
            packed.push(std::mem::take(self));
            Some(vec![packed.len() as u8 - 1])
        })
    }

    fn landed(&mut self, _: ConnId) -> Option<Arc<Fence>> {
        self.fence.clone()
    }
}

impl RestorableSession for TestSession {
    fn unpack(packed: &[u8]) -> Option<Self> {
        let place = usize::from(packed[0]);
        Some(PACKED.with_borrow_mut(|packed| std::mem::take(&mut packed[place])))
    }
}

/// The mailbox between control plane and worker: unread commands, commands to others, and reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestMailbox(
    Rc<RefCell<VecDeque<WorkerMessage>>>,
    Rc<RefCell<VecDeque<WorkerMessage>>>,
    Rc<RefCell<VecDeque<Report>>>,
);

impl Mailbox for TestMailbox {
    fn ask(&mut self, _: TenancyRequest) -> bool {
        false
    }
    fn report(&mut self, report: Report) {
        self.2.borrow_mut().push_back(report);
    }
    fn pass(&mut self, _: u16, tell: WorkerMessage) -> Result<(), WorkerMessage> {
        self.1.borrow_mut().push_back(tell);
        Ok(())
    }
    fn poll(&mut self) -> Option<WorkerMessage> {
        self.0.borrow_mut().pop_front()
    }
}

/// A worker and its surroundings.
pub(crate) struct Rig {
    pub(crate) worker: Worker<Network, Null, TestScheduler, TestSession, TestMailbox, TestSessions>,
    pub(crate) meters: Arc<Meters>,
    fence: Rc<RefCell<Arc<Fence>>>,
    letters: TestMailbox,
    network: Network,
    gate: Rc<RefCell<bool>>,
    poor: Rc<RefCell<Vec<TenantId>>>,
    paid: Rc<RefCell<usize>>,
    promised: Rc<RefCell<Vec<TenantId>>>,
    parts: Arc<SharedState>,
    now: Instant,
}

/// Sessions whose connections get the rig's fence.
#[derive(Debug)]
pub(crate) struct TestSessions {
    given: Rc<RefCell<Arc<Fence>>>,
}

impl SessionFactory<TestSession> for TestSessions {
    fn open(
        &mut self,
        _: ConnId,
        _: Option<ListenerId>,
        _: &Peer,
        _: Option<&CompletedPrelude>,
    ) -> TestSession {
        TestSession { given: self.given.clone(), ..TestSession::default() }
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<TestSession, UnpackError> {
        RestorableSession::unpack(packed).ok_or(UnpackError::Unknown)
    }
}

impl Rig {
    /// Creates a worker with so many slots, a pool of these classes (bytes, count), and no
    /// connection.
    pub(crate) fn new(slots: usize, classes: &[(usize, u32)]) -> Rig {
        Rig::keeping(slots, classes, Limits::default().carried)
    }

    /// Creates a worker like [`new`](Rig::new), which keeps at most `carried` bytes of stalled
    /// connections.
    pub(crate) fn keeping(slots: usize, classes: &[(usize, u32)], carried: usize) -> Rig {
        let network = Network::default();
        let gate = Rc::new(RefCell::new(true));
        let scheduler = TestScheduler { is_open: gate.clone(), ..TestScheduler::default() };
        let (paid, poor) = (scheduler.paid.clone(), scheduler.poor.clone());
        let promised = scheduler.promised.clone();
        let namespace = Namespace { device: 0, first: 0, blocks: 1 << 20, read_only: false };
        let parts = SharedState::new(Namespaces::new(vec![namespace]), AccessRules::open_to_all());
        let bufs = classes.iter().flat_map(|&(bytes, count)| (0..count).map(move |n| (bytes, n)));
        let pool = BufPool::new(bufs.map(|(bytes, n)| Buf::new(vec![0; bytes].leak(), n)));
        let discard_blocks = (4 * UNIT / 512) as u32;
        let limits = Limits { in_flight: slots, carried, discard_blocks, ..Limits::default() };
        let devices = vec![DeviceLane::new(Null::new(1 << 20), scheduler)];
        let fence = Rc::<RefCell<Arc<Fence>>>::default();
        let sessions = TestSessions { given: fence.clone() };
        let (letters, meters) = (TestMailbox::default(), Arc::new(Meters::new(limits.tenants)));
        let line = ControlPlaneLink {
            mailbox: letters.clone(),
            meters: meters.clone(),
            worker: 0,
            watch: None,
        };
        let parts = Arc::new(parts);
        let worker = Worker::with_sessions(
            network.clone(),
            devices,
            pool,
            parts.clone(),
            limits,
            sessions,
            line,
        );
        let now = Instant::ZERO;
        Rig { worker, meters, fence, letters, network, gate, poor, paid, promised, parts, now }
    }

    /// Gives the worker a message while another thread uses the table of names. Returns the heads
    /// of the messages that the worker then sends, with the indices of their connections.
    pub(crate) fn tell_shut(&mut self, tell: WorkerMessage) -> Vec<(u32, Vec<u8>)> {
        let parts = self.parts.clone();
        parts.fences.shut_while(|| self.tell(tell))
    }

    /// Returns the fences, which all workers share.
    pub(crate) fn fences(&self) -> &Fences {
        &self.parts.fences
    }

    /// Returns the listeners, which all workers share.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.parts.listeners
    }

    /// Returns the number of requests that the scheduler released and that were not refunded.
    pub(crate) fn paid(&self) -> usize {
        *self.paid.borrow()
    }

    /// Makes a connection read no data from now on.
    pub(crate) fn leave_unread(&mut self, conn: u32) {
        self.network.0.borrow_mut().deaf.push(conn);
    }

    /// Lets a connection's peer read the first `count` bodies sent to it. Returns the heads of the
    /// messages that the worker then sends to anybody.
    pub(crate) fn read_some(&mut self, conn: u32, count: usize) -> Vec<(u32, Vec<u8>)> {
        let is_its =
            |event: &NetEvent| matches!(event, NetEvent::Sent { conn: to, .. } if to.index == conn);
        for _ in 0..count {
            let wire = &mut *self.network.0.borrow_mut();
            let Some(first) = wire.unread.iter().position(is_its) else { break };
            wire.events.extend(wire.unread.remove(first));
        }
        self.turns()
    }

    /// Lets a connection's peer read all data from now on. Returns the heads of the messages that
    /// the worker then sends.
    pub(crate) fn read_on(&mut self, conn: u32) -> Vec<(u32, Vec<u8>)> {
        self.network.0.borrow_mut().deaf.retain(|deaf| *deaf != conn);
        self.read_some(conn, usize::MAX)
    }

    /// Makes these tenants the only ones with a promise.
    pub(crate) fn promise(&mut self, tenants: &[u32]) {
        *self.promised.borrow_mut() = tenants.iter().map(|tenant| TenantId(*tenant)).collect();
    }

    /// Keeps connections that the worker ends open from now on, until their peers hang up.
    pub(crate) fn let_linger(&mut self) {
        self.network.0.borrow_mut().lingers = true;
    }

    /// Drains the worker. Returns the heads of the messages that the worker then sends.
    pub(crate) fn drain(&mut self) -> Vec<(u32, Vec<u8>)> {
        self.worker.drain(self.now);
        self.turns()
    }

    /// Gives the worker a message of the control plane. Returns the heads of the messages that the
    /// worker then sends.
    pub(crate) fn tell(&mut self, tell: WorkerMessage) -> Vec<(u32, Vec<u8>)> {
        self.letters.0.borrow_mut().push_back(tell);
        self.turns()
    }

    /// Makes the network refuse to move a connection to another worker.
    pub(crate) fn bind(&self, conn: u32) {
        self.network.0.borrow_mut().bound.push(conn);
    }

    /// Returns the parcel of the next connection that left for another worker; `None` if none has
    /// left.
    pub(crate) fn departed(&mut self) -> Option<Box<MigratingConnection>> {
        match self.letters.1.borrow_mut().pop_front()? {
            WorkerMessage::Arrive(parcel) => Some(parcel),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the worker's next report to the control plane; `None` if there is none.
    pub(crate) fn reported(&mut self) -> Option<Report> {
        self.letters.2.borrow_mut().pop_front()
    }

    /// Opens a connection, and makes it one of this tenant.
    pub(crate) fn connect(&mut self, index: u32, tenant: u8) {
        let (conn, peer) = (ConnId { index, generation: 0 }, Peer::Local { uid: 0 });
        let opened = NetEvent::opened(conn, peer, Some(ListenerId(0)));
        self.network.0.borrow_mut().events.push_back(opened);
        assert!(self.say(index, &[b'T', tenant]).is_empty());
    }

    /// Opens a connection of tenant 1 whose session has this fence. Returns the fence.
    pub(crate) fn connect_fenced(&mut self, index: u32, fence: Fence) -> Arc<Fence> {
        let fence = Arc::new(fence);
        *self.fence.borrow_mut() = fence.clone();
        self.connect(index, 1);
        assert!(self.say(index, b"F\x00").is_empty());
        fence
    }

    /// Delivers bytes on a connection. Returns the heads of all messages that the worker then
    /// sends.
    pub(crate) fn say(&mut self, index: u32, bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let conn = ConnId { index, generation: 0 };
        let mut buf = Buf::new(vec![0; bytes.len()].leak(), 0);
        buf.bytes_mut().copy_from_slice(bytes);
        let received = NetEvent::Received { conn, buf, len: bytes.len() };
        self.network.0.borrow_mut().events.push_back(received);
        self.turns()
    }

    /// Closes a connection by its peer. Returns the heads of the messages that the worker then
    /// sends.
    pub(crate) fn hang_up(&mut self, index: u32) -> Vec<(u32, Vec<u8>)> {
        let (conn, reason) = (ConnId { index, generation: 0 }, CloseReason::Peer);
        self.network.0.borrow_mut().events.push_back(NetEvent::Closed { conn, reason });
        self.turns()
    }

    /// Closes a connection by a reset.
    pub(crate) fn reset(&mut self, index: u32) {
        let (conn, reason) = (ConnId { index, generation: 0 }, CloseReason::Reset(104));
        self.network.0.borrow_mut().events.push_back(NetEvent::Closed { conn, reason });
        self.turns();
    }

    /// Sets whether the scheduler releases requests from now on. Returns the heads of the messages
    /// that the worker then sends.
    pub(crate) fn open_gate(&mut self, is_open: bool) -> Vec<(u32, Vec<u8>)> {
        *self.gate.borrow_mut() = is_open;
        self.turns()
    }

    /// Lets the scheduler release all requests but those of these tenants from now on. Returns the
    /// heads of the messages that the worker then sends.
    pub(crate) fn impoverish(&mut self, tenants: &[u32]) -> Vec<(u32, Vec<u8>)> {
        self.set_poor(tenants);
        self.turns()
    }

    /// Lets the scheduler release all requests but those of these tenants, without a turn.
    pub(crate) fn set_poor(&mut self, tenants: &[u32]) {
        *self.poor.borrow_mut() = tenants.iter().map(|tenant| TenantId(*tenant)).collect();
    }

    /// Lets time pass in which the peers send nothing. Returns the heads of the messages that the
    /// worker sends then, with the indices of their connections.
    pub(crate) fn pass(&mut self, time: Duration) -> Vec<(u32, Vec<u8>)> {
        self.now = self.now + time;
        self.turns()
    }

    /// Runs a hundred turns, after which nothing more happens. Returns the heads of the messages
    /// that the worker has sent, with the indices of their connections.
    pub(crate) fn turns(&mut self) -> Vec<(u32, Vec<u8>)> {
        for _ in 0..100 {
            self.turn();
        }
        self.take_said()
    }

    /// Runs one turn. Returns `true` if the worker wants the next turn at once.
    pub(crate) fn turn(&mut self) -> bool {
        self.now = Instant::from_nanos(self.now.as_nanos() + 1_000);
        let turn = self.worker.turn(self.now);
        turn.progressed || turn.wake_at.is_some_and(|at| at <= self.now)
    }

    /// Returns the heads of the messages sent since the last call, with the indices of their
    /// connections.
    pub(crate) fn take_said(&mut self) -> Vec<(u32, Vec<u8>)> {
        std::mem::take(&mut self.network.0.borrow_mut().said)
    }
}
