//! One end of a connection.

use std::collections::VecDeque;

use contract::{Buf, CloseReason, ConnId, Frame, Instant};

use super::pipe::{End, Pipe};

/// Where an end of a connection is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody's; a dial or an accept ends this.
    Vacant,
    /// Waits for the server's answer.
    Dialling,
    /// Sends and receives.
    Open,
    /// Sends what is queued, then shuts its side; the peer's close or the deadline ends this.
    Finishing,
    /// Waits for what is in flight to end, until `Conn::quiet_at`.
    Closing(CloseReason),
}

/// The send in flight.
#[derive(Debug)]
pub(super) struct Sending {
    /// It carries the first so many frames of the queue.
    pub(super) frames: usize,
    pub(super) bytes: Vec<u8>,
    /// `taken ≤ bytes.len()`
    pub(super) taken: usize,
    /// When its completion comes, once everything was taken.
    pub(super) done_at: Option<Instant>,
}

/// A buffer whose bytes from `at` to `until` are to be filled next.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) buf: Buf,
    pub(super) at: usize,
    pub(super) until: usize,
}

/// One end of a connection, and the pipe towards it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) paused: bool,
    /// Where the next bytes belong.
    pub(super) target: Option<Target>,
    /// The other end: its host and its name there; `None` when nobody is there (any more).
    pub(super) peer: Option<(usize, ConnId)>,
    pub(super) queue: VecDeque<Frame>,
    pub(super) unsent: usize,
    pub(super) sending: Option<Sending>,
    /// Its sending direction is shut.
    pub(super) is_shut: bool,
    pub(super) inbound: Pipe,
    /// When a dial is answered, and how: connected, or the system's error.
    pub(super) answer: Option<(Instant, Result<(), i32>)>,
    /// When a finished connection is ended although the peer did not close.
    pub(super) finish_by: Instant,
    /// When what is in flight of a closing connection has ended.
    pub(super) quiet_at: Instant,
}

impl Conn {
    pub(super) fn vacant() -> Conn {
        Conn {
            generation: 0,
            phase: Phase::Vacant,
            paused: false,
            target: None,
            peer: None,
            queue: VecDeque::new(),
            unsent: 0,
            sending: None,
            is_shut: false,
            inbound: Pipe::new(0),
            answer: None,
            finish_by: Instant::ZERO,
            quiet_at: Instant::ZERO,
        }
    }

    pub(super) fn vacate(&mut self) {
        *self = Conn { generation: self.generation.wrapping_add(1), ..Conn::vacant() };
    }

    /// Whether it sends and receives.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Finishing)
    }

    /// When something can happen here; `can_receive`: there is a buffer to receive into, `can_send`:
    /// the peer's window has room.
    pub(super) fn next(&self, now: Instant, can_receive: bool, can_send: bool) -> Option<Instant> {
        let at_once = |yes: bool| yes.then_some(now);
        match self.phase {
            Phase::Vacant => None,
            Phase::Dialling => self.answer.map(|(at, _)| at),
            Phase::Closing(_) => Some(self.quiet_at),
            Phase::Open | Phase::Finishing => {
                let finishing = self.phase == Phase::Finishing;
                let receives = !self.paused && (can_receive || finishing || self.target.is_some());
                let sent = self.sending.as_ref().and_then(|sending| match sending.done_at {
                    Some(at) => Some(at),
                    None => at_once(can_send),
                });
                let end = self.inbound.end.filter(|(_, end)| match end {
                    End::Fin => self.paused || self.inbound.is_empty(),
                    End::Reset(_) => true,
                });
                let deadline = finishing.then_some(self.finish_by);
                let arrival = self.inbound.next_arrival(now).filter(|_| receives);
                [sent, end.map(|(at, _)| at), deadline, arrival].into_iter().flatten().min()
            }
        }
    }
}
