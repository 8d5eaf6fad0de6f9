//! A worker of one NBD connection in miniature: it carries out requests on a volume in memory, one
//! at a time, and answers when it is told to.

use std::collections::VecDeque;
use std::sync::Arc;

use contract::{
    BLOCK_BYTES, Command, ControlRequest, Instant, MigratableSession, NamespaceId, NamespaceInfo,
    ProtocolError, Range, Reply, Request, RestorableSession, Rights, SPEECH_BYTES_MAX, Session,
    SessionEvent, Status, UnsolicitedOutput,
};
use nearflash_proto::nbd::NbdSession;

/// The names of the exports; the second may only be read, the third is a secret.
pub(crate) const NAMES: [&str; 3] = ["first", "second", "third"];

/// A request that has not been answered.
struct Pending {
    request: Request,
    payload: Vec<u8>,
    /// `true` if the request was refused when it came.
    is_answered: bool,
}

/// A server's session, the requests and bytes in progress, and the volume behind it.
pub(crate) struct Rig {
    pub(crate) session: NbdSession,
    pub(crate) volume: Vec<u8>,
    pending: VecDeque<Pending>,
    /// The request whose payload is being received; `None` between payloads.
    coming: Option<Pending>,
    /// Bytes that were received and not taken.
    input: Vec<u8>,
    /// All bytes for the client.
    pub(crate) output: Vec<u8>,
    pub(crate) ended: Option<ProtocolError>,
    /// Blocks that cannot be read or written.
    pub(crate) broken: Range,
    /// The most requests that were in flight.
    pub(crate) in_flight_max: usize,
    /// The size of the largest command so far, in blocks.
    pub(crate) blocks_max: u32,
    /// `true` if the session is packed and unpacked before each event.
    pub(crate) moves: bool,
    pub(crate) now: Instant,
}

impl Rig {
    /// Creates a server with a volume of `blocks` blocks, which has sent its greeting.
    pub(crate) fn new(blocks: usize) -> Rig {
        Rig::of(NbdSession::new(), blocks)
    }

    /// Creates a server with this session and a volume of `blocks` blocks, like [`Rig::new`].
    pub(crate) fn of(session: NbdSession, blocks: usize) -> Rig {
        let mut rig = Rig {
            session,
            volume: vec![0; blocks * BLOCK_BYTES],
            pending: VecDeque::new(),
            coming: None,
            input: Vec::new(),
            output: Vec::new(),
            ended: None,
            broken: Range::new(u64::MAX, 0),
            in_flight_max: 0,
            blocks_max: 0,
            moves: false,
            now: Instant::from_nanos(1),
        };
        rig.attend();
        rig.go_on();
        rig
    }

