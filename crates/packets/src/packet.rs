//! An outgoing packet: a list of parts, of which the large bodies of messages are not copied.

use alloc::vec::Vec;

use contract::Mac;
use wire::packets::{RECORD_ALIGN, TAG_BYTES};

use crate::head::{HEAD_BYTES, ParsedHead, crc_of, write_crc};
use crate::message::{ByteLocation, Message};
use crate::peer_address::PeerAddress;
use crate::piece::Piece;
use crate::record::{RECORD_BYTES, Record};
use crate::seal::Seal;
use crate::slab::{NONE, Slab};

/// Maximum length in bytes of a stretch of a body that is copied although it could be lent.
const COPIED_BYTES_MAX: usize = 512;

/// Length of a packet with a reset, in bytes.
pub(crate) const RESET_BYTES: usize = HEAD_BYTES + size_of::<wire::packets::ResetBody>();

/// Maximum number of parts of a packet.
pub const PARTS_MAX: usize = 32;

/// A part of a packet.
#[derive(Clone, Copy, Debug)]
enum PacketPart {
    /// Bytes in the packet's own buffer.
    Own { at: u32, bytes: u32 },
    /// Bytes in the body of a message.
    Body { message: u32, at: u32, bytes: u32 },
}

/// A reference of a packet at the lane to the body of a message.
#[derive(Debug)]
pub(crate) struct Loan {
    pub message: u32,
    pub next: u32,
}

/// The bodies that one packet lends to a lane. The value goes to [`gone`](crate::Endpoint::gone)
/// once the lane has released them.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "bodies return only after the lane has let go"]
pub struct LentBodies(pub(crate) u32);

/// An outgoing packet. The value is reused for each packet, so that nothing is allocated.
pub struct Packet {
    /// The lane that the packet leaves by.
    pub lane: u8,
    /// The address that the packet goes to.
    pub to: PeerAddress,
    own: Vec<u8>,
    parts: Vec<PacketPart>,
    /// The offset in `own` of the first byte that belongs to no part yet.
    part_at: usize,
    bytes: usize,
    pub(crate) bytes_max: usize,
    /// The number of records, and the most that a packet has.
    records: u32,
    records_max: u32,
    loans: u32,
    /// Number of bytes reserved for the authentication tag of a packet that is going to be
    /// encrypted; otherwise zero. An encrypted packet lends no bodies.
    kept: usize,
    /// The identifier of the path that the packet goes by.
    pub(crate) path: u8,
    /// The packet's number on its path.
    pub(crate) number: u64,
}

