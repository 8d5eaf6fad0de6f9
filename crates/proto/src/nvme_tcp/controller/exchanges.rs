//! The commands in progress on an NVMe/TCP connection, in a table whose indices are the tags of
//! requests and of R2Ts.

use alloc::boxed::Box;
use alloc::vec::Vec;

use contract::{FrameHead, SessionEvent, Slot, Status, Tag};
use wire::nvme::{CommandId, Status as NvmeStatus, Submission};
use wire::nvme_tcp::FatalStatus;

use super::super::encode::{self, PduFormat};
use super::super::framer::PduViolation;
use super::fused::{FusedHalf, FusedOperation};
use crate::nvme::{DeviceRequest, FusedPart};

/// The number of commands that may be in progress before the queue's size is known: one Connect.
const BEFORE_CONNECT: usize = 1;

/// The destination of the data of the current PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataTarget {
    /// The data is skipped, because its command was refused.
    Skipped,
    /// The data is the payload of the session's last request.
    Request,
    /// The data belongs to a request that asked for it.
    Piece { place: u16 },
    /// The data belongs to a command of the controller itself.
    Own { place: u16 },
    /// The data belongs to one half of a fused operation, which stores the data until a buffer is
    /// free.
    Held { place: u16 },
}

/// A command that the controller carries out itself.
#[derive(Debug)]
pub(super) struct OwnCommand {
    pub(super) entry: Submission,
    pub(super) payload: Vec<u8>,
    /// The status of the payload; only `Ok` permits its use.
    pub(super) verdict: Status,
}

/// A place in the table of commands, with the command in progress there.
#[derive(Debug)]
pub(super) enum Exchange {
    Vacant,
    /// A command that the worker carries out at a device. `as_of` is the epoch of its permission.
    Device {
        io: DeviceRequest,
        transfer: Option<Transfer>,
        as_of: u32,
    },
    /// The controller will carry out the command. Its payload of `wanted` bytes is on its way, in
    /// the capsule or on request (`is_asked`).
    Own {
        own: OwnCommand,
        wanted: usize,
        is_asked: bool,
    },
    /// A fused compare. Its write, or another command, ends this state.
    Compare(FusedHalf),
    /// A fused compare whose write has index `of`.
    Partner {
        of: u16,
    },
    /// A fused write with its compare, which together are one request.
    Fused(Box<FusedOperation>),
    /// A discard of several ranges, `left` of which have not ended.
    Discard {
        io: DeviceRequest,
        left: usize,
        status: Status,
        as_of: u32,
    },
}

impl Exchange {
    /// Returns the command if the worker carries it out; `None` for all others.
    pub(super) fn io(&self) -> Option<&DeviceRequest> {
        match self {
            Exchange::Device { io, .. } | Exchange::Discard { io, .. } => Some(io),
            Exchange::Fused(pair) => Some(&pair.halves[1].io),
            _ => None,
        }
    }

    /// Returns the command and the epoch of the queue's fence under which it is permitted; `None`
    /// if the worker does not carry it out.
    pub(super) fn permission(&mut self) -> Option<(DeviceRequest, &mut u32)> {
        match self {
            Exchange::Device { io, as_of, .. } | Exchange::Discard { io, as_of, .. } => {
                Some((*io, as_of))
            }
            Exchange::Fused(pair) => Some((pair.halves[1].io, &mut pair.as_of)),
            _ => None,
        }
    }
}

/// The progress of a payload that was requested from the host by an R2T.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    slot: Slot,
    /// The number of received bytes: `came ≤ wanted`.
    came: usize,
    wanted: usize,
    /// `Ok`, or the status of a PDU whose data did not match its digest.
    verdict: Status,
}

/// The table of the commands in progress on a connection.
#[derive(Debug)]
pub(super) struct Exchanges {
    /// The commands, by index; at most `most`.
    all: Vec<Exchange>,
    vacant: Vec<u16>,
    most: usize,
    /// The number of commands whose data was requested and has not all come.
    asked: usize,
    /// The index of a fused compare whose write has not come; `None` if there is none.
    compare: Option<u16>,
}

