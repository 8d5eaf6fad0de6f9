//! Version 2 of the protocol: the client's session over a plain blocking socket.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use contract::{
    Command, ControlRequest, Hello, HelloReply, NamespaceId, NamespaceInfo, Notice, Range, Slo,
    Status, Tag, TenantRegistration, TenantReply,
};
use proto::reflex::{ClientEvent, ClientSession};

use super::PATIENCE;

/// A message of the server that has arrived as a whole, or the end of the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done { tag: Tag, status: Status, data: Vec<u8> },
    Info { tag: Tag, info: Result<NamespaceInfo, Status> },
    Tenant { tag: Tag, status: Status, reply: TenantReply },
    Pong { tag: Tag },
    Notice(Notice),
    End,
}

/// A connection of a client of protocol version 2.
pub(crate) struct V2 {
    pub(crate) stream: TcpStream,
    pub(crate) session: ClientSession,
    answers: VecDeque<Answer>,
    hello: Option<(Status, HelloReply)>,
    /// The reply whose data has arrived in part: its tag, its length in bytes, and the data so far.
    partial: Option<(Tag, usize, Vec<u8>)>,
    ended: bool,
}

impl V2 {
    /// Connects without a token. Fails the test if the server refuses the hello.
    pub(crate) fn connect(address: SocketAddr) -> V2 {
        V2::hello(address, Hello::default()).unwrap_or_else(|status| panic!("hello: {status}"))
    }

    /// Connects with a token. Returns the server's status if it refuses the hello.
    pub(crate) fn with_token(address: SocketAddr, token: &str) -> Result<V2, Status> {
        V2::hello(address, Hello { token: token.as_bytes().into(), ..Hello::default() })
    }

