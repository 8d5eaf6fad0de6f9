//! Probes of paths: whether the peer receives at a station, and packets of which size.
//!
//! A probe carries a number that nobody can guess, and the peer returns it: so a station that was
//! not proven cannot be made to receive anything but as many bytes as it sent (RFC 9000, section
//! 8.2). A probe is as large as the packets that are hoped for: a path that swallows large packets
//! is found before messages are in them (RFC 8899).

use core::time::Duration;

use contract::Instant;
use wire::packets::{HELLO_BYTES, PacketKind, ProbeBody};
use zerocopy::{FromBytes, IntoBytes};

use crate::association::{Association, PATHS_MAX};
use crate::head::{HEAD_BYTES, Head};
use crate::loss::Landed;
use crate::packet::Packet;
use crate::path::Path;
use crate::pools::Pools;
use crate::sent::Fate;
use crate::slab::NONE;

/// The size of the packets that every path has to carry.
pub(crate) const LEAST_BYTES: u16 = HELLO_BYTES as u16;

/// The size that is tried when the full one gets no answer: what most of the Internet carries.
const COMMON_BYTES: u16 = 1400;

/// Probes of one size without an answer.
const TRIES_EACH: u8 = 3;

/// The pauses between probes of a path that does not answer.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The pause before a path that fell silent is probed again.
const PAUSE_SILENT: Duration = Duration::from_secs(1);

/// The proof of a path that is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proof {
    /// The number that we wait for; zero when nothing is asked.
    challenge: u64,
    /// The number that we owe the peer; zero without one.
    echo: u64,
    /// When the next probe leaves by itself.
    pub next: Option<Instant>,
    /// The size of the probes.
    bytes: u16,
    tries: u8,
}

impl Proof {
    /// Begins to ask, `pause` from now, whether packets of `bytes` bytes arrive.
    pub(crate) fn ask(&mut self, challenge: u64, bytes: u16, at: Option<Instant>) {
        (self.challenge, self.bytes, self.next, self.tries) = (challenge, bytes, at, 0);
    }

    /// Returns `true` if a probe has to leave now.
    fn is_due(&self, now: Instant) -> bool {
        self.echo != 0 || self.challenge != 0 && self.next.is_some_and(|at| at <= now)
    }

    /// Plans the probe after this one: smaller, and later.
    fn retry(&mut self, now: Instant) {
        if self.next.is_none_or(|at| at > now) {
            return;
        }
        self.tries = self.tries.saturating_add(1);
        let pause = PAUSE_FIRST * (1 << self.tries.min(11));
        self.next = Some(now + pause.min(PAUSE_MAX));
        self.bytes = match self.tries / TRIES_EACH {
            0 => self.bytes,
            1 => self.bytes.min(COMMON_BYTES),
            _ => LEAST_BYTES,
        };
    }
}

impl Association {
    /// Adds a path and asks whether it carries full packets. Returns `false` without room.
    pub(crate) fn add_path(&mut self, pools: &mut Pools, mut path: Path, ask: Proof) -> bool {
        let count = self.paths().count();
        if count == PATHS_MAX || pools.paths.free() == 0 {
            return false;
        }
        path.proof = ask;
        self.paths[count] = pools.paths.take(path).expect("there is a free path");
        true
    }

    /// Follows a probe of the peer.
    pub(crate) fn probed(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        head: &Head,
        packet: &[u8],
        (place, challenge): (u32, u64),
    ) {
        let Ok((body, _)) = ProbeBody::read_from_prefix(&packet[HEAD_BYTES..]) else { return };
        let path = &mut pools.paths[place];
        let number = path.seen.complete(head.number, 32);
        if path.seen.has(number) {
            pools.counters.repeated += 1;
            return;
        }
        path.arrived(now, number, false, false);
        path.proof.echo = body.challenge.get();
        let bytes = packet.len().min(usize::from(self.packet_bytes)) as u16;
        if !path.is_proven && path.proof.challenge == 0 {
            path.proof.ask(challenge, bytes, None);
        } else if !path.is_proven && path.proof.next.is_none() {
            // Nobody gets more bytes than it sent.
            path.proof.bytes = bytes;
        }
        let echo = body.echo.get();
        if echo != 0 && echo == path.proof.challenge {
            path.bytes = path.proof.bytes.clamp(LEAST_BYTES, self.packet_bytes);
            path.rtt.forget_least();
            path.control.restart();
            (path.is_proven, path.probes) = (true, 0);
            path.proof.ask(0, 0, None);
        }
        self.heard(pools, now, head, place);
    }

    /// Makes the packet of a probe that is due. Returns `false` if none is.
    pub(crate) fn prove(
        &mut self,
        pools: &mut Pools,
        now: Instant,
        credits: u16,
        packet: &mut Packet,
    ) -> bool {
        let due = |path: &u32| pools.paths[*path].proof.is_due(now);
        let Some(place) = self.paths().find(due) else { return false };
        let path = &mut pools.paths[place];
        let challenge = path.proof.challenge;
        let echo = core::mem::take(&mut path.proof.echo);
        packet.begin(path.lane, path.to, usize::from(self.packet_bytes));
        let body = ProbeBody { challenge: challenge.into(), echo: echo.into() };
        packet.append(body.as_bytes());
        if challenge != 0 {
            packet.pad(usize::from(path.proof.bytes.min(self.packet_bytes)));
        }
        path.proof.retry(now);
        self.finish(pools, now, (place, credits), packet, (PacketKind::PROBE, false));
        true
    }

    /// Leaves a path that fell silent while others are alive: its pieces travel by them at once,
    /// and it is probed now and then.
    pub(crate) fn distrust(&mut self, pools: &mut Pools, now: Instant, place: u32, challenge: u64) {
        let path = &mut pools.paths[place];
        path.is_proven = false;
        path.probes_now = false;
        path.proof.ask(challenge, self.packet_bytes, Some(now + PAUSE_SILENT));
        let landed = lose_all(pools, place);
        self.land(pools, landed);
    }

    /// Goes back to packets that every path carries: full ones may be swallowed.
    pub(crate) fn shrink(&mut self, pools: &mut Pools, now: Instant, place: u32, challenge: u64) {
        let path = &mut pools.paths[place];
        path.bytes = LEAST_BYTES;
        path.rtt.forget_least();
        path.proof.ask(challenge, self.packet_bytes, Some(now + PAUSE_SILENT));
    }
}

/// Counts everything in flight on a path as lost.
pub(crate) fn lose_all(pools: &mut Pools, place: u32) -> Landed {
    let mut landed = Landed::NOTHING;
    let path = &mut pools.paths[place];
    if path.window == NONE {
        return landed;
    }
    let window = &mut pools.windows[path.window];
    for number in path.oldest..path.next {
        if window.get(number).is_some_and(|sent| sent.fate == Fate::InFlight) {
            path.lose(number, window, &mut pools.pieces, &mut landed);
        }
    }
    landed
}