impl Exchanges {
    /// Creates a table for a connection without a queue.
    pub(super) fn new() -> Exchanges {
        Exchanges {
            all: Vec::new(),
            vacant: Vec::new(),
            most: BEFORE_CONNECT,
            asked: 0,
            compare: None,
        }
    }

    /// Restores a table of at most `most` commands, none of which has a transfer under way.
    pub(super) fn restore(most: usize, compare: Option<u16>, all: Vec<Exchange>) -> Exchanges {
        let places = || (0_u16..).zip(&all);
        let is_vacant =
            |(place, one): (u16, &Exchange)| matches!(one, Exchange::Vacant).then_some(place);
        let is_asked =
            |(_, one): &(u16, &Exchange)| matches!(one, Exchange::Own { is_asked: true, .. });
        let vacant = places().filter_map(is_vacant).collect();
        let asked = places().filter(is_asked).count();
        let mut exchanges = Exchanges { all, vacant, most, asked, compare };
        exchanges.set_most(most);
        exchanges
    }

    /// Permits this many commands in progress.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
        self.all.reserve(most.min(usize::from(u16::MAX)).saturating_sub(self.all.len()));
    }

    /// Returns the most commands that may be in progress.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Returns the commands, by index.
    pub(super) fn all(&self) -> &[Exchange] {
        &self.all
    }

    /// Returns the commands for changes, by index.
    pub(super) fn all_mut(&mut self) -> &mut [Exchange] {
        &mut self.all
    }

    /// Returns the index of a fused compare whose write has not come; `None` if there is none.
    pub(super) fn compare(&self) -> Option<u16> {
        self.compare
    }

    /// Returns `true` if data was requested that has not all come.
    pub(super) fn is_asking(&self) -> bool {
        self.asked > 0
    }

    /// Counts a command whose data is requested.
    pub(super) fn count_asked(&mut self) {
        self.asked += 1;
    }

    /// Returns the command of the request with this tag.
    #[inline]
    pub(super) fn at(&self, tag: Tag) -> &Exchange {
        &self.all[tag as usize]
    }

    /// Returns the command of the request with this tag, for changes.
    pub(super) fn at_mut(&mut self, tag: Tag) -> &mut Exchange {
        &mut self.all[tag as usize]
    }

    /// Adds a command in progress, and returns its index. Fails if the host has more commands than
    /// its queue has entries, which breaks the protocol.
    pub(super) fn place(&mut self, exchange: Exchange) -> Result<u16, PduViolation> {
        self.place_with(|| exchange)
    }

    /// Adds the command that `make` returns, as [`place`](Exchanges::place) does.
    // Commands are large: they are made where they stay.
    #[inline(always)]
    pub(super) fn place_with(
        &mut self,
        make: impl FnOnce() -> Exchange,
    ) -> Result<u16, PduViolation> {
        let Some(place) = self.vacant.pop() else { return self.place_behind(make()) };
        let vacant = &mut self.all[usize::from(place)];
        // The assertion spares a drop of the old value.
        assert!(matches!(vacant, Exchange::Vacant), "a vacant place holds nothing");
        *vacant = make();
        Ok(place)
    }

    /// Adds a command behind all places that were ever taken.
    #[cold]
    fn place_behind(&mut self, exchange: Exchange) -> Result<u16, PduViolation> {
        if self.all.len() == self.most {
            return Err(PduViolation::plain(FatalStatus::SEQUENCE));
        }
        self.all.push(exchange);
        Ok((self.all.len() - 1) as u16)
    }

    /// Removes the command at an index, and returns it.
    pub(super) fn vacate(&mut self, place: u16) -> Exchange {
        self.vacant.push(place);
        core::mem::replace(&mut self.all[usize::from(place)], Exchange::Vacant)
    }

    /// Removes a device's command at an index.
    #[inline]
    pub(super) fn vacate_device(&mut self, place: u16) {
        let exchange = &mut self.all[usize::from(place)];
        // The assertion spares a drop of the old value.
        assert!(matches!(exchange, Exchange::Device { .. }), "a device carried it out");
        *exchange = Exchange::Vacant;
        self.vacant.push(place);
    }

    /// Removes the fused compare whose write did not come.
    pub(super) fn vacate_compare(&mut self) {
        let place = self.compare.take().expect("its compare came");
        self.vacate(place);
    }

    /// Returns the identifier of the command at an index whose data was requested, the numbers of
    /// received and of requested bytes, and the data's destination. Returns `None` if no data was
    /// requested.
    pub(super) fn awaited(&mut self, place: u16) -> Option<(CommandId, usize, usize, DataTarget)> {
        match self.all.get(usize::from(place)) {
            Some(Exchange::Device { io, transfer: Some(transfer), .. }) => {
                Some((io.cid, transfer.came, transfer.wanted, DataTarget::Piece { place }))
            }
            Some(Exchange::Own { own, wanted, is_asked: true }) => {
                Some((own.entry.cid.get(), own.payload.len(), *wanted, DataTarget::Own { place }))
            }
            _ => {
                let (pair, half) = self.pair(place)?;
                let (cid, came, wanted) = pair.awaited(half)?;
                Some((cid, came, wanted, DataTarget::Piece { place }))
            }
        }
    }

    /// Returns the slot and the offset that the next byte of a requested payload belongs to; `None`
    /// for half of a fused operation.
    pub(super) fn expected(&self, place: u16) -> Option<(Slot, usize)> {
        match &self.all[usize::from(place)] {
            Exchange::Device { transfer: Some(transfer), .. } => {
                Some((transfer.slot, transfer.came))
            }
            _ => None, // halves of a fused operation are small
        }
    }

    /// Passes on a piece of a request's payload. Each PDU of the payload may have its own digest;
    /// the end of the last PDU comes with the worst status of all.
    pub(super) fn piece<'a>(
        &mut self,
        place: u16,
        bytes: &'a [u8],
        end: Option<Status>,
    ) -> Option<SessionEvent<'a>> {
        if let Some((pair, half)) = self.pair(place) {
            let taken = pair.take(half, bytes.len(), end);
            self.asked -= usize::from(taken.is_half);
            let (slot, offset, end) = (taken.slot, taken.offset, taken.end);
            let tells = !bytes.is_empty() || end.is_some();
            return tells.then_some(SessionEvent::Piece { slot, offset, bytes, end });
        }
        let exchange = &mut self.all[usize::from(place)];
        let Exchange::Device { transfer: slot @ Some(_), .. } = exchange else {
            unreachable!("its data was announced")
        };
        let transfer = slot.as_mut().expect("matched above");
        let offset = transfer.came;
        transfer.came += bytes.len();
        if let Some(status) = end
            && !status.is_ok()
        {
            transfer.verdict = status;
        }
        let Transfer { slot: request, came, wanted, verdict } = *transfer;
        let end = (end.is_some() && came == wanted).then_some(verdict);
        if end.is_some() {
            *slot = None;
            self.asked -= 1;
        } else if bytes.is_empty() {
            return None;
        }
        Some(SessionEvent::Piece { slot: request, offset, bytes, end })
    }

    /// Gathers a piece of the payload of a command of the controller itself. Returns the command
    /// once its payload is complete.
    pub(super) fn gather(
        &mut self,
        place: u16,
        bytes: &[u8],
        end: Option<Status>,
    ) -> Option<OwnCommand> {
        let exchange = &mut self.all[usize::from(place)];
        let Exchange::Own { own, wanted, is_asked } = exchange else {
            unreachable!("its data was announced")
        };
        own.payload.extend_from_slice(bytes);
        let status = end?;
        if !status.is_ok() {
            own.verdict = status;
        }
        if own.payload.len() < *wanted {
            return None;
        }
        self.asked -= usize::from(*is_asked);
        match self.vacate(place) {
            Exchange::Own { own, .. } => Some(own),
            _ => unreachable!("looked at above"),
        }
    }

    /// Keeps a piece of data from the capsule of half of a fused operation. Returns `true` if both
    /// halves have come, as far as they travel in capsules.
    pub(super) fn hold(&mut self, place: u16, bytes: &[u8], end: Option<Status>) -> bool {
        let (half, is_second) = match &mut self.all[usize::from(place)] {
            Exchange::Compare(half) => (half, false),
            Exchange::Fused(pair) => (&mut pair.halves[1], true),
            _ => unreachable!("its data was announced"),
        };
        half.hold(bytes, end);
        end.is_some() && is_second
    }

    /// Adds half of a fused operation. A half with an invalid data pointer is kept like others, so
    /// that both end together. Returns the destination of the data that follows, and the index of
    /// the operation if both halves have come, as far as they travel in capsules.
    pub(super) fn add_half(
        &mut self,
        io: DeviceRequest,
        carried: Result<bool, NvmeStatus>,
        as_of: u32,
    ) -> Result<(DataTarget, Option<u16>), PduViolation> {
        let mut half = FusedHalf::new(io, carried == Ok(true));
        if carried.is_err() {
            half.verdict = Status::BadLength;
        }
        let is_here = half.is_here;
        if io.fused == FusedPart::First {
            let place = self.place(Exchange::Compare(half))?;
            self.compare = Some(place);
            let data = if is_here { DataTarget::Held { place } } else { DataTarget::Skipped };
            return Ok((data, None));
        }
        let first_place = self.compare.take().expect("its compare came");
        let place = self.place(Exchange::Vacant)?;
        let partner = Exchange::Partner { of: place };
        let compare = core::mem::replace(&mut self.all[usize::from(first_place)], partner);
        let Exchange::Compare(first) = compare else { unreachable!("it was put there") };
        let pair = Box::new(FusedOperation::new(first_place, first, half, as_of));
        self.all[usize::from(place)] = Exchange::Fused(pair);
        match is_here {
            true => Ok((DataTarget::Held { place }, None)),
            false => Ok((DataTarget::Skipped, Some(place))),
        }
    }

    /// Removes a fused operation that has ended, and returns its write.
    pub(super) fn end_fused(&mut self, place: u16) -> DeviceRequest {
        let Exchange::Fused(pair) = self.vacate(place) else { unreachable!("the caller looked") };
        self.vacate(pair.first_place);
        pair.halves[1].io
    }

    /// Returns the fused operation that an index belongs to, and the half: 0 for the compare, 1 for
    /// the write. Returns `None` for other commands.
    pub(super) fn pair(&mut self, place: u16) -> Option<(&mut FusedOperation, usize)> {
        let (place, half) = match self.all.get(usize::from(place))? {
            Exchange::Partner { of } => (*of, 0),
            _ => (place, 1),
        };
        match &mut self.all[usize::from(place)] {
            Exchange::Fused(pair) => Some((pair, half)),
            _ => None,
        }
    }

    /// Assigns a slot to a request whose payload is awaited, and returns the R2T headers that
    /// request the payload.
    pub(super) fn invite(
        &mut self,
        tag: Tag,
        slot: Slot,
        room: &mut [u8],
        style: &PduFormat,
    ) -> FrameHead {
        let place = tag as u16;
        if let Some((pair, _)) = self.pair(place) {
            pair.settle(slot, room);
            let places = [pair.first_place, place];
            let awaited = [0, 1].map(|half| Some((places[half], pair.awaited(half)?)));
            let heads = awaited
                .into_iter()
                .flatten()
                .map(|(place, (cid, _, wanted))| style.ready(cid, place, wanted));
            let heads: Vec<_> = heads.collect();
            self.asked += heads.len();
            return encode::bare_all(style, &heads);
        }
        let Exchange::Device { io, transfer, .. } = &mut self.all[usize::from(place)] else {
            panic!("request {tag} was not awaited")
        };
        let wanted = io.payload_bytes;
        *transfer = Some(Transfer { slot, came: 0, wanted, verdict: Status::Ok });
        self.asked += 1;
        encode::bare(style, &style.ready(io.cid, place, wanted))
    }

    /// Returns the command whose request has this tag; `None` if the worker does not carry it out.
    pub(super) fn io_at(&self, tag: Tag) -> Option<&DeviceRequest> {
        self.all.get(usize::try_from(tag).ok()?)?.io()
    }
}
