//! Version 1 of the protocol in plain bytes: the messages that clients of the original send and
//! expect.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::PATIENCE;

/// Returns the head of a message of version 1: magic, opcode, handle, first block, number of
/// blocks.
pub(crate) fn head(opcode: u16, handle: u64, lba: u64, lba_count: u32) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[0..2].copy_from_slice(&24u16.to_le_bytes());
    bytes[2..4].copy_from_slice(&opcode.to_le_bytes());
    bytes[4..12].copy_from_slice(&handle.to_le_bytes());
    bytes[12..20].copy_from_slice(&lba.to_le_bytes());
    bytes[20..24].copy_from_slice(&lba_count.to_le_bytes());
    bytes
}

/// A connection of a client of the original ReFlex.
pub(crate) struct V1 {
    pub(crate) stream: TcpStream,
}

impl V1 {
    pub(crate) fn connect(address: SocketAddr) -> V1 {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        V1 { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn get(&mut self, handle: u64, lba: u64, lba_count: u32) {
        self.send(&head(0, handle, lba, lba_count));
    }

    pub(crate) fn set(&mut self, handle: u64, lba: u64, data: &[u8]) {
        let mut message = head(1, handle, lba, (data.len() / 512) as u32).to_vec();
        message.extend_from_slice(data);
        self.send(&message);
    }

    /// Receives the next `len` bytes.
    pub(crate) fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).expect("a reply");
        bytes
    }

    /// Receives the next reply, which must be to a GET with these fields, and returns its data.
    pub(crate) fn expect_data(&mut self, handle: u64, lba: u64, lba_count: u32) -> Vec<u8> {
        assert_eq!(self.receive(24), head(0, handle, lba, lba_count));
        self.receive(lba_count as usize * 512)
    }

    /// Receives the next reply, which must be to a SET with these fields.
    pub(crate) fn expect_written(&mut self, handle: u64, lba: u64) {
        assert_eq!(self.receive(24), head(1, handle, lba, 0));
    }

    /// Expects that the server ends the connection within `limit`, without another byte.
    pub(crate) fn expect_end(&mut self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).unwrap();
        match self.stream.read(&mut [0; 64]) {
            Ok(0) => {}
            Ok(n) => panic!("{n} bytes instead of the end of the connection"),
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
            Err(e) => panic!("the connection did not end within {limit:?}: {e}"),
        }
    }

    /// Returns `true` if the server keeps the connection open and silent for `time`.
    pub(crate) fn stays(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let outcome = self.stream.read(&mut [0; 1]);
        matches!(outcome, Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }
}