    /// Receives bytes, and takes as many as the session takes.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.go_on();
    }

    /// Answers the oldest request, or the `newest`. Returns `false` if there is none.
    pub(crate) fn answer(&mut self, newest: bool) -> bool {
        let next = if newest { self.pending.pop_back() } else { self.pending.pop_front() };
        let Some(Pending { request, payload, .. }) = next else { return false };
        let (status, body) = self.carry_out(&request, &payload);
        let (tag, command) = (request.tag, request.command);
        self.reply(&Reply::Done { tag, command, status }, &body);
        self.go_on();
        true
    }

    /// Answers all requests.
    pub(crate) fn answer_all(&mut self) {
        while self.answer(false) {}
    }

    /// Lets the session do its own work, and sends what it has to say.
    pub(crate) fn attend(&mut self) {
        if self.ended.is_some() {
            return;
        }
        self.ended = self.session.attend(self.now).err();
        let mut room = vec![0; SPEECH_BYTES_MAX];
        while self.session.unsaid() > 0 {
            let said = self.session.speak(&mut room);
            assert!(said > 0, "what was announced is said");
            self.output.extend_from_slice(&room[..said]);
        }
    }

    fn go_on(&mut self) {
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while self.ended.is_none() && (!rest.is_empty() || self.session.has_more()) {
            if self.moves && self.session.moves_to(1) && self.session.is_settled() {
                let packed = self.session.pack().expect("it is settled");
                self.session = NbdSession::unpack(&packed).expect("it was packed");
            }
            match self.session.next_event(&mut rest) {
                Ok(Some(SessionEvent::Request(request))) => self.begin(request),
                Ok(Some(SessionEvent::Payload { bytes, end })) => {
                    let coming = self.coming.as_mut().expect("a request came before");
                    coming.payload.extend_from_slice(bytes);
                    assert!(coming.payload.len() <= coming.request.payload_bytes);
                    if end.is_some() {
                        let whole = self.coming.take().expect("it was just there");
                        assert_eq!(whole.payload.len(), whole.request.payload_bytes);
                        self.admit(whole);
                    }
                }
                Ok(Some(SessionEvent::Own)) => self.attend(),
                Ok(Some(SessionEvent::Control(control))) => self.control(&control),
                Ok(Some(other)) => panic!("no event of NBD: {other:?}"),
                Ok(None) => break,
                Err(fatal) => self.ended = Some(fatal),
            }
        }
        self.input = rest.to_vec();
    }

    fn begin(&mut self, request: Request) {
        let blocks = request.command.range().map_or(0, |range| range.blocks);
        assert!(blocks <= 2048 || !request.verdict.is_ok(), "{request:?} is larger than a buffer");
        self.blocks_max = self.blocks_max.max(blocks);
        let pending = Pending { request, payload: Vec::new(), is_answered: false };
        let beyond = request
            .command
            .range()
            .is_some_and(|range| !range.fits((self.volume.len() / BLOCK_BYTES) as u64));
        if request.payload_bytes > 0 && (beyond || !request.verdict.is_ok()) {
            let status = if beyond { Status::OutOfRange } else { request.verdict };
            let (tag, command) = (request.tag, request.command);
            self.reply(&Reply::Done { tag, command, status }, &[]);
            self.coming = Some(Pending { is_answered: true, ..pending });
            return;
        }
        match request.payload_bytes {
            0 => self.admit(pending),
            _ => self.coming = Some(pending),
        }
    }

    fn admit(&mut self, pending: Pending) {
        if pending.is_answered {
            return;
        }
        self.pending.push_back(pending);
        self.in_flight_max = self.in_flight_max.max(self.pending.len());
    }

    fn reply(&mut self, reply: &Reply, body: &[u8]) {
        match self.session.reply(reply, body) {
            Ok(head) if head.is_empty() => {}
            Ok(head) => {
                self.output.extend_from_slice(head.bytes());
                self.output.extend_from_slice(body);
                self.output.extend_from_slice(head.tail());
            }
            Err(fatal) => self.ended = Some(fatal),
        }
    }

    fn control(&mut self, control: &ControlRequest) {
        match control {
            ControlRequest::Find { tag, name } => {
                let info = self.find(name);
                self.reply(&Reply::Info { tag: *tag, info }, &[]);
            }
            ControlRequest::List { tag } => {
                let names = NAMES[..2].iter().map(|name| Arc::from(*name)).collect();
                self.reply(&Reply::List { tag: *tag, names: Ok(names) }, &[]);
            }
            other => panic!("NBD does not ask {other:?}"),
        }
    }

    fn find(&self, name: &str) -> Result<NamespaceInfo, Status> {
        let place = match name {
            "" => 0,
            name => NAMES.iter().position(|own| *own == name).ok_or(Status::NoNamespace)?,
        };
        if place == 2 {
            return Err(Status::Denied);
        }
        Ok(NamespaceInfo {
            namespace: NamespaceId(place as u16 + 1),
            blocks: (self.volume.len() / BLOCK_BYTES) as u64,
            physical_block_bytes: 4096,
            atomic_blocks_max: 0,
            rights: Rights { read: true, write: place == 0 },
            volatile_cache: false,
        })
    }

    fn carry_out(&mut self, request: &Request, payload: &[u8]) -> (Status, Vec<u8>) {
        if !request.verdict.is_ok() {
            return (request.verdict, Vec::new());
        }
        assert!(matches!(request.namespace, Some(NamespaceId(1 | 2))), "{request:?}");
        let Some(range) = request.command.range() else { return (Status::Ok, Vec::new()) };
        if !range.fits((self.volume.len() / BLOCK_BYTES) as u64) {
            return (Status::OutOfRange, Vec::new());
        }
        if range.overlaps(self.broken) {
            return (Status::MediaError, Vec::new());
        }
        let from = range.lba as usize * BLOCK_BYTES;
        let place = &mut self.volume[from..from + range.bytes()];
        match request.command {
            Command::Read(_) => return (Status::Ok, place.to_vec()),
            Command::Write { .. } => place.copy_from_slice(payload),
            Command::Discard(_) | Command::WriteZeroes { .. } => place.fill(0),
            other => panic!("no command of NBD: {other:?}"),
        }
        (Status::Ok, Vec::new())
    }
}
