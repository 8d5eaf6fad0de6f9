//! The thread that does handshakes, so that no worker does: all of them in turns, each with a
//! deadline, a bounded number at once.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use contract::{ConnId, Happening, Insecurity, Instant, ListenerId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::certificate::{ServerTls, TlsPolicy};
use super::handshake::{Handshake, Progress};
use super::secured::Secured;
use super::trust::ClientTls;
use crate::endpoint::peer_of;
use crate::spread::{Arrival, turned_away};
use crate::{Clock, Error, Spread, Waker};

/// Time that a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Handshakes at once. A further one ends the oldest.
const AT_ONCE: usize = 512;

/// Connections that may wait for the thread, beside those.
const WAITING_MAX: usize = 4096;

/// The outcome of the handshakes of dialled connections.
type Outcome = (ConnId, Result<Box<Secured>, Insecurity>);

/// The one who hears the outcome of a handshake.
pub(super) enum Answer {
    /// A worker of a server gets the connection.
    Accepted { tls: Arc<ServerTls>, listener: ListenerId, spread: Arc<Spread> },
    /// The sockets that dialled hear of it.
    Dialled { tls: ClientTls, conn: ConnId, to: Dialler },
}

/// The way back to the sockets that dialled.
#[derive(Clone)]
pub(super) struct Dialler {
    outcomes: Sender<Outcome>,
    has_news: Arc<AtomicBool>,
    waker: Waker,
}

/// The way to the thread that does handshakes. The thread ends with it.
pub(crate) struct Porter {
    /// `None`: the thread is told to end.
    guests: Option<Sender<(OwnedFd, Answer)>>,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
}

impl Porter {
    /// Starts a thread.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    pub(crate) fn start() -> Result<Porter, Error> {
        let (guests, inbox) = channel();
        let waker = Waker::new()?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let hall = Hall {
            clock: Clock::start(),
            guests: Vec::new(),
            waiting: waiting.clone(),
            waker: waker.clone(),
        };
        std::thread::Builder::new()
            .name("nf-tls".to_owned())
            .spawn(move || hall.run(&inbox))
            .map_err(|error| Error::new(format!("cannot start a thread for TLS: {error}")))?;
        Ok(Porter { guests: Some(guests), waiting, waker })
    }

    /// Has the handshake on a socket done.
    pub(super) fn welcome(&self, socket: OwnedFd, answer: Answer) {
        let Some(guests) = &self.guests else { return };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Guest::fail(socket, answer, Insecurity::Crowd);
        }
        if guests.send((socket, answer)).is_ok() {
            self.waker.wake();
        }
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        self.guests = None;
        self.waker.wake();
    }
}

/// A connection whose handshake is under way.
struct Guest {
    handshake: Handshake,
    answer: Answer,
    until: Instant,
    waits: Progress,
}

impl Guest {
    /// Begins a handshake.
    fn new(socket: OwnedFd, answer: Answer, now: Instant) -> Option<Guest> {
        let (side, looks) = match &answer {
            Answer::Accepted { tls, .. } => (tls.side(), tls.policy() == TlsPolicy::Allowed),
            Answer::Dialled { tls, .. } => (tls.side(), false),
        };
        match side {
            Ok(side) => Some(Guest {
                handshake: Handshake::new(socket, side, looks),
                answer,
                until: now + HANDSHAKE_MAX,
                waits: Progress::Writes,
            }),
            Err(why) => {
                Guest::fail(socket, answer, why);
                None
            }
        }
    }

    /// Tells that there is no connection over TLS, and why. The socket is closed.
    fn fail(socket: OwnedFd, answer: Answer, why: Insecurity) {
        match answer {
            Answer::Accepted { listener, .. } => {
                Happening::insecure(why).count();
                if why == Insecurity::Plain {
                    refuse(&socket);
                }
                let number = listener.0 + 1;
                match peer_of(&socket) {
                    Ok(peer) => tracing::warn!(%peer, listener = number, %why, "TLS failed"),
                    Err(()) => tracing::warn!(listener = number, %why, "TLS failed"),
                }
            }
            Answer::Dialled { conn, to, .. } => to.tell(conn, Err(why)),
        }
    }

    /// Goes on as far as possible. Returns the guest if it has to wait.
    fn advance(mut self) -> Option<Guest> {
        match self.handshake.advance() {
            Ok(waits @ (Progress::Reads | Progress::Writes)) => {
                self.waits = waits;
                return Some(self);
            }
            Ok(Progress::Plain) => self.answer.reached(self.handshake.socket, None),
            Ok(Progress::Done) => match self.handshake.finish() {
                Ok((socket, secured)) => self.answer.reached(socket, Some(secured)),
                Err(why) => self.answer.broken(why),
            },
            Err(why) => Guest::fail(self.handshake.socket, self.answer, why),
        }
        None
    }
}

