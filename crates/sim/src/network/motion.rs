//! The motion of bytes: sends, receives and the ends of connections.

use std::time::Duration;

use contract::{CloseReason, Instant, NetEvent, Peer};

use super::conn::{Phase, SendInFlight};
use super::pipe::TcpEnd::{Fin, Reset};
use super::{Network, RESET};
use crate::marks::Mark;

/// The most frames of one send.
const FRAMES_MAX: u64 = 64;
/// The most bytes of one send, unless a single frame is larger.
const SEND_BYTES: usize = 256 << 10;
/// The most pieces that one call of `advance` receives on one connection.
const PIECES_MAX: u64 = 8;

/// Returns the earliest of these times, or any of them that is due.
fn earliest_or_due(mut times: impl Iterator<Item = Instant>, now: Instant) -> Option<Instant> {
    let earliest = times.try_fold(None, |first: Option<Instant>, at| match at <= now {
        true => Err(at),
        false => Ok(Some(first.map_or(at, |first| first.min(at)))),
    });
    earliest.unwrap_or_else(Some)
}

impl Network {
    /// Processes all events of connections of `host` that are due now.
    pub(super) fn advance(&mut self, host: usize) {
        let count = self.hosts[host].conns.len();
        if count == 0 {
            return;
        }
        let first = self.chance.within(0..=count as u64 - 1) as usize;
        for index in (first..count).chain(0..first) {
            let index = index as u32;
            match self.hosts[host].conns[index as usize].phase {
                Phase::Vacant => {}
                Phase::Dialling => self.answer(host, index),
                Phase::Open | Phase::Finishing => {
                    self.send_on(host, index);
                    self.receive(host, index);
                }
                Phase::Closing(_) => {}
            }
            let conn = &self.hosts[host].conns[index as usize];
            if let Phase::Closing(reason) = conn.phase
                && conn.quiet_at <= self.now
            {
                self.hosts[host].let_go(index, reason);
            }
        }
    }

    /// Returns the time of the next event at `host`, or of any that is due; `None` if none can come.
    pub(crate) fn wake_at(&self, host: usize) -> Option<Instant> {
        let owner = &self.hosts[host];
        if !owner.events.is_empty() {
            return Some(Instant::ZERO);
        }
        let can_receive = !owner.buffers.is_empty();
        let next = |conn: &super::Conn| {
            conn.next(self.now, can_receive, || self.window(conn).is_none_or(|room| room > 0))
        };
        earliest_or_due(owner.conns.iter().filter_map(next), self.now)
    }

    /// Returns the number of bytes that fit into the pipe to the peer; `None` if the peer is gone.
    fn window(&self, conn: &super::Conn) -> Option<usize> {
        let (host, id) = conn.peer?;
        let peer = &self.hosts[host].conns[id.index as usize];
        let there = peer.generation == id.generation && peer.phase != Phase::Vacant;
        there.then(|| peer.inbound.room())
    }

    fn answer(&mut self, host: usize, index: u32) {
        let id = self.id(host, index);
        let conn = &mut self.hosts[host].conns[index as usize];
        let Some((at, answer)) = conn.answer else { return };
        if at > self.now {
            return;
        }
        conn.answer = None;
        match answer {
            Ok(()) => {
                conn.phase = Phase::Open;
                let peer = Peer::Local { uid: 0 };
                let opened = NetEvent::opened(id, peer, None);
                self.hosts[host].events.push_back(opened);
                self.say(host, id, &"is open");
                self.receive(host, index);
            }
            Err(errno) => {
                conn.phase = Phase::Closing(CloseReason::Unreachable(errno));
                conn.quiet_at = self.now;
            }
        }
    }

