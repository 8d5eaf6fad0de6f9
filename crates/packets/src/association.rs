//! An association: the protocol state that a worker and a peer process share, for any number of
//! channels.
//!
//! This file has its state, its timers and its paths. `hear.rs` reads the packets that arrive,
//! `speak.rs` writes outgoing packets, `words.rs` has the channels' messages.

use core::time::Duration;

use contract::Instant;
use wire::packets::RetryBody;

use crate::channel::Channel;
use crate::credits;
use crate::event::{AssociationEnd, AssociationId};
use crate::loss::SettledPieces;
use crate::path::{DISTRUST_PROBES, Path};
use crate::peer_address::PeerAddress;
use crate::pools::Pools;
use crate::proof::{LEAST_BYTES, PAUSE_SHRUNK, PathProbes};
use crate::secret::Secret;
use crate::slab::{Linked, NONE};
use crate::window::SeenNumbers;
use crate::words::PendingRecords;

/// Maximum number of paths of an association.
pub const PATHS_MAX: usize = 8;

/// The time after which a peer counts as dead if it leaves a hello or a request for an
/// acknowledgement unanswered.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(5);

/// The silence of a peer after which a keep-alive packet is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The silence of the peer after which the end that dialled asks whether it is there, since a
/// killed server says nothing. The time doubles with each question, up to [`KEEP_ALIVE`], and a
/// message of this end resets it.
const ASK_AFTER: Duration = Duration::from_millis(50);

/// The time without a channel after which an association ends at the end that opened it.
const IDLE_OPENER: Duration = Duration::from_secs(5);

/// The time without a channel after which an association ends at the end that accepted it. It is
/// longer than [`IDLE_OPENER`], so that a new channel seldom meets the end of its association.
const IDLE_ACCEPTOR: Duration = Duration::from_secs(10);

/// The pause before a hello is repeated. From the third on it doubles each time, up to a second.
const HELLO_PAUSE: Duration = Duration::from_millis(20);

/// The number of pauses between hellos before they become longer: a server that starts answers 64
/// clients at once, and the others with their next hello.
const HELLOS_IN_A_ROW: u8 = 2;

/// The state of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The local end sends hellos. The peer's accept or refusal ends the state.
    Greeting { token: RetryBody, tries: u8, next: Instant },
    /// The local end has accepted the association. The first packet with the local cookie ends the
    /// state.
    Half,
    /// Both ends know each other's number and cookie.
    Up,
    /// The association is over; `Event::Down` follows the end of the last channel.
    Over(AssociationEnd),
}

/// The other end of an association.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The random number that the peer drew, which packets to the peer carry; zero until it is
    /// known.
    pub cookie: u64,
    /// The number that the peer gave to the association.
    pub place: u32,
    /// The address with which the association began. The peer has the rights of its address,
    /// whatever address it moves to.
    pub began_at: PeerAddress,
}

/// An association: the state that this end shares with a peer process, for all channels between
/// them.
pub(crate) struct Association {
    pub state: State,
    /// The random number that this end drew, which packets from the peer have to carry.
    pub cookie: u64,
    pub peer: Peer,
    /// The association's index in the table of this end.
    pub place: u32,
    pub generation: u32,
    pub next: u32,
    /// The largest packet that both ends receive, in bytes.
    pub packet_bytes: u16,
    /// The number of packets that may be outstanding to the peer.
    pub credits: u16,
    /// The number of packets in flight on all paths.
    pub in_flight: u16,
    /// The indices of the paths in the table of paths; [`NONE`] after the last.
    pub paths: [u32; PATHS_MAX],
    pub words: PendingRecords,
    /// Serial numbers of channels that the peer opened.
    pub opened: SeenNumbers,
    /// The time since which the peer has left a hello or a request for an acknowledgement
    /// unanswered; `None` if there is none.
    pub waits_since: Option<Instant>,
    /// The time at which the last packet of the peer arrived.
    pub heard_at: Instant,
    /// `true` if the association is in the queue of those with something to send.
    pub is_busy: bool,
}

const _: () = assert!(size_of::<Option<Association>>() <= 512);

