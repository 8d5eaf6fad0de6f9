//! The way of a load to a server that speaks another storage protocol: connecting, waiting until
//! the client is up, and making load through it. A [`Door`] has what the protocols differ in.

use client::load::Path;
use contract::Turn;
use io::{Clock, EpollReactor, EpollSockets, Network, Ring, Sockets, SpinPolicy};

use super::job::{CONNECT_MAX, Job};
use crate::report::End;

/// News of a client since the last look.
pub(super) enum News<F, L> {
    /// The client is connected, and has found this.
    Up(F),
    /// The client has lost its connections.
    Lost(L),
}

/// The address and the options of a client of another storage protocol.
pub(super) trait Door: Sized {
    /// The client.
    type Client<N: Network>: Path;

    /// The facts about the server that a client finds when it is up.
    type Found;

    /// The reason that a client lost its connections.
    type Loss;

    /// Sets the number of connections that take requests.
    fn set_lanes(&mut self, lanes: usize);

    /// Makes a client, which connects in its turns.
    fn open<N: Network>(&self, reactor: &N::Reactor) -> Result<Self::Client<N>, String>;

    /// Returns the client's next news.
    fn news<N: Network>(client: &mut Self::Client<N>) -> Option<News<Self::Found, Self::Loss>>;

    /// Returns whether there was a connection before the loss, and a note about it.
    fn note(loss: &Self::Loss) -> (bool, String);

    /// Explains why a client does not come up, and what to do about it; `None` if it takes too
    /// long.
    fn explain(&self, loss: Option<Self::Loss>) -> String;
}

/// Connects once and returns what the client found.
pub(super) fn look<D: Door>(door: &D) -> Result<D::Found, String> {
    match Ring::new() {
        Ok(ring) => look_on::<D, Sockets>(door, &ring),
        Err(no_ring) => {
            errln!("note: {no_ring}; using epoll, which is a little slower");
            look_on::<D, EpollSockets>(door, &EpollReactor::new().map_err(|e| e.to_string())?)
        }
    }
}

fn look_on<D: Door, N: Network>(door: &D, reactor: &N::Reactor) -> Result<D::Found, String> {
    let mut client = door.open::<N>(reactor)?;
    bring_up::<D, N>(reactor, &Clock::start(), &mut client).map_err(|loss| door.explain(loss))
}

/// Makes load through a door.
pub(super) fn drive<D: Door>(mut door: D, job: Job) -> Result<End, String> {
    door.set_lanes(job.shape.lanes + usize::from(job.shape.probe.is_some()));
    match Ring::new() {
        Ok(ring) => drive_on::<D, Sockets>(&door, &ring, job),
        // The look has told about the missing ring.
        Err(_) => {
            let epoll = EpollReactor::new().map_err(|e| e.to_string())?;
            drive_on::<D, EpollSockets>(&door, &epoll, job)
        }
    }
}

fn drive_on<D: Door, N: Network>(door: &D, reactor: &N::Reactor, job: Job) -> Result<End, String> {
    let mut client = door.open::<N>(reactor)?;
    bring_up::<D, N>(reactor, &job.clock, &mut client).map_err(|loss| door.explain(loss))?;
    job.drive(reactor, client, |client, losses| {
        while let Some(news) = D::news::<N>(client) {
            if let News::Lost(loss) = news {
                let (reached, note) = D::note(&loss);
                losses(reached, note);
            }
        }
    })
}

/// Waits until a client is up; `Err(None)` if that takes too long.
fn bring_up<D: Door, N: Network>(
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
                News::Up(found) => Ok(found),
                News::Lost(loss) => Err(Some(loss)),
            };
            return None;
        }
        if now >= deadline {
            return None;
        }
        let wake_at = client.wake_at().map_or(deadline, |at| at.min(deadline));
        Some(Turn { progressed, wake_at: Some(wake_at) })
    });
    outcome
}
