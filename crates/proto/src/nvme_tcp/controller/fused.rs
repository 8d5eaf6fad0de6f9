//! A fused compare and write on its way in: two commands whose payloads are the halves of one
//! request's (Base 3.4.2).
//!
//! The request exists only when its second command has come, so what travels in the capsules is kept
//! until there is room; it is little.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{Request, Slot, Status, Tag};
use wire::nvme::{CommandId, Status as NvmeStatus};

use super::super::framer::Broken;
use super::{Data, Exchange, Pending, TargetSession};
use crate::nvme::{Answer, Fused, Io};

/// A command of the two, with its payload.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) io: Io,
    /// What came in the capsule.
    pub(super) held: Vec<u8>,
    /// Whether the payload travels in the capsule.
    pub(super) is_here: bool,
    /// `came ≤ io.payload_bytes`: what came when it was asked for.
    pub(super) came: usize,
    /// Whether all that came is good.
    pub(super) verdict: Status,
}

impl Half {
    pub(super) fn new(io: Io, is_here: bool) -> Half {
        Half { io, held: Vec::new(), is_here, came: 0, verdict: Status::Ok }
    }

    /// A piece of what is in the capsule.
    pub(super) fn hold(&mut self, bytes: &[u8], end: Option<Status>) {
        self.held.extend_from_slice(bytes);
        if let Some(status) = end
            && !status.is_ok()
        {
            self.verdict = status;
        }
    }
}

/// Both of them.
#[derive(Debug)]
pub(super) struct Pair {
    /// Where the compare is.
    pub(super) first_place: u16,
    /// The compare, then the write.
    pub(super) halves: [Half; 2],
    /// The epoch of the queue's fence as of which the write is allowed.
    pub(super) as_of: u32,
    /// The request's, once there is room.
    slot: Option<Slot>,
}

/// What became of a piece.
pub(super) struct Taken {
    pub(super) slot: Slot,
    /// Where it belongs in the request's payload.
    pub(super) offset: usize,
    /// Whether this half is whole now.
    pub(super) is_half: bool,
    /// What is true of the payload, when it is whole.
    pub(super) end: Option<Status>,
}

impl Pair {
    pub(super) fn new(first_place: u16, first: Half, second: Half, as_of: u32) -> Pair {
        Pair { first_place, halves: [first, second], as_of, slot: None }
    }

    /// Why it must not be carried out, as far as that is known.
    pub(super) fn verdict(&self) -> Status {
        let [first, second] = &self.halves;
        if first.verdict.is_ok() { second.verdict } else { first.verdict }
    }

    /// There is room for it: what is here is copied there.
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

    /// Of a half whose data was asked for: its name, what of it came, and how much there is.
    pub(super) fn awaited(&self, half: usize) -> Option<(CommandId, usize, usize)> {
        let half = &self.halves[half];
        let is_asked = self.slot.is_some() && half.came < half.io.payload_bytes;
        is_asked.then_some((half.io.cid, half.came, half.io.payload_bytes))
    }

    /// Takes so many bytes of a half that was asked for.
    pub(super) fn take(&mut self, half: usize, bytes: usize, end: Option<Status>) -> Taken {
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
        Taken { slot, offset, is_half, end: is_whole.then(|| self.verdict()) }
    }
}

impl TargetSession {
    /// Half of a fused operation. One whose data pointer is not good is kept like others, so that
    /// both end together.
    pub(super) fn half(
        &mut self,
        io: Io,
        carried: Result<bool, NvmeStatus>,
    ) -> Result<Option<Pending>, Broken> {
        let mut half = Half::new(io, carried == Ok(true));
        if carried.is_err() {
            half.verdict = Status::BadLength;
        }
        let is_here = half.is_here;
        if io.fused == Fused::First {
            let place = self.place(Exchange::Compare(half))?;
            self.compare = Some(place);
            if is_here {
                self.data = Data::Held { place };
            }
            return Ok(None);
        }
        let first_place = self.compare.take().expect("its compare came");
        let place = self.place(Exchange::Vacant)?;
        let partner = Exchange::Partner { of: place };
        let compare = core::mem::replace(&mut self.exchanges[usize::from(first_place)], partner);
        let Exchange::Compare(first) = compare else { unreachable!("it was put there") };
        let pair = Box::new(Pair::new(first_place, first, half, self.as_of));
        self.exchanges[usize::from(place)] = Exchange::Fused(pair);
        if is_here {
            self.data = Data::Held { place };
            return Ok(None);
        }
        Ok(Some(self.fused(place)))
    }

    /// Both halves are here, as far as they travel in capsules.
    pub(super) fn fused(&mut self, place: u16) -> Pending {
        let Exchange::Fused(pair) = &self.exchanges[usize::from(place)] else {
            unreachable!("it was put there")
        };
        let (io, verdict) = (pair.halves[1].io, pair.verdict());
        if !verdict.is_ok() {
            let answers = self.end_fused(place, verdict);
            answers.into_iter().for_each(|answer| self.answer(answer, &[]));
            return Pending::Own;
        }
        let request = Request {
            tag: Tag::from(place),
            stream: 0,
            namespace: Some(io.namespace),
            tenant: 0,
            command: io.command,
            payload_bytes: io.command.payload_bytes(),
            verdict: Status::Ok,
        };
        self.charged(io.tenant, Pending::Awaited(request))
    }

    /// A fused operation has ended: the answers to its commands.
    pub(super) fn end_fused(&mut self, place: u16, status: Status) -> [Answer; 2] {
        let Exchange::Fused(pair) = self.vacate(place) else { unreachable!("the caller looked") };
        self.vacate(pair.first_place);
        let queue = self.queue.as_mut().expect("only a queue has devices");
        queue.complete_fused(&pair.halves[1].io, status)
    }

    /// The fused operation that a place belongs to, and which half that is.
    pub(super) fn pair(&mut self, place: u16) -> Option<(&mut Pair, usize)> {
        let (place, half) = match self.exchanges.get(usize::from(place))? {
            Exchange::Partner { of } => (*of, 0),
            _ => (place, 1),
        };
        match &mut self.exchanges[usize::from(place)] {
            Exchange::Fused(pair) => Some((pair, half)),
            _ => None,
        }
    }
}
