//! The head of a packet, whose length and checksum are checked when it is parsed.

use contract::ProtocolError;
use crc::Crc32c;
use wire::packets::{
    FLAG_ACK_NOW, FLAG_ACKS, FLAG_ECHO, FLAG_SEALED, PacketHead, PacketKind, TAG_BYTES, VERSION,
};
use zerocopy::{FromBytes, IntoBytes};

/// Length of a packet's head on the wire, in bytes.
pub(crate) const HEAD_BYTES: usize = size_of::<PacketHead>();

/// The largest packet of the format, in bytes: a multiple of 8 that fits 16 bits.
pub const PACKET_BYTES_MAX: usize = 65_535 & !7;

/// An acknowledgement: a report of the packets that arrived on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The highest number of a packet that arrived, lower 32 bits.
    pub highest: u32,
    /// Bit `n`: the packet with number `highest` − 1 − `n` arrived.
    pub before: u64,
    /// Microseconds between the arrival of packet `highest` and this report.
    pub held_us: u16,
}

/// A packet's head, parsed and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedHead {
    pub kind: PacketKind,
    /// `true` if the sender asks for an acknowledgement at once.
    pub ack_now: bool,
    /// `true` if the sender has received a packet with a congestion mark since its last packet by
    /// the path.
    pub echo: bool,
    /// Length of the packet in bytes, without padding of the network.
    pub bytes: usize,
    /// The number that the receiver gave to the association.
    pub association: u32,
    /// The random number that the receiver drew for the association.
    pub cookie: u64,
    /// The packet's number on its path, lower 32 bits.
    pub number: u32,
    /// The acknowledgement that the packet carries, if any.
    pub ack: Option<Ack>,
    /// The number of packets that may be outstanding to the sender.
    pub credits: u16,
    /// The path and the phase of the key of a sealed packet; `None` if the packet is not sealed.
    pub mark: Option<SealSelector>,
}

/// The fields of a sealed packet that select the key and the nonce to decrypt it. Both fields are
/// zero in the packets of a sealed handshake, which have a checksum instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SealSelector {
    /// The path's identifier in the association.
    pub path: u8,
    /// The phase of the key, lower 8 bits.
    pub phase: u8,
}

impl SealSelector {
    /// Writes the mark into the head of a packet, and sets the flag of sealed packets.
    pub(crate) fn write(self, packet: &mut [u8]) {
        packet[FLAGS_AT] |= FLAG_SEALED;
        packet[CRC_AT..HEAD_BYTES].copy_from_slice(&[self.path, self.phase, 0, 0]);
    }
}

/// Returns `true` if packets of this kind are encrypted when they are sealed.
fn is_encrypted(kind: PacketKind) -> bool {
    matches!(kind, PacketKind::DATA | PacketKind::PROBE)
}

impl ParsedHead {
    /// Parses the head of a packet and checks its checksum. An encrypted packet has no checksum:
    /// its head must not be trusted before the packet was decrypted.
    ///
    /// # Errors
    /// Fails if the version is unknown, the length is impossible, or the checksum is wrong.
    pub(crate) fn parse(packet: &[u8]) -> Result<ParsedHead, ProtocolError> {
        let (head, _) = PacketHead::read_from_prefix(packet)
            .map_err(|_| ProtocolError::BadLength(packet.len() as u64))?;
        if head.version_kind >> 4 != VERSION {
            return Err(ProtocolError::BadVersion(u16::from(head.version_kind >> 4)));
        }
        let bytes = usize::from(head.bytes.get());
        let kind = PacketKind(head.version_kind & 15);
        let is_sealed = head.flags & FLAG_SEALED != 0;
        let is_encrypted = is_sealed && is_encrypted(kind);
        let least = if is_encrypted { HEAD_BYTES + TAG_BYTES } else { HEAD_BYTES };
        if bytes < least || bytes > packet.len() {
            return Err(ProtocolError::BadLength(bytes as u64));
        }
        let mark = match is_encrypted {
            true => {
                let [path, phase, ..] = head.crc32c.get().to_le_bytes();
                SealSelector { path, phase }
            }
            false if crc_of([&packet[..bytes]]) != head.crc32c.get() => {
                return Err(ProtocolError::BadHeader);
            }
            false => SealSelector::default(),
        };
        let ack = Ack {
            highest: head.highest.get(),
            before: head.before.get(),
            held_us: head.held_us.get(),
        };
        Ok(ParsedHead {
            kind,
            ack_now: head.flags & FLAG_ACK_NOW != 0,
            echo: head.flags & FLAG_ECHO != 0,
            bytes,
            association: head.association.get(),
            cookie: head.cookie.get(),
            number: head.number.get(),
            ack: (head.flags & FLAG_ACKS != 0).then_some(ack),
            credits: head.credits.get(),
            mark: is_sealed.then_some(mark),
        })
    }

