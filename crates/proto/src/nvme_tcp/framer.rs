//! Splits a stream of NVMe/TCP PDUs, cut at any byte, into whole verified headers and pieces of
//! data.
//!
//! Deliberately left out: the meaning of a PDU, and when it may come.

use alloc::boxed::Box;

use contract::{ProtocolError, Status};
use crc::Crc32c;
use wire::nvme_tcp::{CommonHeader, DIGEST_BYTES, FatalStatus, PduType, digests, flags};
use zerocopy::{FromBytes, IntoBytes};

use crate::carry::PartialMessage;
use crate::takeover::{Reader, TakeoverRefusal, Writer};

/// The size of the longest header in bytes.
pub(super) const HEADER_BYTES_MAX: usize = 128;

/// The digests that both ends have agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// `true` if headers carry digests.
    pub header: bool,
    /// `true` if data carries digests.
    pub data: bool,
}

impl Digests {
    /// Returns the digests that the field DGST of an ICReq or ICResp names.
    pub(super) fn from_bits(bits: u8) -> Digests {
        Digests { header: bits & digests::HEADER != 0, data: bits & digests::DATA != 0 }
    }

    /// Returns the digests as the field DGST of an ICReq or ICResp.
    pub(super) fn to_bits(self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.header, digests::HEADER) | bit(self.data, digests::DATA)
    }

    /// Returns the size in bytes of the digest after a header; zero without digests.
    pub(super) fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// Returns the size in bytes of the digest after data; zero without digests.
    pub(super) fn data_bytes(self) -> usize {
        if self.data { DIGEST_BYTES } else { 0 }
    }
}

/// A violation of the protocol, as a TermReq reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PduViolation {
    pub(super) status: FatalStatus,
    /// The field FEI: an offset, or the digest that was received.
    pub(super) information: u32,
}

impl PduViolation {
    /// Creates the violation of an invalid field at this offset.
    pub(super) const fn field(offset: u32) -> PduViolation {
        PduViolation { status: FatalStatus::INVALID_FIELD, information: offset }
    }

    /// Creates a violation without further information.
    pub(super) const fn plain(status: FatalStatus) -> PduViolation {
        PduViolation { status, information: 0 }
    }

    /// Converts the violation to the contract's error.
    pub(super) fn fatal(self) -> ProtocolError {
        match self.status {
            FatalStatus::SEQUENCE => ProtocolError::OutOfOrder,
            FatalStatus::HEADER_DIGEST => ProtocolError::BadHeader,
            FatalStatus::OUT_OF_RANGE => ProtocolError::OutOfRange,
            FatalStatus::LIMIT_EXCEEDED => ProtocolError::TooMuch,
            _ => ProtocolError::BadField(self.information as u16),
        }
    }
}

/// A whole, verified header of a PDU, and the number of bytes of its data. The header is in the
/// input, or in the [`HeaderBuffer`] if it came in pieces.
#[derive(Clone, Copy)]
pub(super) struct PduHeader<'r> {
    pub(super) bytes: &'r [u8],
    pub(super) data_bytes: u32,
}

impl PduHeader<'_> {
    pub(super) fn common(&self) -> &CommonHeader {
        CommonHeader::ref_from_prefix(self.bytes).expect("a header is longer").0
    }
}

/// Room for a header that came in pieces.
pub(super) type HeaderBuffer = [u8; HEADER_BYTES_MAX];

/// The known bytes of a header that breaks the protocol.
#[derive(Clone, Copy)]
pub(super) struct OffendingHeader {
    bytes: HeaderBuffer,
    known: u8,
}

impl OffendingHeader {
    pub(super) fn new(bytes: &[u8]) -> OffendingHeader {
        let mut offending =
            OffendingHeader { bytes: [0; HEADER_BYTES_MAX], known: bytes.len() as u8 };
        offending.bytes[..bytes.len()].copy_from_slice(bytes);
        offending
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.known)]
    }
}

