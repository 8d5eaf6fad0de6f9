//! Shared parts of the stream tests: pseudo-random numbers, random conversations, and drivers that
//! feed a session pieces of a stream and check the contract on the way.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod rounds;

use contract::{
    Command, ControlRequest, FrameHead, Hello, HelloReply, NamespaceId, NamespaceInfo, Notice,
    ProtocolError, REQUEST_BYTES_MAX, Range, Reply, Request, Rights, Session, SessionEvent, Slo,
    Status, TenantRegistration, TenantReply,
};
use nearflash_proto::reflex::{
    ClientEvent, ClientSession, REQUEST_BLOCKS_MAX, STREAMS_MAX, ServerSession,
};

/// The data that every read returns.
static ZEROES: [u8; REQUEST_BYTES_MAX] = [0; REQUEST_BYTES_MAX];

/// A generator of pseudo-random numbers (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which is not zero. All numbers are nearly equally likely.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Replaces a stream by fewer than `most` random bytes, once in sixteen times.
    pub(crate) fn replace(&mut self, stream: &mut Vec<u8>, most: usize) {
        if self.below(16) == 0 {
            let length = self.below(most);
            *stream = self.bytes(length);
        }
    }

    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn name(&mut self) -> Box<str> {
        let len = self.below(65);
        (0..len).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}

/// The damage that a fuzz test does to a stream.
pub(crate) struct Damage {
    /// The smallest number of changes to a stream; the largest is four.
    pub(crate) places_least: usize,
    /// Byte values that mean something to the protocol, which a change may put in.
    pub(crate) telling: [u8; 12],
    /// The largest number of bytes that a change repeats elsewhere in the stream.
    pub(crate) copied: usize,
}

impl Damage {
    /// Damages the stream by up to four changes: other bytes, missing ones, or ones that are put
    /// in.
    pub(crate) fn tamper(&self, chance: &mut Chance, bytes: &mut Vec<u8>) {
        for _ in 0..self.places_least + chance.below(5 - self.places_least) {
            let at = chance.below(bytes.len().max(1));
            match chance.below(6) {
                _ if bytes.is_empty() => {}
                0 => bytes[at] ^= 1 << chance.below(8),
                1 => bytes[at] = chance.of(&self.telling),
                2 => bytes.truncate(at),
                3 => drop(bytes.drain(at..(at + 1 + chance.below(32)).min(bytes.len()))),
                4 => {
                    let len = chance.below(64);
                    let noise = chance.bytes(len);
                    bytes.splice(at..at, noise);
                }
                _ => {
                    let from = chance.below(bytes.len());
                    let copy = bytes[from..(from + self.copied).min(bytes.len())].to_vec();
                    bytes.splice(at..at, copy);
                }
            }
        }
    }
}