    /// Starts a send of the queued frames, unless one is in flight.
    pub(super) fn start_send(&mut self, host: usize, index: u32) {
        let frames_max = self.chance.within(1..=FRAMES_MAX) as usize;
        let conn = &mut self.hosts[host].conns[index as usize];
        if conn.sending.is_some() || conn.queue.is_empty() || !conn.is_live() {
            return;
        }
        let sending = conn.coalesce(frames_max, SEND_BYTES);
        if sending.frames > 1 {
            self.marks.hit(Mark::FramesCoalesced);
        }
        conn.sending = Some(sending);
        self.send_on(host, index);
    }

    /// Moves more bytes of the connection's send in flight, and ends the send once all have left.
    fn send_on(&mut self, host: usize, index: u32) {
        let Some(mut sending) = self.hosts[host].conns[index as usize].sending.take() else {
            return;
        };
        if sending.done_at.is_none() {
            self.transfer(host, index, &mut sending);
            if sending.taken == sending.bytes.len() {
                let pause = self.chance.within(0..=2_000);
                sending.done_at = Some(self.now + Duration::from_nanos(pause));
            }
        }
        let done = sending.done_at.is_some_and(|at| at <= self.now);
        self.hosts[host].conns[index as usize].sending = Some(sending);
        if done {
            self.hosts[host].complete_send(index);
            let conn = &self.hosts[host].conns[index as usize];
            if conn.queue.is_empty() && conn.phase == Phase::Finishing {
                self.shut(host, index);
            }
        }
    }

    /// Moves bytes of the send into the peer's pipe, cut into segments.
    fn transfer(&mut self, host: usize, index: u32, sending: &mut SendInFlight) {
        let conn = &self.hosts[host].conns[index as usize];
        let Some(mut room) = self.window(conn) else {
            // The bytes are lost. A reset comes back, unless the connection has already been silent
            // for longer.
            sending.taken = sending.bytes.len();
            let at = self.now + self.latency();
            let conn = &mut self.hosts[host].conns[index as usize];
            if !conn.inbound.dark {
                conn.inbound.end(at, Reset(RESET));
            }
            return;
        };
        let (peer, id) = conn.peer.expect("the window is somebody's");
        let mut pieces = 0;
        while room > 0 && sending.taken < sending.bytes.len() {
            let most = self.chance.within(self.impairments.segment.clone()) as usize;
            let length = most.min(room).min(sending.bytes.len() - sending.taken);
            let at = self.now + self.latency();
            let segment = &sending.bytes[sending.taken..][..length];
            self.hosts[peer].conns[id.index as usize].inbound.push(at, segment);
            sending.taken += length;
            room -= length;
            pieces += 1;
        }
        if sending.taken < sending.bytes.len() {
            self.marks.hit(Mark::SendBlocked);
        }
        if pieces > 1 {
            self.marks.hit(Mark::SegmentsCut);
        }
    }

    /// Ends the connection's sending direction in an orderly way, behind the last byte.
    pub(super) fn shut(&mut self, host: usize, index: u32) {
        let at = self.now + self.latency();
        let conn = &mut self.hosts[host].conns[index as usize];
        if std::mem::replace(&mut conn.is_shut, true) {
            return;
        }
        if let Some((host, id)) = conn.peer
            && let Some(peer) = self.find(host, id)
        {
            peer.inbound.end(at, Fin);
        }
    }

    /// Receives the bytes that have arrived, as far as there are buffers.
    fn receive(&mut self, host: usize, index: u32) {
        let conn = &self.hosts[host].conns[index as usize];
        let (now, finishing) = (self.now, conn.phase == Phase::Finishing);
        if finishing && conn.finish_by <= now {
            self.marks.hit(Mark::FinishExpired);
            return self.end(host, index, CloseReason::Local);
        }
        let end = conn.inbound.end.filter(|&(at, _)| at <= now);
        if conn.paused && end.is_some() {
            self.marks.hit(Mark::HungUpWhilePaused);
        }
        match end {
            Some((_, Reset(errno))) => {
                return self.end(host, index, CloseReason::Reset(errno));
            }
            // Bytes before it in the pipe are dropped with the connection.
            Some((_, Fin)) if conn.paused => return self.end(host, index, CloseReason::Peer),
            _ if conn.paused => return,
            _ => {}
        }
        for _ in 0..self.chance.within(1..=PIECES_MAX) {
            if !self.receive_piece(host, index) {
                break;
            }
        }
        let conn = &self.hosts[host].conns[index as usize];
        if let Some(Fin) = conn.inbound.ended(now) {
            if finishing {
                self.marks.hit(Mark::FinishWaited);
            }
            self.end(host, index, CloseReason::Peer);
        }
    }

