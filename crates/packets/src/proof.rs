//! Probes of paths: whether the peer receives at an address, and packets of which size.
//!
//! A probe carries a number that nobody can guess, and the peer returns it: so an address that was
//! not proven cannot be made to receive anything but as many bytes as it sent (RFC 9000, section
//! 8.2). A probe is as large as the packets that are hoped for: a path that swallows large packets
//! is found before messages are in them (RFC 8899).

use core::time::Duration;

use contract::Instant;
use wire::packets::HELLO_BYTES;

/// The smallest size that a path must carry, in bytes: the size of a hello.
pub(crate) const LEAST_BYTES: u16 = HELLO_BYTES as u16;

/// The size in bytes that is probed when the full size gets no answer: most paths of the Internet
/// carry it.
const COMMON_BYTES: u16 = 1400;

/// Number of unanswered probes of one size after which a smaller size is probed.
const TRIES_EACH: u8 = 3;

/// The pause after unanswered probe n is this times 2ⁿ, up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_micros(1_000_000 >> PATIENT_TRIES);

/// The number of probes after which the pause is a second, with which the probes of a path that
/// fell silent begin.
const PATIENT_TRIES: u8 = 6;

/// Number of unanswered probes after which a path that never answered is given up (RFC 9000,
/// section 8.2.4): about a minute and a half.
const FIRST_TRIES: u8 = 12;

/// The longest pause between unanswered probes of a path.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The pause before a path that carries less than full packets is probed for them again, since its
/// route may have changed (RFC 8899, section 5.1.1).
pub(crate) const PAUSE_RAISE: Duration = Duration::from_secs(600);

/// The pause before a path whose packets became small is probed for full ones again. The peer may
/// have been busy, and nothing has swallowed them.
pub(crate) const PAUSE_SHRUNK: Duration = Duration::from_millis(20);

/// The pause before a path that fell silent is probed again.
pub(crate) const PAUSE_SILENT: Duration = Duration::from_secs(1);

/// The state of the probes of one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathProbes {
    /// The random number that the peer has to return; zero when no probe is out.
    pub challenge: u64,
    /// The peer's number that our next probe packet returns; zero if there is none.
    pub echo: u64,
    /// The time of the next probe; `None` if probes only answer the peer's.
    pub next: Option<Instant>,
    /// The size of the last probe, or of the first one, in bytes.
    pub bytes: u16,
    tries: u8,
    /// `true` until the peer has answered by the path for the first time. At this address there may
    /// be nobody, or somebody else.
    pub is_claim: bool,
}

impl PathProbes {
    /// Begins to probe whether packets of `bytes` bytes arrive. The first probe leaves at the time
    /// `at`, or in answer to a probe of the peer if that is `None`.
    pub(crate) fn ask(&mut self, challenge: u64, bytes: u16, at: Option<Instant>) {
        (self.challenge, self.bytes, self.next, self.tries) = (challenge, bytes, at, 0);
    }

    /// Begins to probe whether a path that fell silent carries packets again: after 1, 2, 4 …
    /// seconds, at most 30 apart. The probes are as small as every path carries.
    pub(crate) fn ask_patiently(&mut self, challenge: u64, now: Instant) {
        self.ask(challenge, LEAST_BYTES, Some(now + PAUSE_SILENT));
        self.tries = PATIENT_TRIES - 1;
    }

    /// Makes the next probe of a path leave now, since a probe of the peer came by the path.
    pub(crate) fn hurry(&mut self, now: Instant) {
        self.next = self.next.map(|at| at.min(now));
    }

    /// Returns `true` if a probe that leaves now asks the peer for an answer.
    pub(crate) fn asks(&self, now: Instant) -> bool {
        self.challenge != 0 && self.next.is_none_or(|at| at <= now)
    }

    /// Returns `true` if a probe, or the answer to the peer's, has to leave now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.echo != 0 || self.challenge != 0 && self.next.is_some_and(|at| at <= now)
    }

    /// Plans the next probe after one that asks for an answer: later, and in the end of a
    /// smaller size. On a path that is silent altogether, the size is kept, since nothing was
    /// learned about it.
    pub(crate) fn retry(&mut self, now: Instant, is_silent: bool) {
        if self.next.is_none_or(|at| at > now) {
            return;
        }
        let next = self.tries.saturating_add(1);
        if !is_silent || !next.is_multiple_of(TRIES_EACH) {
            self.tries = next;
        }
        if self.is_claim && self.tries >= FIRST_TRIES {
            (self.challenge, self.next) = (0, None);
            return;
        }
        let pause = PAUSE_FIRST * (1 << self.tries.min(11));
        self.next = Some(now + pause.min(PAUSE_MAX));
    }

    /// Returns the size of a probe that leaves now: smaller after [`TRIES_EACH`] tries.
    pub(crate) fn size(&mut self) -> u16 {
        self.bytes = match self.tries / TRIES_EACH {
            0 => self.bytes,
            1 => self.bytes.min(COMMON_BYTES),
            _ => LEAST_BYTES,
        };
        self.bytes
    }
}
