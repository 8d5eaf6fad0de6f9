//! The thread that does TLS handshakes, so that no worker has to: several at the same time, each
//! with a deadline. Further connections wait in line.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use contract::{CompletedPrelude, ConnId, Instant, ListenerId, Peer, ServerEvent, TlsFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::certificate::ServerTls;
use super::handshake::{Handshake, HandshakeProgress};
use super::line::{AddressLimits, HandshakeQueue, SourceNetwork, WaitingHandshake};
use super::secured::TlsState;
use super::trust::ClientTls;
use crate::endpoint::peer_of;
use crate::spread::{AcceptedConnection, turned_away};
use crate::{Clock, ConnectionBalancer, Error, Waker};

/// The time limit of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Maximum number of simultaneous handshakes. Further connections wait in line.
const AT_ONCE: usize = 512;

/// Maximum number of connections that wait in line.
const WAITING_MAX: usize = 4096;

/// The limits of each client address.
const BOUNDS: AddressLimits = AddressLimits { places: AT_ONCE / 8, waiting: WAITING_MAX / 4 };

/// Maximum number of handshakes that begin in one turn, so that those in progress continue.
const STARTS: usize = 16;

/// The time after which a client that has not sent its hello loses its place to a waiting
/// connection.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The outcome of a dialled connection's handshake: its keys, or why there are none.
type DialOutcome = (ConnId, Result<Box<TlsState>, TlsFailure>);

/// The receiver of a handshake's outcome.
pub(super) enum OutcomeReceiver {
    /// A worker of a server gets the connection.
    Accepted { tls: Arc<ServerTls>, listener: ListenerId, spread: Arc<ConnectionBalancer> },
    /// The sockets that dialled the connection get its outcome.
    Dialled { tls: ClientTls, conn: ConnId, to: DialChannel },
}

/// A channel back to the sockets that dialled.
#[derive(Clone)]
pub(super) struct DialChannel {
    outcomes: Sender<DialOutcome>,
    has_news: Arc<AtomicBool>,
    waker: Waker,
}

/// A handle to the thread that does handshakes. The thread ends when the handle is dropped.
pub(crate) struct HandshakeThread {
    /// The channel of new connections; dropped to end the thread.
    guests: Option<Sender<(OwnedFd, OutcomeReceiver)>>,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
}

impl HandshakeThread {
    /// Starts the thread and returns its handle.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    pub(crate) fn start() -> Result<HandshakeThread, Error> {
        let (guests, inbox) = channel();
        let waker = Waker::new()?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let hall = HandshakeLoop::new(AT_ONCE, BOUNDS, waiting.clone(), waker.clone());
        std::thread::Builder::new()
            .name("nf-tls".to_owned())
            .spawn(move || hall.run(&Clock::start(), &inbox))
            .map_err(|error| Error::new(format!("cannot start a thread for TLS: {error}")))?;
        Ok(HandshakeThread { guests: Some(guests), waiting, waker })
    }

    /// Sends a socket to the thread for its handshake.
    pub(super) fn welcome(&self, socket: OwnedFd, answer: OutcomeReceiver) {
        let Some(guests) = &self.guests else { return };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return PendingHandshake::fail(socket, answer, TlsFailure::Crowd);
        }
        if guests.send((socket, answer)).is_ok() {
            self.waker.wake();
        }
    }
}

impl Drop for HandshakeThread {
    fn drop(&mut self) {
        self.guests = None;
        self.waker.wake();
    }
}

/// A connection whose handshake is in progress.
struct PendingHandshake {
    handshake: Handshake,
    answer: OutcomeReceiver,
    /// The address to which the handshake's place is charged; `None` if it is not limited.
    origin: Option<SourceNetwork>,
    began: Instant,
    until: Instant,
    waits: HandshakeProgress,
}