impl Answer {
    /// Hands a connection over, to whoever waits for it.
    fn reached(self, socket: OwnedFd, secured: Option<Box<Secured>>) {
        match (self, secured) {
            (Answer::Accepted { listener, spread, .. }, secured) => {
                if secured.is_some() {
                    Happening::TlsDone.count();
                }
                match spread.let_in() {
                    Some(worker) => {
                        spread.hand_over(worker, Arrival { socket, listener, secured });
                    }
                    None => turned_away(),
                }
            }
            (Answer::Dialled { conn, to, .. }, Some(secured)) => to.tell(conn, Ok(secured)),
            (Answer::Dialled { conn, to, .. }, None) => to.tell(conn, Err(Insecurity::Plain)),
        }
    }

    /// Tells that a handshake has no keys, after its socket has gone.
    fn broken(self, why: Insecurity) {
        match self {
            Answer::Accepted { listener, .. } => {
                Happening::insecure(why).count();
                tracing::warn!(listener = listener.0 + 1, %why, "TLS failed");
            }
            Answer::Dialled { conn, to, .. } => to.tell(conn, Err(why)),
        }
    }
}

/// Tells a peer that does not speak TLS that this is wanted. What the peer has sent is read, so that
/// the end of the connection does not overtake that.
fn refuse(socket: &OwnedFd) {
    let _ = send(socket, &Insecurity::REFUSAL, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = shutdown(socket, Shutdown::Write);
    let mut unread = [0; 4096];
    for _ in 0..16 {
        match recv(socket, &mut unread, RecvFlags::DONTWAIT) {
            Ok((_, 1..)) => {}
            _ => return,
        }
    }
}

impl Dialler {
    fn tell(&self, conn: ConnId, outcome: Result<Box<Secured>, Insecurity>) {
        if self.outcomes.send((conn, outcome)).is_ok() {
            self.has_news.store(true, Ordering::Release);
            self.waker.wake();
        }
    }
}

/// The thread's own: the handshakes under way, oldest first.
struct Hall {
    clock: Clock,
    guests: Vec<Guest>,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
}

impl Hall {
    fn run(mut self, inbox: &Receiver<(OwnedFd, Answer)>) {
        loop {
            self.waker.clear();
            loop {
                match inbox.try_recv() {
                    Ok((socket, answer)) => self.let_in(socket, answer),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            let ready = self.wait();
            let now = self.clock.now();
            let guests = std::mem::take(&mut self.guests);
            for (guest, is_ready) in guests.into_iter().zip(ready) {
                if guest.until <= now {
                    Guest::fail(guest.handshake.socket, guest.answer, Insecurity::Late);
                } else if is_ready {
                    self.guests.extend(guest.advance());
                } else {
                    self.guests.push(guest);
                }
            }
        }
    }

    fn let_in(&mut self, socket: OwnedFd, answer: Answer) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let guest = Guest::new(socket, answer, self.clock.now());
        let Some(guest) = guest.and_then(Guest::advance) else { return };
        if self.guests.len() == AT_ONCE {
            let oldest = self.guests.remove(0);
            Guest::fail(oldest.handshake.socket, oldest.answer, Insecurity::Crowd);
        }
        self.guests.push(guest);
    }

    /// Waits until a guest can go on, another one comes, or a deadline has passed. Returns which guests
    /// can go on.
    fn wait(&self) -> Vec<bool> {
        let now = self.clock.now();
        let earliest = self.guests.iter().map(|guest| guest.until.since(now));
        let limit = earliest.min().map(|left| {
            let left = left + Duration::from_millis(1); // so that it has passed then
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let waker = self.waker.fd();
        let mut all = vec![PollFd::from_borrowed_fd(waker, PollFlags::IN)];
        all.extend(self.guests.iter().map(|guest| {
            let flags = match guest.waits {
                Progress::Writes => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(guest.handshake.socket.as_fd(), flags)
        }));
        let _ = poll(&mut all, limit.as_ref());
        all[1..].iter().map(|one| !one.revents().is_empty()).collect()
    }
}

/// The handshakes of the connections that a thread dials.
pub(crate) struct Greeter {
    tls: ClientTls,
    porter: Porter,
    dialler: Dialler,
    outcomes: Receiver<Outcome>,
}

impl Greeter {
    /// Returns the handshakes of sockets whose thread `waker` wakes.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    pub(crate) fn new(tls: ClientTls, waker: Waker) -> Result<Greeter, Error> {
        let (sender, outcomes) = channel();
        let dialler =
            Dialler { outcomes: sender, has_news: Arc::new(AtomicBool::new(false)), waker };
        Ok(Greeter { tls, porter: Porter::start()?, dialler, outcomes })
    }

    /// Has the handshake of a connection done, over a second handle to its socket.
    pub(crate) fn greet(&self, conn: ConnId, socket: OwnedFd) {
        let answer = Answer::Dialled { tls: self.tls.clone(), conn, to: self.dialler.clone() };
        self.porter.welcome(socket, answer);
    }

    /// Tells whether a handshake has ended since the last call.
    pub(crate) fn has_news(&self) -> bool {
        let has = &self.dialler.has_news;
        has.load(Ordering::Relaxed) && has.swap(false, Ordering::AcqRel)
    }

    /// Returns the outcome of a handshake that has ended.
    pub(crate) fn next(&self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }
}
