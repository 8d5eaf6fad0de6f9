//! The comparison of a client's reads with and without a flood of up to a million forged packets a
//! second

use std::net::SocketAddr;
use std::process::Command;

use super::fixture::{CLIENT_CPU, Cable, Figure, SERVER_CPU, Shape};
use super::judge::{Bound, ComparedSide, Comparison, TargetResult, ratio, verdict};
use super::transport::Transport;
use crate::bench::process::{Server, private_bytes};

/// The shape of the client's reads: of the measured open loop, and of the closed loop before it.
const SHAPE: Shape = Shape { block_size: 4096, connections: 8, queue_depth: 8 };
const BUSY: Shape = Shape { block_size: 4096, connections: 64, queue_depth: 32 };
const READS_PER_SECOND: &str = "5000";

/// The maximum factor by which forged packets may raise the p95 of reads.
const SLOWER_MAX: f64 = 1.25;

/// The most bytes by which the server's memory may grow after the first round. Buffers of its pools
/// become resident one by one when they are first used; a few bytes for each forged packet would be
/// more.
const GROWTH_MAX: f64 = 1_048_576.0;

/// The destinations of forged packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ForgeTarget {
    /// No packets are forged.
    Nobody,
    Server,
    /// A socket on the server's core, whose program discards all packets.
    Sink,
    /// A closed port of the server's machine.
    Closed,
}

const ALL: [ForgeTarget; 4] =
    [ForgeTarget::Nobody, ForgeTarget::Server, ForgeTarget::Sink, ForgeTarget::Closed];

/// The findings of the rounds besides the read latencies.
#[derive(Default)]
struct ForgedRounds {
    /// Forged packets a second, by destination.
    rates: [Vec<f64>; ALL.len()],
    /// The associations that the client lost.
    lost: u64,
    /// The server's private memory in bytes, before the first round and after each.
    memory: Vec<f64>,
}

/// Measures reads during a flood of forged packets, without and with encryption.
pub(super) fn measure(bed: &mut Cable) -> Vec<Comparison> {
    [("forged", Transport::UdpFixed), ("forged sealed", Transport::SealedFixed)]
        .map(|(name, transport)| one(bed, name, transport))
        .into()
}

fn one(bed: &mut Cable, name: &'static str, transport: Transport) -> Comparison {
    let (mut sides, mut told) =
        (ALL.map(|to| ComparedSide::new(to.name().to_owned())), ForgedRounds::default());
    if let Err(error) = rounds(bed, transport, &mut sides, &mut told) {
        sides[1].add(Err(error));
    }
    let mut judged = vec![
        ratio(
            format!("{transport}: p95 beside none"),
            &sides[1],
            &sides[0],
            Bound::AtMost(SLOWER_MAX),
        ),
        ratio(
            format!("{transport}: p95 beside the same packets to a bare socket"),
            &sides[1],
            &sides[2],
            Bound::AtMost(SLOWER_MAX),
        ),
    ];
    let lost = Some(told.lost as f64).filter(|_| sides[1].median().is_some());
    let shown = told.lost.to_string();
    let what = "lost associations".to_owned();
    judged.push(verdict(what, Bound::AtMost(0.0), lost, shown, &[]));
    judged.push(memory(&told.memory));
    for (side, rates) in sides.iter_mut().zip(&told.rates) {
        if let Some(rate) = super::judge::median(rates) {
            side.name = format!("{}, {:.0} thousand/s", side.name, rate / 1000.0);
        }
    }
    let about = format!("{READS_PER_SECOND} reads/s of 4 KiB, {transport}");
    Comparison { name, about, unit: "µs, p95", sides: sides.into(), judged }
}

/// Judges the growth of the server's memory after the first round.
fn memory(readings: &[f64]) -> TargetResult {
    let growth = match readings {
        [_, first, .., last] => Some((last - first).max(0.0)),
        _ => None,
    };
    let kib: Vec<String> = readings.iter().map(|bytes| format!("{:.0}", bytes / 1024.0)).collect();
    let shown = match growth {
        Some(growth) => format!("{growth:.0} (KiB, round by round: {})", kib.join(", ")),
        None => format!("one round (KiB: {})", kib.join(", ")),
    };
    let what = "bytes of memory after the first round".to_owned();
    verdict(what, Bound::AtMost(GROWTH_MAX), growth, shown, &[])
}

