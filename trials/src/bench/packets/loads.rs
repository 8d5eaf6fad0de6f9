//! The rows that compare one load over several transports.

use super::fixture::{Cable, Figure, Shape};
use super::judge::{Bound, ComparedSide, Comparison, ratio};
use super::transport::Transport;

/// The compared quantity of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// Completed requests a second.
    Rate,
    /// The median latency.
    Median,
}

/// A load that is made over several transports, and its targets.
pub(super) struct Load {
    pub(super) name: &'static str,
    about: &'static str,
    shape: Shape,
    /// The number of associations of the client, over packets.
    associations: usize,
    of: Quantity,
    /// The transports. Ratios are to the first one.
    transports: &'static [Transport],
    targets: &'static [Target],
}

/// A target: the ratio of the quantity over one transport to that over another.
struct Target(Transport, Transport, Bound);

const fn shape(block_size: usize, connections: usize, queue_depth: usize) -> Shape {
    Shape { block_size, connections, queue_depth }
}

const ALL: &[Transport] = &[
    Transport::Tcp,
    Transport::Udp,
    Transport::UdpFixed,
    Transport::XdpFixed,
    Transport::SealedFixed,
];

/// The fields that most loads share.
const LOAD: Load = Load {
    name: "",
    about: "",
    shape: shape(4096, 8, 32),
    associations: 1,
    of: Quantity::Rate,
    transports: ALL,
    targets: &[],
};

/// Returns the rows, in the order of the table.
pub(super) fn all() -> Vec<Load> {
    vec![
        Load {
            name: "qd1",
            about: "1 connection, 4 KiB, 1 request",
            shape: shape(4096, 1, 1),
            of: Quantity::Median,
            targets: &[
                Target(Transport::XdpFixed, Transport::Tcp, Bound::AtMost(0.65)),
                Target(Transport::Udp, Transport::Tcp, Bound::AtMost(0.90)),
            ],
            ..LOAD
        },
        Load {
            name: "shallow",
            about: "5 000 connections of one client, 1 KiB, 1 request each",
            shape: shape(1024, 5000, 1),
            targets: &[
                Target(Transport::Udp, Transport::Tcp, Bound::AtLeast(4.0)),
                Target(Transport::UdpFixed, Transport::Tcp, Bound::AtLeast(4.0)),
                Target(Transport::XdpFixed, Transport::Tcp, Bound::AtLeast(4.0)),
            ],
            ..LOAD
        },
        Load {
            name: "connections",
            about: "256 connections of one client, 4 KiB, 1 request each",
            shape: shape(4096, 256, 1),
            ..LOAD
        },
        Load {
            name: "associations",
            about: "256 connections, 4 KiB, 1 request each; packets with 256 associations",
            shape: shape(4096, 256, 1),
            associations: 256,
            targets: &[
                Target(Transport::XdpFixed, Transport::Tcp, Bound::AtLeast(1.8)),
                Target(Transport::Udp, Transport::Tcp, Bound::AtLeast(1.3)),
                Target(Transport::UdpFixed, Transport::Tcp, Bound::AtLeast(1.3)),
            ],
            ..LOAD
        },
        Load {
            name: "deep",
            about: "8 connections, 4 KiB, 32 requests each",
            transports: &[Transport::Tcp, Transport::Udp, Transport::UdpFixed, Transport::XdpFixed],
            targets: &[
                Target(Transport::Udp, Transport::Tcp, Bound::AtLeast(0.90)),
                Target(Transport::UdpFixed, Transport::Tcp, Bound::AtLeast(0.90)),
                Target(Transport::XdpFixed, Transport::Tcp, Bound::AtLeast(0.45)),
            ],
            ..LOAD
        },
        Load {
            name: "sealed",
            about: "8 connections, 4 KiB, 32 requests each",
            transports: &[Transport::UdpFixed, Transport::SealedFixed],
            targets: &[Target(Transport::SealedFixed, Transport::UdpFixed, Bound::AtLeast(0.42))],
            ..LOAD
        },
    ]
}

impl Quantity {
    fn unit(self) -> &'static str {
        match self {
            Quantity::Rate => "thousand requests/s",
            Quantity::Median => "µs, median",
        }
    }

    fn of(self, figure: &Figure) -> f64 {
        match self {
            Quantity::Rate => figure.rate / 1000.0,
            Quantity::Median => figure.p50_us,
        }
    }
}

impl Load {
    /// Measures all transports in turns. A transport that fails, such as AF_XDP where it is
    /// missing, has no figures.
    pub(super) fn measure(&self, bed: &mut Cable) -> Comparison {
        let mut sides: Vec<ComparedSide> = self
            .transports
            .iter()
            .map(|transport| ComparedSide::new(transport.to_string()))
            .collect();
        for _ in 0..bed.rounds {
            for (transport, side) in self.transports.iter().zip(&mut sides) {
                let associations = if *transport == Transport::Tcp { 1 } else { self.associations };
                let figure = bed.once(*transport, self.shape, associations);
                side.add(figure.map(|figure| (self.of.of(&figure), figure.taken)));
            }
        }
        let side = |of: Transport| {
            let nth = self.transports.iter().position(|transport| *transport == of);
            &sides[nth.expect("targets are of transports of the row")]
        };
        let judged = self.targets.iter().map(|Target(ours, theirs, bound)| {
            ratio(format!("{ours} beside {theirs}"), side(*ours), side(*theirs), *bound)
        });
        let judged = judged.collect();
        Comparison {
            name: self.name,
            about: self.about.to_owned(),
            unit: self.of.unit(),
            sides,
            judged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_of_ways_that_their_row_measures() {
        for load in all() {
            for Target(ours, theirs, _) in load.targets {
                assert!(
                    load.transports.contains(ours) && load.transports.contains(theirs),
                    "{}",
                    load.name
                );
            }
        }
    }
}