impl PendingHandshake {
    /// Begins a handshake. Returns `None` if that has failed, which is reported already.
    fn new(
        socket: OwnedFd,
        answer: OutcomeReceiver,
        origin: Option<SourceNetwork>,
        began: Instant,
        until: Instant,
    ) -> Option<PendingHandshake> {
        let (side, before) = match &answer {
            OutcomeReceiver::Accepted { tls, .. } => (tls.side(), tls.before()),
            OutcomeReceiver::Dialled { tls, .. } => (tls.side(), tls.before()),
        };
        match side {
            Ok(side) => Some(PendingHandshake {
                handshake: Handshake::new(socket, side, before),
                answer,
                origin,
                began,
                until,
                waits: HandshakeProgress::Writes,
            }),
            Err(why) => {
                PendingHandshake::fail(socket, answer, why);
                None
            }
        }
    }

    /// Reports the reason that a handshake failed, and closes the socket.
    fn fail(socket: OwnedFd, answer: OutcomeReceiver, why: TlsFailure) {
        match answer {
            OutcomeReceiver::Accepted { tls, listener, .. } => {
                ServerEvent::insecure(why).count();
                if why == TlsFailure::Plain && !tls.has_prelude() {
                    refuse(&socket);
                }
                let number = listener.0 + 1;
                match peer_of(&socket) {
                    Ok(peer) => tracing::warn!(%peer, listener = number, %why, "TLS failed"),
                    Err(()) => tracing::warn!(listener = number, %why, "TLS failed"),
                }
            }
            OutcomeReceiver::Dialled { conn, to, .. } => to.tell(conn, Err(why)),
        }
    }

    /// Returns the time from which the handshake's slot may be given to another connection. Returns
    /// `None` if the client has sent its whole hello, or if this end dialled the connection.
    fn may_go_at(&self) -> Option<Instant> {
        let is_idle =
            !self.handshake.has_answered && matches!(self.answer, OutcomeReceiver::Accepted { .. });
        is_idle.then(|| self.began + IDLE_MAX)
    }

    /// Ends the handshake, for the reason `why`, so that a waiting connection can begin its own. A
    /// client that has said nothing, where TLS is optional, goes on without TLS: clients over TLS
    /// speak first, and at once.
    fn give_up(self, why: TlsFailure) {
        let PendingHandshake { handshake, answer, .. } = self;
        match handshake.is_silent() {
            true => answer.reached(handshake.socket, None, None),
            false => PendingHandshake::fail(handshake.socket, answer, why),
        }
    }

    /// Continues the handshake as far as possible. Returns it if it has to wait; otherwise its end
    /// was reported.
    fn advance(mut self) -> Option<PendingHandshake> {
        match self.handshake.advance() {
            Ok(waits @ (HandshakeProgress::Reads | HandshakeProgress::Writes)) => {
                self.waits = waits;
                return Some(self);
            }
            Ok(HandshakeProgress::Plain) => {
                let Handshake { socket, opening, .. } = self.handshake;
                self.answer.reached(socket, None, opening);
            }
            Ok(HandshakeProgress::Done) => match self.handshake.finish() {
                Ok((socket, secured, opening)) => {
                    self.answer.reached(socket, Some(secured), opening);
                }
                Err(why) => self.answer.broken(why),
            },
            Err(why) => PendingHandshake::fail(self.handshake.socket, self.answer, why),
        }
        None
    }
}

impl OutcomeReceiver {
    /// Returns the address to which a connection is charged; `None` for dialled connections and
    /// those of Unix sockets, which are not limited.
    fn origin(&self, socket: &OwnedFd) -> Option<SourceNetwork> {
        match (self, peer_of(socket)) {
            (OutcomeReceiver::Accepted { .. }, Ok(Peer::Internet(peer))) => {
                Some(SourceNetwork::of(peer.ip()))
            }
            _ => None,
        }
    }

