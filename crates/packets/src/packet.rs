//! An outgoing packet: a list of parts, in which large bodies are not copied.

use alloc::vec::Vec;

use wire::packets::{RECORD_ALIGN, TAG_BYTES};

use crate::head::{HEAD_BYTES, Head, crc_of, write_crc};
use crate::message::{Message, Run};
use crate::piece::Piece;
use crate::record::{RECORD_BYTES, Record};
use crate::seal::Seal;
use crate::slab::{NONE, Slab};
use crate::station::Station;

/// Bodies up to this size are copied behind their heads.
const COPIED_BYTES_MAX: usize = 512;

/// Bytes of a reset.
pub(crate) const RESET_BYTES: usize = HEAD_BYTES + size_of::<wire::packets::ResetBody>();

/// Maximum number of parts of a packet.
pub const PARTS_MAX: usize = 32;

/// A part of a packet.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Bytes of the packet's own buffer.
    Own { at: u32, bytes: u32 },
    /// Bytes of the body of a message.
    Body { message: u32, at: u32, bytes: u32 },
}

/// A body that a packet at the lane refers to.
#[derive(Debug)]
pub(crate) struct Loan {
    pub message: u32,
    pub next: u32,
}

/// The bodies that one packet lends to a lane. The lane returns the value when it has released
/// them.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "bodies return only after the lane has let go"]
pub struct Lent(pub(crate) u32);

/// An outgoing packet. The value is reused for each packet, so that nothing is allocated.
pub struct Packet {
    /// The lane that the packet leaves by.
    pub lane: u8,
    /// The station that it goes to.
    pub to: Station,
    own: Vec<u8>,
    parts: Vec<Part>,
    /// The offset in `own` of the first byte that belongs to no part yet.
    part_at: usize,
    bytes: usize,
    pub(crate) bytes_max: usize,
    loans: u32,
    /// Bytes that are kept for the proof of a sealed packet, which lends nothing.
    kept: usize,
    /// The path's identifier and the packet's number on it.
    pub(crate) path: u8,
    pub(crate) number: u64,
}

impl Packet {
    /// Returns an empty packet for at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Packet {
        Packet {
            lane: 0,
            to: Station::Ethernet { mac: [0; 6], queue: 0 },
            own: Vec::with_capacity(bytes_max.next_multiple_of(RECORD_ALIGN)),
            parts: Vec::with_capacity(PARTS_MAX + 2),
            part_at: 0,
            bytes: 0,
            bytes_max,
            loans: NONE,
            kept: 0,
            path: 0,
            number: 0,
        }
    }

    /// Returns the bytes of the packet, with those of its proof.
    pub fn len(&self) -> usize {
        self.bytes + self.kept
    }

    /// Returns `true` without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets whether the packets that are begun from now on are sealed.
    pub(crate) fn set_sealed(&mut self, is_sealed: bool) {
        self.kept = if is_sealed { TAG_BYTES } else { 0 };
    }

    /// Takes the loan of the packet's bodies, to be returned once the lane has released them.
    /// Returns `None` if everything is in the packet's own bytes.
    pub fn lent(&mut self) -> Option<Lent> {
        let loans = core::mem::replace(&mut self.loans, NONE);
        (loans != NONE).then_some(Lent(loans))
    }

    /// Begins a packet of at most `bytes_max` bytes, which the path can carry.
    pub(crate) fn begin(&mut self, lane: u8, to: Station, bytes_max: usize) {
        assert!(self.loans == NONE, "the loan of the packet before was taken");
        (self.lane, self.to, self.bytes_max) = (lane, to, bytes_max - self.kept);
        self.own.clear();
        self.own.resize(HEAD_BYTES, 0);
        self.parts.clear();
        (self.part_at, self.bytes) = (0, HEAD_BYTES);
    }

    /// Returns the number of bytes that fit into the next record behind its head.
    pub(crate) fn room(&self) -> Option<usize> {
        let used = self.bytes.next_multiple_of(RECORD_ALIGN) + RECORD_BYTES;
        self.bytes_max.checked_sub(used)
    }

    /// Returns `true` if the packet has no records.
    pub(crate) fn is_bare(&self) -> bool {
        self.bytes == HEAD_BYTES
    }

    /// Appends a record for a piece, whose bytes must fit into [`room`](Packet::room).
    pub(crate) fn push(
        &mut self,
        piece: &Piece,
        messages: &mut Slab<Message>,
        loans: &mut Slab<Loan>,
    ) {
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
                Run::Body(at) if bytes > COPIED_BYTES_MAX && self.may_lend(loans) => {
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
        self.parts.push(Part::Body { message: place, at: at as u32, bytes: bytes as u32 });
        message.loans += 1;
        let loan = loans.take(Loan { message: place, next: self.loans });
        self.loans = loan.expect("there is a free loan");
    }

    fn end_part(&mut self) {
        let (at, bytes) = (self.part_at as u32, (self.own.len() - self.part_at) as u32);
        if bytes > 0 {
            self.parts.push(Part::Own { at, bytes });
        }
        self.part_at = self.own.len();
    }

    /// Appends bytes of a packet without records.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.own.extend_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Appends zeroes up to a size, of which the proof has its part.
    pub(crate) fn pad(&mut self, bytes: usize) {
        self.own.resize((bytes - self.kept).max(self.own.len()), 0);
        self.bytes = self.own.len();
    }

    /// Writes the head, and the checksum unless the packet is going to be sealed.
    pub(crate) fn finish(&mut self, head: Head, messages: &Slab<Message>) {
        if self.kept > 0 {
            return Head { bytes: self.len(), ..head }.write(&mut self.own);
        }
        self.end_part();
        Head { bytes: self.bytes, ..head }.write(&mut self.own);
        let crc = crc_of(self.slices(messages));
        write_crc(&mut self.own, crc);
    }

    /// Seals a finished packet.
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
            Part::Own { at, bytes } => &self.own[at as usize..][..bytes as usize],
            Part::Body { message, at, bytes } => {
                messages[message].bytes_at(Run::Body(at as usize), bytes as usize)
            }
        })
    }
}
