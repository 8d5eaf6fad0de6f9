//! Parts that the yardsticks share: their sockets and the one message they know.
//!
//! The message is the 24-byte header of protocol `reflex` version 1: magic (2 bytes), opcode (2),
//! handle (8), first sector (8), sectors (4), little-endian; a reply repeats handle and sector.

#![allow(dead_code, reason = "each program uses the part that it needs")]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// Bytes of a message's header.
pub(crate) const HEAD_BYTES: usize = 24;

/// The first two bytes of a header: its own length.
const MAGIC: u16 = HEAD_BYTES as u16;

/// Bytes of a sector.
pub(crate) const SECTOR_BYTES: usize = 512;

/// Reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Op {
    /// Requests are bare headers, replies carry the data.
    Read,
    /// Requests carry the data, replies are bare headers.
    Write,
}

/// A message's header, as on the wire.
pub(crate) type Head = [u8; HEAD_BYTES];

/// Returns the header of a request or a reply. `lba` is the first sector.
pub(crate) fn head(op: Op, handle: u64, lba: u64, sectors: u32) -> Head {
    let mut bytes = [0; HEAD_BYTES];
    bytes[0..2].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[2..4].copy_from_slice(&u16::from(op == Op::Write).to_le_bytes());
    bytes[4..12].copy_from_slice(&handle.to_le_bytes());
    bytes[12..20].copy_from_slice(&lba.to_le_bytes());
    bytes[20..24].copy_from_slice(&sectors.to_le_bytes());
    bytes
}

/// Options of the sockets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SocketOptions {
    /// Bytes of the sending and of the receiving buffer; 0 leaves them to the kernel.
    #[arg(long, default_value_t = 0)]
    pub(crate) socket_buffer: usize,
    /// Congestion control; empty leaves it to the kernel.
    #[arg(long, default_value = "cubic")]
    pub(crate) congestion: String,
}

impl SocketOptions {
    /// Applies the options to a connection or listener.
    pub(crate) fn apply(&self, socket: impl AsFd) -> std::io::Result<()> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        if !self.congestion.is_empty() {
            sockopt::set_tcp_congestion(&socket, &self.congestion)?;
        }
        if self.socket_buffer > 0 {
            sockopt::set_socket_send_buffer_size(&socket, self.socket_buffer)?;
            sockopt::set_socket_recv_buffer_size(&socket, self.socket_buffer)?;
        }
        Ok(())
    }
}

/// Returns the index of a free place, which is added if there is none.
pub(crate) fn vacant<T>(places: &mut Vec<Option<T>>) -> usize {
    places.iter().position(Option::is_none).unwrap_or_else(|| {
        places.push(None);
        places.len() - 1
    })
}

/// Returns a nonblocking listener, whose connections inherit its options.
pub(crate) fn listen(address: SocketAddr, options: &SocketOptions) -> std::io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    options.apply(&socket)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 4096)?;
    let listener = TcpListener::from(socket);
    println!("ready {}", listener.local_addr()?);
    Ok(listener)
}

/// Pins the calling thread to core `cpu`, or does nothing if that is `None`.
pub(crate) fn pin(cpu: Option<usize>) -> std::io::Result<()> {
    if let Some(cpu) = cpu {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    Ok(())
}

/// A parser that finds requests in a stream of arbitrary pieces. All requests have one length,
/// which is known beforehand.
#[derive(Clone)]
pub(crate) struct Counter {
    /// `true` once the stream's first byte was received.
    begun: bool,
    /// Bytes of a request, its payload included.
    request_bytes: usize,
    /// Bytes of the current request that were received: `0 ≤ at < request_bytes`.
    at: usize,
    /// The received part of the current request's header.
    partial: Head,
}

impl Counter {
    /// Returns a parser for requests of `request_bytes` bytes, their payload included.
    pub(crate) fn new(request_bytes: usize) -> Counter {
        assert!(request_bytes >= HEAD_BYTES, "a request is at least a header");
        Counter { begun: false, request_bytes, at: 0, partial: [0; HEAD_BYTES] }
    }

    /// Takes received bytes, and appends the header of each request that they complete. Returns
    /// `false` if the stream does not begin like this protocol: its connection must then be closed.
    pub(crate) fn take(&mut self, mut bytes: &[u8], requests: &mut Vec<Head>) -> bool {
        if !self.begun {
            self.begun = true;
            if bytes.first() != Some(&MAGIC.to_le_bytes()[0]) {
                return false;
            }
        }
        if self.request_bytes == HEAD_BYTES && self.at == 0 {
            let (whole, rest) = bytes.as_chunks::<HEAD_BYTES>();
            requests.extend_from_slice(whole);
            bytes = rest;
        }
        while !bytes.is_empty() {
            let taken = bytes.len().min(self.request_bytes - self.at);
            if self.at < HEAD_BYTES {
                let of_head = taken.min(HEAD_BYTES - self.at);
                self.partial[self.at..self.at + of_head].copy_from_slice(&bytes[..of_head]);
            }
            self.at += taken;
            bytes = &bytes[taken..];
            if self.at == self.request_bytes {
                self.at = 0;
                requests.push(self.partial);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_wherever_the_stream_is_cut() {
        for data in [0, 1, 512] {
            let mut stream = Vec::new();
            let heads: Vec<Head> = (1..=5).map(|n| head(Op::Write, n, n * 8, 1)).collect();
            for head in &heads {
                stream.extend_from_slice(head);
                stream.resize(stream.len() + data, 0xff);
            }
            for piece in [1, 7, 23, 24, 25, 100, stream.len()] {
                let mut counter = Counter::new(HEAD_BYTES + data);
                let mut found = Vec::new();
                for bytes in stream.chunks(piece) {
                    assert!(counter.take(bytes, &mut found));
                }
                assert_eq!(found, heads, "{data} bytes of data in pieces of {piece}");
            }
        }
    }

    #[test]
    fn another_protocol_is_turned_away() {
        assert!(!Counter::new(HEAD_BYTES).take(b"GET / HTTP/1.1\r\n", &mut Vec::new()));
    }
}
