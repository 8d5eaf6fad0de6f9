//! The head of a packet, parsed with a check of its length and checksum.

use contract::Fatal;
use wire::packets::{
    FLAG_ACK_NOW, FLAG_ACKS, FLAG_ECHO, FLAG_SEALED, PacketHead, PacketKind, VERSION,
};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a head on the wire.
pub(crate) const HEAD_BYTES: usize = size_of::<PacketHead>();

/// The largest packet of the format.
pub const PACKET_BYTES_MAX: usize = 65_535 & !7;

/// A report of the packets that arrived on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The highest number received, lower half.
    pub highest: u32,
    /// Bit `n`: number `highest` − 1 − `n` was received.
    pub before: u64,
    /// Microseconds between the arrival of `highest` and this report.
    pub held_us: u16,
}

/// A packet's head, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub kind: PacketKind,
    /// `true` if the sender asks for an acknowledgement at once.
    pub ack_now: bool,
    /// The network marked a packet of ours.
    pub echo: bool,
    /// Bytes of the packet, without padding of the network.
    pub bytes: usize,
    pub association: u32,
    pub cookie: u64,
    pub number: u32,
    pub ack: Option<Ack>,
    pub credits: u16,
}

impl Head {
    /// Parses the head of a packet whose checksum is right.
    ///
    /// # Errors
    /// When the version is another one, the packet is sealed (nobody has a key), the length is
    /// impossible, or the checksum is wrong.
    pub(crate) fn parse(packet: &[u8]) -> Result<Head, Fatal> {
        let (head, _) = PacketHead::read_from_prefix(packet)
            .map_err(|_| Fatal::BadLength(packet.len() as u64))?;
        if head.version_kind >> 4 != VERSION {
            return Err(Fatal::BadVersion(u16::from(head.version_kind >> 4)));
        }
        let bytes = usize::from(head.bytes.get());
        if head.flags & FLAG_SEALED != 0 {
            return Err(Fatal::BadField(1));
        }
        if bytes < HEAD_BYTES || bytes > packet.len() {
            return Err(Fatal::BadLength(bytes as u64));
        }
        if crc_of([&packet[..bytes]]) != head.crc32c.get() {
            return Err(Fatal::BadHeader);
        }
        let ack = Ack {
            highest: head.highest.get(),
            before: head.before.get(),
            held_us: head.held_us.get(),
        };
        Ok(Head {
            kind: PacketKind(head.version_kind & 15),
            ack_now: head.flags & FLAG_ACK_NOW != 0,
            echo: head.flags & FLAG_ECHO != 0,
            bytes,
            association: head.association.get(),
            cookie: head.cookie.get(),
            number: head.number.get(),
            ack: (head.flags & FLAG_ACKS != 0).then_some(ack),
            credits: head.credits.get(),
        })
    }

    /// Writes the head at the start of a packet, with a checksum of zero.
    pub(crate) fn write(&self, packet: &mut [u8]) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let ack = self.ack.unwrap_or(Ack { highest: 0, before: 0, held_us: 0 });
        let head = PacketHead {
            version_kind: VERSION << 4 | self.kind.0,
            flags: flag(self.ack_now, FLAG_ACK_NOW)
                | flag(self.ack.is_some(), FLAG_ACKS)
                | flag(self.echo, FLAG_ECHO),
            bytes: (self.bytes as u16).into(),
            association: self.association.into(),
            cookie: self.cookie.into(),
            number: self.number.into(),
            highest: ack.highest.into(),
            before: ack.before.into(),
            held_us: ack.held_us.into(),
            credits: self.credits.into(),
            crc32c: 0.into(),
        };
        packet[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    }
}

/// The offset of the checksum in a packet.
const CRC_AT: usize = 36;

/// Returns the checksum of a packet that comes in parts, of which the first contains the head. The
/// checksum's own field counts as zero.
pub(crate) fn crc_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    digest.update(&first[..CRC_AT]);
    digest.update(&[0; 4]);
    digest.update(&first[HEAD_BYTES..]);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// Writes the checksum into a packet's head.
pub(crate) fn write_crc(packet: &mut [u8], crc: u32) {
    packet[CRC_AT..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    fn example() -> (Head, Vec<u8>) {
        let head = Head {
            kind: PacketKind::DATA,
            ack_now: true,
            echo: false,
            bytes: 48,
            association: 0x0102_0304,
            cookie: 0x1122_3344_5566_7788,
            number: 9,
            ack: Some(Ack { highest: 7, before: 5, held_us: 3 }),
            credits: 64,
        };
        let mut packet = vec![0xab; 64];
        head.write(&mut packet);
        let crc = crc_of([&packet[..48]]);
        write_crc(&mut packet, crc);
        (head, packet)
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let (head, packet) = example();
        assert_eq!(Head::parse(&packet), Ok(head), "padding behind the packet is not looked at");
        assert_eq!(packet[7], 1, "byte 7 is the worker");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let (_, packet) = example();
        for bit in 0..48 * 8 {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::parse(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..48 {
            assert!(Head::parse(&packet[..len]).is_err(), "cut to {len} bytes");
        }
    }

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let (_, packet) = example();
        assert_eq!(crc_of([&packet[..40], &packet[40..45], &packet[45..]]), crc_of([&packet[..]]));
    }
}