    /// Connects with this hello. Returns the server's status if it refuses the hello.
    pub(crate) fn hello(address: SocketAddr, hello: Hello) -> Result<V2, Status> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let session = ClientSession::v2(hello);
        let mut v2 = V2 {
            stream,
            session,
            answers: VecDeque::new(),
            hello: None,
            partial: None,
            ended: false,
        };
        for head in v2.session.greeting() {
            v2.stream.write_all(head.bytes()).expect("the server reads");
        }
        while v2.hello.is_none() {
            assert!(!v2.ended, "the connection ended before the hello was answered");
            v2.read().expect("the hello is answered");
        }
        match v2.hello {
            Some((Status::Ok, _)) => Ok(v2),
            Some((status, _)) => Err(status),
            None => unreachable!("waited for it"),
        }
    }

    /// Returns the limits that the server announced in its reply to the hello.
    pub(crate) fn limits(&self) -> HelloReply {
        self.hello.expect("it was let in").1
    }

    /// Returns the bytes of a request, which the caller has to send.
    pub(crate) fn encode(
        &mut self,
        tag: Tag,
        stream: u8,
        namespace: u16,
        command: Command,
        payload: &[u8],
    ) -> Vec<u8> {
        let namespace = (namespace != 0).then_some(NamespaceId(namespace));
        let head = self.session.request(tag, stream, namespace, command, payload);
        [head.expect("a request that can be said").bytes(), payload].concat()
    }

    pub(crate) fn send(&mut self, tag: Tag, command: Command, payload: &[u8]) {
        let bytes = self.encode(tag, 0, 0, command, payload);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn control(&mut self, control: &ControlRequest) {
        for head in self.session.control(control).expect("a control that can be said") {
            self.stream.write_all(head.bytes()).expect("the server reads");
        }
    }

    /// Receives the next message of the server.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer(PATIENCE).expect("an answer in time")
    }

    /// Receives the next message of the server; `None` if none comes within `limit`.
    pub(crate) fn try_answer(&mut self, limit: Duration) -> Option<Answer> {
        self.stream.set_read_timeout(Some(limit)).unwrap();
        while self.answers.is_empty() {
            if self.ended {
                return Some(Answer::End);
            }
            self.read()?;
        }
        self.answers.pop_front()
    }

    /// Sends a command to a namespace, and waits for its reply. Returns the status and the data.
    pub(crate) fn call_in(
        &mut self,
        namespace: u16,
        command: Command,
        payload: &[u8],
    ) -> (Status, Vec<u8>) {
        let bytes = self.encode(77, 0, namespace, command, payload);
        self.send_bytes(&bytes);
        loop {
            match self.answer() {
                Answer::Done { tag: 77, status, data } => return (status, data),
                // A server on a busy machine may say meanwhile that a promise is not kept.
                Answer::Notice(Notice::Renegotiate { .. }) => {}
                other => panic!("{command:?} was answered by {other:?}"),
            }
        }
    }

    pub(crate) fn call(&mut self, command: Command, payload: &[u8]) -> (Status, Vec<u8>) {
        self.call_in(0, command, payload)
    }

    pub(crate) fn read_blocks(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        let (status, data) = self.call(Command::Read(Range::new(lba, blocks)), &[]);
        assert_eq!(status, Status::Ok, "read of {blocks} blocks at {lba}");
        data
    }

    pub(crate) fn write_blocks(&mut self, lba: u64, data: &[u8], fua: bool) {
        let range = Range::new(lba, (data.len() / 512) as u32);
        assert_eq!(self.call(Command::Write { range, fua }, data).0, Status::Ok, "write at {lba}");
    }

    pub(crate) fn info(&mut self, namespace: u16) -> Result<NamespaceInfo, Status> {
        self.control(&ControlRequest::Info { tag: 5, namespace: Some(NamespaceId(namespace)) });
        match self.answer() {
            Answer::Info { tag: 5, info } => info,
            other => panic!("info was answered by {other:?}"),
        }
    }

    /// Registers a tenant, and returns the server's reply; with the status as an error if it is
    /// refused.
    pub(crate) fn register(
        &mut self,
        name: &str,
        slo: Option<Slo>,
    ) -> Result<TenantReply, (Status, TenantReply)> {
        let register = TenantRegistration { tag: 6, tenant: 0, name: name.into(), slo };
        self.control(&ControlRequest::Register(register));
        self.tenant_answer()
    }

    /// Changes the SLO of the tenant with this handle.
    pub(crate) fn renegotiate(
        &mut self,
        tenant: u16,
        slo: Option<Slo>,
    ) -> Result<TenantReply, (Status, TenantReply)> {
        let register = TenantRegistration { tag: 6, tenant, name: "".into(), slo };
        self.control(&ControlRequest::Renegotiate(register));
        self.tenant_answer()
    }

    /// Unregisters the tenant with this handle.
    pub(crate) fn unregister(&mut self, tenant: u16) -> Result<TenantReply, (Status, TenantReply)> {
        self.control(&ControlRequest::Unregister { tag: 6, tenant });
        self.tenant_answer()
    }

    fn tenant_answer(&mut self) -> Result<TenantReply, (Status, TenantReply)> {
        match self.answer() {
            Answer::Tenant { tag: 6, status: Status::Ok, reply } => Ok(reply),
            Answer::Tenant { tag: 6, status, reply } => Err((status, reply)),
            other => panic!("it was answered by {other:?}"),
        }
    }

    /// Returns `true` if a request is answered before its drained connection ends.
    pub(crate) fn is_answered_before_its_end(&mut self, request: Tag) -> bool {
        let mut is_answered = false;
        loop {
            match self.answer() {
                Answer::Done { tag, status: Status::Ok, .. } if tag == request => {
                    is_answered = true
                }
                Answer::Notice(Notice::Draining) => {}
                Answer::End => return is_answered,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Expects that the server ends the connection within `limit`, whatever it says before.
    pub(crate) fn expect_end(&mut self, limit: Duration) {
        let end = super::now() + limit;
        while self.try_answer(limit).expect("the end of the connection") != Answer::End {
            assert!(super::now() < end, "the connection did not end within {limit:?}");
        }
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Receives bytes and parses them. Returns `None` if none come within the socket's time limit.
    fn read(&mut self) -> Option<()> {
        let mut bytes = vec![0; 1 << 16];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.ended = true,
            Ok(n) => self.parse(&bytes[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return None;
            }
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                self.ended = true;
            }
            Err(e) => panic!("{e}"),
        }
        Some(())
    }

    fn parse(&mut self, mut input: &[u8]) {
        loop {
            let event = self.session.next_event(&mut input).expect("the server keeps the protocol");
            let answer = match event {
                None => return,
                Some(ClientEvent::Hello { status, reply, .. }) => {
                    self.hello = Some((status, reply));
                    continue;
                }
                Some(ClientEvent::Reply { tag, status, body_bytes: 0 }) => {
                    Answer::Done { tag, status, data: Vec::new() }
                }
                Some(ClientEvent::Reply { tag, status, body_bytes }) => {
                    assert_eq!(status, Status::Ok, "only a success has data");
                    self.partial = Some((tag, body_bytes, Vec::with_capacity(body_bytes)));
                    continue;
                }
                Some(ClientEvent::Body { bytes, end }) => {
                    let (_, _, data) = self.partial.as_mut().expect("its reply came before");
                    data.extend_from_slice(bytes);
                    let Some(end) = end else { continue };
                    assert_eq!(end, Status::Ok, "the checksum matches");
                    let (tag, body_bytes, data) = self.partial.take().expect("looked at above");
                    assert_eq!(data.len(), body_bytes);
                    Answer::Done { tag, status: Status::Ok, data }
                }
                Some(ClientEvent::Info { tag, info }) => Answer::Info { tag, info },
                Some(ClientEvent::Tenant { tag, status, reply }) => {
                    Answer::Tenant { tag, status, reply }
                }
                Some(ClientEvent::Pong { tag }) => Answer::Pong { tag },
                Some(ClientEvent::Notice(notice)) => Answer::Notice(notice),
            };
            self.answers.push_back(answer);
        }
    }
}
