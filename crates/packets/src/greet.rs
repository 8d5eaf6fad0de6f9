//! The handshake: hello, retry, accept, refuse; and resets of associations that nobody knows.
//!
//! An acceptor keeps nothing about a hello without a token. No answer to a hello is larger than the
//! hello, and a reset is less than twice as large as the smallest packet.

use contract::Instant;
use wire::packets::{
    AcceptBody, HELLO_BYTES, PacketHelloBody, PacketKind, REFUSED_FULL, RefuseBody, ResetBody,
    RetryBody,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::association::State;
use crate::endpoint::Endpoint;
use crate::event::{Down, Event};
use crate::head::{HEAD_BYTES, Head};
use crate::packet::Packet;
use crate::secret::{is_reset, reset_proof};
use crate::station::Station;

/// Hellos and resets a second that are answered.
const ANSWERED_PER_SECOND: u64 = 10_000;

/// Answers that may leave at once after a silence.
const BURST: u64 = 64;

/// A packet without an association that waits for its turn to leave.
pub(crate) struct Answer {
    lane: u8,
    to: Station,
    kind: PacketKind,
    association: u32,
    cookie: u64,
    body: Body,
}

enum Body {
    Retry(RetryBody),
    Accept(AcceptBody),
    Refuse(RefuseBody),
    Reset(ResetBody),
}

impl Body {
    fn bytes(&self) -> &[u8] {
        match self {
            Body::Retry(body) => body.as_bytes(),
            Body::Accept(body) => body.as_bytes(),
            Body::Refuse(body) => body.as_bytes(),
            Body::Reset(body) => body.as_bytes(),
        }
    }
}

/// The answers that may leave: a bucket of [`BURST`] that fills with [`ANSWERED_PER_SECOND`].
#[derive(Debug)]
pub(crate) struct Rate {
    /// The time at which the bucket would be full.
    full_at: Instant,
}

impl Default for Rate {
    fn default() -> Rate {
        Rate { full_at: Instant::ZERO }
    }
}

impl Rate {
    /// Takes the right to one answer, or returns `false` if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let each = core::time::Duration::from_nanos(1_000_000_000 / ANSWERED_PER_SECOND);
        let full_at = self.full_at.max(now) + each;
        let may = full_at - now <= each * BURST as u32;
        if may {
            self.full_at = full_at;
        }
        may
    }
}

/// Returns the body of a packet of a fixed form.
fn body<T: FromBytes + KnownLayout + Immutable>(packet: &[u8]) -> Option<T> {
    T::read_from_prefix(&packet[HEAD_BYTES..]).ok().map(|(body, _)| body)
}

impl Endpoint {
    /// Follows a packet that is not of records.
    pub(crate) fn greeted(
        &mut self,
        now: Instant,
        (lane, from): (u8, Station),
        head: &Head,
        packet: &[u8],
    ) {
        let is_known = match head.kind {
            PacketKind::HELLO if packet.len() >= HELLO_BYTES && self.settings.accepts => {
                body(packet).map(|hello| self.hello(now, lane, from, &hello))
            }
            PacketKind::RETRY => body(packet).map(|retry| self.retried(now, head, retry)),
            PacketKind::ACCEPT => body(packet).map(|accept| self.accepted(now, head, &accept)),
            PacketKind::REFUSE => body(packet).map(|refuse| self.refused(head, &refuse)),
            PacketKind::RESET => body(packet).map(|reset| self.reset(&reset)),
            _ => None,
        };
        self.pools.counters.unknown += u64::from(is_known.is_none());
    }