    /// Passes a connection whose handshake has ended to its receiver; `secured` is `None` if the
    /// connection goes on without TLS.
    fn reached(
        self,
        socket: OwnedFd,
        secured: Option<Box<TlsState>>,
        opening: Option<Box<CompletedPrelude>>,
    ) {
        match (self, secured) {
            (OutcomeReceiver::Accepted { tls, .. }, _) if tls.is_shut() => {
                ServerEvent::RefusedDrained.count()
            }
            (OutcomeReceiver::Accepted { tls, listener, spread }, mut secured) => {
                if secured.is_some() {
                    ServerEvent::TlsDone.count();
                }
                match spread.let_in() {
                    Some(worker) => {
                        tls.count(secured.as_deref_mut());
                        spread.hand_over(
                            worker,
                            AcceptedConnection { socket, listener, secured, opening },
                        );
                    }
                    None => turned_away(),
                }
            }
            (OutcomeReceiver::Dialled { conn, to, .. }, Some(secured)) => {
                to.tell(conn, Ok(secured))
            }
            (OutcomeReceiver::Dialled { conn, to, .. }, None) => {
                to.tell(conn, Err(TlsFailure::Plain))
            }
        }
    }

    /// Reports that a handshake has yielded no keys, for the reason `why`, after its socket was
    /// closed.
    fn broken(self, why: TlsFailure) {
        match self {
            OutcomeReceiver::Accepted { listener, .. } => {
                ServerEvent::insecure(why).count();
                tracing::warn!(listener = listener.0 + 1, %why, "TLS failed");
            }
            OutcomeReceiver::Dialled { conn, to, .. } => to.tell(conn, Err(why)),
        }
    }
}