    /// Writes the head to the start of a packet, with the mark or zeroes in the place of the
    /// checksum.
    pub(crate) fn write(&self, packet: &mut [u8]) {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let ack = self.ack.unwrap_or(Ack { highest: 0, before: 0, held_us: 0 });
        let SealSelector { path, phase } = self.mark.unwrap_or_default();
        let head = PacketHead {
            version_kind: VERSION << 4 | self.kind.0,
            flags: flag(self.ack_now, FLAG_ACK_NOW)
                | flag(self.ack.is_some(), FLAG_ACKS)
                | flag(self.mark.is_some(), FLAG_SEALED)
                | flag(self.echo, FLAG_ECHO),
            bytes: (self.bytes as u16).into(),
            association: self.association.into(),
            cookie: self.cookie.into(),
            number: self.number.into(),
            highest: ack.highest.into(),
            before: ack.before.into(),
            held_us: ack.held_us.into(),
            credits: self.credits.into(),
            crc32c: u32::from_le_bytes([path, phase, 0, 0]).into(),
        };
        packet[..HEAD_BYTES].copy_from_slice(head.as_bytes());
    }
}

/// The offset of the flags in a packet.
const FLAGS_AT: usize = 1;

/// The offset of the checksum, or of the mark, in a packet.
const CRC_AT: usize = 36;

/// Returns the checksum of a packet that comes in parts, of which the first contains the whole
/// head. The checksum's own field counts as zero.
pub(crate) fn crc_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or_default();
    let head = [&first[..CRC_AT], &[0; 4], &first[HEAD_BYTES..]];
    Crc32c::of_parts(head.into_iter().chain(parts))
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

    fn example() -> (ParsedHead, Vec<u8>) {
        let head = ParsedHead {
            kind: PacketKind::DATA,
            ack_now: true,
            echo: false,
            bytes: 48,
            association: 0x0102_0304,
            cookie: 0x1122_3344_5566_7788,
            number: 9,
            ack: Some(Ack { highest: 7, before: 5, held_us: 3 }),
            credits: 64,
            mark: None,
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
        assert_eq!(
            ParsedHead::parse(&packet),
            Ok(head),
            "padding behind the packet is not looked at"
        );
        assert_eq!(packet[7], 1, "byte 7 is the worker");
    }

    #[test]
    fn a_sealed_head_has_a_mark_and_room_for_a_proof() {
        let (head, mut packet) = example();
        let sealed =
            ParsedHead { mark: Some(SealSelector { path: 3, phase: 9 }), bytes: 56, ..head };
        sealed.write(&mut packet);
        assert_eq!(packet[36..40], [3, 9, 0, 0]);
        assert_eq!(ParsedHead::parse(&packet), Ok(sealed));
        ParsedHead { bytes: 55, ..sealed }.write(&mut packet);
        assert_eq!(ParsedHead::parse(&packet), Err(ProtocolError::BadLength(55)));
        // In the handshake the flag does not replace the checksum.
        let hello =
            ParsedHead { kind: PacketKind::HELLO, mark: Some(SealSelector::default()), ..head };
        hello.write(&mut packet);
        assert_eq!(ParsedHead::parse(&packet), Err(ProtocolError::BadHeader));
        let crc = crc_of([&packet[..48]]);
        write_crc(&mut packet, crc);
        assert_eq!(ParsedHead::parse(&packet), Ok(hello));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let (_, packet) = example();
        for bit in 0..48 * 8 {
            let mut damaged = packet.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(ParsedHead::parse(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..48 {
            assert!(ParsedHead::parse(&packet[..len]).is_err(), "cut to {len} bytes");
        }
    }

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let (_, packet) = example();
        assert_eq!(crc_of([&packet[..40], &packet[40..45], &packet[45..]]), crc_of([&packet[..]]));
    }
}
