//! The handshake (hello, retry, accept, refuse), and resets of associations that an endpoint does
//! not know.
//!
//! An acceptor keeps nothing about a hello without a token. No answer to a hello is larger than the
//! hello, and a reset is less than twice as large as the smallest packet.

use core::time::Duration;

use contract::Instant;
use wire::packets::{
    ACCEPT_SEAL_BYTES, AcceptBody, HELLO_BYTES, HELLO_SEAL_BYTES, PacketHelloBody, PacketKind,
    REFUSED_FULL, REFUSED_NEEDS_KEY, REFUSED_NO_KEY, REFUSED_OTHER_KEY, RefuseBody, ResetBody,
    RetryBody,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::association::{Association, State};
use crate::endpoint::Endpoint;
use crate::event::{AssociationEnd, Event};
use crate::head::{HEAD_BYTES, ParsedHead, SealSelector};
use crate::packet::Packet;
use crate::peer_address::PeerAddress;
use crate::proof::LEAST_BYTES;
use crate::secret::{RESET_KEY, is_reset, reset_proof};

/// The number of hellos without a valid token that are answered per second. Resets have an equal
/// limit of their own.
const ANSWERED_PER_SECOND: u64 = 10_000;

/// The number of hellos without a valid token, or of resets, that may be answered at once after a
/// pause.
const ANSWERED_AT_ONCE: u32 = 64;

/// The number of associations that are accepted per second. Without the limit, the first windows of
/// many associations would meet in one queue.
const WELCOMED_PER_SECOND: u64 = 10_000;

/// The number of associations that may be accepted at once after a pause.
const WELCOMED_AT_ONCE: u32 = 64;

/// An answer to a packet without an association, queued to be sent.
pub(crate) struct QueuedAnswer {
    lane: u8,
    to: PeerAddress,
    kind: PacketKind,
    association: u32,
    cookie: u64,
    body: AnswerBody,
}

enum AnswerBody {
    Retry(RetryBody),
    Accept(AcceptBody),
    /// An accept of a sealed association: message 2 of its handshake.
    SealedAccept([u8; ACCEPT_SEAL_BYTES]),
    Refuse(RefuseBody),
    Reset(ResetBody),
}

impl AnswerBody {
    fn bytes(&self) -> &[u8] {
        match self {
            AnswerBody::Retry(body) => body.as_bytes(),
            AnswerBody::Accept(body) => body.as_bytes(),
            AnswerBody::SealedAccept(message) => message,
            AnswerBody::Refuse(body) => body.as_bytes(),
            AnswerBody::Reset(body) => body.as_bytes(),
        }
    }
}

/// A token bucket that limits how often something is done.
#[derive(Debug)]
struct RateLimit {
    /// The time in which the bucket gets one token.
    each: Duration,
    /// The capacity of the bucket in tokens.
    most: u32,
    /// The time at which the bucket is full, if no token is taken until then.
    full_at: Instant,
}

impl RateLimit {
    fn new(per_second: u64, most: u32) -> RateLimit {
        let each = Duration::from_nanos(1_000_000_000 / per_second);
        RateLimit { each, most, full_at: Instant::ZERO }
    }

    /// Takes a token, or returns `false` if there is none.
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + self.each;
        let may = full_at - now <= self.each * self.most;
        if may {
            self.full_at = full_at;
        }
        may
    }
}

/// The rate limits of answers to unknown peers, a bucket for each kind.
#[derive(Debug)]
pub(crate) struct AnswerRates {
    /// The rate limit of answers to hellos without a valid token.
    hellos: RateLimit,
    /// The rate limit of new associations.
    welcomes: RateLimit,
    /// The rate limit of resets, which answer packets of unknown associations.
    resets: RateLimit,
}

impl Default for AnswerRates {
    fn default() -> AnswerRates {
        AnswerRates {
            hellos: RateLimit::new(ANSWERED_PER_SECOND, ANSWERED_AT_ONCE),
            welcomes: RateLimit::new(WELCOMED_PER_SECOND, WELCOMED_AT_ONCE),
            resets: RateLimit::new(ANSWERED_PER_SECOND, ANSWERED_AT_ONCE),
        }
    }
}

