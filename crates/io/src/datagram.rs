//! UDP sockets, and the kernel's knowledge of their paths.
//!
//! This module deliberately leaves out sending and receiving (`udp`).

// UNSAFETY: options of the socket are read and written by pointers, and chance is drawn into an array.
#![allow(unsafe_code)]

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::Error;

/// Size of a socket's receive buffer in the kernel, in bytes.
const SOCKET_BYTES: usize = 4 << 20;

/// Returns a socket that receives packets at `address`.
pub(crate) fn bind(address: SocketAddr) -> Result<OwnedFd, Error> {
    let fail = |e: rustix::io::Errno| {
        let hint = match e {
            rustix::io::Errno::ADDRINUSE => " (is another server running there?)",
            rustix::io::Errno::ACCESS => " (ports below 1024 need a privilege)",
            rustix::io::Errno::ADDRNOTAVAIL => " (no interface has this address)",
            _ => "",
        };
        Error::system(format!("cannot receive packets at {address}{hint}"), e)
    };
    let socket = socket_of(address).map_err(fail)?;
    rustix::net::bind(&socket, &address).map_err(fail)?;
    Ok(socket)
}

/// Returns a socket that is connected to `server`, so that the network's reports of an absent
/// server arrive there.
pub(crate) fn connect(server: SocketAddr) -> Result<OwnedFd, Error> {
    let fail = |e| Error::system(format!("cannot send packets to {server}"), e);
    let socket = socket_of(server).map_err(fail)?;
    rustix::net::connect(&socket, &server).map_err(fail)?;
    Ok(socket)
}

/// Connects a socket anew, so that the system chooses the source address again, which may have
/// disappeared.
pub(crate) fn reconnect(socket: impl AsFd, server: SocketAddr) -> Result<(), Error> {
    let fail = |e| Error::system(format!("cannot send packets to {server}"), e);
    disconnect(&socket).map_err(fail)?;
    rustix::net::connect(&socket, &server).map_err(fail)
}

fn disconnect(socket: impl AsFd) -> rustix::io::Result<()> {
    rustix::net::connect_unspec(socket)
}

fn socket_of(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES).is_err() {
        // Without a privilege, `net.core.rmem_max` bounds it.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
    }
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    Ok(socket)
}

/// Returns the largest packet that the kernel knows to reach the peer of a connected socket
/// unfragmented.
pub(crate) fn path_bytes(socket: impl AsFd, server: SocketAddr) -> Option<usize> {
    let (level, name, heads) = match server {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU, 20 + 8),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 40 + 8),
    };
    let mut value: libc::c_int = 0;
    let mut bytes = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `value`, which outlives the call.
    let result = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut bytes)
    };
    (result == 0).then(|| (value as usize).saturating_sub(heads))
}

fn set_option(socket: impl AsFd, level: i32, name: i32, value: i32) -> rustix::io::Result<()> {
    // SAFETY: the kernel reads the four bytes of `value`, which outlives the call.
    let result = unsafe {
        let (fd, bytes) = (socket.as_fd().as_raw_fd(), size_of_val(&value) as libc::socklen_t);
        libc::setsockopt(fd, level, name, (&raw const value).cast(), bytes)
    };
    match result {
        0 => Ok(()),
        _ => Err(rustix::io::Errno::from_io_error(&std::io::Error::last_os_error())
            .unwrap_or(rustix::io::Errno::INVAL)),
    }
}

/// Returns random bytes that cannot be guessed.
///
/// # Errors
/// Fails if the system has none.
pub(crate) fn secret() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    // SAFETY: the kernel writes at most 32 bytes to `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got as usize == bytes.len() {
        return Ok(bytes);
    }
    Err(Error::system("cannot draw a secret", std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disconnected_socket_has_no_source_address() {
        let server = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let server: SocketAddr = rustix::net::getsockname(&server).unwrap().try_into().unwrap();
        let socket = connect(server).unwrap();
        let source =
            || -> SocketAddr { rustix::net::getsockname(&socket).unwrap().try_into().unwrap() };
        assert!(source().ip().is_loopback());
        disconnect(&socket).unwrap();
        assert!(source().ip().is_unspecified());
        reconnect(&socket, server).unwrap();
        assert!(source().ip().is_loopback() && source().port() != 0);
    }
}
