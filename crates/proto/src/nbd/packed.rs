//! Serialization of a server's session that moves to another worker or process: its export, the
//! incomplete head, the payload in progress, and the requests being cut.
//!
//! Format 1 is little-endian: protocol and format (2 bytes); the export's number (2), blocks (8)
//! and replies (1: simple, structured, or these with block status); requests that run (4); whether
//! the end has begun (1); bytes left of the payload (4), its request's cookie (8), whether its
//! refusal is held (1), and its error (4); the number of gathered bytes (1), and those bytes;
//! whether a request is being cut (1), and if so its rest (22); the number of cuts (1), and each
//! (16).

use alloc::vec::Vec;

use contract::{NamespaceId, Range, Status};

use super::cut::{RemainingPieces, RequestOperation, SplitRequest, SplitRequests};
use super::server::{Export, NbdSession, PayloadSource, WriteRefusal};
use crate::carry::PartialMessage;

/// The first bytes of a serialized session of NBD, in format 1.
const FORMAT: [u8; 2] = [b'b', 1];

/// The kinds of work, indexed by their number in the format.
const WORKS: [RequestOperation; 8] = [
    RequestOperation::Read,
    RequestOperation::Write { fua: false },
    RequestOperation::Write { fua: true },
    RequestOperation::Fill { fua: false },
    RequestOperation::Fill { fua: true },
    RequestOperation::Discard,
    RequestOperation::WriteZeroes { fua: false },
    RequestOperation::WriteZeroes { fua: true },
];

impl NbdSession {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::from(FORMAT);
        bytes.extend(self.export.namespace.0.to_le_bytes());
        bytes.extend(self.export.blocks.to_le_bytes());
        bytes.push(u8::from(self.export.structured) + u8::from(self.export.mapped));
        bytes.extend(self.running.to_le_bytes());
        bytes.push(u8::from(self.is_closing));
        bytes.extend(self.payload.to_le_bytes());
        bytes.extend(self.paying.to_le_bytes());
        let held = match self.late {
            WriteRefusal::Held(_, error) => Some(error),
            WriteRefusal::None | WriteRefusal::Due(..) => None,
        };
        bytes.push(u8::from(held.is_some()));
        bytes.extend(held.unwrap_or(0).to_le_bytes());
        let gathered = self.carry.bytes();
        bytes.push(gathered.len() as u8);
        bytes.extend(gathered);
        bytes.push(u8::from(self.rest.is_some()));
        if let Some(RemainingPieces { tag, work, range, in_order }) = self.rest {
            let number = WORKS.iter().position(|one| *one == work);
            bytes.extend(tag.to_le_bytes());
            bytes.push(number.expect("every kind of work has a number") as u8);
            bytes.extend(range.lba.to_le_bytes());
            bytes.extend(range.blocks.to_le_bytes());
            bytes.push(u8::from(in_order));
        }
        bytes.push(self.cuts.list().len() as u8);
        for cut in self.cuts.list() {
            bytes.extend(cut.tag.to_le_bytes());
            bytes.extend(cut.left.to_le_bytes());
            bytes.extend(cut.status.code().to_le_bytes());
            bytes.push(u8::from(cut.in_order));
            bytes.push(u8::from(cut.has_begun));
        }
        bytes
    }

    pub(super) fn from_bytes(mut bytes: &[u8]) -> Option<NbdSession> {
        let input = &mut bytes;
        if take(input)? != FORMAT {
            return None;
        }
        let namespace = NamespaceId(u16::from_le_bytes(take(input)?));
        let blocks = u64::from_le_bytes(take(input)?);
        let [replies @ 0..=2] = take(input)? else { return None };
        let running = u32::from_le_bytes(take(input)?);
        let is_closing = flag(input)?;
        let payload = u32::from_le_bytes(take(input)?);
        let paying = u64::from_le_bytes(take(input)?);
        let (is_held, error) = (flag(input)?, u32::from_le_bytes(take(input)?));
        let [gathered] = take(input)?;
        let (gathered, rest) = input.split_at_checked(usize::from(gathered))?;
        let carry = PartialMessage::holding(gathered)?;
        *input = rest;
        let rest = if flag(input)? { Some(take_rest(input)?) } else { None };
        let [count] = take(input)?;
        let cuts = (0..count).map(|_| take_cut(input)).collect::<Option<Vec<SplitRequest>>>()?;
        if !input.is_empty() {
            return None;
        }
        Some(NbdSession {
            handshake: None,
            export: Export { namespace, blocks, structured: replies > 0, mapped: replies > 1 },
            carry,
            payload,
            source: PayloadSource::Client,
            paying,
            late: if is_held { WriteRefusal::Held(paying, error) } else { WriteRefusal::None },
            extent: None,
            rest,
            cuts: SplitRequests::of(cuts)?,
            running,
            is_closing,
        })
    }
}

fn take_rest(input: &mut &[u8]) -> Option<RemainingPieces> {
    let tag = u64::from_le_bytes(take(input)?);
    let [work] = take(input)?;
    let work = *WORKS.get(usize::from(work))?;
    let (lba, blocks) = (u64::from_le_bytes(take(input)?), u32::from_le_bytes(take(input)?));
    // No range of a request ends behind the last byte that a number can name.
    lba.checked_add(u64::from(blocks))?;
    Some(RemainingPieces { tag, work, range: Range::new(lba, blocks), in_order: flag(input)? })
}

fn take_cut(input: &mut &[u8]) -> Option<SplitRequest> {
    Some(SplitRequest {
        tag: u64::from_le_bytes(take(input)?),
        left: u32::from_le_bytes(take(input)?),
        status: Status::from_code(u16::from_le_bytes(take(input)?)),
        in_order: flag(input)?,
        has_begun: flag(input)?,
    })
}

fn flag(input: &mut &[u8]) -> Option<bool> {
    match take(input)? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

/// Takes the next `N` bytes off the front of `input`; `None` if fewer are left.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}