/// Returns the maximum number of associations that this end accepts from one address, out of `max`
/// in total.
fn share(max: usize) -> usize {
    (max / 8).max(8)
}

/// Returns the body that follows the head of a packet; `None` if the packet is too short.
fn body<T: FromBytes + KnownLayout + Immutable>(packet: &[u8]) -> Option<T> {
    T::read_from_prefix(&packet[HEAD_BYTES..]).ok().map(|(body, _)| body)
}

impl Endpoint {
    /// Processes a packet of the handshake, or a reset.
    pub(crate) fn greeted(
        &mut self,
        now: Instant,
        (lane, from): (u8, PeerAddress),
        head: &ParsedHead,
        packet: &[u8],
    ) {
        let is_known = match head.kind {
            PacketKind::HELLO
                if packet.len() >= HELLO_BYTES
                    && self.settings.accepts
                    && !self.pools.gate.is_held =>
            {
                body(packet).map(|it| hello(self, now, (lane, from), head, &it, packet))
            }
            PacketKind::RETRY => body(packet).map(|retry| self.retried(now, head, retry)),
            PacketKind::ACCEPT => match self.greeting(head) {
                None => Some(()),
                Some(place) => accept_of(self, place, head, packet)
                    .map(|accept| self.accepted(now, head, place, &accept)),
            },
            PacketKind::REFUSE => body(packet).map(|refuse| self.refused(head, &refuse)),
            PacketKind::RESET => body(packet).map(|reset| reset_by(self, &reset, (lane, from))),
            _ => None,
        };
        self.pools.counters.unknown += u64::from(is_known.is_none());
    }

    /// Returns the place of the association whose hello a packet answers; `None` if there is none.
    fn greeting(&self, head: &ParsedHead) -> Option<u32> {
        let place = head.association & 0x00ff_ffff;
        let association = self.associations.get(place)?;
        let is_greeting = matches!(association.state, State::Greeting { .. });
        (is_greeting && association.cookie == head.cookie).then_some(place)
    }

    /// Schedules the hello again, with the token of the peer's retry.
    fn retried(&mut self, now: Instant, head: &ParsedHead, token: RetryBody) {
        let Some(place) = self.greeting(head) else { return };
        let association = &mut self.associations[place];
        let State::Greeting { token: earlier, .. } = association.state else { return };
        if earlier != token {
            association.state = State::Greeting { token, tries: 0, next: now };
            self.refresh(place);
        }
    }

    /// Finishes the handshake of an association that the peer has accepted.
    fn accepted(&mut self, now: Instant, head: &ParsedHead, place: u32, accept: &AcceptBody) {
        let cookie = accept.cookie.get();
        if cookie == 0 || self.by_peer.get(cookie).is_some() {
            self.pools.counters.unknown += 1;
            return;
        }
        let association = &mut self.associations[place];
        let bytes = usize::from(accept.packet_bytes.get()).min(self.settings.packet_bytes);
        association.state = State::Up;
        association.peer.place = accept.association.get();
        association.peer.cookie = cookie;
        association.packet_bytes = bytes.max(HELLO_BYTES) as u16;
        self.pools.paths[association.paths[0]].bytes = association.packet_bytes;
        association.credits = head.credits.max(crate::credits::LEAST);
        association.waits_since = None;
        association.heard_at = now;
        // The acceptor waits for a packet with its cookie.
        association.words.pings = true;
        if accept.addresses.get() > 0 {
            // The answer names the peer's further addresses.
            let challenge = self.secret.cookie();
            self.pools.paths[association.paths[0]].proof.ask(challenge, LEAST_BYTES, Some(now));
        }
        self.by_peer.insert(cookie, place);
        let id = self.associations[place].id();
        self.pools.events.push_back(Event::Up(id));
        self.refresh(place);
    }

    fn refused(&mut self, head: &ParsedHead, refuse: &RefuseBody) {
        let Some(place) = self.greeting(head) else { return };
        let State::Greeting { tries, .. } = self.associations[place].state else { return };
        if self.seals.as_mut().is_some_and(|seals| !seals.is_refused(place, tries)) {
            return;
        }
        self.associations[place].end(&mut self.pools, AssociationEnd::Refused(refuse.reason.get()));
        self.refresh(place);
    }