/// A violation of the protocol, and the offending header.
pub(super) type FramingError = Box<(PduViolation, OffendingHeader)>;

/// The next part of a stream of PDUs.
pub(super) enum PduPart<'a, 'r> {
    /// The whole header of a PDU, whose data follows.
    Head(PduHeader<'r>),
    /// A piece of the PDU's data. `end` comes with the last piece and says whether the data matches
    /// its digest. Only the last piece may be empty.
    Data { bytes: &'a [u8], end: Option<Status> },
}

/// The receiving direction of a connection, which splits the stream into headers and data.
#[derive(Debug)]
pub(super) struct Framer {
    /// The PDUs that the peer may send, with their header sizes and largest data.
    table: &'static [PduKind],
    pub(super) digests: Digests,
    state: State,
    /// The incomplete header of the PDU, or its incomplete data digest.
    carry: PartialMessage<{ HEADER_BYTES_MAX + DIGEST_BYTES }>,
    /// The number of bytes of the current PDU's data that have not come.
    left: u32,
    /// The checksum of the current PDU's data so far.
    crc: Crc32c,
    /// `true` if a digest follows this PDU's data.
    has_digest: bool,
}

/// The properties of a PDU type that framing needs.
#[derive(Debug)]
pub(super) struct PduKind {
    pdu_type: PduType,
    header_bytes: u8,
    /// The most bytes of data that the PDU may carry; zero for none.
    data_bytes_max: u32,
    /// `true` if the PDU belongs to the beginning or the end of a connection, and so has no
    /// digests.
    is_plain: bool,
}

impl PduKind {
    /// Creates a PDU type that carries at most `data_bytes_max` bytes of data.
    pub(super) const fn with_data(
        pdu_type: PduType,
        header_bytes: u8,
        data_bytes_max: u32,
    ) -> PduKind {
        PduKind { pdu_type, header_bytes, data_bytes_max, is_plain: false }
    }

    /// Creates a PDU type of the beginning or the end of a connection.
    pub(super) const fn plain(pdu_type: PduType, header_bytes: u8, data_bytes_max: u32) -> PduKind {
        PduKind { pdu_type, header_bytes, data_bytes_max, is_plain: true }
    }
}

/// The part of a PDU that the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A header; its last byte ends this state.
    Head,
    /// The padding before data, with this many bytes left.
    Padding(u32),
    /// Data; its last byte ends this state.
    Data,
    /// The data's digest; its last byte ends this state.
    Digest,
}

impl Framer {
    pub(super) const fn new(table: &'static [PduKind]) -> Self {
        Framer {
            table,
            digests: Digests { header: false, data: false },
            state: State::Head,
            carry: PartialMessage::new(),
            left: 0,
            crc: Crc32c::EMPTY,
            has_digest: false,
        }
    }

    /// Serializes the framer for [`Framer::take`].
    pub(super) fn put(&self, to: &mut Writer) -> Result<(), TakeoverRefusal> {
        let (state, padding) = match self.state {
            State::Head => (0, 0),
            State::Padding(left) => (1, left),
            State::Data => (2, 0),
            State::Digest => (3, 0),
        };
        to.put([state]);
        to.put(u32::to_le_bytes(padding));
        to.put(self.left.to_le_bytes());
        to.put(self.crc.sum().to_le_bytes());
        to.flag(self.has_digest);
        to.string(self.carry.bytes())
    }

    /// Restores a framer, serialized by [`Framer::put`], that continues where the other has
    /// stopped.
    pub(super) fn take(
        table: &'static [PduKind],
        digests: Digests,
        input: &mut Reader<'_>,
    ) -> Result<Framer, TakeoverRefusal> {
        let state = match (input.u8()?, input.u32()?) {
            (0, _) => State::Head,
            (1, left) => State::Padding(left),
            (2, _) => State::Data,
            (3, _) => State::Digest,
            _ => return Err(TakeoverRefusal::Value("message")),
        };
        let (left, crc) = (input.u32()?, Crc32c::from_sum(input.u32()?));
        let has_digest = input.flag("digest")?;
        let carry = PartialMessage::holding(input.string()?).ok_or(TakeoverRefusal::Length)?;
        Ok(Framer { table, digests, state, carry, left, crc, has_digest })
    }

