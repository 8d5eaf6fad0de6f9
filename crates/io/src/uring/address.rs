//! Conversion of socket addresses to the kernel's layout.

use std::net::SocketAddr;

use crate::Endpoint;

/// A socket address in the kernel's layout.
pub(crate) enum SocketAddress {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
    Unix(libc::sockaddr_un),
    Link(libc::sockaddr_ll),
}

impl SocketAddress {
    /// Returns pointer and length, valid while `self` stays in place.
    pub(crate) fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            SocketAddress::V4(address) => {
                ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t)
            }
            SocketAddress::V6(address) => {
                ((&raw const *address).cast(), size_of_val(address) as libc::socklen_t)
            }
            SocketAddress::Link(address) => {
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
            Endpoint::Packets(lanes) => return SocketAddress::from(lanes.first()),
            Endpoint::Unix(path) => path.as_bytes(),
            Endpoint::Ethernet(address) => unreachable!("no stream leads to {address}"),
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