    /// Answers a hello: without a token by a retry, with one by an association.
    fn hello(&mut self, now: Instant, lane: u8, from: Station, hello: &PacketHelloBody) {
        if !self.hellos.take(now) {
            self.pools.counters.hellos_dropped += 1;
            return;
        }
        let (peer_place, peer_cookie) = (hello.association.get(), hello.cookie.get());
        let answer = |kind, body| Answer {
            lane,
            to: from,
            kind,
            association: peer_place,
            cookie: peer_cookie,
            body,
        };
        if !self.secret.knows(now, &from, peer_cookie, &hello.token) {
            let token = self.secret.token(now, &from, peer_cookie);
            return self.push_answer(answer(PacketKind::RETRY, Body::Retry(token)));
        }
        let place = self.by_peer.get(peer_cookie).or_else(|| {
            let bytes = self.settings.packet_bytes.min(usize::from(hello.packet_bytes.get()));
            let bytes = bytes.max(HELLO_BYTES);
            let place = self.admit(now, State::Half, (lane, from), bytes)?;
            let association = &mut self.associations[place];
            (association.peer_place, association.peer_cookie) = (peer_place, peer_cookie);
            self.by_peer.insert(peer_cookie, place);
            self.refresh(place);
            Some(place)
        });
        let Some(place) = place else {
            let refuse = RefuseBody { reason: REFUSED_FULL.into(), reserved: 0.into() };
            return self.push_answer(answer(PacketKind::REFUSE, Body::Refuse(refuse)));
        };
        let association = &self.associations[place];
        let accept = AcceptBody {
            association: (u32::from(self.settings.worker) << 24 | place).into(),
            packet_bytes: association.packet_bytes.into(),
            reserved: 0.into(),
            cookie: association.cookie.into(),
        };
        self.push_answer(answer(PacketKind::ACCEPT, Body::Accept(accept)));
    }

    /// Returns the place of the association of ours that says hello and that a packet answers.
    fn greeting(&self, head: &Head) -> Option<u32> {
        let place = head.association & 0x00ff_ffff;
        let association = self.associations.get(place)?;
        let is_greeting = matches!(association.state, State::Greeting { .. });
        (is_greeting && association.cookie == head.cookie).then_some(place)
    }

    /// Says hello again with the token.
    fn retried(&mut self, now: Instant, head: &Head, token: RetryBody) {
        let Some(place) = self.greeting(head) else { return };
        let association = &mut self.associations[place];
        let State::Greeting { token: earlier, .. } = association.state else { return };
        if earlier != token {
            association.state = State::Greeting { token, tries: 0, next: now };
            self.refresh(place);
        }
    }

    /// Ends the greeting: the association is up.
    fn accepted(&mut self, now: Instant, head: &Head, accept: &AcceptBody) {
        let Some(place) = self.greeting(head) else { return };
        let association = &mut self.associations[place];
        let bytes = usize::from(accept.packet_bytes.get()).min(self.settings.packet_bytes);
        association.state = State::Up;
        association.peer_place = accept.association.get();
        association.peer_cookie = accept.cookie.get();
        association.packet_bytes = bytes.max(HELLO_BYTES) as u16;
        self.pools.paths[association.paths[0]].bytes = association.packet_bytes;
        association.credits = head.credits.max(crate::credits::LEAST);
        association.waits_since = None;
        association.heard_at = now;
        // The acceptor waits for a packet with its cookie.
        association.words.pings = true;
        self.by_peer.insert(accept.cookie.get(), place);
        let id = self.associations[place].id();
        self.pools.events.push_back(Event::Up(id));
        self.refresh(place);
    }

    fn refused(&mut self, head: &Head, refuse: &RefuseBody) {
        let Some(place) = self.greeting(head) else { return };
        self.associations[place].end(&mut self.pools, Down::Refused(refuse.reason.get()));
        self.refresh(place);
    }

    /// Ends an association that the peer does not know any more, if the peer proves that.
    fn reset(&mut self, reset: &ResetBody) {
        let (cookie, theirs) = (reset.cookie.get(), reset.association.get());
        let Some(place) = self.by_peer.get(cookie) else { return };
        let is_theirs = self.associations[place].peer_place == theirs;
        if is_theirs && is_reset(cookie, theirs, &reset.proof) {
            self.associations[place].end(&mut self.pools, Down::Reset);
            self.refresh(place);
        }
    }

