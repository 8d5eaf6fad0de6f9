//! One connection's state, and the names of its operations in flight.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use contract::CloseReason;

use super::direct::Direct;
use crate::Endpoint;
use crate::frames::FrameQueue;
use crate::sendblock::SendBlock;

/// Where a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits for the kernel to connect; its completion ends this.
    Dialling,
    /// Sends and receives.
    Open,
    /// Sends what is queued, then shuts its side; the peer's close or the deadline ends this.
    Finishing,
    /// Waits for what is in flight to end; the last completion ends this.
    Closing(CloseReason),
}

/// Whether the kernel receives for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// No.
    Idle,
    /// Yes, until a completion says that no more follow.
    Armed,
    /// A little, once.
    Little,
    /// Once, to where the bytes belong.
    Direct,
}

/// A place in the table of connections.
pub(super) struct Conn {
    /// How often the place was used before.
    pub(super) generation: u32,
    /// `None`: the place is vacant.
    pub(super) socket: Option<OwnedFd>,
    pub(super) phase: Phase,
    pub(super) receiving: Receiving,
    /// What a bounded receive points to, and the buffer that is to be filled next.
    pub(super) direct: Option<Box<Direct>>,
    /// Bounded receives that may still bring no payload.
    pub(super) patience: u8,
    /// It is in the list of connections whose bounded receives have ended.
    pub(super) is_resting: bool,
    /// Back-pressure: do not receive.
    pub(super) paused: bool,
    /// The kernel tells of the connection's end, once. It stays when the connection is read again:
    /// the next pause needs it.
    pub(super) is_watched: bool,
    /// Nothing of it is to be at the kernel, because it is to move.
    pub(super) is_stilled: bool,
    /// Made by us, so not counted among the accepted ones.
    pub(super) dialled: bool,
    /// The address that a connect in flight points to.
    pub(super) dialling: Option<Box<SocketAddress>>,
    pub(super) queue: FrameQueue,
    /// Bytes of the frames in `queue`.
    pub(super) unsent: usize,
    /// What the send in flight points to. It carries the first `frames` of `queue`.
    pub(super) sending: Option<Box<SendBlock>>,
    /// It is in the list of connections to send on.
    pub(super) is_ready: bool,
    /// It is in the list of connections that wait for receive buffers.
    pub(super) is_starved: bool,
}

impl Conn {
    pub(super) fn vacant() -> Conn {
        Conn {
            generation: 0,
            socket: None,
            phase: Phase::Closing(CloseReason::Local),
            receiving: Receiving::Idle,
            direct: None,
            patience: 0,
            is_resting: false,
            paused: false,
            is_watched: false,
            is_stilled: false,
            dialled: false,
            dialling: None,
            queue: FrameQueue::EMPTY,
            unsent: 0,
            sending: None,
            is_ready: false,
            is_starved: false,
        }
    }

    pub(super) fn occupy(&mut self, socket: OwnedFd, phase: Phase) {
        assert!(self.socket.is_none(), "the place was free");
        self.socket = Some(socket);
        self.phase = phase;
    }

    /// Closes the socket and makes the place ready for another connection.
    pub(super) fn vacate(&mut self) {
        *self = Conn {
            generation: self.generation.wrapping_add(1),
            is_ready: self.is_ready,
            is_starved: self.is_starved,
            is_resting: self.is_resting,
            ..Conn::vacant()
        };
    }
}

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Operation {
    Accept = 0,
    Receive = 1,
    Send = 2,
    Connect = 3,
    Cancel = 4,
    Watch = 5,
}

impl Operation {
    /// Operation, place and the low bits of its generation (so that a late cancel cannot hit a
    /// later connection) in 56 bits.
    pub(super) fn data(self, index: u32, generation: u32) -> u64 {
        debug_assert!(index < 1 << 24);
        (self as u64) << 48 | u64::from(generation & 0xff_ffff) << 24 | u64::from(index)
    }

    pub(super) fn from_data(data: u64) -> (Operation, u32) {
        let operation = match data >> 48 {
            0 => Operation::Accept,
            1 => Operation::Receive,
            2 => Operation::Send,
            3 => Operation::Connect,
            4 => Operation::Cancel,
            5 => Operation::Watch,
            other => panic!("{other} is no operation of the sockets"),
        };
        (operation, (data & 0xff_ffff) as u32)
    }
}

/// A socket address as the kernel reads it.
pub(super) enum SocketAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
    Unix(libc::sockaddr_un),
}

impl SocketAddress {
    /// Pointer and length, valid while `self` stays in place.
    pub(super) fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            SocketAddress::V4(address) => {
                ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t)
            }
            SocketAddress::V6(address) => {
                ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t)
            }
            // A path ends at its zero byte, which is always there.
            SocketAddress::Unix(address) => {
                ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t)
            }
        }
    }
}

impl From<&Endpoint> for SocketAddress {
    fn from(endpoint: &Endpoint) -> Self {
        let path = match endpoint {
            Endpoint::Internet(address) => return SocketAddress::from(*address),
            Endpoint::Unix(path) => path.as_bytes(),
        };
        let family = libc::AF_UNIX as libc::sa_family_t;
        let mut unix = libc::sockaddr_un { sun_family: family, sun_path: [0; 108] };
        for (to, from) in unix.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        SocketAddress::Unix(unix)
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => SocketAddress::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => SocketAddress::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_round_trip() {
        for operation in [Operation::Accept, Operation::Receive, Operation::Watch] {
            let data = operation.data(0x12_3456, 0xdead_beef);
            assert!(data < 1 << 56);
            assert_eq!(Operation::from_data(data), (operation, 0x12_3456));
        }
    }
}
