//! Assembly of a fused compare and write: two commands whose payloads are the halves of one
//! request's (Base 3.4.2).
//!
//! The request exists only when its second command has come. Until there is a buffer, the session
//! keeps the data from the capsules, which is little.

use alloc::vec::Vec;

use contract::{Slot, Status};
use wire::nvme::CommandId;

use crate::nvme::DeviceRequest;

/// A command of a fused operation, with its payload.
#[derive(Debug)]
pub(super) struct FusedHalf {
    pub(super) io: DeviceRequest,
    /// The data from the capsule, until it is copied into the request's buffer.
    pub(super) held: Vec<u8>,
    /// `true` if the payload comes in the capsule.
    pub(super) is_here: bool,
    /// The number of bytes received on request, or copied from the capsule:
    /// `came ≤ io.payload_bytes`.
    pub(super) came: usize,
    /// `Ok`, or why the received data must not be used.
    pub(super) verdict: Status,
}

impl FusedHalf {
    pub(super) fn new(io: DeviceRequest, is_here: bool) -> FusedHalf {
        FusedHalf { io, held: Vec::new(), is_here, came: 0, verdict: Status::Ok }
    }

    /// Appends a piece of the data in the capsule.
    pub(super) fn hold(&mut self, bytes: &[u8], end: Option<Status>) {
        self.held.extend_from_slice(bytes);
        if let Some(status) = end
            && !status.is_ok()
        {
            self.verdict = status;
        }
    }
}

/// A fused operation with both of its commands.
#[derive(Debug)]
pub(super) struct FusedOperation {
    /// The index of the compare in the table of commands.
    pub(super) first_place: u16,
    /// The compare, then the write.
    pub(super) halves: [FusedHalf; 2],
    /// The epoch of the queue's fence under which the write is permitted.
    pub(super) as_of: u32,
    /// The request's slot; `None` until the worker has a buffer for its payload.
    slot: Option<Slot>,
}

/// The effect of a received piece of a fused operation's payload.
pub(super) struct ReceivedPiece {
    pub(super) slot: Slot,
    /// The piece's offset in the request's payload.
    pub(super) offset: usize,
    /// `true` if the piece completes its half.
    pub(super) is_half: bool,
    /// The worst status of the request's payload; `None` while it is incomplete.
    pub(super) end: Option<Status>,
}

impl FusedOperation {
    pub(super) fn new(
        first_place: u16,
        first: FusedHalf,
        second: FusedHalf,
        as_of: u32,
    ) -> FusedOperation {
        FusedOperation { first_place, halves: [first, second], as_of, slot: None }
    }

    /// Returns the worst status of the received data.
    pub(super) fn verdict(&self) -> Status {
        let [first, second] = &self.halves;
        if first.verdict.is_ok() { second.verdict } else { first.verdict }
    }

    /// Copies the data from the capsules into the request's buffer.
    pub(super) fn settle(&mut self, slot: Slot, room: &mut [u8]) {
        self.slot = Some(slot);
        let (first, second) = room.split_at_mut(self.halves[0].io.payload_bytes);
        for (half, room) in self.halves.iter_mut().zip([first, second]) {
            if half.is_here {
                room.copy_from_slice(&half.held);
                half.held = Vec::new();
                half.came = half.io.payload_bytes;
            }
        }
    }

    /// Returns the identifier of a half's command and its numbers of received and of requested
    /// bytes; `None` if no data of the half is awaited.
    pub(super) fn awaited(&self, half: usize) -> Option<(CommandId, usize, usize)> {
        let half = &self.halves[half];
        let is_asked = self.slot.is_some() && half.came < half.io.payload_bytes;
        is_asked.then_some((half.io.cid, half.came, half.io.payload_bytes))
    }

    /// Counts `bytes` received bytes of a half that was requested.
    pub(super) fn take(&mut self, half: usize, bytes: usize, end: Option<Status>) -> ReceivedPiece {
        let before = if half == 0 { 0 } else { self.halves[0].io.payload_bytes };
        let part = &mut self.halves[half];
        let offset = before + part.came;
        part.came += bytes;
        if let Some(status) = end
            && !status.is_ok()
        {
            part.verdict = status;
        }
        let is_half = end.is_some() && part.came == part.io.payload_bytes;
        let is_whole = is_half && self.halves.iter().all(|h| h.came == h.io.payload_bytes);
        let slot = self.slot.expect("it was asked for");
        ReceivedPiece { slot, offset, is_half, end: is_whole.then(|| self.verdict()) }
    }
}
