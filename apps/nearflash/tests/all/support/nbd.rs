//! A plain NBD client over a socket, one request at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use wire::nbd::{
    BlockSizeInfo, CommandKind, ExportInfo, Greeting, OPTION_MAGIC, OptionHead, OptionKind,
    OptionReply, OptionReplyHead, REQUEST_MAGIC, RequestHead, SimpleReply,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::PATIENCE;

/// A stream of bytes to a server.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// An NBD client with one connection.
pub(crate) struct Nbd {
    stream: Box<dyn Stream>,
    /// The size in bytes of the export that was chosen; zero before.
    pub(crate) size: u64,
    /// The transmission flags of the export that was chosen; zero before.
    pub(crate) flags: u16,
}

impl Nbd {
    /// Connects over TCP.
    pub(crate) fn connect(address: SocketAddr) -> Nbd {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Nbd::greet(Box::new(stream))
    }

    /// Connects over a Unix socket.
    pub(crate) fn connect_unix(path: &Path) -> Nbd {
        let stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Nbd::greet(Box::new(stream))
    }

    fn greet(stream: Box<dyn Stream>) -> Nbd {
        let mut nbd = Nbd { stream, size: 0, flags: 0 };
        let mut greeting = Greeting::new_zeroed();
        nbd.take(greeting.as_mut_bytes());
        assert_eq!((greeting.option_magic.get(), greeting.flags.get()), (OPTION_MAGIC, 3));
        nbd.send(&3u32.to_be_bytes());
        nbd
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn take(&mut self, bytes: &mut [u8]) {
        self.stream.read_exact(bytes).expect("the server answers");
    }

    /// Waits for the server, and returns `true` if it closes the connection instead of sending
    /// something.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0]).map_or(true, |count| count == 0)
    }

    fn option(&mut self, kind: OptionKind, data: &[u8]) {
        let head = OptionHead {
            magic: OPTION_MAGIC.into(),
            option: kind.0.into(),
            bytes: (data.len() as u32).into(),
        };
        self.send(head.as_bytes());
        self.send(data);
    }

    fn option_reply(&mut self) -> (OptionReply, Vec<u8>) {
        let mut head = OptionReplyHead::new_zeroed();
        self.take(head.as_mut_bytes());
        let mut data = vec![0; head.bytes.get() as usize];
        self.take(&mut data);
        (OptionReply(head.reply.get()), data)
    }

    /// Sends an option without data, and returns the first answer to it.
    pub(crate) fn ask(&mut self, kind: OptionKind) -> OptionReply {
        self.option(kind, &[]);
        self.option_reply().0
    }

    /// Asks for the names of the exports, and returns them.
    pub(crate) fn list(&mut self) -> Vec<String> {
        self.option(OptionKind::LIST, &[]);
        let mut names = Vec::new();
        loop {
            match self.option_reply() {
                (OptionReply::SERVER, data) => {
                    names.push(String::from_utf8(data[4..].to_vec()).expect("a name"));
                }
                (reply, _) => {
                    assert_eq!(reply, OptionReply::ACK);
                    return names;
                }
            }
        }
    }

    /// Chooses an export, and stores its size and flags. Returns the server's error reply if there
    /// is one.
    pub(crate) fn go(&mut self, name: &str) -> Result<(), OptionReply> {
        let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
        self.option(OptionKind::GO, &data);
        loop {
            match self.option_reply() {
                (OptionReply::ACK, _) => return Ok(()),
                (OptionReply::INFO, data) if data.len() == size_of::<ExportInfo>() => {
                    let info = ExportInfo::read_from_bytes(&data).expect("its size");
                    (self.size, self.flags) = (info.size.get(), info.flags.get());
                }
                (OptionReply::INFO, data) => assert_eq!(data.len(), size_of::<BlockSizeInfo>()),
                (reply, _) => return Err(reply),
            }
        }
    }

    /// Sends the head of a request.
    pub(crate) fn request(&mut self, command: CommandKind, flags: u16, offset: u64, bytes: usize) {
        let head = RequestHead {
            magic: REQUEST_MAGIC.into(),
            flags: flags.into(),
            command: command.0.into(),
            cookie: 77.into(),
            offset: offset.into(),
            bytes: (bytes as u32).into(),
        };
        self.send(head.as_bytes());
    }

    /// Receives a reply without data, and returns its error number; zero for success.
    pub(crate) fn reply(&mut self) -> u32 {
        let mut reply = SimpleReply::new_zeroed();
        self.take(reply.as_mut_bytes());
        assert_eq!(reply.cookie.get(), 77);
        reply.error.get()
    }

    /// Writes data at an offset in bytes, and returns the error number of the reply.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.request(CommandKind::WRITE, 0, offset, data.len());
        self.send(data);
        self.reply()
    }

    /// Reads `bytes` bytes at an offset in bytes, or returns the error number of the reply.
    pub(crate) fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, u32> {
        self.request(CommandKind::READ, 0, offset, bytes);
        match self.reply() {
            0 => {
                let mut data = vec![0; bytes];
                self.take(&mut data);
                Ok(data)
            }
            error => Err(error),
        }
    }

    /// Carries out a command without data, and returns the error number of the reply.
    pub(crate) fn command(&mut self, command: CommandKind, offset: u64, bytes: usize) -> u32 {
        self.request(command, 0, offset, bytes);
        self.reply()
    }
}
