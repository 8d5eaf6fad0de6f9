//! Encoding of outgoing NVMe/TCP PDUs, for both ends.

use alloc::vec::Vec;

use contract::{FrameHead, HEAD_BYTES_MAX, SPEECH_BYTES_MAX};
use crc::Crc32c;
use wire::nvme::{CommandId, Completion};
use wire::nvme_tcp::{
    CommonHeader, DIGEST_BYTES, DataHead, FatalStatus, PduType, ReadyHead, ResponseHead,
    TERM_DATA_BYTES_MAX, Terminate, flags,
};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use super::DATA_OFFSET_SERVED_MAX;
use super::framer::{Digests, PduViolation};

/// The most bytes of data in a PDU that a session sends by itself.
const OWN_DATA_BYTES_MAX: usize = SPEECH_BYTES_MAX / 2;

/// The least alignment of data in bytes: that of a word of the protocol.
const WORD_BYTES: usize = 4;

/// The format of one direction: its digests, and the alignment of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PduFormat {
    pub(super) digests: Digests,
    /// The alignment of data in bytes, from the start of its PDU.
    pub(super) alignment: usize,
}

impl PduFormat {
    /// The format before anything is negotiated.
    pub(super) const PLAIN: PduFormat =
        PduFormat { digests: Digests { header: false, data: false }, alignment: WORD_BYTES };

    /// Returns the offset in bytes of data in a PDU whose header has `header_bytes` bytes.
    #[inline]
    pub(super) fn data_offset(&self, header_bytes: usize) -> usize {
        let end = header_bytes + self.digests.header_bytes();
        // A division takes longer than the rest of a header. Few hosts ask for more than words.
        if self.alignment == WORD_BYTES && end.is_multiple_of(WORD_BYTES) {
            return end;
        }
        end.next_multiple_of(self.alignment)
    }

    /// Returns the common header of a PDU with `header_bytes` of header and `data_bytes` of data.
    #[inline]
    pub(super) fn common(
        &self,
        pdu_type: PduType,
        header_bytes: usize,
        data_bytes: usize,
    ) -> CommonHeader {
        let mut flags = if self.digests.header { flags::HEADER_DIGEST } else { 0 };
        let mut offset = 0;
        let mut pdu_bytes = header_bytes + self.digests.header_bytes();
        if data_bytes > 0 {
            offset = self.data_offset(header_bytes);
            pdu_bytes = offset + data_bytes + self.digests.data_bytes();
            flags |= if self.digests.data { flags::DATA_DIGEST } else { 0 };
        }
        CommonHeader {
            pdu_type,
            flags,
            header_bytes: header_bytes as u8,
            data_offset: offset as u8,
            pdu_bytes: (pdu_bytes as u32).into(),
        }
    }

    /// Returns the header for `bytes` bytes of data at `offset` of the command's data.
    #[inline]
    pub(super) fn data(
        &self,
        pdu_type: PduType,
        cid: CommandId,
        tag: u16,
        offset: usize,
        bytes: usize,
    ) -> DataHead {
        DataHead {
            common: self.common(pdu_type, size_of::<DataHead>(), bytes),
            command: cid.into(),
            tag: tag.into(),
            offset: (offset as u32).into(),
            bytes: (bytes as u32).into(),
            reserved: 0.into(),
        }
    }

    /// Returns the header of the PDU that carries a completion.
    #[inline]
    pub(super) fn response(&self, completion: &Completion) -> ResponseHead {
        ResponseHead {
            common: self.common(PduType::RESPONSE, size_of::<ResponseHead>(), 0),
            completion: completion.as_bytes().try_into().expect("a completion's bytes"),
        }
    }

    /// Returns the header that requests `bytes` bytes of a command's data.
    pub(super) fn ready(&self, cid: CommandId, tag: u16, bytes: usize) -> ReadyHead {
        ReadyHead {
            common: self.common(PduType::READY, size_of::<ReadyHead>(), 0),
            command: cid.into(),
            tag: tag.into(),
            offset: 0.into(),
            bytes: (bytes as u32).into(),
            reserved: 0.into(),
        }
    }
}

/// Headers of one or two PDUs in a frame's head, with the padding and digests around data.
pub(super) struct FrameHeadBuilder {
    head: FrameHead,
}

impl FrameHeadBuilder {
    #[inline]
    pub(super) const fn new() -> FrameHeadBuilder {
        FrameHeadBuilder { head: FrameHead::EMPTY }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.head.bytes()
    }

    /// Returns the bytes as a frame's head.
    #[inline]
    pub(super) fn whole(self) -> FrameHead {
        self.head
    }

    /// Returns the bytes as a frame's head and tail: the first `head_bytes` go before the frame's
    /// body, the rest after it.
    #[inline]
    pub(super) fn cut(self, head_bytes: usize) -> FrameHead {
        self.head.cut(head_bytes)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head.wire_bytes()
    }

    /// Appends a header, with its digest if headers have one.
    #[inline]
    pub(super) fn header(&mut self, header: &(impl IntoBytes + Immutable), style: &PduFormat) {
        self.head.push(header.as_bytes());
        if style.digests.header {
            self.head.push(&Crc32c::of(header.as_bytes()).to_le_bytes());
        }
    }

    /// Appends the end of a header whose beginning was sent already, with the digest of the whole
    /// header.
    pub(super) fn end_of_header(&mut self, end: &[u8], header: &[u8], style: &PduFormat) {
        self.head.push(end);
        if style.digests.header {
            self.head.push(&Crc32c::of(header).to_le_bytes());
        }
    }

