//! Addresses of servers: an address of the network, or a Unix socket of this machine.

// UNSAFETY: the kernel writes a peer's credentials into a structure of ours.
#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use contract::{CloseReason, EtherAddress, Mac, Peer, ServerEndpoint};
use rustix::net::AddressFamily;

use crate::{Error, UdpLanes, look_up};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port of TCP.
    Internet(SocketAddr),
    /// The path of a Unix socket in this machine's file system.
    Unix(UnixPath),
    /// IP addresses and ports for messages in packets over UDP (docs/adr/0035-udp.md).
    Packets(UdpLanes),
    /// Cards and a port for messages in packets, in frames of Ethernet
    /// (docs/adr/0046-raw-ethernet.md).
    Ethernet(EtherAddress),
}

impl Endpoint {
    /// Returns the endpoint that a client's address names. Looks up the host names, if there are any.
    ///
    /// # Errors
    /// Names the host that is not found, or the path that is too long for a Unix socket.
    pub fn find(named: &ServerEndpoint) -> Result<Endpoint, Error> {
        match named {
            ServerEndpoint::Unix(path) => UnixPath::new(path).map(Endpoint::Unix),
            ServerEndpoint::Network(host) => look_up(host).map(Endpoint::Internet),
            ServerEndpoint::Packets(hosts) => {
                UdpLanes::find(&hosts.lanes, hosts.window).map(Endpoint::Packets)
            }
            ServerEndpoint::Ethernet(at) => Ok(Endpoint::Ethernet(at.clone())),
        }
    }

    /// Returns the endpoint's IP address and port, those of its first lane; `None` if it is a Unix socket or in a segment of
    /// Ethernet.
    pub fn internet(&self) -> Option<SocketAddr> {
        match self {
            Endpoint::Internet(address) => Some(*address),
            Endpoint::Packets(lanes) => Some(lanes.first()),
            Endpoint::Unix(_) | Endpoint::Ethernet(_) => None,
        }
    }

    /// Returns whether other machines may be able to reach the endpoint.
    pub fn is_exposed(&self) -> bool {
        let is_elsewhere = |address: SocketAddr| !address.ip().is_loopback();
        match self {
            Endpoint::Ethernet(_) => true,
            Endpoint::Packets(lanes) => lanes.all().iter().copied().any(is_elsewhere),
            other => other.internet().is_some_and(is_elsewhere),
        }
    }

    /// Returns `true` if connections to the endpoint carry messages in packets, and `false` if they
    /// are streams.
    pub fn is_of_packets(&self) -> bool {
        matches!(self, Endpoint::Packets(_) | Endpoint::Ethernet(_))
    }

    pub(crate) fn family(&self) -> AddressFamily {
        match (self, self.internet()) {
            (_, Some(SocketAddr::V4(_))) => AddressFamily::INET,
            (_, Some(SocketAddr::V6(_))) => AddressFamily::INET6,
            (Endpoint::Ethernet(_), None) => AddressFamily::PACKET,
            (_, None) => AddressFamily::UNIX,
        }
    }

    /// Returns the peer of `socket`, a connection that was dialled to this endpoint.
    pub(crate) fn peer(&self, socket: impl AsFd) -> Peer {
        match self {
            Endpoint::Internet(address) => Peer::Internet(*address),
            Endpoint::Packets(lanes) => Peer::Packets(lanes.first()),
            Endpoint::Ethernet(at) => {
                Peer::Ethernet { mac: at.first().mac.unwrap_or(Mac([0; 6])), port: at.port }
            }
            // What listens has a user; a socket that cannot say which is not connected any more.
            Endpoint::Unix(_) => Peer::Local { uid: peer_uid(socket).unwrap_or(u32::MAX) },
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint::Internet(address)
    }
}

impl From<UnixPath> for Endpoint {
    fn from(path: UnixPath) -> Endpoint {
        Endpoint::Unix(path)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Internet(address) => address.fmt(f),
            Endpoint::Packets(lanes) => lanes.fmt(f),
            Endpoint::Unix(path) => path.fmt(f),
            Endpoint::Ethernet(at) => at.fmt(f),
        }
    }
}

/// The path of a Unix socket: 1 to 107 bytes, none of them zero.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnixPath(PathBuf);