/// Returns the name of a variant, without its value.
pub(crate) fn variant_name(debugged: &impl std::fmt::Debug) -> String {
    format!("{debugged:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// An event of a server's session, with the pieces of each payload joined.
#[derive(Debug, PartialEq)]
pub(crate) enum JoinedServerEvent {
    Request(Request),
    Payload(Vec<u8>, Status),
    Control(ControlRequest),
    Ended(ProtocolError),
}

/// An event of a client's session, with the pieces of each payload joined.
#[derive(Debug, PartialEq)]
pub(crate) enum JoinedClientEvent {
    Reply { tag: u64, status: Status, body_bytes: usize },
    Body(Vec<u8>, Status),
    Other(ClientEvent<'static>),
    Ended(ProtocolError),
}

/// The pieces of a payload so far, and the promised number of its bytes.
#[derive(Default)]
struct Tally {
    promised: usize,
    bytes: Vec<u8>,
}

impl Tally {
    fn promise(&mut self, bytes: usize) {
        assert_eq!(self.promised, 0, "a message in the midst of another's payload");
        self.promised = bytes;
    }

    /// Adds a piece. Returns the whole payload and its status with the last piece, and `None`
    /// before.
    fn piece(&mut self, bytes: &[u8], end: Option<Status>) -> Option<(Vec<u8>, Status)> {
        assert!(!bytes.is_empty(), "an empty piece");
        self.bytes.extend_from_slice(bytes);
        assert!(self.bytes.len() <= self.promised, "more payload than promised");
        assert_eq!(end.is_some(), self.bytes.len() == self.promised, "the end in its place");
        let end = end?;
        assert!(matches!(end, Status::Ok | Status::BadChecksum));
        self.promised = 0;
        Some((std::mem::take(&mut self.bytes), end))
    }
}

/// Feeds the pieces to a server's session, answers every request, and returns the session's events.
/// Hellos are granted checksums if `checksums` is set.
pub(crate) fn serve<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    checksums: bool,
) -> Vec<JoinedServerEvent> {
    let mut session = ServerSession::new();
    let mut heard = Vec::new();
    let mut tally = Tally::default();
    for mut input in pieces {
        loop {
            let (expected, before) = (session.expects(), input.len());
            let event = match session.next_event(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(fatal) => {
                    heard.push(JoinedServerEvent::Ended(fatal));
                    return heard;
                }
            };
            assert!(input.len() < before, "an event out of nothing: {event:?}");
            let passed = match &event {
                SessionEvent::Payload { bytes, .. } => Some(bytes.len()),
                _ => None,
            };
            assert_eq!(passed, expected.map(|e| e.bytes.min(before)), "{event:?}");
            match event {
                SessionEvent::Request(request) => {
                    check_request(&request);
                    tally.promise(request.payload_bytes);
                    answer(&mut session, &request);
                    heard.push(JoinedServerEvent::Request(request));
                }
                SessionEvent::Payload { bytes, end } => {
                    if let Some((bytes, end)) = tally.piece(bytes, end) {
                        heard.push(JoinedServerEvent::Payload(bytes, end));
                    }
                }
                SessionEvent::Control(control) => {
                    tally.promise(0);
                    if let ControlRequest::Hello(hello) = &*control {
                        let reply = HelloReply { checksums, ..HelloReply::default() };
                        let reply = Reply::Hello { tag: hello.tag, status: Status::Ok, reply };
                        session.reply(&reply, &[]).expect("a hello can be answered");
                    }
                    heard.push(JoinedServerEvent::Control(*control));
                }
                other => panic!("this protocol has no {other:?}"),
            }
            assert!(tally.promised == 0 || session.is_mid_message());
        }
        assert!(input.is_empty(), "bytes left behind");
    }
    heard
}

/// Checks that a session's request keeps what the contract promises to a worker.
fn check_request(request: &Request) {
    assert!(request.stream < STREAMS_MAX);
    if let Some(range) = request.command.range() {
        let has_data = request.command.buffer_bytes() > 0;
        let most = if has_data { REQUEST_BLOCKS_MAX } else { u32::MAX };
        assert!((1..=most).contains(&range.blocks), "{request:?}");
    }
    if request.verdict.is_ok() {
        assert_eq!(request.payload_bytes, request.command.payload_bytes());
    } else {
        assert_eq!(request.command.range(), None);
    }
}

fn answer(session: &mut ServerSession, request: &Request) {
    let Request { tag, command, verdict: status, .. } = *request;
    let body_bytes = if status.is_ok() { command.reply_bytes() } else { 0 };
    let reply = Reply::Done { tag, command, status };
    let head = session.reply(&reply, &ZEROES[..body_bytes]).expect("a request can be answered");
    assert_eq!(head.bytes().len(), 24);
}

/// Feeds the pieces to a client's session, and returns its events.
pub(crate) fn listen<'a>(
    session: &mut ClientSession,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<JoinedClientEvent> {
    let mut said = Vec::new();
    let mut tally = Tally::default();
    for mut input in pieces {
        loop {
            let (expected, before) = (session.expects(), input.len());
            let event = match session.next_event(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(fatal) => {
                    said.push(JoinedClientEvent::Ended(fatal));
                    return said;
                }
            };
            assert!(input.len() < before, "an event out of nothing: {event:?}");
            let passed = match &event {
                ClientEvent::Body { bytes, .. } => bytes.len(),
                _ => 0,
            };
            assert_eq!(passed, expected.min(before), "{event:?}");
            said.extend(match event {
                ClientEvent::Reply { tag, status, body_bytes } => {
                    assert!(body_bytes <= REQUEST_BYTES_MAX);
                    assert!(body_bytes == 0 || status.is_ok());
                    tally.promise(body_bytes);
                    Some(JoinedClientEvent::Reply { tag, status, body_bytes })
                }
                ClientEvent::Body { bytes, end } => {
                    tally.piece(bytes, end).map(|(bytes, end)| JoinedClientEvent::Body(bytes, end))
                }
                other => {
                    tally.promise(0);
                    Some(JoinedClientEvent::Other(owned(other)))
                }
            });
            assert!(tally.promised == 0 || session.is_mid_message());
        }
        assert!(input.is_empty(), "bytes left behind");
    }
    said
}

/// Returns the event as one that borrows no bytes; it is neither a reply nor a piece of its data.
fn owned(event: ClientEvent<'_>) -> ClientEvent<'static> {
    match event {
        ClientEvent::Hello { tag, status, reply } => ClientEvent::Hello { tag, status, reply },
        ClientEvent::Info { tag, info } => ClientEvent::Info { tag, info },
        ClientEvent::Tenant { tag, status, reply } => ClientEvent::Tenant { tag, status, reply },
        ClientEvent::Pong { tag } => ClientEvent::Pong { tag },
        ClientEvent::Notice(notice) => ClientEvent::Notice(notice),
        ClientEvent::Reply { .. } | ClientEvent::Body { .. } => unreachable!("taken before"),
    }
}

/// A client's and a server's session after the hello, and the bytes that were exchanged. Version 1
/// exchanges none.
pub(crate) struct Pair {
    pub(crate) client: ClientSession,
    pub(crate) server: ServerSession,
    pub(crate) hello: Hello,
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
}

pub(crate) fn meet(chance: &mut Chance, version: u8, checksums: bool) -> Pair {
    let hello = Hello {
        tag: chance.next(),
        client: u128::from(chance.next()) << 64 | u128::from(chance.next()),
        connection: chance.next() as u32,
        queue_depth: chance.next() as u32,
        checksums,
        token: {
            let len = chance.below(65);
            chance.bytes(len).into()
        },
        tenant: chance.name(),
    };
    let mut client =
        if version == 1 { ClientSession::v1() } else { ClientSession::v2(hello.clone()) };
    let mut server = ServerSession::new();
    let to_server = join(&client.greeting());
    let mut to_client = Vec::new();
    if version == 1 {
        let probe = ClientSession::v1().request(0, 0, None, Command::Read(Range::new(0, 1)), &[]);
        server.next_event(&mut probe.expect("a plain read").bytes()).expect("version 1");
    } else {
        server.next_event(&mut &to_server[..]).expect("a hello");
        let reply = HelloReply { checksums, ..HelloReply::default() };
        let reply = Reply::Hello { tag: hello.tag, status: Status::Ok, reply };
        to_client = server.reply(&reply, &[]).expect("a hello's answer").bytes().to_vec();
        client.next_event(&mut &to_client[..]).expect("a hello's answer");
    }
    Pair { client, server, hello, to_server, to_client }
}

pub(crate) fn join(heads: &[FrameHead]) -> Vec<u8> {
    heads.iter().flat_map(|head| head.bytes().to_vec()).collect()
}

/// Returns a random command that the version has, of at most `blocks_max` blocks.
pub(crate) fn command(chance: &mut Chance, version: u8, blocks_max: usize) -> Command {
    let range = Range::new(chance.next(), 1 + chance.below(blocks_max) as u32);
    let fua = version == 2 && chance.flip();
    match chance.below(if version == 1 { 2 } else { 8 }) {
        0 => Command::Read(range),
        1 => Command::Write { range, fua },
        2 => Command::WriteAtomic(range),
        3 => Command::CompareAndWrite(range),
        4 => Command::Flush,
        5 => Command::Discard(range),
        6 => Command::WriteZeroes { range, fua },
        _ => Command::Barrier,
    }
}

fn control(chance: &mut Chance) -> ControlRequest {
    let tag = chance.next();
    let tenant = chance.next() as u16;
    let slo = Slo {
        latency_us: chance.next() as u32 | 1,
        percentile_tenths: 1 + chance.below(1000) as u16,
        iops: chance.next() as u32,
        read_percent: chance.below(101) as u8,
        request_bytes: chance.next() as u32 | 1,
    };
    let slo = (chance.below(4) > 0).then_some(slo);
    let name = chance.name();
    match chance.below(5) {
        0 => ControlRequest::Ping { tag },
        1 => ControlRequest::Info { tag, namespace: namespace(chance) },
        2 => ControlRequest::Register(TenantRegistration { tag, tenant, name, slo }),
        3 => ControlRequest::Renegotiate(TenantRegistration { tag, tenant, name, slo }),
        _ => ControlRequest::Unregister { tag, tenant },
    }
}

fn namespace(chance: &mut Chance) -> Option<NamespaceId> {
    chance.flip().then(|| NamespaceId(1 + chance.below(65535) as u16))
}

/// Returns a client's stream, its greeting and then `messages` messages, and the events that the
/// server should have.
pub(crate) fn client_stream(
    chance: &mut Chance,
    version: u8,
    checksums: bool,
    messages: usize,
) -> (Vec<u8>, Vec<JoinedServerEvent>) {
    let mut pair = meet(chance, version, checksums);
    let mut bytes = pair.to_server.clone();
    let mut heard = Vec::new();
    if version == 2 {
        heard.push(JoinedServerEvent::Control(ControlRequest::Hello(pair.hello.clone())));
    }
    for _ in 0..messages {
        if version == 2 && chance.below(3) == 0 {
            let control = control(chance);
            bytes.extend(join(&pair.client.control(&control).expect("a control")));
            heard.push(JoinedServerEvent::Control(control));
            continue;
        }
        let command = command(chance, version, 3);
        let payload = chance.bytes(command.payload_bytes());
        // Version 1 carries the tag plus one, and neither stream nor namespace.
        let tag = chance.next() >> 1;
        let (seen_tag, stream, namespace) = match version {
            1 => (tag + 1, 0, None),
            _ => (tag, chance.below(8) as u8, namespace(chance)),
        };
        let head = pair.client.request(tag, stream, namespace, command, &payload);
        bytes.extend_from_slice(head.expect("a request").bytes());
        bytes.extend_from_slice(&payload);
        heard.push(JoinedServerEvent::Request(Request {
            tag: seen_tag,
            stream,
            namespace,
            tenant: 0,
            command,
            payload_bytes: payload.len(),
            verdict: Status::Ok,
        }));
        if !payload.is_empty() {
            heard.push(JoinedServerEvent::Payload(payload, Status::Ok));
        }
    }
    (bytes, heard)
}

/// Returns a stream of `messages` messages from a server after its hello reply, and the events that
/// the client should have. The returned session has not received any of it.
pub(crate) fn server_stream(
    chance: &mut Chance,
    version: u8,
    checksums: bool,
    messages: usize,
) -> (ClientSession, Vec<u8>, Vec<JoinedClientEvent>) {
    let mut pair = meet(chance, version, checksums);
    let mut bytes = Vec::new();
    let mut said = Vec::new();
    for _ in 0..messages {
        if version == 2 && chance.below(2) == 0 {
            let (reply, event) = control_reply(chance);
            bytes.extend_from_slice(pair.server.reply(&reply, &[]).expect("a reply").bytes());
            said.push(JoinedClientEvent::Other(event));
            continue;
        }
        let command = command(chance, version, 3);
        let status = match version {
            1 => Status::Ok,
            _ => [Status::Ok, Status::Ok, Status::MediaError, Status::Retry][chance.below(4)],
        };
        let body = chance.bytes(if status.is_ok() { command.reply_bytes() } else { 0 });
        let tag = chance.next() >> 1;
        let named = if version == 1 { tag + 1 } else { tag };
        let reply = Reply::Done { tag: named, command, status };
        bytes.extend_from_slice(pair.server.reply(&reply, &body).expect("a reply").bytes());
        bytes.extend_from_slice(&body);
        said.push(JoinedClientEvent::Reply { tag, status, body_bytes: body.len() });
        if !body.is_empty() {
            said.push(JoinedClientEvent::Body(body, Status::Ok));
        }
    }
    (pair.client, bytes, said)
}

fn control_reply(chance: &mut Chance) -> (Reply, ClientEvent<'static>) {
    let tag = chance.next();
    match chance.below(5) {
        0 => (Reply::Pong { tag }, ClientEvent::Pong { tag }),
        1 => {
            let info = Ok(NamespaceInfo {
                namespace: NamespaceId(chance.next() as u16),
                blocks: chance.next(),
                physical_block_bytes: chance.next() as u32,
                atomic_blocks_max: chance.next() as u32,
                rights: Rights { read: chance.flip(), write: chance.flip() },
                volatile_cache: chance.flip(),
            });
            (Reply::Info { tag, info }, ClientEvent::Info { tag, info })
        }
        2 => {
            let (tenant, tokens_needed, tokens_free) =
                (chance.next() as u16, chance.next(), chance.next());
            let reply = TenantReply {
                tenant,
                tokens_needed,
                tokens_free,
                limited_by: tokens_needed as u16,
                limit_latency_us: tokens_free as u32,
            };
            let status = if chance.flip() { Status::Ok } else { Status::NoResources };
            let event = ClientEvent::Tenant { tag, status, reply };
            (Reply::Tenant { tag, status, reply }, event)
        }
        3 => (Reply::Notice(Notice::Draining), ClientEvent::Notice(Notice::Draining)),
        _ => {
            let notice = Notice::Renegotiate {
                tenant: chance.next() as u16,
                iops: chance.next() as u32,
                read_percent: chance.below(101) as u8,
            };
            (Reply::Notice(notice), ClientEvent::Notice(notice))
        }
    }
}

/// Cuts the stream into pieces of random lengths, mostly short ones; sometimes an empty one.
pub(crate) fn cut<'a>(chance: &mut Chance, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let longest = [1, 4, 64, 2048, 1 << 20][chance.below(5)];
    let mut pieces = Vec::new();
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(chance.below(longest + 1).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}