/// Sends the TLS alert to a peer that does not speak TLS. The peer's bytes are read before, since
/// unread bytes would reset the connection and lose the alert.
fn refuse(socket: &OwnedFd) {
    let _ = send(socket, &TlsFailure::REFUSAL, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    let _ = shutdown(socket, Shutdown::Write);
    let mut unread = [0; 4096];
    for _ in 0..16 {
        match recv(socket, &mut unread, RecvFlags::DONTWAIT) {
            Ok((_, 1..)) => {}
            _ => return,
        }
    }
}

impl DialChannel {
    fn tell(&self, conn: ConnId, outcome: Result<Box<TlsState>, TlsFailure>) {
        if self.outcomes.send((conn, outcome)).is_ok() {
            self.has_news.store(true, Ordering::Release);
            self.waker.wake();
        }
    }
}

/// The thread's state: the handshakes in progress, oldest first, and the connections that wait for
/// a place.
struct HandshakeLoop {
    /// Maximum number of simultaneous handshakes.
    places: usize,
    line: HandshakeQueue<(OwnedFd, OutcomeReceiver)>,
    guests: Vec<PendingHandshake>,
    waiting: Arc<AtomicUsize>,
    waker: Waker,
}

impl HandshakeLoop {
    fn new(
        places: usize,
        bounds: AddressLimits,
        waiting: Arc<AtomicUsize>,
        waker: Waker,
    ) -> HandshakeLoop {
        HandshakeLoop {
            places,
            line: HandshakeQueue::new(bounds),
            guests: Vec::new(),
            waiting,
            waker,
        }
    }

    fn run(mut self, clock: &Clock, inbox: &Receiver<(OwnedFd, OutcomeReceiver)>) {
        loop {
            self.waker.clear();
            if !self.collect(inbox, clock.now()) {
                return;
            }
            let now = clock.now();
            let hurries = self.let_in(now);
            let ready = self.wait(now, hurries);
            self.attend(&ready, clock.now());
        }
    }

    /// Puts new connections into the line. Returns `false` if no more will come.
    fn collect(&mut self, inbox: &Receiver<(OwnedFd, OutcomeReceiver)>, now: Instant) -> bool {
        for _ in 0..WAITING_MAX {
            match inbox.try_recv() {
                Ok((socket, answer)) => {
                    let origin = answer.origin(&socket);
                    let one = WaitingHandshake {
                        origin,
                        until: now + HANDSHAKE_MAX,
                        what: (socket, answer),
                    };
                    if let Err(WaitingHandshake { what: (socket, answer), .. }) =
                        self.line.push(one)
                    {
                        self.waiting.fetch_sub(1, Ordering::Relaxed);
                        PendingHandshake::fail(socket, answer, TlsFailure::Crowd);
                    }
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        self.waker.wake(); // there may be more
        true
    }

    /// Begins handshakes of connections in the line, a few at a time. Returns `true` if more may
    /// begin without waiting.
    fn let_in(&mut self, now: Instant) -> bool {
        for _ in 0..STARTS {
            let Some(first) = self.line.first() else { return false };
            let origin = first.origin;
            if self.guests.len() >= self.places && !self.make_room(now, None) {
                return false;
            }
            let next = self.line.next().or_else(|| {
                // Each in line is of an address that has all its places.
                self.make_room(now, origin).then(|| self.line.next()).flatten()
            });
            let Some(WaitingHandshake { origin, until, what: (socket, answer) }) = next else {
                return false;
            };
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            let guest = PendingHandshake::new(socket, answer, origin, now, until);
            match guest.and_then(PendingHandshake::advance) {
                Some(guest) => self.guests.push(guest),
                None => self.line.leave(origin),
            }
        }
        true
    }

    /// Ends the oldest handshake whose client has sent no hello for some time: of `origin`, or of
    /// any address if that is `None`. Returns `false` if there is no such handshake.
    fn make_room(&mut self, now: Instant, origin: Option<SourceNetwork>) -> bool {
        let is_idle = |guest: &PendingHandshake| {
            guest.may_go_at().is_some_and(|at| at <= now)
                && origin.is_none_or(|origin| guest.origin == Some(origin))
        };
        let Some(oldest) = self.guests.iter().position(is_idle) else { return false };
        let oldest = self.guests.remove(oldest);
        self.line.leave(oldest.origin);
        oldest.give_up(TlsFailure::Crowd);
        true
    }

    /// Continues the handshakes whose sockets are `ready`, and ends those whose time is over.
    fn attend(&mut self, ready: &[bool], now: Instant) {
        let guests = std::mem::take(&mut self.guests);
        for (guest, is_ready) in guests.into_iter().zip(ready) {
            let origin = guest.origin;
            if guest.until <= now {
                self.line.leave(origin);
                guest.give_up(TlsFailure::Late);
            } else if *is_ready {
                match guest.advance() {
                    Some(guest) => self.guests.push(guest),
                    None => self.line.leave(origin),
                }
            } else {
                self.guests.push(guest);
            }
        }
        while let Some((socket, answer)) = self.line.late(now) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            PendingHandshake::fail(socket, answer, TlsFailure::Late);
        }
    }

    /// Waits until a socket is ready, a new connection comes, or a deadline has passed; with
    /// `hurries` it does not wait. Returns for each handshake whether its socket is ready.
    fn wait(&self, now: Instant, hurries: bool) -> Vec<bool> {
        let first = self.line.first();
        let ends = self.guests.iter().map(|guest| guest.until);
        // Somebody may get the place of one that is idle.
        let idle =
            self.guests.iter().filter(|_| first.is_some()).filter_map(PendingHandshake::may_go_at);
        // One that may go, and has not, is in nobody's way.
        let idle = idle.filter(|at| *at > now);
        let earliest = ends.chain(idle).chain(first.map(|one| one.until)).min();
        let limit = earliest.map(|at| {
            let left = at.since(now) + Duration::from_millis(1); // so that it has passed then
            if hurries { Duration::ZERO } else { left }
        });
        let limit = limit.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        });
        let waker = self.waker.fd();
        let mut all = vec![PollFd::from_borrowed_fd(waker, PollFlags::IN)];
        all.extend(self.guests.iter().map(|guest| {
            let flags = match guest.waits {
                HandshakeProgress::Writes => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            PollFd::from_borrowed_fd(guest.handshake.socket.as_fd(), flags)
        }));
        let _ = poll(&mut all, limit.as_ref());
        all[1..].iter().map(|one| !one.revents().is_empty()).collect()
    }
}

/// The TLS handshakes of connections that a thread dials, carried out by a second thread.
pub(crate) struct ClientHandshakes {
    tls: ClientTls,
    handshake_thread: HandshakeThread,
    dialler: DialChannel,
    outcomes: Receiver<DialOutcome>,
}

impl ClientHandshakes {
    /// Creates the handshakes of one thread's sockets; `waker` wakes that thread.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left.
    pub(crate) fn new(tls: ClientTls, waker: Waker) -> Result<ClientHandshakes, Error> {
        let (sender, outcomes) = channel();
        let dialler =
            DialChannel { outcomes: sender, has_news: Arc::new(AtomicBool::new(false)), waker };
        Ok(ClientHandshakes { tls, handshake_thread: HandshakeThread::start()?, dialler, outcomes })
    }

    /// Starts the handshake of a connection, over a second descriptor of its socket.
    pub(crate) fn greet(&self, conn: ConnId, socket: OwnedFd) {
        let answer =
            OutcomeReceiver::Dialled { tls: self.tls.clone(), conn, to: self.dialler.clone() };
        self.handshake_thread.welcome(socket, answer);
    }

    /// Returns whether a handshake has ended since the last call.
    pub(crate) fn has_news(&self) -> bool {
        let has = &self.dialler.has_news;
        has.load(Ordering::Relaxed) && has.swap(false, Ordering::AcqRel)
    }

    /// Returns the outcome of a handshake that has ended; `None` if there is no other.
    pub(crate) fn next(&self) -> Option<DialOutcome> {
        self.outcomes.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use contract::{Prelude, PreludeOutcome, Protocol, TlsUse};

    use super::*;
    use crate::spread::AcceptedConnection;
    use crate::tls::handshake::PreHandshake;
    use crate::{PreludeOf, TlsPolicy};

    /// The handshakes of a server, without a thread, and the clients that dial it.
    struct HandshakeFixture {
        hall: HandshakeLoop,
        server: Arc<ServerTls>,
        client: ClientTls,
        spread: Arc<ConnectionBalancer>,
        arrivals: Receiver<AcceptedConnection>,
        calls: Sender<(OwnedFd, OutcomeReceiver)>,
        inbox: Receiver<(OwnedFd, OutcomeReceiver)>,
    }

    impl HandshakeFixture {
        fn new(places: usize, bounds: AddressLimits) -> HandshakeFixture {
            let made = rcgen::generate_simple_self_signed(vec!["server".to_owned()]).unwrap();
            let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
            let print = ring::digest::digest(&ring::digest::SHA256, made.cert.der());
            let print: String = print.as_ref().iter().map(|b| format!("{b:02x}")).collect();
            let waker = Waker::new().unwrap();
            let spread = ConnectionBalancer::new(1);
            let arrivals = spread.register(0, waker.clone());
            let (calls, inbox) = channel();
            let waiting = Arc::new(AtomicUsize::new(0));
            HandshakeFixture {
                hall: HandshakeLoop::new(places, bounds, waiting, waker),
                server: ServerTls::new(TlsPolicy::Required, pem.as_bytes(), key.as_bytes())
                    .unwrap(),
                client: ClientTls::new("server", None, Some(&print)).unwrap(),
                spread,
                arrivals,
                calls,
                inbox,
            }
        }

        /// Returns a server's TLS for a protocol that begins in the clear.
        fn behind(&self, prelude: PreludeOf) -> Arc<ServerTls> {
            let made = rcgen::generate_simple_self_signed(vec!["server".to_owned()]).unwrap();
            let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
            let (pem, key) = (pem.as_bytes(), key.as_bytes());
            ServerTls::behind(Protocol::Nbd, Some(prelude), TlsPolicy::Required, pem, key).unwrap()
        }

        fn comes(&mut self, socket: OwnedFd, now: Instant) {
            let (tls, spread) = (self.server.clone(), self.spread.clone());
            let answer = OutcomeReceiver::Accepted { tls, listener: ListenerId(0), spread };
            self.hall.waiting.fetch_add(1, Ordering::Relaxed);
            self.calls.send((socket, answer)).unwrap();
            assert!(self.hall.collect(&self.inbox, now));
        }

        /// Connects a client that sends nothing, and returns its socket.
        fn silent(&mut self, now: Instant) -> UnixStream {
            let (here, there) = UnixStream::pair().unwrap();
            self.comes(here.into(), now);
            there
        }

        /// Connects a client that sends its hello, and returns its handshake.
        fn speaking(&mut self, now: Instant) -> Handshake {
            let there = self.silent(now);
            let mut client =
                Handshake::new(there.into(), self.client.side().unwrap(), PreHandshake::Nothing);
            assert_eq!(client.advance(), Ok(HandshakeProgress::Reads));
            client
        }

        fn turn(&mut self, now: Instant) {
            self.hall.let_in(now);
            let ready = vec![true; self.hall.guests.len()];
            self.hall.attend(&ready, now);
        }
    }

    /// Limits that no address reaches.
    const FREE: AddressLimits = AddressLimits { places: 100, waiting: 100 };

    #[test]
    fn a_herd_waits_and_no_handshake_that_has_begun_is_lost() {
        let (mut scene, now) = (HandshakeFixture::new(4, FREE), Instant::ZERO);
        let mut herd: Vec<Handshake> = (0..40).map(|_| scene.speaking(now)).collect();
        let mut done = 0;
        for _ in 0..100 {
            scene.turn(now);
            assert!(scene.hall.guests.len() <= 4);
            herd.retain_mut(|one| {
                one.advance().expect("nobody is sent away") != HandshakeProgress::Done
            });
            done += scene.arrivals.try_iter().count();
        }
        assert_eq!((herd.len(), done), (0, 40));
        assert_eq!(scene.hall.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_place_goes_on_from_who_says_nothing_and_not_from_who_has_begun() {
        let (mut scene, now) = (HandshakeFixture::new(4, FREE), Instant::ZERO);
        let silent: Vec<UnixStream> = (0..3).map(|_| scene.silent(now)).collect();
        let mut begun = scene.speaking(now);
        scene.turn(now);
        let mut late = scene.speaking(now);
        scene.turn(now);
        assert_eq!(late.advance(), Ok(HandshakeProgress::Reads), "it waits");
        assert!(scene.hall.line.first().is_some());
        let now = now + IDLE_MAX;
        scene.turn(now);
        // It has taken the place of the first one.
        let mut byte = [0];
        assert!(recv(&silent[0], &mut byte, RecvFlags::DONTWAIT).is_ok());
        assert!(recv(&silent[1], &mut byte, RecvFlags::DONTWAIT).is_err());
        for one in [&mut late, &mut begun] {
            assert_eq!(one.advance(), Ok(HandshakeProgress::Done));
        }
        scene.turn(now);
        assert_eq!(scene.arrivals.try_iter().count(), 2);
    }

    /// A protocol that says something for each byte, and never comes to its end.
    struct EndlessPrelude;

    impl Prelude for EndlessPrelude {
        fn wants(&self) -> usize {
            1
        }

        fn take(
            &mut self,
            bytes: &[u8],
            answers: &mut Vec<u8>,
        ) -> Result<Option<PreludeOutcome>, TlsFailure> {
            answers.extend(bytes);
            Ok(None)
        }
    }

    #[test]
    fn what_comes_before_a_handshake_has_its_time_too() {
        let (mut scene, mut now) = (HandshakeFixture::new(4, FREE), Instant::ZERO);
        scene.server = scene.behind(|_| Box::new(EndlessPrelude));
        let there = scene.silent(now);
        let mut answers = [0; 64];
        for second in 0..HANDSHAKE_MAX.as_secs() {
            assert_eq!(send(&there, &[7; 40], SendFlags::empty()), Ok(40));
            scene.turn(now);
            assert_eq!(scene.hall.guests.len(), 1, "after {second} s");
            scene.turn(now); // others would have had their turn
            assert_eq!(recv(&there, &mut answers, RecvFlags::empty()).unwrap().1, 40);
            now = now + Duration::from_secs(1);
        }
        scene.turn(now);
        assert!(scene.hall.guests.is_empty());
        assert_eq!(recv(&there, &mut answers, RecvFlags::empty()).unwrap().1, 0);
    }

    #[test]
    fn a_handshake_that_ends_at_a_shut_listener_lets_nobody_in() {
        let (mut scene, now) = (HandshakeFixture::new(4, FREE), Instant::ZERO);
        for (is_shut, let_in) in [(true, 0), (false, 1)] {
            let mut client = scene.speaking(now);
            scene.turn(now);
            scene.server.shut(is_shut);
            assert_eq!(client.advance(), Ok(HandshakeProgress::Done));
            scene.turn(now);
            assert_eq!(scene.arrivals.try_iter().count(), let_in);
        }
    }

    #[test]
    fn a_client_that_says_nothing_goes_on_without_tls_where_it_may() {
        let (mut scene, now) = (HandshakeFixture::new(1, FREE), Instant::ZERO);
        let made = rcgen::generate_simple_self_signed(vec!["server".to_owned()]).unwrap();
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let (pem, key) = (pem.as_bytes(), key.as_bytes());
        let print = ring::digest::digest(&ring::digest::SHA256, made.cert.der());
        let print: String = print.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        scene.client = ClientTls::new("server", None, Some(&print)).unwrap();
        // No other test's protocol here.
        scene.server =
            ServerTls::behind(Protocol::NvmeTcp, None, TlsPolicy::Allowed, pem, key).unwrap();
        let uses = TlsUse::of(Protocol::NvmeTcp);
        let silent = scene.silent(now);
        scene.turn(now);
        assert_eq!(scene.arrivals.try_iter().count(), 0, "it may be about to say hello");
        scene.turn(now + HANDSHAKE_MAX);
        let arrival = scene.arrivals.try_recv().unwrap();
        assert!(arrival.secured.is_none() && scene.hall.guests.is_empty());
        let mut byte = [0];
        assert_eq!(recv(&silent, &mut byte, RecvFlags::DONTWAIT), Err(rustix::io::Errno::AGAIN));
        assert_eq!((uses.chosen(), uses.opened()), ([0, 1], 0));
        // In a crowd it makes room earlier, and whoever has begun a handshake does not.
        let _silent = scene.silent(now);
        scene.turn(now);
        let mut other = scene.speaking(now);
        scene.turn(now + IDLE_MAX);
        assert!(scene.arrivals.try_recv().unwrap().secured.is_none());
        assert_eq!(other.advance(), Ok(HandshakeProgress::Done));
        scene.turn(now + IDLE_MAX);
        let arrival = scene.arrivals.try_recv().unwrap();
        assert_eq!((uses.chosen(), uses.opened()), ([1, 2], 1));
        drop(arrival);
        assert_eq!(uses.opened(), 0);
        // One that breaks a hello off is late.
        let half = scene.silent(now);
        send(&half, &[22, 3, 1], SendFlags::empty()).unwrap();
        scene.turn(now);
        scene.turn(now + HANDSHAKE_MAX);
        assert_eq!(scene.arrivals.try_iter().count(), 0);
        assert_eq!(recv(&half, &mut byte, RecvFlags::DONTWAIT).map(|(_, came)| came), Ok(0));
    }

    #[test]
    fn one_address_does_not_get_all_places() {
        let (mut scene, now) =
            (HandshakeFixture::new(4, AddressLimits { places: 2, waiting: 3 }), Instant::ZERO);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut from_there = Vec::new();
        for _ in 0..6 {
            from_there.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            scene.comes(listener.accept().unwrap().0.into(), now);
        }
        let mut other = scene.speaking(now);
        scene.turn(now);
        assert_eq!(scene.hall.guests.len(), 3, "two of one address, one of another");
        assert_eq!(other.advance(), Ok(HandshakeProgress::Done));
        scene.turn(now);
        assert_eq!(scene.arrivals.try_iter().count(), 1);
        // Of one address, too, who says nothing makes room; and all end in time.
        let now = now + IDLE_MAX;
        scene.turn(now);
        scene.turn(now + HANDSHAKE_MAX);
        scene.turn(now + HANDSHAKE_MAX);
        assert!(scene.hall.guests.is_empty() && scene.hall.line.first().is_none());
        assert_eq!(scene.hall.waiting.load(Ordering::Relaxed), 0);
    }
}