impl Linked for Association {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Association {
    pub(crate) fn new(state: State, cookie: u64, now: Instant, peer: PeerAddress) -> Association {
        Association {
            words: PendingRecords::new(matches!(state, State::Greeting { .. })),
            state,
            cookie,
            peer: Peer { cookie: 0, place: 0, began_at: peer },
            place: NONE,
            generation: 0,
            next: NONE,
            packet_bytes: LEAST_BYTES,
            credits: credits::LEAST,
            in_flight: 0,
            paths: [NONE; PATHS_MAX],
            opened: SeenNumbers::default(),
            waits_since: Some(now),
            heard_at: now,
            is_busy: false,
        }
    }

    /// Returns the identifier of the association.
    pub(crate) fn id(&self) -> AssociationId {
        AssociationId { index: self.place, generation: self.generation }
    }

    /// Returns the places of the association's paths in the table of paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = u32> + Clone + use<> {
        self.paths.into_iter().take_while(|path| *path != NONE)
    }

    /// Returns `true` if this end may send packets with records.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up | State::Half)
    }

    /// Ends the association and all of its channels. The association is removed after the last of
    /// its channels.
    pub(crate) fn end(&mut self, pools: &mut Pools, why: AssociationEnd) {
        if matches!(self.state, State::Over(_)) {
            return;
        }
        self.state = State::Over(why);
        for path in self.paths() {
            let mut landed = pools.lose_all(path);
            while let Some(piece) = landed.lost.pop(&mut pools.pieces) {
                pools.discard(piece);
            }
        }
        self.in_flight = 0;
        self.words.clear(pools);
        let reason = why.reason();
        let mut left = pools.channels_of[self.place as usize];
        for place in 0..pools.channels.max() as u32 {
            if left == 0 {
                break;
            }
            let ours = |channel: &Channel| channel.association == self.place;
            if pools.channels.get(place).is_some_and(ours) {
                left -= 1;
                self.words.leave(pools, place, reason, true);
            }
        }
    }

    /// Does the association's work that is due: losses by age, probes, pings, and the end of the
    /// association if its peer is silent or it has had no channel for too long.
    pub(crate) fn on_time(&mut self, pools: &mut Pools, now: Instant, secret: &mut Secret) {
        if self.waits_since.is_some_and(|since| now - since >= DEAD_AFTER) {
            return self.end(pools, AssociationEnd::Silent);
        }
        let is_idle = pools.channels_of[self.place as usize] == 0;
        if is_idle && self.idle_until().is_some_and(|at| at <= now) {
            return self.end(pools, AssociationEnd::Idle);
        }
        let mut has_asked = false;
        for place in self.paths() {
            let path = &mut pools.paths[place];
            if path.flight.window == NONE {
                continue;
            }
            let window = &mut pools.windows[path.flight.window];
            let mut landed = SettledPieces::NOTHING;
            if path.flight.loss_at.is_some_and(|at| at <= now) {
                path.detect_losses(now, window, &mut pools.pieces, &mut landed);
            }
            let mut is_lone = false;
            if path.probe_at().is_some_and(|at| at <= now) {
                // A peer that is silent on all paths is slow, or gone; the paths are not to blame.
                is_lone = self.heard_at > path.flight.asked_at;
                has_asked = true;
                path.probe(now, window, &mut pools.pieces, &mut landed);
            }
            let (probes, swallows) = (path.flight.probes, path.swallows());
            self.land(pools, landed);
            let is_proven = |path: u32| pools.paths[path].is_proven;
            let has_others = self.paths().any(|path| path != place && is_proven(path));
            if is_lone && probes >= DISTRUST_PROBES && is_proven(place) && has_others {
                self.distrust(pools, now, place, secret.cookie());
            } else if swallows {
                self.shrink(pools, now, place, secret.cookie());
            }
        }
        if has_asked {
            hurry(self.paths(), pools, now);
        }
        if self.is_up() && now - self.heard_at >= self.patience() && self.waits_since.is_none() {
            self.words.pings = true;
            self.words.asked = self.words.asked.saturating_add(1);
        }
    }

    /// Returns the time of silence after which the local end asks the peer for a sign of life.
    fn patience(&self) -> Duration {
        match self.words.is_initiator {
            true => (ASK_AFTER * (1 << self.words.asked.min(9))).min(KEEP_ALIVE),
            false => KEEP_ALIVE,
        }
    }

    /// Returns the time at which the association ends for lack of a channel; `None` if it has one,
    /// or is not up.
    fn idle_until(&self) -> Option<Instant> {
        let limit = if self.words.is_initiator { IDLE_OPENER } else { IDLE_ACCEPTOR };
        self.words.idle_since.filter(|_| self.is_up()).map(|since| since + limit)
    }

    /// Returns the time of the association's next timed work; `None` if it is over.
    pub(crate) fn wake_at(&self, pools: &Pools, now: Instant) -> Option<Instant> {
        let dead = self.waits_since.map(|since| since + DEAD_AFTER);
        match self.state {
            State::Over(_) => None,
            State::Greeting { next, .. } => [Some(next), dead].into_iter().flatten().min(),
            State::Half | State::Up => {
                let paths = self.paths().map(|path| &pools.paths[path]);
                let has_words = self.words.are_any();
                let times = paths.map(|path| {
                    let paced = has_words.then_some(path.paced_until);
                    let paced = paced.filter(|at| *at > now);
                    [path.wake_at(), paced].into_iter().flatten().min()
                });
                let is_quiet = self.waits_since.is_none() && !self.words.pings;
                let alive = is_quiet.then(|| self.heard_at + self.patience());
                times.chain([dead, alive, self.idle_until()]).flatten().min()
            }
        }
    }

    /// Returns the token for the hello that is due, if any, and schedules the hello after it.
    pub(crate) fn hello(&mut self, now: Instant) -> Option<RetryBody> {
        let State::Greeting { token, tries, next } = self.state else { return None };
        if now < next {
            return None;
        }
        let doublings = tries.saturating_sub(HELLOS_IN_A_ROW).min(6);
        let pause = (HELLO_PAUSE * (1 << doublings)).min(Duration::from_secs(1));
        let tries = tries.saturating_add(1);
        self.state = State::Greeting { token, tries, next: now + pause };
        Some(token)
    }

    /// Adds a path, whose probe is chosen by `ask`. Returns `false` if the association has
    /// [`PATHS_MAX`] paths, or the table of paths is full.
    pub(crate) fn add_path(&mut self, pools: &mut Pools, mut path: Path, ask: PathProbes) -> bool {
        let count = self.paths().count();
        if count == PATHS_MAX || pools.paths.free() == 0 {
            return false;
        }
        path.proof = ask;
        self.paths[count] = pools.paths.take(path).expect("there is a free path");
        true
    }

    /// Stops using a path that fell silent while the association has others. The message pieces in
    /// flight on the path are sent again by other paths, and the path is probed now and then.
    pub(crate) fn distrust(&mut self, pools: &mut Pools, now: Instant, place: u32, challenge: u64) {
        pools.counters.paths_left += 1;
        let path = &mut pools.paths[place];
        path.is_proven = false;
        path.flight.probes_now = false;
        path.proof.ask_patiently(challenge, now);
        let landed = pools.lose_all(place);
        self.land(pools, landed);
    }

    /// Makes the packets of a path as small as every path carries, since full packets may be lost
    /// on the way. The path is probed for full packets later.
    pub(crate) fn shrink(&mut self, pools: &mut Pools, now: Instant, place: u32, challenge: u64) {
        let path = &mut pools.paths[place];
        path.bytes = LEAST_BYTES;
        path.flight.swallowed = 0;
        path.rtt.forget_least();
        path.proof.ask(challenge, self.packet_bytes, Some(now + PAUSE_SHRUNK));
    }
}

/// Makes the next probes of abandoned paths due now if no path answers: an abandoned path may carry
/// packets again, and its next probe may be 30 s away.
fn hurry(paths: impl Iterator<Item = u32> + Clone, pools: &mut Pools, now: Instant) {
    if paths.clone().any(|path| pools.paths[path].answers()) {
        return;
    }
    for place in paths {
        let path = &mut pools.paths[place];
        if !path.is_proven && !path.proof.is_claim {
            path.proof.hurry(now);
        }
    }
}
