//! Datagrams with the time at which the kernel received them, and the messages in them.

// UNSAFETY: setsockopt(2) and recvmsg(2) take pointers.
#![allow(unsafe_code)]

use std::io::{Error, Result};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::stamps::now;

/// Bytes of data in one packet: a jumbo frame's.
pub(crate) const DATA_BYTES: usize = 8192;

/// Bytes of a message's head.
pub(crate) const HEAD_BYTES: usize = 24;

/// The head of a packet: its kind, and the request that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// `true` for data, `false` for a request or its completion.
    pub(crate) is_data: bool,
    pub(crate) is_write: bool,
    /// Bytes of the request.
    pub(crate) bytes: u32,
    /// Offset of a packet's data in the request.
    pub(crate) at: u32,
    /// Offset of the request on the drive.
    pub(crate) place: u64,
}

impl Head {
    fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        (bytes[0], bytes[1]) = (u8::from(self.is_data), u8::from(self.is_write));
        bytes[4..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.at.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.place.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Head {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        Head {
            is_data: bytes[0] != 0,
            is_write: bytes[1] != 0,
            bytes: word(4),
            at: word(8),
            place: u64::from_le_bytes(bytes[16..24].try_into().expect("eight")),
        }
    }
}

/// A received packet.
pub(crate) struct Packet {
    pub(crate) head: Head,
    pub(crate) data: Vec<u8>,
    /// The time at which the kernel received it.
    pub(crate) at: u64,
}

/// An end of the connection.
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
}

/// Returns both ends of a connection over loopback.
pub(crate) fn pair() -> Result<[DatagramSocket; 2]> {
    let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    for (n, socket) in sockets.iter().enumerate() {
        socket.connect(sockets[1 - n].local_addr()?)?;
        // Room for the data of the largest request.
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, 4 << 20)?;
        let on: libc::c_int = 1;
        // SAFETY: the kernel reads an integer that outlives the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPNS,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(Error::last_os_error());
        }
    }
    Ok(sockets.map(|socket| DatagramSocket { socket }))
}

impl DatagramSocket {
    /// Sends data in packets, then `last`. Calls `leaves` before the last packet goes to the
    /// kernel.
    pub(crate) fn send(&self, data: &[u8], last: Head, leaves: impl FnOnce()) -> Result<()> {
        let mut packet = Vec::with_capacity(HEAD_BYTES + DATA_BYTES);
        for (n, piece) in data.chunks(DATA_BYTES).enumerate() {
            let at = (n * DATA_BYTES) as u32;
            packet.clear();
            packet.extend_from_slice(&Head { is_data: true, at, ..last }.bytes());
            packet.extend_from_slice(piece);
            self.socket.send(&packet)?;
        }
        leaves();
        self.socket.send(&last.bytes()).map(drop)
    }

    /// Waits for a packet.
    pub(crate) fn receive(&self) -> Result<Packet> {
        let mut bytes = vec![0; HEAD_BYTES + DATA_BYTES];
        let mut control = [0u64; 8];
        let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: zeroes are a message header without parts.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        // SAFETY: the header's parts outlive the call, and have the lengths that it states.
        let count = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, 0) };
        if count < HEAD_BYTES as isize {
            return Err(Error::last_os_error());
        }
        let at = kernels_time(&control).unwrap_or_else(now);
        bytes.truncate(count as usize);
        let head = Head::read(&bytes);
        bytes.drain(..HEAD_BYTES);
        Ok(Packet { head, data: bytes, at })
    }
}

/// Returns the time in a control message `SCM_TIMESTAMPNS`: length, level and type, seconds,
/// nanoseconds (cmsg(3)).
fn kernels_time(control: &[u64; 8]) -> Option<u64> {
    let kind = (libc::SOL_SOCKET as u64) | (libc::SCM_TIMESTAMPNS as u64) << 32;
    let is_time = control[0] >= 32 && control[1] == kind.to_le();
    is_time.then(|| control[2] * 1_000_000_000 + control[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_arrive_as_they_were_sent_with_a_time() {
        let [a, b] = pair().unwrap();
        let before = now();
        let last = Head { is_write: true, bytes: 9000, place: 7 << 40, ..Head::default() };
        let data: Vec<u8> = (0..9000).map(|n| n as u8).collect();
        a.send(&data, last, || {}).unwrap();
        let packets = [(); 3].map(|()| b.receive().unwrap());
        assert_eq!(packets[0].data, data[..DATA_BYTES]);
        assert_eq!((packets[1].head.at, packets[1].head.is_data), (DATA_BYTES as u32, true));
        assert_eq!((packets[2].head, packets[2].data.len()), (last, 0));
        assert!(packets.iter().all(|packet| (before..=now()).contains(&packet.at)));
    }
}
