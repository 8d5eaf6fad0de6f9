//! A channel: a connection inside an association, with its two halves and its state.

use contract::CloseReason;

use crate::incoming::ReceivingHalf;
use crate::outgoing::SendingHalf;
use crate::piece::PieceKind;
use crate::slab::{Linked, NONE};

/// The state of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The local end has asked for the channel. The peer's answer ends the state.
    Opening,
    /// Both ends know the channel. Either end may end the state.
    Open,
    /// The last message of this end is queued. The peer's reset or last message ends the state.
    Finishing,
    /// The channel is over for its user. The acknowledgement of this end's reset, or a reset of the
    /// peer, ends the state.
    Leaving(EndReason),
    /// The channel is over for both ends. The return of the last message's buffer ends the state.
    Gone(EndReason),
}

/// The reason for the end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The peer closed the channel in order.
    Peer,
    /// The peer closed the channel at once.
    Reset,
    /// The peer is silent, or does not know the association any more.
    Lost,
    /// The peer refused the association; the value is the error number to report.
    Refused(i32),
    /// The local end closed the channel.
    Local,
}

/// The number of `ECONNRESET` on Linux: the error of a connection that its peer closed at once.
pub(crate) const RESET: i32 = 104;

/// The number of `ETIMEDOUT` on Linux: the error of a connection whose peer is silent.
pub(crate) const TIMED_OUT: i32 = 110;

/// The number of `ECONNREFUSED` on Linux: the error of a connection that its peer refused.
pub(crate) const REFUSED: i32 = 111;

impl EndReason {
    pub(crate) fn reason(self) -> CloseReason {
        match self {
            EndReason::Peer => CloseReason::Peer,
            EndReason::Reset => CloseReason::Reset(RESET),
            EndReason::Lost => CloseReason::Reset(TIMED_OUT),
            EndReason::Refused(errno) => CloseReason::Reset(errno),
            EndReason::Local => CloseReason::Local,
        }
    }
}

/// A control record (without a message number) that the channel has to send to its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueRecord {
    Nothing,
    Stop,
    Go,
    Reset,
}

impl DueRecord {
    /// Returns the record to send after a record of kind `kind` was lost.
    pub(crate) fn again(kind: PieceKind) -> DueRecord {
        match kind {
            PieceKind::Reset => DueRecord::Reset,
            PieceKind::Stop => DueRecord::Stop,
            PieceKind::Go => DueRecord::Go,
            _ => DueRecord::Nothing,
        }
    }

    /// Returns the kind of the record that has to be sent; `None` if there is none.
    pub(crate) fn kind(self) -> Option<PieceKind> {
        match self {
            DueRecord::Nothing => None,
            DueRecord::Stop => Some(PieceKind::Stop),
            DueRecord::Go => Some(PieceKind::Go),
            DueRecord::Reset => Some(PieceKind::Reset),
        }
    }
}

/// A connection inside an association.
#[derive(Debug)]
pub(crate) struct Channel {
    pub out: SendingHalf,
    pub incoming: ReceivingHalf,
    /// The index of the channel's association in the table of associations.
    pub association: u32,
    /// The number of channels that had this index before.
    pub generation: u32,
    /// The index of the next channel in the queue of channels with something to send.
    pub next: u32,
    /// Bytes that the channel may still send in its turn of the deficit round robin; zero or less
    /// after a long piece.
    pub deficit: i32,
    /// The number of the channel's outgoing messages in the table of messages.
    pub messages: u32,
    /// The number of stop and resume requests (flow control) that the local end has sent.
    pub stops: u32,
    /// The serial number of the channel in its association. The lower half is the channel's number
    /// on the wire.
    pub serial: u32,
    pub state: State,
    pub owed: DueRecord,
    /// `true` if the channel is in its association's queue of channels with something to send.
    pub speaks: bool,
}

const _: () = assert!(size_of::<Option<Channel>>() <= 128);

impl Linked for Channel {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Channel {
    pub(crate) fn new(association: u32, serial: u32, generation: u32, state: State) -> Channel {
        Channel {
            out: SendingHalf::new(),
            incoming: ReceivingHalf::new(),
            association,
            generation,
            next: NONE,
            deficit: 0,
            messages: 0,
            stops: 0,
            serial,
            state,
            owed: DueRecord::Nothing,
            speaks: false,
        }
    }

    /// Returns the channel's name, which is its number on the wire.
    pub(crate) fn name(&self) -> u16 {
        self.serial as u16
    }

    /// Returns `true` if the peer knows the channel.
    pub(crate) fn is_known(&self) -> bool {
        self.state != State::Opening && self.state != State::Finishing || self.out.is_opened()
    }

    /// Returns `true` if the channel is over for its user.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Leaving(_) | State::Gone(_))
    }

    /// Returns `true` if the channel has a record or a message to send now. `front_is_begun` says
    /// that the first queued message is partly sent.
    pub(crate) fn has_words(&self, front_is_begun: bool) -> bool {
        let may = if front_is_begun { self.out.may_go_on() } else { self.out.may_begin() };
        self.owed != DueRecord::Nothing || !self.out.queue.is_empty() && may
    }
}