    /// Answers a packet of an unknown association with a reset, within the rate limit. A packet for
    /// another worker gets no answer.
    pub(crate) fn disown(&mut self, now: Instant, head: &ParsedHead, lane: u8, from: PeerAddress) {
        let is_known = self.associations.get(head.association & 0x00ff_ffff);
        let is_known = is_known.is_some_and(|association| association.cookie == head.cookie);
        // It has lost its way here, and is sent again.
        let worker = (head.association >> 24) as u8;
        let is_anothers = worker != self.settings.worker && worker < self.settings.workers;
        if is_known || is_anothers || !self.rates.resets.take(now) {
            return;
        }
        let reset = ResetBody {
            cookie: head.cookie.into(),
            association: head.association.into(),
            reserved: 0.into(),
            proof: reset_proof(reset_key(self), head.cookie, head.association),
        };
        let body = AnswerBody::Reset(reset);
        let kind = PacketKind::RESET;
        self.push_answer(QueuedAnswer { lane, to: from, kind, association: 0, cookie: 0, body });
    }

    fn push_answer(&mut self, answer: QueuedAnswer) {
        if self.answers.len() < self.answers.capacity() {
            self.answers.push_back(answer);
        }
    }

    /// Writes the oldest queued answer into a packet. Returns `false` if there is none.
    pub(crate) fn answer(&mut self, packet: &mut Packet) -> bool {
        let Some(answer) = self.answers.pop_front() else { return false };
        packet.begin(answer.lane, answer.to, self.settings.packet_bytes);
        packet.append(answer.body.bytes());
        let credits = self.pools.grant(self.associations.taken());
        let head = without_number(answer.kind, (answer.association, answer.cookie), credits);
        let is_sealed = matches!(answer.body, AnswerBody::SealedAccept(_));
        let mark = is_sealed.then(SealSelector::default);
        packet.finish(ParsedHead { mark, ..head }, &self.pools.messages);
        true
    }
}

/// Ends an association on the peer's reset, if the reset is authentic and came by the first path or
/// a verified path. A reset from another address may come from a host that received a probe by
/// mistake and rightly does not know the association.
fn reset_by(endpoint: &mut Endpoint, reset: &ResetBody, (lane, from): (u8, PeerAddress)) {
    let (cookie, theirs) = (reset.cookie.get(), reset.association.get());
    let Some(place) = endpoint.by_peer.get(cookie) else { return };
    let Some(association) = endpoint.associations.get(place) else { return };
    let is_there = |place: u32| {
        let path = &endpoint.pools.paths[place];
        let is_believed = path.is_proven || place == association.paths[0];
        is_believed && (path.lane, path.to) == (lane, from)
    };
    let is_peers = association.peer.place == theirs && association.paths().any(is_there);
    if is_peers && is_reset(reset_key(endpoint), cookie, theirs, &reset.proof) {
        endpoint.associations[place].end(&mut endpoint.pools, AssociationEnd::Reset);
        endpoint.refresh(place);
    }
}