    /// Receives one piece. Returns `true` if there was one, and a buffer for it.
    pub(super) fn receive_piece(&mut self, host: usize, index: u32) -> bool {
        let id = self.id(host, index);
        let most = self.chance.within(self.impairments.piece.clone()) as usize;
        let owner = &mut self.hosts[host];
        let conn = &mut owner.conns[index as usize];
        let arrived = conn.inbound.arrive(self.now);
        if arrived == 0 {
            return false;
        }
        if conn.phase != Phase::Open {
            conn.inbound.read(&mut vec![0; arrived]); // what comes now means nothing any more
            return false;
        }
        if let Some(target) = conn.target.take() {
            let is_whole = owner.fill(index, target, arrived.min(most));
            self.marks.hit(if is_whole { Mark::FilledWhole } else { Mark::FilledInPart });
            return true;
        }
        let Some(mut buf) = owner.buffers.pop() else {
            self.marks.hit(Mark::ReceiveDry);
            return false;
        };
        let len = arrived.min(most).min(buf.capacity());
        if len == 1 {
            self.marks.hit(Mark::PieceOfOneByte);
        }
        conn.inbound.read(buf.prefix_mut(len));
        owner.events.push_back(NetEvent::Received { conn: id, buf, len });
        true
    }

    /// Gives back the unfilled buffer of a connection, because its bytes will not come.
    pub(super) fn release_target(&mut self, host: usize, index: u32) {
        if self.hosts[host].release_target(index) {
            self.marks.hit(Mark::FilledNothing);
        }
    }

    /// Ends the connection for `reason`; `Closed` follows when no operation of it is in flight.
    pub(super) fn end(&mut self, host: usize, index: u32, reason: CloseReason) {
        let id = self.id(host, index);
        let resets = self.chance.happens(0.5);
        let pause = match self.chance.within(0..=9) {
            0 => self.chance.within(0..=5_000_000),
            _ => self.chance.within(0..=5_000),
        };
        let at = self.now + self.latency();
        let owner = &mut self.hosts[host];
        let conn = &mut owner.conns[index as usize];
        if matches!(conn.phase, Phase::Closing(_) | Phase::Vacant) {
            return;
        }
        let cut = conn.sending.as_ref().map(|sending| sending.taken < sending.bytes.len());
        if cut == Some(true) {
            self.marks.hit(Mark::SendCutByClose);
        }
        let unread = !conn.inbound.is_empty();
        self.release_target(host, index);
        let owner = &mut self.hosts[host];
        let conn = &mut owner.conns[index as usize];
        conn.phase = Phase::Closing(reason);
        conn.quiet_at = self.now + Duration::from_nanos(pause);
        let carried = conn.sending.as_ref().map_or(0, |sending| sending.frames);
        let (peer, dark, shut) = (conn.peer, conn.inbound.dark, conn.is_shut);
        owner.return_frames(index, carried..);
        self.say(host, id, &format_args!("ends: {reason:?}"));
        if let Some((host, id)) = peer
            && !dark
            && let Some(peer) = self.find(host, id)
        {
            let end = if unread || (resets && !shut) { Reset(RESET) } else { Fin };
            peer.inbound.end(at, end);
        }
        if unread || cut == Some(true) {
            self.marks.hit(Mark::ResetMidMessage);
        }
    }
}
