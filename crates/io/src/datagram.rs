//! UDP sockets: groups of sockets at one port, and the largest packet that a path carries.
//!
//! This module deliberately leaves out sending and receiving (`lane`).

// UNSAFETY: options of the socket are read and written by pointers, and chance is drawn into an
// array.
#![allow(unsafe_code)]

use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use wire::packets::{PacketHead, PacketHelloBody, PacketKind};

use crate::Error;
use crate::taken::{PortProtocol, hint};

/// Size of a socket's receive buffer, and of its send buffer, in the kernel, in bytes. The system's
/// limits may make them smaller.
const SOCKET_BYTES: usize = 4 << 20;

/// Offset in a packet, in bytes, of the number of the worker that holds the association.
const WORKER_AT: usize = offset_of!(PacketHead, association) + 3;

/// Offset in a hello of a random byte, which is the same in all hellos of an association. (The
/// lowest bit of a cookie is always set, so this is not its first byte.)
const CHANCE_AT: usize = size_of::<PacketHead>() + offset_of!(PacketHelloBody, cookie) + 1;

/// Returns a socket that receives packets at `address`, the first of a group. Fails if another
/// socket has the address. Later, sockets of the same user may [join] the group.
pub(crate) fn bind(address: SocketAddr) -> Result<OwnedFd, Error> {
    let said = |e: std::io::Error| {
        Error::system(format!("cannot receive packets at {address}{}", hint(&e)), e)
    };
    let fail = |e: rustix::io::Errno| said(e.into());
    let socket = socket_of(address).map_err(fail)?;
    let bind = || rustix::net::bind(&socket, &address).map_err(std::io::Error::from);
    PortProtocol::Udp.bind(address, bind).map_err(said)?;
    // Only now, so that another server's address was refused.
    share(&socket).map_err(fail)?;
    let address = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from).map_err(fail)?;
    // The kernel makes the group when the second socket joins.
    let second = join(address)?;
    steer(&socket, 1)?;
    drop(second);
    Ok(socket)
}

/// Returns a further socket bound to an address at which sockets of this user already receive
/// packets. The new socket receives none until the group's program is set to [steer] packets to it.
pub(crate) fn join(address: SocketAddr) -> Result<OwnedFd, Error> {
    let fail = |e| Error::system(format!("cannot receive packets at {address} once more"), e);
    let socket = socket_of(address).map_err(fail)?;
    share(&socket).map_err(fail)?;
    rustix::net::bind(&socket, &address).map_err(fail)?;
    Ok(socket)
}

/// Checks that a socket, which came from another process, is a datagram socket at `address`.
pub(crate) fn check(socket: impl AsFd, address: SocketAddr) -> Result<(), Error> {
    let is_of_packets = sockopt::socket_type(&socket) == Ok(SocketType::DGRAM);
    let own = rustix::net::getsockname(&socket).and_then(SocketAddr::try_from);
    if is_of_packets && own == Ok(address) {
        return Ok(());
    }
    Err(Error::new(format!("what was passed for {address} does not receive packets there")))
}

fn share(socket: impl AsFd) -> rustix::io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Makes the kernel distribute the packets to a group over its first `sockets` sockets. A hello
/// goes to one by chance, any other packet to that of its association's worker.
pub(crate) fn steer(group: impl AsFd, sockets: usize) -> Result<(), Error> {
    let mut program = steering(sockets as u32, 0);
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its instructions, which outlive the call.
    let result = unsafe {
        let (fd, bytes) = (group.as_fd().as_raw_fd(), size_of_val(&program) as libc::socklen_t);
        let name = libc::SO_ATTACH_REUSEPORT_CBPF;
        libc::setsockopt(fd, libc::SOL_SOCKET, name, (&raw const program).cast(), bytes)
    };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Error::system("cannot distribute packets over workers", error))
}

/// Returns the worker's number in a packet, by which the kernel finds the socket in a group; `None`
/// for a hello and a packet without this byte. Packets for different workers may not leave as one
/// run (GSO), of which a kernel looks at the first packet only.
pub(crate) fn course(packet: &[u8]) -> Option<u8> {
    let is_hello = packet.first()? & 15 == PacketKind::HELLO.0;
    packet.get(WORKER_AT).copied().filter(|_| !is_hello)
}

