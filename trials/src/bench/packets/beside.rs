//! The cost that a packet listener has for TCP connections at one server: a server with the
//! listener is compared with a server without it, in pairs of turns.

use super::fixture::{Cable, Figure, Shape};
use super::judge::{Bound, ComparedSide, Comparison, pairs};
use super::transport::Transport;

/// The loads over TCP: their names, descriptions and shapes.
const LOADS: [(&str, &str, Shape); 3] = [
    ("beside 1k-4x32", "TCP, 4 connections, 1 KiB, 32 requests each", shape(1024, 4, 32)),
    ("beside 4k-8x32", "TCP, 8 connections, 4 KiB, 32 requests each", shape(4096, 8, 32)),
    ("beside 4k-1x1", "TCP, 1 connection, 4 KiB, 1 request", shape(4096, 1, 1)),
];

/// The maximum cost of a packet listener for TCP connections, as a share.
const COST_MAX: f64 = 0.005;

const fn shape(block_size: usize, connections: usize, queue_depth: usize) -> Shape {
    Shape { block_size, connections, queue_depth }
}

/// Measures all loads at both servers. Every second pair begins with the other server.
pub(super) fn measure(bed: &mut Cable) -> Vec<Comparison> {
    LOADS.iter().flat_map(|(name, about, shape)| one(bed, name, about, *shape)).collect()
}

/// Measures one load. Returns its speed, and the processor time of the server for each request.
fn one(bed: &mut Cable, name: &'static str, about: &str, shape: Shape) -> [Comparison; 2] {
    let names = ["TCP alone", "beside a listener of packets"].map(str::to_owned);
    let is_lone = shape.connections * shape.queue_depth == 1;
    let mut speeds = names.clone().map(ComparedSide::new);
    let mut costs = names.map(ComparedSide::new);
    for round in 0..bed.rounds {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            let figure = once(bed, shape, which == 1);
            let speed =
                |figure: &Figure| if is_lone { figure.p50_us } else { figure.rate / 1000.0 };
            let of = |value: fn(&Figure) -> f64| {
                figure.as_ref().map(|figure| (value(figure), figure.taken)).map_err(String::clone)
            };
            costs[which].add(of(|figure| figure.server_nanos));
            let figure = figure.as_ref().map(|figure| (speed(figure), figure.taken));
            speeds[which].add(figure.map_err(String::clone));
        }
    }
    let (unit, bound) = match is_lone {
        true => ("µs, median", Bound::AtMost(1.0 + COST_MAX)),
        false => ("thousand requests/s", Bound::AtLeast(1.0 - COST_MAX)),
    };
    [(speeds, unit, bound), (costs, "server's ns/request", Bound::AtMost(1.0 + COST_MAX))].map(
        |(sides, unit, bound)| {
            let what = format!("beside a listener of packets, {unit}, in pairs");
            let judged = vec![pairs(what, &sides[1], &sides[0], bound)];
            Comparison { name, about: about.to_owned(), unit, sides: sides.into(), judged }
        },
    )
}

/// Measures the load over TCP on a fresh server, which also listens for packets if `has_packets`.
fn once(bed: &mut Cable, shape: Shape, has_packets: bool) -> Result<Figure, String> {
    let port = bed.port();
    let mut urls = vec![Transport::Tcp.server_url(&bed.places, port)];
    if has_packets {
        urls.push(Transport::Udp.server_url(&bed.places, port));
    }
    let server = bed.serve(&urls)?;
    let command = bed.load(&Transport::Tcp.client_url(&bed.places, port), shape);
    bed.measure(&server, command)
}
