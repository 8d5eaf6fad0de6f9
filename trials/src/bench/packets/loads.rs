//! The rows that compare one load over several transports.

use super::bed::{Cable, Figure, Shape};
use super::judge::{Bound, Measured, Side, ratio};
use super::way::Way;

/// The compared quantity of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// Completed requests a second.
    Rate,
    /// The median latency.
    Median,
}

/// A load that is made over several ways, and its targets.
pub(super) struct Load {
    pub(super) name: &'static str,
    about: &'static str,
    shape: Shape,
    /// The number of associations of the client, over packets.
    associations: usize,
    of: Quantity,
    /// The ways. Ratios are to the first one.
    ways: &'static [Way],
    targets: &'static [Target],
}

/// A target: the ratio of the quantity over one way to that over another.
struct Target(Way, Way, Bound);

const fn shape(block_size: usize, connections: usize, queue_depth: usize) -> Shape {
    Shape { block_size, connections, queue_depth }
}

const ALL: &[Way] = &[Way::Tcp, Way::Udp, Way::UdpFixed, Way::XdpFixed, Way::SealedFixed];

/// The fields that most loads share.
const LOAD: Load = Load {
    name: "",
    about: "",
    shape: shape(4096, 8, 32),
    associations: 1,
    of: Quantity::Rate,
    ways: ALL,
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
                Target(Way::XdpFixed, Way::Tcp, Bound::AtMost(0.65)),
                Target(Way::Udp, Way::Tcp, Bound::AtMost(0.90)),
            ],
            ..LOAD
        },
        Load {
            name: "shallow",
            about: "5 000 connections of one client, 1 KiB, 1 request each",
            shape: shape(1024, 5000, 1),
            targets: &[
                Target(Way::Udp, Way::Tcp, Bound::AtLeast(4.0)),
                Target(Way::UdpFixed, Way::Tcp, Bound::AtLeast(4.0)),
                Target(Way::XdpFixed, Way::Tcp, Bound::AtLeast(4.0)),
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
                Target(Way::XdpFixed, Way::Tcp, Bound::AtLeast(1.8)),
                Target(Way::Udp, Way::Tcp, Bound::AtLeast(1.3)),
                Target(Way::UdpFixed, Way::Tcp, Bound::AtLeast(1.3)),
            ],
            ..LOAD
        },
        Load {
            name: "deep",
            about: "8 connections, 4 KiB, 32 requests each",
            ways: &[Way::Tcp, Way::Udp, Way::UdpFixed, Way::XdpFixed],
            targets: &[
                Target(Way::Udp, Way::Tcp, Bound::AtLeast(0.90)),
                Target(Way::UdpFixed, Way::Tcp, Bound::AtLeast(0.90)),
                Target(Way::XdpFixed, Way::Tcp, Bound::AtLeast(0.45)),
            ],
            ..LOAD
        },
        Load {
            name: "sealed",
            about: "8 connections, 4 KiB, 32 requests each",
            ways: &[Way::UdpFixed, Way::SealedFixed],
            targets: &[Target(Way::SealedFixed, Way::UdpFixed, Bound::AtLeast(0.42))],
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
    /// Measures all ways in turns. A way that fails, such as AF_XDP where it is missing, has no
    /// figures.
    pub(super) fn measure(&self, bed: &mut Cable) -> Measured {
        let mut sides: Vec<Side> = self.ways.iter().map(|way| Side::new(way.to_string())).collect();
        for _ in 0..bed.rounds {
            for (way, side) in self.ways.iter().zip(&mut sides) {
                let associations = if *way == Way::Tcp { 1 } else { self.associations };
                let figure = bed.once(*way, self.shape, associations);
                side.add(figure.map(|figure| (self.of.of(&figure), figure.taken)));
            }
        }
        let side = |of: Way| {
            let nth = self.ways.iter().position(|way| *way == of);
            &sides[nth.expect("targets are of ways of the row")]
        };
        let judged = self.targets.iter().map(|Target(ours, theirs, bound)| {
            ratio(format!("{ours} beside {theirs}"), side(*ours), side(*theirs), *bound)
        });
        let judged = judged.collect();
        Measured {
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
                assert!(load.ways.contains(ours) && load.ways.contains(theirs), "{}", load.name);
            }
        }
    }
}