impl UnixPath {
    /// Maximum number of bytes of a path: the kernel takes 108 with the final zero (`unix(7)`).
    pub const BYTES_MAX: usize = 107;

    /// Checks the length and creates the path.
    ///
    /// # Errors
    /// Fails if the path is empty, longer than [`BYTES_MAX`](UnixPath::BYTES_MAX), or has a zero
    /// byte.
    pub fn new(path: impl Into<PathBuf>) -> Result<UnixPath, Error> {
        let path = path.into();
        let bytes = path.as_os_str().as_bytes();
        match bytes.len() {
            0 => Err(Error::new("a Unix socket needs a path, such as /run/nearflash/data.sock")),
            1..=Self::BYTES_MAX if !bytes.contains(&0) => Ok(UnixPath(path)),
            1..=Self::BYTES_MAX => Err(Error::new("the path of a Unix socket has a zero byte")),
            n => Err(Error::new(format!(
                "the path of a Unix socket has at most {} bytes, and {} has {n}",
                Self::BYTES_MAX,
                path.display()
            ))),
        }
    }

    /// Returns the path for file system calls.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }
}

impl fmt::Display for UnixPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// Returns the peer of an accepted stream: its address, or the user of a Unix socket. Fails if the
/// stream was reset already.
pub(crate) fn peer_of(socket: impl AsFd) -> Result<Peer, ()> {
    let any = rustix::net::getpeername(&socket).map_err(|_| ())?.ok_or(())?;
    if any.address_family() == AddressFamily::UNIX {
        return peer_uid(socket).map(|uid| Peer::Local { uid }).map_err(|_| ());
    }
    SocketAddr::try_from(any).map(Peer::Internet).map_err(|_| ())
}

/// Returns why a connection has ended, for an end that the kernel has reported before all bytes
/// were read: the error at the socket, or the peer.
pub(crate) fn hang_up_reason(socket: impl AsFd) -> CloseReason {
    match rustix::net::sockopt::socket_error(socket) {
        Ok(Ok(())) => CloseReason::Peer,
        Ok(Err(errno)) | Err(errno) => CloseReason::Reset(errno.raw_os_error()),
    }
}

/// Returns the IP address and port of a peer; `None` if it came over a Unix socket or Ethernet.
pub(crate) fn address_of(peer: &Peer) -> Option<SocketAddr> {
    peer.address()
}

/// Returns the number of the user at the other end of a Unix stream, as of the time of `connect` or
/// `listen`, for which the kernel vouches (`SO_PEERCRED`, `unix(7)`).
fn peer_uid(socket: impl AsFd) -> io::Result<u32> {
    // Not rustix's: it has no room for the process 0 of a peer that another container hides.
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `credentials`, which outlives the call and
    // for which every pattern of bits is a value.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    match result {
        0 if length as usize == size_of::<libc::ucred>() => Ok(credentials.uid),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn paths_have_a_length_that_the_kernel_takes() {
        let longest = "/".repeat(UnixPath::BYTES_MAX);
        assert_eq!(UnixPath::new(&longest).unwrap().to_string(), longest);
        for (bad, word) in [("", "needs a path"), ("a\0b", "zero byte")] {
            assert!(UnixPath::new(bad).unwrap_err().to_string().contains(word));
        }
        let error = UnixPath::new("x".repeat(108)).unwrap_err().to_string();
        assert!(error.contains("at most 107") && error.contains("has 108"), "{error}");
    }

    #[test]
    fn a_local_peer_is_known_by_its_user() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(peer_of(&ours), Ok(Peer::Local { uid }));
    }

    #[test]
    fn only_addresses_beyond_loopback_are_exposed() {
        let exposed = |text: &str| Endpoint::Internet(text.parse().unwrap()).is_exposed();
        assert!(exposed("10.0.0.1:7420") && exposed("[::]:7420") && exposed("0.0.0.0:1"));
        assert!(!exposed("127.0.0.1:7420") && !exposed("[::1]:7420"));
        assert!(!Endpoint::Unix(UnixPath::new("/run/x").unwrap()).is_exposed());
        assert!(Endpoint::Ethernet("eth1".parse().unwrap()).is_exposed());
    }
}
