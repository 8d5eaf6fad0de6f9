//! A query of a `reflex` server's size, which also shows whether the server can be reached.

use std::time::Duration;

use client::{Initiator, Loss, Options, Report, Version};
use contract::{CloseReason, ControlRequest, NamespaceId, Status, TurnOutcome};
use io::{
    Clock, Endpoint, EpollReactor, EpollSockets, Network, PacketSockets, Ring, Sockets,
    SocketsConfig, SpinPolicy,
};

use server::listen::{Protocol, url};

use super::target::ServerAddress;

/// The time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The reason that a query failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The query could not be sent, by an error of the local system.
    Local(io::Error),
    /// The server did not answer, for this reason.
    Unanswered(Loss),
    /// The server answered the query with this status instead of a size.
    Refused(Status),
}

impl Failure {
    /// Returns a message for the user: why the query of the server failed, and what to do about it.
    pub(super) fn explain(&self, server: &Endpoint) -> String {
        let loss = match self {
            Failure::Local(error) => return error.to_string(),
            Failure::Refused(status) => {
                return format!("the server does not say what it has: {status}");
            }
            Failure::Unanswered(loss) => *loss,
        };
        if let Some(refusal) = loss.refused_seal() {
            return format!("cannot use {}: {refusal}", url(Protocol::Reflex, server));
        }
        let system = loss.errno().map(std::io::Error::from_raw_os_error);
        let hint = match &system {
            Some(error) => hint(error, server),
            None if loss == Loss::Refused(Status::Denied) => {
                "does --token fit the server's access rules, and is there such a --tenant?"
            }
            None if matches!(loss, Loss::Network(CloseReason::Insecure(_))) => {
                "`nearflash serve` says at its start which listeners have TLS: reflexs://"
            }
            None => "is it a nearflash server? one of the original protocol needs `?v=1`",
        };
        let what = system.map_or(loss.to_string(), |error| error.to_string());
        format!("cannot use {}: {what}\n{hint}", url(Protocol::Reflex, server))
    }
}

/// Returns advice about a system error of a connection to `server`.
pub(super) fn hint(error: &std::io::Error, server: &Endpoint) -> &'static str {
    use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied};
    match (error.kind(), server) {
        (ConnectionRefused, _) | (NotFound, Endpoint::Unix(_)) => {
            "is the server running? start it with `nearflash serve`"
        }
        (PermissionDenied, Endpoint::Unix(_)) => {
            "this user may not use the socket: the server's `?mode=` says who may"
        }
        (PermissionDenied, Endpoint::Ethernet(_)) => {
            "raw Ethernet needs the capability CAP_NET_RAW: run it as root"
        }
        (_, Endpoint::Ethernet(_)) => {
            "is the server running, is the address that of its card, and is the interface up and in \
             one segment with it?"
        }
        (_, Endpoint::Unix(_)) => "is the path right?",
        _ => "is the address right, and does no firewall stand between?",
    }
}

/// Queries the size of a namespace in blocks; returns `None` if the server cannot report one. The
/// query uses protocol version 2, which every nearflash server speaks.
pub(super) fn look(
    server: &ServerAddress,
    options: &Options,
    namespace: Option<NamespaceId>,
) -> Result<Option<u64>, Failure> {
    match Ring::new() {
        Ok(ring) if server.endpoint.is_of_packets() => {
            look_on::<PacketSockets>(&ring, server, options, namespace)
        }
        Err(no_ring) if server.endpoint.is_of_packets() => Err(Failure::Local(no_ring)),
        Ok(ring) => look_on::<Sockets>(&ring, server, options, namespace),
        Err(no_ring) => {
            errln!("note: {no_ring}; using epoll, which is a little slower");
            let epoll = EpollReactor::new().map_err(Failure::Local)?;
            look_on::<EpollSockets>(&epoll, server, options, namespace)
        }
    }
}

fn look_on<N: Network>(
    reactor: &N::Reactor,
    server: &ServerAddress,
    options: &Options,
    namespace: Option<NamespaceId>,
) -> Result<Option<u64>, Failure> {
    let config = SocketsConfig {
        connections_max: 4,
        receive_buffers: 16,
        frames_max: 64,
        ..SocketsConfig::default()
    };
    let mut sockets = N::new(reactor, config).map_err(Failure::Local)?;
    server.dial(&mut sockets).map_err(Failure::Local)?;
    let clock = Clock::start();
    let options = Options {
        connections: 1,
        in_flight_max: 4,
        version: Version::Two,
        client: 0,
        ..options.clone()
    };
    let mut initiator = Initiator::new(sockets, options);
    let question = ControlRequest::Info { tag: 0, namespace };
    initiator.control(clock.now(), None, question).expect("nothing is in flight yet");
    let deadline = clock.now() + PATIENCE;
    let mut answer = Err(Failure::Unanswered(Loss::Silent));
    let mut done = Vec::new();
    io::run(reactor, &clock, SpinPolicy::default(), |now| {
        let progressed = initiator.turn(now, &mut done);
        for report in initiator.reports() {
            match report {
                Report::Info(_, info) => {
                    answer = info.map(|info| Some(info.blocks)).map_err(Failure::Refused);
                    return None;
                }
                Report::Lost { why, .. } => {
                    answer = Err(Failure::Unanswered(why));
                    return None;
                }
                _ => {}
            }
        }
        if now >= deadline {
            return None;
        }
        let wake_at = initiator.wake_at().map_or(deadline, |at| at.min(deadline));
        Some(TurnOutcome { progressed, wake_at: Some(wake_at) })
    });
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_says_what_to_do() {
        let tcp = Endpoint::Internet("127.0.0.1:7420".parse().unwrap());
        let unix = Endpoint::Unix(io::UnixPath::new("/run/a").unwrap());
        let explain = |errno, endpoint| {
            Failure::Unanswered(Loss::Network(CloseReason::Unreachable(errno))).explain(endpoint)
        };
        let (refused, missing, denied) = (111, 2, 13);
        for text in [explain(refused, &tcp), explain(refused, &unix), explain(missing, &unix)] {
            assert!(text.contains("running? start it with `nearflash serve`"), "{text}");
        }
        assert!(explain(refused, &tcp).contains("reflex://127.0.0.1:7420"));
        let text = explain(denied, &unix);
        assert!(text.contains("reflex+unix:/run/a") && text.contains("?mode="), "{text}");
    }
}
