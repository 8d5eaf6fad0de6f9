//! An association: what a worker and a peer process share, for any number of channels.
//!
//! This file has its state, its clock and its channels. `hear.rs` reads the packets that arrive,
//! `speak.rs` makes those that leave.

use core::time::Duration;

use contract::{Frame, Instant};
use wire::packets::RetryBody;

use crate::channel::{Owed, State as ChannelState, Why};
use crate::event::{AssociationId, Down};
use crate::flags::Flags;
use crate::loss::Landed;
use crate::message::Message;
use crate::path::{DISTRUST_PROBES, SHRINK_PROBES};
use crate::piece::Kind;
use crate::pools::Pools;
use crate::prove::{LEAST_BYTES, lose_all};
use crate::secret::Secret;
use crate::slab::{Linked, NONE, Queue};
use crate::window::Seen;

/// Paths of an association.
pub const PATHS_MAX: usize = 8;

/// A peer that answers nothing for so long is dead.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(5);

/// A peer that says nothing for so long is asked whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The pause before a hello is repeated; doubled each time, up to a second.
const HELLO_PAUSE: Duration = Duration::from_millis(20);

/// Opens that may be unacknowledged: the acceptor remembers twice as many.
const OPENS_MAX: u64 = 128;

/// The state of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// We say hello. The peer's accept ends this state, or its refusal.
    Greeting { token: RetryBody, tries: u8, next: Instant },
    /// We accepted. The first packet with our cookie ends this state.
    Half,
    /// Both ends know each other.
    Up,
    /// Over; `Event::Down` follows the end of the last channel.
    Over(Down),
}

/// What a worker and a peer process share.
pub(crate) struct Association {
    pub state: State,
    /// Our random number, and the peer's.
    pub cookie: u64,
    pub peer_cookie: u64,
    /// The peer's number for the association.
    pub peer_place: u32,
    /// Our place in the table.
    pub place: u32,
    pub generation: u32,
    pub next: u32,
    /// The largest packet that both ends receive.
    pub packet_bytes: u16,
    /// Packets that may be outstanding to the peer.
    pub credits: u16,
    pub in_flight: u16,
    pub paths: [u32; PATHS_MAX],
    /// Channels with something to say.
    pub speakers: Queue,
    /// Pieces to be sent again.
    pub lost: Queue,
    /// Serial numbers of channels that the peer opened.
    pub opened: Seen,
    /// Serial numbers of ours: those from `opens_base` on, and which of them the peer has.
    opens: Flags,
    opens_base: u64,
    opens_next: u64,
    /// Since when the peer has been silent although it was asked something.
    pub waits_since: Option<Instant>,
    pub heard_at: Instant,
    /// A ping has to leave.
    pub pings: bool,
    /// The association stands in the queue of those with something to send.
    pub is_busy: bool,
    /// We opened the association: channels are ours to open.
    pub is_initiator: bool,
}

const _: () = assert!(size_of::<Option<Association>>() <= 512);

impl Linked for Association {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Association {
    pub(crate) fn new(state: State, cookie: u64, now: Instant, packet_bytes: u16) -> Association {
        Association {
            is_initiator: matches!(state, State::Greeting { .. }),
            state,
            cookie,
            peer_cookie: 0,
            peer_place: 0,
            place: NONE,
            generation: 0,
            next: NONE,
            packet_bytes,
            credits: crate::credits::LEAST,
            in_flight: 0,
            paths: [NONE; PATHS_MAX],
            speakers: Queue::EMPTY,
            lost: Queue::EMPTY,
            opened: Seen::default(),
            opens: Flags::NONE,
            opens_base: 0,
            opens_next: 0,
            waits_since: Some(now),
            heard_at: now,
            pings: false,
            is_busy: false,
        }
    }

    /// Returns the identifier of the association.
    pub(crate) fn id(&self) -> AssociationId {
        AssociationId { index: self.place, generation: self.generation }
    }

    /// Returns the places of the paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = u32> + use<> {
        self.paths.into_iter().take_while(|path| *path != NONE)
    }