/// Returns the BPF program that finds a packet's socket among the first `sockets` of a group, where
/// `before` bytes lie before the packet. A packet that is too short goes to the first socket.
pub(crate) fn steering(sockets: u32, before: usize) -> [libc::sock_filter; 8] {
    let step = |code: u32, k: u32, (jt, jf)| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    let byte = |at: usize| step(load, (before + at) as u32, (0, 0));
    [
        byte(offset_of!(PacketHead, version_kind)),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 15, (0, 0)),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, PacketKind::HELLO.0.into(), (2, 0)),
        byte(WORKER_AT),
        step(libc::BPF_JMP | libc::BPF_JA, 1, (0, 0)),
        byte(CHANCE_AT),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, sockets, (0, 0)),
        step(libc::BPF_RET | libc::BPF_A, 0, (0, 0)),
    ]
}

/// Returns a socket that is connected to `server`, so that it gets the network's reports that the
/// server is absent.
pub(crate) fn connect(server: SocketAddr) -> Result<OwnedFd, Error> {
    let fail = |e| Error::system(format!("cannot send packets to {server}"), e);
    let socket = socket_of(server).map_err(fail)?;
    rustix::net::connect(&socket, &server).map_err(fail)?;
    Ok(socket)
}

/// Connects a socket to `server` again, so that the system chooses its source address anew. The old
/// source address may no longer exist.
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
    keep_whole(&socket, address)?;
    Ok(socket)
}

/// Forbids the kernel and the routers to fragment packets. The kernel also ignores the path MTU
/// that routers report, as anybody can forge such a report: the packet protocol measures by itself
/// how large packets a path carries.
fn keep_whole(socket: impl AsFd, address: SocketAddr) -> rustix::io::Result<()> {
    if address.is_ipv6() {
        let probe = libc::IPV6_PMTUDISC_PROBE;
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
    }
    // A socket of IPv6 may have peers of IPv4, too.
    set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
}

/// Returns the bytes of the largest packet (payload of UDP) that the kernel expects to reach the
/// peer of a connected socket unfragmented; `None` if the socket is not connected.
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

/// Makes the kernel say when each packet came, so that a process that runs late does not count as a
/// slow network.
pub(crate) fn stamp(socket: impl AsFd) -> rustix::io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_association_has_one_worker_wherever_its_packets_come_from() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at: SocketAddr = rustix::net::getsockname(&first).unwrap().try_into().unwrap();
        let group = [first, join(at).unwrap(), join(at).unwrap()].map(std::net::UdpSocket::from);
        let receive = |socket: &std::net::UdpSocket| {
            let mut bytes = [0; 64];
            socket.recv(&mut bytes).map(|len| bytes[..len].to_vec()).ok()
        };
        for socket in &group {
            socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        let mut data = [0; 64];
        data[0] = 16;
        let mut hello = data;
        hello[0] = 16 | PacketKind::HELLO.0;
        for workers in [1, 2, 3] {
            steer(&group[0], workers).unwrap();
            for n in 0..30 {
                // Each from another address.
                let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                (data[WORKER_AT], hello[CHANCE_AT]) = (n as u8, n as u8);
                for packet in [&data[..], &hello, &[]] {
                    peer.send_to(packet, at).unwrap();
                    let worker = if packet.is_empty() { 0 } else { n % workers };
                    assert_eq!(receive(&group[worker]).as_deref(), Some(packet));
                }
            }
        }
        for socket in &group {
            socket.set_nonblocking(true).unwrap();
            assert!(receive(socket).is_none(), "more than was sent");
        }
    }

    #[test]
    fn a_group_leaves_no_room_for_another_server() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = rustix::net::getsockname(&first).unwrap().try_into().unwrap();
        let _second = join(at).unwrap();
        let error = bind(at).unwrap_err().to_string();
        assert!(error.contains("another server"), "{error}");
    }

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