    /// Appends zeroes from the end of a header of `header_bytes` bytes up to the offset of data.
    #[inline]
    pub(super) fn pad(&mut self, header_bytes: usize, style: &PduFormat) {
        let end = header_bytes + style.digests.header_bytes();
        let bytes = style.data_offset(header_bytes) - end;
        if bytes > 0 {
            self.head.push(&[0; DATA_OFFSET_SERVED_MAX][..bytes]);
        }
    }

    /// Appends the digest of data, if data has one.
    pub(super) fn data_digest(&mut self, data: &[u8], style: &PduFormat) {
        if style.digests.data {
            self.head.push(&Crc32c::of(data).to_le_bytes());
        }
    }
}

/// Returns the headers around a read's data and its completion. Without `completion`, the data
/// reports that the command succeeded.
pub(super) fn read_reply(
    style: &PduFormat,
    cid: CommandId,
    body: &[u8],
    completion: Option<&Completion>,
) -> FrameHead {
    let mut data = style.data(PduType::CONTROLLER_DATA, cid, 0, 0, body.len());
    data.common.flags |= flags::LAST_PDU;
    if completion.is_none() {
        data.common.flags |= flags::SUCCESS;
    }
    let mut line = FrameHeadBuilder::new();
    line.header(&data, style);
    line.pad(size_of::<DataHead>(), style);
    let head_bytes = line.len();
    line.data_digest(body, style);
    if let Some(completion) = completion {
        line.header(&style.response(completion), style);
    }
    line.cut(head_bytes)
}

/// Returns the frame head of a PDU without data.
pub(super) fn bare(style: &PduFormat, header: &(impl IntoBytes + Immutable)) -> FrameHead {
    let mut line = FrameHeadBuilder::new();
    line.header(header, style);
    line.whole()
}

/// Returns the frame head of a few PDUs without data, at most two.
pub(super) fn bare_all(style: &PduFormat, headers: &[impl IntoBytes + Immutable]) -> FrameHead {
    let mut line = FrameHeadBuilder::new();
    headers.iter().for_each(|header| line.header(header, style));
    line.whole()
}

/// Whole PDUs that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a header that never has a digest.
    pub(super) fn plain(&mut self, header: &(impl IntoBytes + Immutable)) {
        self.bytes.extend_from_slice(header.as_bytes());
    }

    /// Appends a PDU without data.
    pub(super) fn bare(&mut self, style: &PduFormat, header: &(impl IntoBytes + Immutable)) {
        self.bytes.extend_from_slice(bare(style, header).bytes());
    }

    /// Appends the PDUs with a command's data, then the PDU with its completion.
    pub(super) fn answer(&mut self, style: &PduFormat, completion: &Completion, data: &[u8]) {
        let cid = completion.cid.get();
        let pieces = data.chunks(OWN_DATA_BYTES_MAX).enumerate();
        for (n, piece) in pieces {
            let offset = n * OWN_DATA_BYTES_MAX;
            let kind = PduType::CONTROLLER_DATA;
            let mut header = style.data(kind, cid, 0, offset, piece.len());
            if offset + piece.len() == data.len() {
                header.common.flags |= flags::LAST_PDU;
            }
            let mut line = FrameHeadBuilder::new();
            line.header(&header, style);
            line.pad(size_of::<DataHead>(), style);
            self.bytes.extend_from_slice(line.bytes());
            self.bytes.extend_from_slice(piece);
            if style.digests.data {
                self.bytes.extend_from_slice(&Crc32c::of(piece).to_le_bytes());
            }
        }
        self.bare(style, &style.response(completion));
    }

    /// Appends a TermReq, which ends the connection, with the offending header as its data.
    pub(super) fn terminate(&mut self, pdu_type: PduType, broken: PduViolation, offending: &[u8]) {
        let offending = &offending[..offending.len().min(TERM_DATA_BYTES_MAX as usize)];
        let mut head = Terminate::new_zeroed();
        let header_bytes = size_of::<Terminate>();
        head.common = CommonHeader {
            pdu_type,
            flags: 0,
            header_bytes: header_bytes as u8,
            data_offset: 0,
            pdu_bytes: ((header_bytes + offending.len()) as u32).into(),
        };
        head.status = broken.status;
        let says_more =
            [FatalStatus::INVALID_FIELD, FatalStatus::HEADER_DIGEST, FatalStatus::UNSUPPORTED];
        if says_more.contains(&broken.status) {
            head.information = broken.information.into();
        }
        self.plain(&head);
        self.bytes.extend_from_slice(offending);
    }

    /// Moves as many whole PDUs to `to` as fit, and returns their size in bytes.
    pub(super) fn take(&mut self, to: &mut [u8]) -> usize {
        let mut end = 0;
        while let Some(length) = self.bytes.get(end + 4..end + 8) {
            let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
            if end + length > to.len() {
                break;
            }
            end += length;
        }
        to[..end].copy_from_slice(&self.bytes[..end]);
        self.bytes.drain(..end);
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
        end
    }
}

const _: () = assert!(size_of::<DataHead>() + DIGEST_BYTES <= DATA_OFFSET_SERVED_MAX);
const _: () = assert!(
    DATA_OFFSET_SERVED_MAX + DIGEST_BYTES + size_of::<ResponseHead>() + DIGEST_BYTES
        <= HEAD_BYTES_MAX
);