    /// Returns `true` if a PDU has begun and not ended.
    pub(super) fn is_mid_pdu(&self) -> bool {
        self.state != State::Head || !self.carry.is_empty()
    }

    /// Returns `true` if a header has come whose data or data digest has not all come.
    pub(super) fn is_behind_head(&self) -> bool {
        self.state != State::Head
    }

    /// Returns the number of bytes of the current PDU's data that have not come.
    pub(super) fn owed(&self) -> usize {
        if self.is_behind_head() { self.left as usize } else { 0 }
    }

    /// Returns the number of bytes of data that come next; zero if something else comes before
    /// them.
    pub(super) fn data_left(&self) -> usize {
        if self.state == State::Data { self.left as usize } else { 0 }
    }

    /// Takes the next part off the front of `input`. Returns `None` when all of `input` was taken.
    /// A header that came in pieces is assembled in `room`.
    ///
    /// # Errors
    /// Returns the violation, and the offending header as far as it is known.
    #[inline]
    pub(super) fn next<'a: 'r, 'r>(
        &mut self,
        input: &mut &'a [u8],
        room: &'r mut HeaderBuffer,
    ) -> Result<Option<PduPart<'a, 'r>>, FramingError> {
        loop {
            match self.state {
                State::Head => return Ok(self.next_head(input, room)?.map(PduPart::Head)),
                State::Padding(left) => {
                    let taken = input.len().min(left as usize);
                    *input = &input[taken..];
                    self.state = match left - taken as u32 {
                        0 => State::Data,
                        left => State::Padding(left),
                    };
                    if input.is_empty() {
                        return Ok(None);
                    }
                }
                State::Data if input.is_empty() => return Ok(None),
                State::Data => return Ok(Some(self.next_data(input))),
                State::Digest => {
                    let end = self.next_digest(input);
                    return Ok(end.map(|end| PduPart::Data { bytes: &[], end: Some(end) }));
                }
            }
        }
    }

