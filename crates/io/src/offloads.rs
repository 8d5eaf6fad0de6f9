//! Queries of the work that a network card does for the kernel, by `SIOCETHTOOL` (netdevice(7),
//! `linux/ethtool.h`).
// UNSAFETY: the call takes a structure that points at another.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The number of the ioctl `SIOCETHTOOL`, on every architecture.
const CALL: u32 = 0x8946;

/// Bytes of an interface name, with its final zero.
const NAME_BYTES: usize = 16;

const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;

/// The bit for large receive offload (LRO) in the answer to [`GET_FLAGS`].
const FLAG_LRO: u32 = 1 << 15;

/// The segmentation that a network card, or the kernel in its place, does for sending and
/// receiving. A field is `None` if the driver does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// The card cuts large sends into segments.
    pub tso: Option<bool>,
    /// The kernel cuts large sends into segments, as late as possible.
    pub gso: Option<bool>,
    /// The kernel joins received segments reversibly.
    pub gro: Option<bool>,
    /// The card joins received segments.
    pub lro: Option<bool>,
}

/// A value to query (`struct ethtool_value`).
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// A query: the interface, and the pointer to the value (`struct ifreq`, whose union has 24 bytes).
#[repr(C)]
struct Request {
    name: [u8; NAME_BYTES],
    value: *mut Value,
    rest: [u64; 2],
}

/// Queries the offloads of an interface.
///
/// # Errors
/// Fails if there is no such interface, or no socket can be made.
pub fn offloads(interface: &str) -> io::Result<Offloads> {
    let mut name = [0; NAME_BYTES];
    if interface.len() >= NAME_BYTES || interface.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name of an interface"));
    }
    name[..interface.len()].copy_from_slice(interface.as_bytes());
    let kind = (AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC);
    let socket = socket_with(kind.0, kind.1, kind.2, None)?;
    let ask = |command: u32| -> io::Result<Option<u32>> {
        let mut value = Value { command, data: 0 };
        let mut request = Request { name, value: &mut value, rest: [0; 2] };
        // SAFETY: `request` is laid out as `struct ifreq` and lives through the call; it points at `value`,
        // which does as well, and these commands write no more than its two words.
        let asked = unsafe { libc::ioctl(socket.as_raw_fd(), CALL as _, &mut request) };
        let error = io::Error::last_os_error();
        match (asked, error.raw_os_error()) {
            (0, _) => Ok(Some(value.data)),
            (_, Some(libc::EOPNOTSUPP)) => Ok(None),
            _ => Err(error),
        }
    };
    let is_on = |value: Option<u32>| value.map(|value| value != 0);
    Ok(Offloads {
        tso: is_on(ask(GET_TSO)?),
        gso: is_on(ask(GET_GSO)?),
        gro: is_on(ask(GET_GRO)?),
        lro: ask(GET_FLAGS)?.map(|flags| flags & FLAG_LRO != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_the_kernels() {
        assert_eq!(size_of::<Request>(), 40);
        assert_eq!(size_of::<Value>(), 8);
    }

    #[test]
    fn loopback_says_what_it_does_and_what_is_not_there_is_an_error() {
        let of_loopback = offloads("lo").unwrap();
        assert!(of_loopback.gso.is_some() && of_loopback.lro == Some(false), "{of_loopback:?}");
        assert!(offloads("surely-none").is_err());
        assert!(offloads("a-name-that-is-far-too-long").is_err());
    }
}
