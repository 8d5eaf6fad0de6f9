//! An end of a connection.

use std::collections::VecDeque;

use contract::{Buf, CloseReason, ConnId, Frame, Instant, TenantId};

use super::pipe::{Pipe, TcpEnd};

/// The phase of an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The end is unused; a dial or an accept ends this phase.
    Vacant,
    /// The end waits for the server's answer.
    Dialling,
    /// The end sends and receives.
    Open,
    /// The end sends its queued bytes, then shuts its side. The peer's close or the deadline ends
    /// the phase.
    Finishing,
    /// The end waits until `Conn::quiet_at` for its operations in flight.
    Closing(CloseReason),
}

/// The one send in flight of a connection, with the bytes of some queued frames.
#[derive(Debug)]
pub(super) struct SendInFlight {
    /// The number of frames at the front of the queue that it carries.
    pub(super) frames: usize,
    pub(super) bytes: Vec<u8>,
    /// The bytes that the network has accepted: `taken ≤ bytes.len()`.
    pub(super) taken: usize,
    /// The time of its completion, once all bytes were accepted.
    pub(super) done_at: Option<Instant>,
}

/// A buffer whose bytes from `at` to `until` are to be filled next.
#[derive(Debug)]
pub(super) struct FillTarget {
    pub(super) buf: Buf,
    pub(super) at: usize,
    pub(super) until: usize,
}

/// An end of a connection, and the pipe towards it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) generation: u32,
    pub(super) phase: Phase,
    pub(super) paused: bool,
    /// The buffer that the user has lent for the next bytes; `None` if they go to a receive buffer.
    pub(super) target: Option<FillTarget>,
    /// The other end: its host and its identifier there; `None` if it is gone.
    pub(super) peer: Option<(usize, ConnId)>,
    pub(super) queue: VecDeque<Frame>,
    pub(super) unsent: usize,
    /// The tenant whose account the queued frames of the connection are charged to.
    pub(super) account: TenantId,
    pub(super) sending: Option<SendInFlight>,
    /// `true` if its sending direction is shut.
    pub(super) is_shut: bool,
    pub(super) inbound: Pipe,
    /// The time of the answer to a dial, and the answer: connected, or the system's error.
    pub(super) answer: Option<(Instant, Result<(), i32>)>,
    /// The time at which a finished connection ends although the peer did not close.
    pub(super) finish_by: Instant,
    /// The time at which a closing connection has no operation in flight any more.
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
            account: TenantId::DEFAULT,
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

    /// Returns `true` if the end sends and receives.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Finishing)
    }

    /// Returns a send of up to `frames_max` queued frames, and of `bytes_max` bytes unless the
    /// first frame alone is larger.
    pub(super) fn coalesce(&self, frames_max: usize, bytes_max: usize) -> SendInFlight {
        let (mut bytes, mut frames) = (Vec::new(), 0);
        for frame in self.queue.iter().take(frames_max) {
            if frames > 0 && bytes.len() + frame.body_len > bytes_max {
                break;
            }
            bytes.extend_from_slice(frame.head.bytes());
            bytes.extend_from_slice(frame.body());
            bytes.extend_from_slice(frame.head.tail());
            frames += 1;
        }
        SendInFlight { frames, bytes, taken: 0, done_at: None }
    }

    /// Returns the time of the connection's next possible event; `None` if none is possible.
    /// `can_receive` means that there is a buffer to receive into; `can_send` means that the peer's
    /// window has room.
    pub(super) fn next(
        &self,
        now: Instant,
        can_receive: bool,
        can_send: impl FnOnce() -> bool,
    ) -> Option<Instant> {
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
                    None => at_once(can_send()),
                });
                let end = self.inbound.end.filter(|(_, end)| match end {
                    TcpEnd::Fin => self.paused || self.inbound.is_empty(),
                    TcpEnd::Reset(_) => true,
                });
                let deadline = finishing.then_some(self.finish_by);
                let arrival = self.inbound.next_arrival(now).filter(|_| receives);
                [sent, end.map(|(at, _)| at), deadline, arrival].into_iter().flatten().min()
            }
        }
    }
}
