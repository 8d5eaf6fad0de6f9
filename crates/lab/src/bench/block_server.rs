//! The connection of a load thread to a server that speaks NVMe/TCP or NBD: connecting, waiting
//! until the client is up, and making load through it. The trait [`BlockServer`] has what the
//! protocols differ in.

use client::load::Path;
use contract::TurnOutcome;
use io::{Clock, EpollReactor, EpollSockets, Network, Ring, Sockets, SpinPolicy};

use super::job::{CONNECT_MAX, Job};
use crate::report::ThreadResult;

/// An event of a client: it is connected, or has lost its connections.
pub(super) enum ConnectionEvent<F, L> {
    /// The client is connected. The value holds the facts that it found about the server.
    Up(F),
    /// The client has lost its connections to the server, or could not connect, for this reason.
    Lost(L),
}

/// The address of a server of a protocol other than `reflex`, with the options of the clients that
/// connect to it.
pub(super) trait BlockServer: Sized {
    /// The client of the protocol, through which a load generator sends requests.
    type Client<N: Network>: Path;

    /// The properties of the server that a client learns while it connects, such as the size in
    /// bytes.
    type Found;

    /// The reason for which a client lost its connections or could not connect.
    type Loss;

    /// Sets the number of connections of a client that is opened later.
    fn set_lanes(&mut self, lanes: usize);

    /// Creates a client. The client connects while its turns are taken.
    fn open<N: Network>(&self, reactor: &N::Reactor) -> Result<Self::Client<N>, String>;

    /// Returns the client's next event; `None` if nothing has happened.
    fn news<N: Network>(
        client: &mut Self::Client<N>,
    ) -> Option<ConnectionEvent<Self::Found, Self::Loss>>;

    /// Describes a loss for the user in a note. The first value is `true` if the client was
    /// connected before the loss.
    fn note(loss: &Self::Loss) -> (bool, String);

    /// Returns a message for the user: why a client could not connect, and what to do about it.
    /// `loss` is `None` if the time limit has passed.
    fn explain(&self, loss: Option<Self::Loss>) -> String;
}

/// Connects once and returns the facts that the client found about the server.
pub(super) fn look<D: BlockServer>(server: &D) -> Result<D::Found, String> {
    match Ring::new() {
        Ok(ring) => look_on::<D, Sockets>(server, &ring),
        Err(no_ring) => {
            errln!("note: {no_ring}; using epoll, which is a little slower");
            look_on::<D, EpollSockets>(server, &EpollReactor::new().map_err(|e| e.to_string())?)
        }
    }
}

fn look_on<D: BlockServer, N: Network>(
    server: &D,
    reactor: &N::Reactor,
) -> Result<D::Found, String> {
    let mut client = server.open::<N>(reactor)?;
    bring_up::<D, N>(reactor, &Clock::start(), &mut client).map_err(|loss| server.explain(loss))
}

/// Connects to the server and runs the load of a thread to its end.
pub(super) fn drive<D: BlockServer>(mut server: D, job: Job) -> Result<ThreadResult, String> {
    server.set_lanes(job.shape.lanes + usize::from(job.shape.probe.is_some()));
    match Ring::new() {
        Ok(ring) => drive_on::<D, Sockets>(&server, &ring, job),
        // The look has told about the missing ring.
        Err(_) => {
            let epoll = EpollReactor::new().map_err(|e| e.to_string())?;
            drive_on::<D, EpollSockets>(&server, &epoll, job)
        }
    }
}

fn drive_on<D: BlockServer, N: Network>(
    server: &D,
    reactor: &N::Reactor,
    job: Job,
) -> Result<ThreadResult, String> {
    let mut client = server.open::<N>(reactor)?;
    bring_up::<D, N>(reactor, &job.clock, &mut client).map_err(|loss| server.explain(loss))?;
    job.drive(reactor, client, |client, losses| {
        while let Some(news) = D::news::<N>(client) {
            if let ConnectionEvent::Lost(loss) = news {
                let (reached, note) = D::note(&loss);
                losses(reached, note);
            }
        }
    })
}

/// Waits until a client is connected. Returns `Err(None)` if that takes longer than `CONNECT_MAX`.
fn bring_up<D: BlockServer, N: Network>(
    reactor: &N::Reactor,
    clock: &Clock,
    client: &mut D::Client<N>,
) -> Result<D::Found, Option<D::Loss>> {
    let deadline = clock.now() + CONNECT_MAX;
    let mut outcome = Err(None);
    let mut ended = Vec::new();
    io::run(reactor, clock, SpinPolicy::default(), |now| {
        let progressed = client.turn(now, &mut ended);
        if let Some(news) = D::news::<N>(client) {
            outcome = match news {
                ConnectionEvent::Up(found) => Ok(found),
                ConnectionEvent::Lost(loss) => Err(Some(loss)),
            };
            return None;
        }
        if now >= deadline {
            return None;
        }
        let wake_at = client.wake_at().map_or(deadline, |at| at.min(deadline));
        Some(TurnOutcome { progressed, wake_at: Some(wake_at) })
    });
    outcome
}