/// Runs all rounds on one server.
fn rounds(
    bed: &mut Cable,
    transport: Transport,
    sides: &mut [ComparedSide],
    told: &mut ForgedRounds,
) -> Result<(), String> {
    let port = bed.port();
    let server = bed.serve(&[transport.server_url(&bed.places, port)])?;
    let memory = || private_bytes(server.id()).ok_or("the server is gone".to_owned());
    let url = transport.client_url(&bed.places, port);
    // A busy client makes resident what packets that are no forgeries need, too.
    let busy = bed.load(&url, BUSY);
    bed.measure(&server, busy)?;
    told.memory.push(memory()? as f64);
    for _ in 0..bed.rounds {
        let mut taken = 0.0;
        for (nth, to) in ALL.into_iter().enumerate() {
            let (figure, rate) = once(bed, &server, &url, (port, to))?;
            told.lost += figure.lost;
            told.rates[nth].extend(rate);
            // The forger and the sink are no other work, so the quiet turn tells of the machine.
            if to == ForgeTarget::Nobody {
                taken = figure.taken;
            }
            sides[nth].add(Ok((figure.p95_us, taken)));
        }
        told.memory.push(memory()? as f64);
    }
    Ok(())
}

/// Measures reads during a flood of forged packets to one destination. Returns the figure, and the
/// forged packets a second.
fn once(
    bed: &mut Cable,
    server: &Server,
    url: &str,
    (port, to): (u16, ForgeTarget),
) -> Result<(Figure, Option<f64>), String> {
    let other = bed.port();
    let at = |port: u16| SocketAddr::new(bed.places.internet(), port);
    let (target, sink) = match to {
        ForgeTarget::Nobody => (None, None),
        ForgeTarget::Server => (Some(at(port)), None),
        ForgeTarget::Sink => {
            let mut command = pinned(bed.link.server_side("taskset"), SERVER_CPU)?;
            command.args(["sink", "--at", &at(other).to_string()]);
            (Some(at(other)), Some(Server::start(&mut command)?))
        }
        ForgeTarget::Closed => (Some(at(other)), None),
    };
    let forger = match target {
        None => None,
        Some(target) => {
            // A thread without a share of its own runs when nothing else wants to.
            let mut command = bed.link.client_side("chrt");
            command.args(["--idle", "0", "taskset"]);
            let mut command = pinned(command, CLIENT_CPU)?;
            command.args(["forge", "--to", &target.to_string(), "--seen", &port.to_string()]);
            bed.remember(&command);
            Some(Server::start(&mut command)?)
        }
    };
    let mut command = bed.calm_load(url, SHAPE);
    command.args(["--rate", READS_PER_SECOND, "--seconds", &bed.seconds.to_string()]);
    let figure = bed.measure(server, command)?;
    let rate = match &forger {
        None => None,
        Some(forger) => {
            let (sent, seconds) = (forger.says("sent"), forger.says("seconds"));
            let rate = sent.zip(seconds).map(|(sent, seconds)| sent / seconds);
            Some(rate.ok_or("the forger sent nothing")?)
        }
    };
    drop(sink);
    Ok((figure, rate))
}

/// Returns a command that runs this program on a core, without its own command yet.
fn pinned(mut command: Command, core: &str) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    command.args(["-c", core]).arg(own);
    Ok(command)
}

impl ForgeTarget {
    fn name(self) -> &'static str {
        match self {
            ForgeTarget::Nobody => "no forged packets",
            ForgeTarget::Server => "forged packets",
            ForgeTarget::Sink => "the same to a bare socket",
            ForgeTarget::Closed => "the same to a closed port",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::packets::judge::Verdict;

    #[test]
    fn memory_may_grow_in_the_first_round_alone() {
        let judged = |readings: &[f64]| {
            let judged = memory(readings);
            (judged.result, judged.verdict)
        };
        let (result, verdict) = judged(&[1024.0, 4096.0, 4096.0, 1_052_672.0]);
        assert_eq!(result, "1048576 (KiB, round by round: 1, 4, 4, 1028)");
        assert_eq!(verdict, Verdict::Met);
        assert_eq!(judged(&[1e6, 3e6, 4.1e6]).1, Verdict::Missed);
        assert_eq!(judged(&[3e6, 3e6, 1e6]).1, Verdict::Met);
        assert!(matches!(judged(&[1e6, 3e6]).1, Verdict::NotDecided(_)));
    }
}
