//! Tokens that are presented. An address that has presented too many wrong ones may go on, but what
//! it presents is looked at late, so that nobody finds a token by trying: a right one gets in then
//! as well, so guesses of others behind the same address keep nobody out.
//!
//! It is the look that waits and not its answer: who does not wait for that has learnt nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use contract::{
    ConnId, Credential, Device, Failures, Hello, Instant, Mailbox, Peer, Reply, Scheduler, Session,
    Status, Transport,
};

use crate::connection::Greeting;
use crate::worker::Worker;

/// Wrong tokens of an address that are looked over at each worker.
const GUESSES_MAX: u32 = 32;

/// How long it takes until one is forgotten.
const FORGET: Duration = Duration::from_secs(1);

/// Hellos that wait at a time. Who finds so many is told to try again.
const WAITING_MAX: usize = 1024;

/// Who has guessed, and the hellos that are looked at late.
#[derive(Debug)]
pub(crate) struct Guesses {
    failures: Failures,
    /// By when they are looked at; at most [`WAITING_MAX`].
    waiting: BTreeMap<(Instant, ConnId), (IpAddr, Hello)>,
}

impl Guesses {
    pub(crate) fn new() -> Guesses {
        Guesses {
            failures: Failures::new(Credential::Token, GUESSES_MAX, FORGET),
            waiting: BTreeMap::new(),
        }
    }

    /// Hellos that wait, each of which is answered in the end.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the next of them is looked at.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    /// How long a hello from there waits.
    fn delay(&mut self, address: IpAddr, now: Instant) -> Duration {
        if self.failures.wait(address, now).is_none() {
            return Duration::ZERO;
        }
        let place = Failures::place(address);
        let own = self.waiting.values().filter(|(from, _)| *from == place).count();
        self.failures.delay(address, own, now)
    }

    /// A connection is gone.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.waiting.retain(|(_, own), _| *own != conn);
    }
}

impl<T: Transport, D: Device, S: Scheduler, P: Session, M: Mailbox> Worker<T, D, S, P, M> {
    /// A hello has come: it is looked at, now or later.
    pub(crate) fn present(&mut self, id: ConnId, hello: Hello) {
        let peer = self.find(id).expect("it said hello").peer;
        // Processes of this machine are known by their users.
        let Peer::Internet(address) = peer else { return self.hello(id, &hello) };
        if hello.token.is_empty() || !self.shared.access.has_tokens() {
            return self.hello(id, &hello);
        }
        let (address, now) = (address.ip(), self.now);
        let delay = self.guesses.delay(address, now);
        if delay.is_zero() {
            return self.look_at_token(id, address, &hello);
        }
        if self.guesses.waiting() >= WAITING_MAX {
            let reply = self.terms(id, &hello);
            self.reply(id, &Reply::Hello { tag: hello.tag, status: Status::Retry, reply }, None);
            return self.finish(id);
        }
        tracing::warn!(%peer, "too many wrong tokens came from this address: this one waits");
        self.find(id).expect("it said hello").greeting = Greeting::Throttled;
        self.guesses.waiting.insert((now + delay, id), (Failures::place(address), hello));
    }

    /// Looks at the tokens that have waited long enough.
    pub(crate) fn look_at_tokens(&mut self) {
        while self.guesses.due().is_some_and(|due| due <= self.now) {
            let next = self.guesses.waiting.pop_first();
            let ((_, id), (address, hello)) = next.expect("it was just seen");
            self.progressed = true;
            self.find(id).expect("who goes is forgotten").greeting = Greeting::Idle;
            self.look_at_token(id, address, &hello);
            self.look_again(id);
        }
    }

    fn look_at_token(&mut self, id: ConnId, address: IpAddr, hello: &Hello) {
        if !self.shared.access.knows(&hello.token) {
            self.guesses.failures.add(address, self.now);
        }
        self.hello(id, hello);
    }
}