impl Packet {
    /// Returns an empty packet that has room for `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Packet {
        Packet {
            lane: 0,
            to: PeerAddress::Ethernet { mac: Mac([0; 6]), port: 0 },
            own: Vec::with_capacity(bytes_max.next_multiple_of(RECORD_ALIGN)),
            parts: Vec::with_capacity(PARTS_MAX + 2),
            part_at: 0,
            bytes: 0,
            bytes_max,
            records: 0,
            records_max: u32::MAX,
            loans: NONE,
            kept: 0,
            path: 0,
            number: 0,
        }
    }

    /// Returns the length of the packet in bytes, with its authentication tag.
    pub fn len(&self) -> usize {
        self.bytes + self.kept
    }

    /// Returns `true` if the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets whether the packets that are begun from now on are sealed.
    pub(crate) fn set_sealed(&mut self, is_sealed: bool) {
        self.kept = if is_sealed { TAG_BYTES } else { 0 };
    }

    /// Bounds the number of records in the packets that are begun from now on, for measurements of
    /// batches.
    pub(crate) fn set_records_max(&mut self, records_max: u32) {
        self.records_max = records_max;
    }

    /// Takes the loans of the packet's bodies out of it, to be returned once the lane has released
    /// the bodies. Returns `None` if the packet lends no body.
    pub fn lent(&mut self) -> Option<LentBodies> {
        let loans = core::mem::replace(&mut self.loans, NONE);
        (loans != NONE).then_some(LentBodies(loans))
    }

    /// Begins a packet to an address, of at most `bytes_max` bytes.
    pub(crate) fn begin(&mut self, lane: u8, to: PeerAddress, bytes_max: usize) {
        assert!(self.loans == NONE, "the loan of the packet before was taken");
        (self.lane, self.to, self.bytes_max) = (lane, to, bytes_max - self.kept);
        self.own.clear();
        self.own.resize(HEAD_BYTES, 0);
        self.parts.clear();
        (self.part_at, self.bytes, self.records) = (0, HEAD_BYTES, 0);
    }

    /// Returns the number of bytes of payload that the next record may have; `None` if there is no
    /// room for the record's head.
    pub(crate) fn room(&self) -> Option<usize> {
        if self.records >= self.records_max {
            return None;
        }
        let used = self.bytes.next_multiple_of(RECORD_ALIGN) + RECORD_BYTES;
        self.bytes_max.checked_sub(used)
    }

    /// Returns `true` if the packet has no bytes but its head.
    pub(crate) fn is_bare(&self) -> bool {
        self.bytes == HEAD_BYTES
    }

    /// Appends a record for a piece, whose bytes must fit into [`room`](Packet::room). Long
    /// stretches of a body are lent instead of copied.
    pub(crate) fn push(
        &mut self,
        piece: &Piece,
        messages: &mut Slab<Message>,
        loans: &mut Slab<Loan>,
    ) {
        self.records += 1;
        let padding = self.bytes.next_multiple_of(RECORD_ALIGN) - self.bytes;
        let at = self.own.len() + padding;
        self.own.resize(at + RECORD_BYTES, 0);
        self.bytes += padding + RECORD_BYTES;
        let record = Record {
            channel: piece.channel,
            kind: piece.kind.on_wire(),
            last: piece.last,
            message: piece.number,
            behind: piece.behind,
            offset: piece.offset,
            at: 0,
            bytes: piece.bytes,
        };
        record.write(&mut self.own[at..]);
        let mut offset = piece.offset;
        let end = piece.offset + u32::from(piece.bytes);
        while offset < end {
            let message = &mut messages[piece.message];
            let (run, there) = message.locate(offset);
            let bytes = there.min((end - offset) as usize);
            match run {
                ByteLocation::Body(at) if bytes > COPIED_BYTES_MAX && self.may_lend(loans) => {
                    self.lend(piece.message, at, bytes, message, loans);
                }
                _ => self.own.extend_from_slice(message.bytes_at(run, bytes)),
            }
            offset += bytes as u32;
            self.bytes += bytes;
        }
    }

    fn may_lend(&self, loans: &Slab<Loan>) -> bool {
        // What is encrypted is not the message's memory.
        self.kept == 0 && loans.free() > 0 && self.parts.len() + 2 < PARTS_MAX
    }

    fn lend(
        &mut self,
        place: u32,
        at: usize,
        bytes: usize,
        message: &mut Message,
        loans: &mut Slab<Loan>,
    ) {
        self.end_part();
        self.parts.push(PacketPart::Body { message: place, at: at as u32, bytes: bytes as u32 });
        message.loans += 1;
        let loan = loans.take(Loan { message: place, next: self.loans });
        self.loans = loan.expect("there is a free loan");
    }

    fn end_part(&mut self) {
        let (at, bytes) = (self.part_at as u32, (self.own.len() - self.part_at) as u32);
        if bytes > 0 {
            self.parts.push(PacketPart::Own { at, bytes });
        }
        self.part_at = self.own.len();
    }

    /// Appends bytes to a packet that has no records.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Appends zeroes until the packet has `bytes` bytes, its authentication tag included.
    pub(crate) fn pad(&mut self, bytes: usize) {
        self.own.resize((bytes - self.kept).max(self.own.len()), 0);
        self.bytes = self.own.len();
    }

    /// Writes the head of a packet that is complete, and the checksum unless the packet is going to
    /// be sealed.
    pub(crate) fn finish(&mut self, head: ParsedHead, messages: &Slab<Message>) {
        if self.kept > 0 {
            return ParsedHead { bytes: self.len(), ..head }.write(&mut self.own);
        }
        self.end_part();
        ParsedHead { bytes: self.bytes, ..head }.write(&mut self.own);
        let crc = crc_of(self.slices(messages));
        write_crc(&mut self.own, crc);
    }

    /// Encrypts the bytes after the head of a finished packet, and appends the authentication tag.
    pub(crate) fn seal(&mut self, seal: &mut Seal) {
        let mark = seal.mark(self.path);
        mark.write(&mut self.own);
        let tag = seal.seal(self.path, self.number, &mut self.own);
        self.own.extend_from_slice(&tag);
        (self.bytes, self.kept) = (self.own.len(), 0);
        self.end_part();
    }

    /// Returns the bytes of the parts, in order.
    pub(crate) fn slices<'a>(
        &'a self,
        messages: &'a Slab<Message>,
    ) -> impl Iterator<Item = &'a [u8]> {
        self.parts.iter().map(|part| match *part {
            PacketPart::Own { at, bytes } => &self.own[at as usize..][..bytes as usize],
            PacketPart::Body { message, at, bytes } => {
                messages[message].bytes_at(ByteLocation::Body(at as usize), bytes as usize)
            }
        })
    }
}
