//! The packets of one send: a run to one address, of equal size except for the last, which the
//! kernel cuts apart (`UDP_SEGMENT`, udp(7)). Over Ethernet, each packet is a run.

use packets::PeerAddress;

use super::kind::SocketKind;
use crate::ether;
use crate::message::{EMPTY_HEADER, EMPTY_PIECE};
use crate::uring::address::SocketAddress;

/// Maximum bytes of a run: those of one UDP datagram.
pub(super) const RUN_BYTES: usize = 65_000;

/// Maximum packets of a run: the kernel's limit (`UDP_MAX_SEGMENTS`).
const RUN_PACKETS: usize = 64;

/// Words of a control message with two bytes of data.
const CONTROL_WORDS: usize = 3;

/// A run of packets, and the structures of its send.
pub(super) struct PacketRun {
    header: libc::msghdr,
    vector: libc::iovec,
    /// The address; `None` before the first packet, and on a connected socket.
    name: Option<SocketAddress>,
    control: [u64; CONTROL_WORDS],
    bytes: Vec<u8>,
    to: Option<PeerAddress>,
    /// The number by which the receiver's kernel distributes the run; `None` for a single packet.
    course: Option<u8>,
    /// The size of each packet in bytes, except for the last.
    packet_bytes: usize,
    pub(super) count: usize,
    /// `true` if the last packet is smaller than the others, so that the run has ended.
    is_full: bool,
}

impl PacketRun {
    /// Returns a block for so many bytes.
    pub(super) fn new(bytes: usize) -> Box<PacketRun> {
        Box::new(PacketRun {
            header: EMPTY_HEADER,
            vector: EMPTY_PIECE,
            name: None,
            control: [0; CONTROL_WORDS],
            bytes: Vec::with_capacity(bytes),
            to: None,
            course: None,
            packet_bytes: 0,
            count: 0,
            is_full: false,
        })
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        (self.to, self.packet_bytes, self.count, self.is_full) = (None, 0, 0, false);
    }

    /// Returns `true` if a packet may be added to the run. Without `cuts`, each packet is a run.
    pub(super) fn takes(
        &self,
        to: PeerAddress,
        course: Option<u8>,
        bytes: usize,
        cuts: bool,
    ) -> bool {
        let follows = self.to == Some(to)
            && course.is_some()
            && self.course == course
            && !self.is_full
            && cuts
            && bytes <= self.packet_bytes
            && self.count < RUN_PACKETS
            && self.bytes.len() + bytes <= RUN_BYTES;
        self.count == 0 || follows
    }

    /// Appends a packet for which [`takes`](PacketRun::takes) is true, with `before` before it.
    pub(super) fn append<'a>(
        &mut self,
        (to, before): (PeerAddress, &[u8]),
        course: Option<u8>,
        bytes: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) {
        if self.count == 0 {
            (self.to, self.course, self.packet_bytes) = (Some(to), course, bytes);
        }
        self.bytes.extend_from_slice(before);
        let at = self.bytes.len();
        parts.for_each(|part| self.bytes.extend_from_slice(part));
        debug_assert!(self.bytes.len() == at + bytes, "a packet has its size");
        self.is_full = bytes < self.packet_bytes;
        self.count += 1;
    }

    /// Returns the message header, which points into the block.
    pub(super) fn message(&mut self, kind: SocketKind) -> *const libc::msghdr {
        self.name = match (self.to, kind) {
            (Some(PeerAddress::Internet(address)), SocketKind::Udp { is_connected: false }) => {
                Some(address.into())
            }
            (Some(PeerAddress::Ethernet { mac, .. }), SocketKind::Ethernet { index, .. }) => {
                Some(SocketAddress::Link(ether::link_address(index, mac)))
            }
            _ => None,
        };
        (self.header.msg_name, self.header.msg_namelen) = match &self.name {
            Some(name) => {
                let (name, bytes) = name.as_raw();
                (name.cast_mut().cast(), bytes)
            }
            None => (std::ptr::null_mut(), 0),
        };
        self.vector.iov_base = self.bytes.as_mut_ptr().cast();
        self.vector.iov_len = self.bytes.len();
        (self.header.msg_iov, self.header.msg_iovlen) = (&raw mut self.vector, 1);
        (self.header.msg_control, self.header.msg_controllen) = (std::ptr::null_mut(), 0);
        if self.count > 1 {
            // The head of a control message: its bytes, level and type (cmsg(3)).
            let kind = u64::from(libc::SOL_UDP as u32) | u64::from(libc::UDP_SEGMENT as u32) << 32;
            self.control = [16 + 2, kind.to_le(), (self.packet_bytes as u64).to_le()];
            self.header.msg_control = self.control.as_mut_ptr().cast();
            self.header.msg_controllen = size_of_val(&self.control) as _;
        }
        &raw const self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_a_smaller_packet_another_station_or_its_size() {
        let peer_address = |port| PeerAddress::Internet(([127, 0, 0, 1], port).into());
        let mut block = PacketRun::new(RUN_BYTES);
        let (bytes, one) = ([7; 1400], Some(1));
        block.append((peer_address(1), &[]), one, 1400, [&bytes[..]].into_iter());
        assert!(
            block.takes(peer_address(1), one, 1400, true)
                && block.takes(peer_address(1), one, 60, true)
        );
        assert!(!block.takes(peer_address(1), one, 1400, false), "nobody cuts it apart");
        for other in [None, Some(2)] {
            assert!(!block.takes(peer_address(1), other, 60, true), "another worker's");
        }
        assert!(
            !block.takes(peer_address(2), one, 1400, true)
                && !block.takes(peer_address(1), one, 1401, true)
        );
        block.append((peer_address(1), &[]), one, 60, [&bytes[..20], &bytes[..40]].into_iter());
        assert!(!block.takes(peer_address(1), one, 60, true));
        block.clear();
        let mut count = 0;
        while block.takes(peer_address(1), one, 1400, true) {
            block.append((peer_address(1), &[]), one, 1400, [&bytes[..]].into_iter());
            count += 1;
        }
        assert_eq!(count, RUN_BYTES / 1400);
    }
}
