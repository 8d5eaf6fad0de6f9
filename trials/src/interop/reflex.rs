//! A minimal client of protocol `reflex` version 2, which sends and receives only what the tests
//! need.
//!
//! The client shares only the message layouts with the server, so that a mistake in the client
//! library cannot hide a mistake in the server.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use wire::reflex_v2::{
    FLAG_FUA, HelloBody, HelloHead, MAGIC, Opcode, ReplyHead, RequestHead, VERSION,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The size of a logical block of the protocol, in bytes.
const LOGICAL: usize = 512;

/// The time limit for a server that accepted the connection to answer the hello, or a read.
const HELLO_LIMIT: Duration = Duration::from_secs(20);

/// An open connection to a server of protocol `reflex`.
pub(crate) struct Connection {
    stream: Stream,
    received: Vec<u8>,
    tags: u64,
}

/// A stream to a server, over TCP or a Unix socket.
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(limit)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(limit)),
        }
    }

    fn set_write_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(limit)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(limit)),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            Stream::Unix(stream) => stream.read(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.write_all(bytes),
            Stream::Unix(stream) => stream.write_all(bytes),
        }
    }
}

/// A request of the client. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) opcode: Opcode,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) forced: bool,
}

/// A reply of the server.
pub(crate) struct Reply {
    pub(crate) tag: u64,
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Connection {
    /// Connects to a server, and tries again until `limit` has passed while it does not answer.
    pub(crate) fn open(address: &str, limit: Duration) -> Result<Connection, String> {
        let started = Instant::now();
        loop {
            match Connection::try_open(address) {
                Ok(connection) => return Ok(connection),
                Err(error) if started.elapsed() > limit => {
                    return Err(format!("no connection to {address}: {error}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn try_open(address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Connection::greet(Stream::Tcp(stream))
    }

    /// Connects to a server that listens on a Unix socket.
    pub(crate) fn open_unix(path: &Path) -> io::Result<Connection> {
        Connection::greet(Stream::Unix(UnixStream::connect(path)?))
    }

    /// Sends the hello and waits for the answer.
    fn greet(stream: Stream) -> io::Result<Connection> {
        stream.set_write_timeout(HELLO_LIMIT)?;
        let mut connection = Connection { stream, received: Vec::new(), tags: 0 };
        let mut hello = HelloHead::new_zeroed();
        hello.magic = MAGIC;
        hello.version_min = VERSION.into();
        hello.version_max = VERSION.into();
        hello.queue_depth = 64.into();
        connection.stream.write_all(hello.as_bytes())?;
        let started = Instant::now();
        while started.elapsed() < HELLO_LIMIT {
            if let Some(reply) = connection.receive(HELLO_LIMIT)? {
                let accepted = reply.status == 0 && reply.body.len() == size_of::<HelloBody>();
                return accepted.then_some(connection).ok_or(ErrorKind::PermissionDenied.into());
            }
        }
        Err(ErrorKind::TimedOut.into())
    }

    /// Sends a request with its payload, and returns the tag that its reply will carry.
    pub(crate) fn send(&mut self, request: Request, payload: &[u8]) -> io::Result<u64> {
        self.tags += 1;
        let mut head = RequestHead::new_zeroed();
        head.opcode = request.opcode;
        head.flags = if request.forced { FLAG_FUA } else { 0 };
        head.payload_bytes = (payload.len() as u32).into();
        head.tag = self.tags.into();
        head.lba = ((request.offset / LOGICAL) as u64).into();
        head.blocks = ((request.bytes / LOGICAL) as u32).into();
        self.stream.write_all(&[head.as_bytes(), payload].concat())?;
        Ok(self.tags)
    }

    /// Waits for the next reply and returns it; `None` if none arrives within `limit`.
    pub(crate) fn receive(&mut self, limit: Duration) -> io::Result<Option<Reply>> {
        self.stream.set_read_timeout(limit.max(Duration::from_millis(1)))?;
        loop {
            if let Some(reply) = self.take_reply() {
                return Ok(Some(reply));
            }
            let mut bytes = [0; 65536];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend(&bytes[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Ok(None);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the next reply that has arrived, without receiving more.
    pub(crate) fn take_reply(&mut self) -> Option<Reply> {
        let (head, rest) = ReplyHead::read_from_prefix(&self.received).ok()?;
        let body = rest.get(..head.body_bytes.get() as usize)?.to_vec();
        let whole = size_of::<ReplyHead>() + body.len();
        self.received.drain(..whole);
        Some(Reply { tag: head.tag.get(), status: head.status.get(), body })
    }

    /// Reads `bytes` bytes at the offset `offset`, and waits for the data. Nothing else may be in
    /// flight.
    pub(super) fn read(&mut self, offset: usize, bytes: usize) -> Result<Vec<u8>, String> {
        let request = Request { opcode: Opcode::READ, offset, bytes, forced: false };
        let what = || format!("reading {bytes} bytes at {offset}");
        let tag = self.send(request, &[]).map_err(|error| format!("{}: {error}", what()))?;
        let reply = self.receive(HELLO_LIMIT).map_err(|error| format!("{}: {error}", what()))?;
        match reply {
            Some(reply) if reply.tag == tag && reply.status == 0 && reply.body.len() == bytes => {
                Ok(reply.body)
            }
            Some(reply) => Err(format!("{}: status {}", what(), reply.status)),
            None => Err(format!("{}: no answer", what())),
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}