/// Answers a hello: without a valid token by a retry, otherwise by an accept, for which it creates
/// the association. A hello that does not fit is refused. Answers without a valid token are
/// limited, since only a token proves that the sender receives at its address.
fn hello(
    endpoint: &mut Endpoint,
    now: Instant,
    (lane, from): (u8, PeerAddress),
    head: &ParsedHead,
    hello: &PacketHelloBody,
    packet: &[u8],
) {
    let (peer_place, peer_cookie) = (hello.association.get(), hello.cookie.get());
    if peer_cookie == 0 {
        // The cookie of associations whose peer is not known yet.
        endpoint.pools.counters.unknown += 1;
        return;
    }
    let answer = |kind, body| QueuedAnswer {
        lane,
        to: from,
        kind,
        association: peer_place,
        cookie: peer_cookie,
        body,
    };
    let refuse = |reason: u32| {
        let refuse = RefuseBody { reason: reason.into(), reserved: 0.into() };
        answer(PacketKind::REFUSE, AnswerBody::Refuse(refuse))
    };
    let wants = (endpoint.seals.is_some(), head.mark.is_some());
    if wants.0 != wants.1 || !endpoint.secret.knows(now, &from, peer_cookie, &hello.token) {
        if !endpoint.rates.hellos.take(now) {
            endpoint.pools.counters.hellos_dropped += 1;
            return;
        }
        match wants {
            (true, false) => return endpoint.push_answer(refuse(REFUSED_NEEDS_KEY)),
            (false, true) => return endpoint.push_answer(refuse(REFUSED_NO_KEY)),
            _ => {}
        }
        let token = endpoint.secret.token(now, &from, peer_cookie);
        return endpoint.push_answer(answer(PacketKind::RETRY, AnswerBody::Retry(token)));
    }
    if endpoint.by_peer.get(peer_cookie).is_none()
        && let Err(reason) = welcome(endpoint, now, (lane, from), hello, packet)
    {
        return endpoint.push_answer(refuse(reason));
    }
    let Some(place) = endpoint.by_peer.get(peer_cookie) else { return };
    let Some(association) = endpoint.associations.get(place) else { return };
    // Nobody hears the cookie of another's association.
    let is_theirs = association.peer.began_at == from
        && association.peer.place == peer_place
        && association.is_up();
    if !is_theirs {
        endpoint.pools.counters.unknown += 1;
        return;
    }
    let body = match &endpoint.seals {
        None => Some(AnswerBody::Accept(accept_body(endpoint, place))),
        Some(seals) => seals.answer(place).map(AnswerBody::SealedAccept),
    };
    if let Some(body) = body {
        endpoint.push_answer(answer(PacketKind::ACCEPT, body));
    }
}

/// Returns the key that authenticates the resets of an endpoint.
fn reset_key(endpoint: &Endpoint) -> &[u8; 32] {
    endpoint.seals.as_ref().map_or(&RESET_KEY, |seals| &seals.reset_key)
}

/// Returns the body of an accept for an association; `None` if the accept does not come from the
/// peer.
fn accept_of(
    endpoint: &mut Endpoint,
    place: u32,
    head: &ParsedHead,
    packet: &[u8],
) -> Option<AcceptBody> {
    match &mut endpoint.seals {
        None if head.mark.is_none() => body(packet),
        Some(seals) if head.mark.is_some() => {
            seals.accepted(place, packet[HEAD_BYTES..].get(..ACCEPT_SEAL_BYTES)?)
        }
        _ => None,
    }
}

/// Returns the body of the accept by which this end grants an association.
fn accept_body(endpoint: &Endpoint, place: u32) -> AcceptBody {
    let association = &endpoint.associations[place];
    let further = endpoint.pools.gate.peer_addresses.iter().flatten().skip(1).count() as u16;
    AcceptBody {
        association: (u32::from(endpoint.settings.worker) << 24 | place).into(),
        packet_bytes: association.packet_bytes.into(),
        addresses: further.into(),
        cookie: association.cookie.into(),
    }
}

/// Creates an association for a hello with a valid token. Above the rate limit it creates none, and
/// the peer has to say hello again.
///
/// # Errors
/// The reason of a refusal, one of `REFUSED_…`: there is no room, or the peer has another key.
fn welcome(
    endpoint: &mut Endpoint,
    now: Instant,
    (lane, from): (u8, PeerAddress),
    hello: &PacketHelloBody,
    packet: &[u8],
) -> Result<(), u32> {
    let network = from.network();
    let theirs = endpoint.by_network.get(network).unwrap_or(0);
    if theirs as usize >= share(endpoint.settings.associations_max) {
        return Err(REFUSED_FULL);
    }
    let answering = match &mut endpoint.seals {
        None => None,
        Some(seals) => {
            let message = &packet[HEAD_BYTES + size_of::<PacketHelloBody>()..][..HELLO_SEAL_BYTES];
            Some(seals.hear(hello, message).ok_or(REFUSED_OTHER_KEY)?)
        }
    };
    let bytes = endpoint.settings.packet_bytes.min(usize::from(hello.packet_bytes.get()));
    let bytes = bytes.max(HELLO_BYTES);
    if !endpoint.rates.welcomes.take(now) {
        // The peer says hello again.
        endpoint.pools.counters.hellos_dropped += 1;
        return Ok(());
    }
    let place = endpoint.admit(now, State::Half, (lane, from), bytes).ok_or(REFUSED_FULL)?;
    let accept = accept_body(endpoint, place);
    if let (Some(seals), Some(answering)) = (&mut endpoint.seals, answering) {
        seals.accept(place, answering, &accept);
    }
    let association = &mut endpoint.associations[place];
    association.peer.place = hello.association.get();
    association.peer.cookie = hello.cookie.get();
    endpoint.by_peer.insert(association.peer.cookie, place);
    endpoint.by_network.insert(network, theirs + 1);
    endpoint.refresh(place);
    Ok(())
}