    /// Returns `true` if packets may carry records.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up | State::Half)
    }

    /// Opens a channel, or returns `None` if there is no room for one now.
    pub(crate) fn connect(&mut self, pools: &mut Pools) -> Option<u32> {
        let is_able = self.is_initiator && !matches!(self.state, State::Over(_));
        if !is_able || pools.messages.free() == 0 {
            return None;
        }
        // A name that is in use is passed over.
        while pools.find(self.place, self.opens_next as u16).is_some() {
            if self.opens_next - self.opens_base >= OPENS_MAX {
                return None;
            }
            self.opens_next += 1;
            self.opened_by_peer(self.opens_next - 1);
        }
        if self.opens_next - self.opens_base >= OPENS_MAX {
            return None;
        }
        let place = pools.make(self.place, self.opens_next as u32, ChannelState::Opening)?;
        self.opens_next += 1;
        self.queue(pools, place, Kind::Open, bare_frame(), true);
        Some(place)
    }

    /// Notes that the peer has an open of ours, or never will need it.
    fn opened_by_peer(&mut self, serial: u64) {
        if let Some(ahead) = serial.checked_sub(self.opens_base) {
            self.opens.set(ahead as u32);
            self.opens_base += u64::from(self.opens.pass());
        }
    }

    /// Notes the acknowledgement of an open by the lower half of its serial number.
    pub(crate) fn open_acknowledged(&mut self, serial: u32) {
        let ahead = serial.wrapping_sub(self.opens_base as u32);
        if u64::from(ahead) < OPENS_MAX {
            self.opened_by_peer(self.opens_base + u64::from(ahead));
        }
    }

    /// Queues a message of a channel. The table of messages has room.
    pub(crate) fn queue(
        &mut self,
        pools: &mut Pools,
        place: u32,
        kind: Kind,
        frame: Frame,
        strict: bool,
    ) {
        let message = pools.messages.take(Message::new(place, frame, kind, strict));
        let message = message.expect("there is room for a message");
        let channel = &mut pools.channels[place];
        channel.out.unsent += pools.messages[message].bytes;
        channel.messages += 1;
        channel.out.queue.push(&mut pools.messages, message);
        self.speak(pools, place);
    }

    /// Puts a channel into the queue of speakers if it has something to say.
    pub(crate) fn speak(&mut self, pools: &mut Pools, place: u32) {
        let channel = &pools.channels[place];
        let front = channel.out.queue.front();
        let is_begun = front.is_some_and(|front| pools.messages[front].cut > 0);
        if !channel.speaks && channel.has_words(is_begun) {
            pools.channels[place].speaks = true;
            self.speakers.push(&mut pools.channels, place);
        }
    }

    /// Ends a channel at once. The peer hears it by a reset, unless it has never heard of the
    /// channel or has ended it itself.
    pub(crate) fn leave(&mut self, pools: &mut Pools, place: u32, why: Why, peer_left: bool) {
        if pools.channels[place].is_over() && !peer_left {
            return;
        }
        let why = match pools.channels[place].state {
            ChannelState::Leaving(earlier) | ChannelState::Gone(earlier) => earlier,
            _ => why,
        };
        // Set before words are dropped: the last message must not end the channel under our feet.
        pools.channels[place].state = ChannelState::Leaving(why);
        let serial = pools.channels[place].serial;
        let was_opening = pools.drop_words(place);
        if was_opening {
            self.open_acknowledged(serial);
        }
        let channel = &mut pools.channels[place];
        if peer_left || was_opening {
            channel.owed = Owed::Nothing;
            channel.state = ChannelState::Gone(why);
            pools.release(place);
        } else {
            channel.owed = Owed::Reset;
            self.speak(pools, place);
        }
    }

    /// Stops or resumes the delivery of a channel, and tells the peer.
    pub(crate) fn pause(&mut self, pools: &mut Pools, place: u32, pause: bool) {
        let channel = &mut pools.channels[place];
        if channel.is_over() || channel.incoming.is_paused == pause {
            return;
        }
        channel.incoming.is_paused = pause;
        channel.stops = channel.stops.wrapping_add(1);
        channel.owed = if pause { Owed::Stop } else { Owed::Go };
        self.speak(pools, place);
    }

    /// Ends the association: its channels end, and it is removed when they are gone.
    pub(crate) fn end(&mut self, pools: &mut Pools, why: Down) {
        if matches!(self.state, State::Over(_)) {
            return;
        }
        self.state = State::Over(why);
        for path in self.paths() {
            let mut landed = lose_all(pools, path);
            while let Some(piece) = landed.lost.pop(&mut pools.pieces) {
                self.discard(pools, piece);
            }
        }
        self.in_flight = 0;
        while let Some(piece) = self.lost.pop(&mut pools.pieces) {
            self.discard(pools, piece);
        }
        while let Some(place) = self.speakers.pop(&mut pools.channels) {
            pools.channels[place].speaks = false;
        }
        let reason = if why == Down::Local { Why::Local } else { Why::Lost };
        let mut left = pools.channels_of[self.place as usize];
        for place in 0..pools.channels.max() as u32 {
            if left == 0 {
                break;
            }
            let ours = |channel: &crate::channel::Channel| channel.association == self.place;
            if pools.channels.get(place).is_some_and(ours) {
                left -= 1;
                self.leave(pools, place, reason, true);
            }
        }
    }

    /// Frees a piece that is not sent again.
    pub(crate) fn discard(&mut self, pools: &mut Pools, piece: u32) {
        let message = pools.pieces.give(piece).message;
        if message != NONE {
            pools.messages[message].pieces -= 1;
            pools.settle(message);
        }
    }

    /// Does what is due: losses by age, probes, pings, hellos, the end of silence.
    pub(crate) fn on_time(&mut self, pools: &mut Pools, now: Instant, secret: &mut Secret) {
        if self.waits_since.is_some_and(|since| now - since >= DEAD_AFTER) {
            return self.end(pools, Down::Silent);
        }
        for place in self.paths() {
            let path = &mut pools.paths[place];
            if path.window == NONE {
                continue;
            }
            let window = &mut pools.windows[path.window];
            let mut landed = Landed::NOTHING;
            if path.loss_at.is_some_and(|at| at <= now) {
                path.detect_losses(now, window, &mut pools.pieces, &mut landed);
            }
            if path.probe_at().is_some_and(|at| at <= now) {
                path.probe(now, window, &mut pools.pieces, &mut landed);
            }
            let (probes, bytes) = (path.probes, path.bytes);
            self.land(pools, landed);
            let is_proven = |path: u32| pools.paths[path].is_proven;
            let has_others = self.paths().any(|path| path != place && is_proven(path));
            if probes >= DISTRUST_PROBES && is_proven(place) && has_others {
                self.distrust(pools, now, place, secret.cookie());
            } else if probes >= SHRINK_PROBES && bytes > LEAST_BYTES {
                self.shrink(pools, now, place, secret.cookie());
            }
        }
        if self.is_up() && now - self.heard_at >= KEEP_ALIVE && self.waits_since.is_none() {
            self.pings = true;
        }
    }

    /// Returns when the association needs attention next.
    pub(crate) fn wake_at(&self, pools: &Pools, now: Instant) -> Option<Instant> {
        let dead = self.waits_since.map(|since| since + DEAD_AFTER);
        match self.state {
            State::Over(_) => None,
            State::Greeting { next, .. } => [Some(next), dead].into_iter().flatten().min(),
            State::Half | State::Up => {
                let paths = self.paths().map(|path| &pools.paths[path]);
                let has_words = self.has_words();
                let times = paths.map(|path| {
                    let paced = has_words.then_some(path.paced_until);
                    let paced = paced.filter(|at| *at > now);
                    [path.wake_at(), paced].into_iter().flatten().min()
                });
                let is_quiet = self.waits_since.is_none() && !self.pings;
                let alive = is_quiet.then(|| self.heard_at + KEEP_ALIVE);
                times.chain([dead, alive]).flatten().min()
            }
        }
    }

    /// Returns `true` if something but an acknowledgement has to be sent.
    pub(crate) fn has_words(&self) -> bool {
        self.pings || !self.lost.is_empty() || !self.speakers.is_empty()
    }

    /// Returns the token of the next hello, if one is due, and plans the one after it.
    pub(crate) fn hello(&mut self, now: Instant) -> Option<RetryBody> {
        let State::Greeting { token, tries, next } = self.state else { return None };
        if now < next {
            return None;
        }
        let pause = (HELLO_PAUSE * (1 << tries.min(6))).min(Duration::from_secs(1));
        let tries = tries.saturating_add(1);
        self.state = State::Greeting { token, tries, next: now + pause };
        Some(token)
    }
}

/// Returns a frame without bytes.
pub(crate) fn bare_frame() -> Frame {
    Frame::bare(contract::FrameHead::new(&[]))
}