    fn next_head<'a: 'r, 'r>(
        &mut self,
        input: &mut &'a [u8],
        room: &'r mut HeaderBuffer,
    ) -> Result<Option<PduHeader<'r>>, FramingError> {
        let in_place = match CommonHeader::ref_from_prefix(input) {
            Ok((common, _)) if self.carry.is_empty() => Some(common),
            _ => None,
        };
        let gathered;
        let common = match in_place {
            Some(common) => common,
            None => {
                let Some(bytes) = self.carry.gather(input, size_of::<CommonHeader>()) else {
                    return Ok(None);
                };
                gathered = CommonHeader::read_from_bytes(bytes).expect("gathered to its size");
                &gathered
            }
        };
        let blame = |broken, bytes| Box::new((broken, OffendingHeader::new(bytes)));
        let whole = self.check(common).map_err(|broken| blame(broken, common.as_bytes()))?;
        let header_bytes = usize::from(common.header_bytes);
        let (header, digest): (&'r [u8], _) = if in_place.is_some()
            && let Some((bytes, rest)) = input.split_at_checked(whole.bytes)
        {
            *input = rest;
            bytes.split_at(header_bytes)
        } else {
            let Some(bytes) = self.carry.gather(input, whole.bytes) else { return Ok(None) };
            let (header, digest) = bytes.split_at(header_bytes);
            let room = &mut room[..header_bytes];
            room.copy_from_slice(header);
            (room, digest)
        };
        if let Ok(digest) = digest.try_into().map(u32::from_le_bytes)
            && digest != Crc32c::of(header)
        {
            let status = FatalStatus::HEADER_DIGEST;
            return Err(blame(PduViolation { status, information: digest }, header));
        }
        self.carry.clear();
        self.left = whole.data_bytes;
        self.crc = Crc32c::EMPTY;
        self.has_digest = whole.has_digest;
        self.state = match (whole.data_bytes, whole.padding) {
            (0, _) => State::Head,
            (_, 0) => State::Data,
            (_, padding) => State::Padding(padding),
        };
        Ok(Some(PduHeader { bytes: header, data_bytes: whole.data_bytes }))
    }

    /// Checks the common header of a PDU, and returns the sizes of its parts.
    #[inline]
    fn check(&self, common: &CommonHeader) -> Result<PduSizes, PduViolation> {
        let kind = self.table.iter().find(|kind| kind.pdu_type == common.pdu_type);
        let kind = kind.ok_or(PduViolation::field(0))?;
        let digests = if kind.is_plain { Digests::default() } else { self.digests };
        if (common.flags & flags::HEADER_DIGEST != 0) != digests.header && !kind.is_plain {
            return Err(PduViolation::field(1));
        }
        if common.header_bytes != kind.header_bytes {
            return Err(PduViolation::field(2));
        }
        let bytes = usize::from(kind.header_bytes) + digests.header_bytes();
        let pdu_bytes = common.pdu_bytes.get() as usize;
        let mut whole = PduSizes { bytes, padding: 0, data_bytes: 0, has_digest: false };
        if pdu_bytes == bytes {
            return Ok(whole);
        }
        let offset = match kind.is_plain {
            true => bytes,
            false => usize::from(common.data_offset),
        };
        if offset < bytes || !offset.is_multiple_of(4) {
            return Err(PduViolation::field(3));
        }
        let around = offset + digests.data_bytes();
        let data_bytes = pdu_bytes.checked_sub(around).filter(|bytes| *bytes > 0);
        let data_bytes = data_bytes.ok_or(PduViolation::field(4))? as u32;
        if kind.data_bytes_max == 0 {
            return Err(PduViolation::field(4));
        }
        if data_bytes > kind.data_bytes_max {
            return Err(match kind.is_plain {
                true => PduViolation::field(4),
                false => PduViolation::plain(FatalStatus::LIMIT_EXCEEDED),
            });
        }
        if digests.data && common.flags & flags::DATA_DIGEST == 0 {
            return Err(PduViolation::field(1));
        }
        whole.padding = (offset - bytes) as u32;
        whole.data_bytes = data_bytes;
        whole.has_digest = digests.data;
        Ok(whole)
    }

    /// Takes the next piece of data, as large as possible; `input` has some.
    fn next_data<'a>(&mut self, input: &mut &'a [u8]) -> PduPart<'a, 'static> {
        let (bytes, rest) = input.split_at(input.len().min(self.left as usize));
        *input = rest;
        self.left -= bytes.len() as u32;
        if self.has_digest {
            self.crc.add(bytes);
        }
        let end = match self.left {
            0 if self.has_digest => {
                self.state = State::Digest;
                self.next_digest(input)
            }
            0 => {
                self.state = State::Head;
                Some(Status::Ok)
            }
            _ => None,
        };
        PduPart::Data { bytes, end }
    }

    /// Checks the data's digest. Returns `Ok` or `BadChecksum` once all bytes of the digest have
    /// come, and `None` before.
    fn next_digest(&mut self, input: &mut &[u8]) -> Option<Status> {
        let bytes = self.carry.gather(input, DIGEST_BYTES)?;
        let digest = u32::from_le_bytes(bytes.try_into().expect("gathered to its size"));
        let is_good = digest == self.crc.sum();
        self.carry.clear();
        self.state = State::Head;
        Some(if is_good { Status::Ok } else { Status::BadChecksum })
    }
}

/// The sizes of a PDU's parts.
struct PduSizes {
    /// The size in bytes of the header with its digest.
    bytes: usize,
    padding: u32,
    data_bytes: u32,
    /// `true` if a digest follows the data, if there is any.
    has_digest: bool,
}