    /// Answers a packet of an association that we do not know.
    pub(crate) fn disown(&mut self, now: Instant, head: &Head, lane: u8, from: Station) {
        let is_known = self.associations.get(head.association & 0x00ff_ffff);
        let is_known = is_known.is_some_and(|association| association.cookie == head.cookie);
        if is_known || !self.hellos.take(now) {
            return;
        }
        let reset = ResetBody {
            cookie: head.cookie.into(),
            association: head.association.into(),
            reserved: 0.into(),
            proof: reset_proof(head.cookie, head.association),
        };
        let body = Body::Reset(reset);
        let kind = PacketKind::RESET;
        self.push_answer(Answer { lane, to: from, kind, association: 0, cookie: 0, body });
    }

    fn push_answer(&mut self, answer: Answer) {
        if self.answers.len() < self.answers.capacity() {
            self.answers.push_back(answer);
        }
    }

    /// Makes the packet of the oldest answer. Returns `false` if there is none.
    pub(crate) fn answer(&mut self, packet: &mut Packet) -> bool {
        let Some(answer) = self.answers.pop_front() else { return false };
        packet.begin(answer.lane, answer.to, self.settings.packet_bytes);
        packet.append(answer.body.bytes());
        let credits = self.pools.grant(self.associations.taken());
        let head = without_number(answer.kind, (answer.association, answer.cookie), credits);
        packet.finish(head, &self.pools.messages);
        true
    }

    /// Makes the hello of an association, if one is due.
    pub(crate) fn greet(&mut self, now: Instant, place: u32, packet: &mut Packet) -> bool {
        let association = &mut self.associations[place];
        let Some(token) = association.hello(now) else { return false };
        let path = &self.pools.paths[association.paths[0]];
        packet.begin(path.lane, path.to, self.settings.packet_bytes);
        let hello = PacketHelloBody {
            association: (u32::from(self.settings.worker) << 24 | place).into(),
            packet_bytes: (self.settings.packet_bytes as u16).into(),
            reserved: 0.into(),
            cookie: association.cookie.into(),
            token,
        };
        packet.append(hello.as_bytes());
        packet.pad(HELLO_BYTES);
        let credits = self.pools.grant(self.associations.taken());
        packet.finish(without_number(PacketKind::HELLO, (0, 0), credits), &self.pools.messages);
        true
    }
}

/// Makes the packet that tells a peer that its association is over: the first at or above the
/// place `at`, which goes on behind it. Returns `false` if there is none.
pub(crate) fn farewell(endpoint: &Endpoint, at: &mut u32, packet: &mut Packet) -> bool {
    while (*at as usize) < endpoint.settings.associations_max {
        let place = *at;
        *at += 1;
        let Some(association) = endpoint.associations.get(place) else { continue };
        if !association.is_up() {
            continue;
        }
        // What the peer would hear from us if it asked after we had forgotten it.
        let ours = u32::from(endpoint.settings.worker) << 24 | place;
        let (lane, to) = {
            let path = &endpoint.pools.paths[association.paths[0]];
            (path.lane, path.to)
        };
        let reset = ResetBody {
            cookie: association.cookie.into(),
            association: ours.into(),
            reserved: 0.into(),
            proof: reset_proof(association.cookie, ours),
        };
        packet.begin(lane, to, endpoint.settings.packet_bytes);
        packet.append(reset.as_bytes());
        packet.finish(without_number(PacketKind::RESET, (0, 0), 0), &endpoint.pools.messages);
        return true;
    }
    false
}

/// Returns the head of a packet that belongs to no path.
fn without_number(kind: PacketKind, (association, cookie): (u32, u64), credits: u16) -> Head {
    Head {
        kind,
        ack_now: false,
        echo: false,
        bytes: 0,
        association,
        cookie,
        number: 0,
        ack: None,
        credits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn answers_are_limited() {
        let mut rate = Rate::default();
        let now = Instant::ZERO + Duration::from_secs(1);
        assert_eq!((0..1000).filter(|_| rate.take(now)).count(), 64);
        let later = now + Duration::from_millis(1);
        assert_eq!((0..1000).filter(|_| rate.take(later)).count(), 10);
    }
}