/// Removes an ended association from the indices by peer and by address.
pub(crate) fn forget(endpoint: &mut Endpoint, place: u32, association: &Association) {
    if endpoint.by_peer.get(association.peer.cookie) == Some(place) {
        endpoint.by_peer.remove(association.peer.cookie);
    }
    if association.words.is_initiator {
        return;
    }
    let network = association.peer.began_at.network();
    match endpoint.by_network.get(network) {
        Some(others @ 2..) => endpoint.by_network.insert(network, others - 1),
        _ => endpoint.by_network.remove(network),
    }
}

/// Writes the hello of an association into a packet. Returns `false` if none is due.
pub(crate) fn greet(
    endpoint: &mut Endpoint,
    now: Instant,
    place: u32,
    packet: &mut Packet,
) -> bool {
    let association = &mut endpoint.associations[place];
    let Some(token) = association.hello(now) else { return false };
    let path = &endpoint.pools.paths[association.paths[0]];
    packet.begin(path.lane, path.to, endpoint.settings.packet_bytes);
    packet.append(hello_of(endpoint, place, token).as_bytes());
    let message = endpoint.seals.as_ref().and_then(|seals| seals.message(place));
    message.into_iter().for_each(|message| packet.append(message));
    packet.pad(HELLO_BYTES);
    let credits = endpoint.pools.grant(endpoint.associations.taken());
    let head = without_number(PacketKind::HELLO, (0, 0), credits);
    let mark = message.map(|_| SealSelector::default());
    packet.finish(ParsedHead { mark, ..head }, &endpoint.pools.messages);
    true
}

/// Returns the body of an association's hello.
pub(crate) fn hello_of(endpoint: &Endpoint, place: u32, token: RetryBody) -> PacketHelloBody {
    PacketHelloBody {
        association: (u32::from(endpoint.settings.worker) << 24 | place).into(),
        packet_bytes: (endpoint.settings.packet_bytes as u16).into(),
        reserved: 0.into(),
        cookie: endpoint.associations[place].cookie.into(),
        token,
    }
}

/// Writes a reset that tells a peer that its association is over, for the first association that is
/// up at or above index `at`. Moves `at` past the association. Returns `false` if no such
/// association is left.
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
            let mut paths = association.paths().map(|path| &endpoint.pools.paths[path]);
            let first = &endpoint.pools.paths[association.paths[0]];
            let path = paths.find(|path| path.is_proven).unwrap_or(first);
            (path.lane, path.to)
        };
        let reset = ResetBody {
            cookie: association.cookie.into(),
            association: ours.into(),
            reserved: 0.into(),
            proof: reset_proof(reset_key(endpoint), association.cookie, ours),
        };
        packet.set_sealed(false);
        packet.begin(lane, to, endpoint.settings.packet_bytes);
        packet.append(reset.as_bytes());
        // The number, so that it comes to the peer's worker.
        let head = without_number(PacketKind::RESET, (association.peer.place, 0), 0);
        packet.finish(head, &endpoint.pools.messages);
        return true;
    }
    false
}

/// Returns the head of a packet that belongs to no path, and so has no packet number.
fn without_number(kind: PacketKind, (association, cookie): (u32, u64), credits: u16) -> ParsedHead {
    ParsedHead {
        kind,
        ack_now: false,
        echo: false,
        bytes: 0,
        association,
        cookie,
        number: 0,
        ack: None,
        credits,
        mark: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_limited() {
        let mut rate = AnswerRates::default().hellos;
        let now = Instant::ZERO + Duration::from_secs(1);
        assert_eq!((0..1000).filter(|_| rate.take(now)).count(), 64);
        let later = now + Duration::from_millis(1);
        assert_eq!((0..1000).filter(|_| rate.take(later)).count(), 10);
    }
}
