//! The rows of the table of `cargo xtask bench`: the comparison, the target, and the measurement of
//! each.

use std::collections::HashMap;

use super::idle;
use super::link::Link;
use super::load::{self, Figure};
use super::process::show;
use super::servers::{BenchProtocol, Ceiling, Contender, Op, Shape, Yardstick};
use super::settings::{Client, Settings};

/// A row of the table to measure: its name, and a description of the comparison.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    kind: Kind,
}

enum Kind {
    /// Compares requests a second: the server's divided by a yardstick's, at least `target`.
    Rate { of: BenchProtocol, shape: Shape, against: Baseline, target: f64 },
    /// Compares mean latencies: the server's minus a yardstick's in µs, at most `target`.
    Latency { of: BenchProtocol, shape: Shape, against: Baseline, target: f64 },
    /// Compares the server's requests a second at two shapes: those at `shape` divided by those at
    /// `other`, at least `target`.
    Within { shape: Shape, other: Shape, target: f64 },
    /// Compares the server's p95 at half of the maximum rate of `shape` with another p95 at that
    /// rate: their ratio is at most `target`.
    Tail { shape: Shape, beside: TailReference, target: f64 },
    /// Measures the server's bytes of memory for each of `connections` idle connections, at most
    /// `target`.
    Memory { connections: usize, target: f64 },
}

/// The measurement whose p95 a tail latency is compared with.
#[derive(Clone, Copy)]
enum TailReference {
    /// The server itself with the given number of connections.
    Connections(usize),
    /// The ceiling program with as many connections.
    Ceiling,
}

#[derive(Clone, Copy)]
enum Baseline {
    Ceiling,
    /// The ceiling program, measured with another load shape than the server.
    CeilingAt(Shape),
    Naive,
    /// The server itself over another protocol.
    BenchProtocol(BenchProtocol),
}

/// The least rate beside another build of the server, as a ratio.
const BEFORE_RATE_MIN: f64 = 0.95;

/// The largest latency beyond that of another build of the server, in µs.
const BEFORE_LATENCY_MAX: f64 = 1.0;

const fn shape(op: Op, block_size: usize, connections: usize, queue_depth: usize) -> Shape {
    Shape { op, block_size, connections, queue_depth }
}

const READ_1K: Shape = shape(Op::Read, 1024, 4, 32);
const READ_4K: Shape = shape(Op::Read, 4096, 4, 32);
const READ_4K_WIDE: Shape = shape(Op::Read, 4096, 16, 32);
const READ_4K_ALONE: Shape = shape(Op::Read, 4096, 1, 1);
const READ_4K_MANY: Shape = shape(Op::Read, 4096, 64, 4);
const WRITE_4K: Shape = shape(Op::Write, 4096, 4, 32);
const READ_512: Shape = shape(Op::Read, 512, 4, 32);
const READ_STREAM: Shape = shape(Op::Read, 128 << 10, 4, 8);
const WRITE_STREAM: Shape = shape(Op::Write, 128 << 10, 4, 8);
const CROWD: Shape = shape(Op::Read, 1024, 5000, 1);

/// All rows, in the order of the table.
pub(crate) const ALL: &[Row] = &[
    rate("read-1k-4x32", READ_1K, Baseline::Ceiling, 0.60),
    rate("read-1k-4x32-naive", READ_1K, Baseline::Naive, 3.0),
    rate("read-4k-4x32", READ_4K, Baseline::Ceiling, 0.75),
    rate("read-4k-4x32-floor", READ_4K, Baseline::CeilingAt(READ_4K_WIDE), 0.65),
    rate("read-4k-16x32", READ_4K_WIDE, Baseline::Ceiling, 0.75),
    rate("read-1k-64x4", shape(Op::Read, 1024, 64, 4), Baseline::Ceiling, 0.7),
    latency("read-4k-1x1-latency", BenchProtocol::Reflex1, Baseline::Ceiling),
    Row {
        name: "write-4k-4x32",
        kind: Kind::Within { shape: WRITE_4K, other: READ_4K, target: 0.6 },
    },
    rate("read-1k-5000x1", CROWD, Baseline::Ceiling, 0.7),
    Row {
        name: "read-1k-5000x1-tail",
        kind: Kind::Tail { shape: CROWD, beside: TailReference::Connections(50), target: 5.0 },
    },
    Row {
        name: "read-1k-5000x1-tail-ceiling",
        kind: Kind::Tail { shape: CROWD, beside: TailReference::Ceiling, target: 1.2 },
    },
    nvme("nvme-read-4k-4x32", READ_4K, Baseline::BenchProtocol(BenchProtocol::Reflex2), 0.85),
    nvme("nvme-read-512-4x32", READ_512, Baseline::Ceiling, 0.45),
    latency(
        "nvme-read-4k-1x1-latency",
        BenchProtocol::Nvme,
        Baseline::BenchProtocol(BenchProtocol::Reflex2),
    ),
    Row {
        name: "nvme-digest-4k-4x32",
        kind: Kind::Rate {
            of: BenchProtocol::NvmeDigest,
            shape: READ_4K,
            against: Baseline::BenchProtocol(BenchProtocol::Nvme),
            target: 0.9,
        },
    },
    nvme("nvme-read-128k-4x8", READ_STREAM, Baseline::Ceiling, 0.85),
    nvme("nvme-write-128k-4x8", WRITE_STREAM, Baseline::Ceiling, 0.85),
    nvme("nvme-read-4k-64x4", READ_4K_MANY, Baseline::BenchProtocol(BenchProtocol::Reflex2), 0.85),
    nvme("nvme-write-4k-4x32", WRITE_4K, Baseline::BenchProtocol(BenchProtocol::Reflex2), 0.85),
    tls("tls-reflex-read-4k-4x32", BenchProtocol::ReflexTls, BenchProtocol::Reflex2, 0.40),
    tls("tls-nvme-read-4k-4x32", BenchProtocol::NvmeTls, BenchProtocol::Nvme, 0.45),
    lone_tls("tls-reflex-read-4k-1x1-latency", BenchProtocol::ReflexTls, BenchProtocol::Reflex2),
    lone_tls("tls-nvme-read-4k-1x1-latency", BenchProtocol::NvmeTls, BenchProtocol::Nvme),
    Row { name: "idle-memory", kind: Kind::Memory { connections: 5000, target: 16.0 * 1024.0 } },
];

const fn rate(name: &'static str, shape: Shape, against: Baseline, target: f64) -> Row {
    Row { name, kind: Kind::Rate { of: BenchProtocol::Reflex1, shape, against, target } }
}

const fn nvme(name: &'static str, shape: Shape, against: Baseline, target: f64) -> Row {
    Row { name, kind: Kind::Rate { of: BenchProtocol::Nvme, shape, against, target } }
}

const fn latency(name: &'static str, of: BenchProtocol, against: Baseline) -> Row {
    Row { name, kind: Kind::Latency { of, shape: READ_4K_ALONE, against, target: 2.0 } }
}

/// Returns a row that compares a rate over TLS with that of the protocol without TLS.
const fn tls(name: &'static str, of: BenchProtocol, plain: BenchProtocol, target: f64) -> Row {
    Row {
        name,
        kind: Kind::Rate { of, shape: READ_4K, against: Baseline::BenchProtocol(plain), target },
    }
}

/// Returns a row that compares the latency of single requests over TLS with that without TLS.
const fn lone_tls(name: &'static str, of: BenchProtocol, plain: BenchProtocol) -> Row {
    let against = Baseline::BenchProtocol(plain);
    Row { name, kind: Kind::Latency { of, shape: READ_4K_ALONE, against, target: 3.0 } }
}

impl Row {
    /// Returns `true` if a side of the row needs the keys of TLS.
    pub(crate) fn is_over_tls(&self) -> bool {
        let (Kind::Rate { of, .. } | Kind::Latency { of, .. }) = self.kind else { return false };
        matches!(of, BenchProtocol::ReflexTls | BenchProtocol::NvmeTls)
    }
}

/// The measurements of one side of a row, one for each repetition.
pub(crate) struct RowSide {
    pub(crate) what: String,
    pub(crate) figures: Vec<Figure>,
}

/// The results of a measured row.
pub(crate) struct MeasuredRow {
    pub(crate) name: &'static str,
    /// The name of the compared quantity, with its unit.
    pub(crate) unit: &'static str,
    /// Returns the compared quantity of one measurement.
    pub(crate) of: fn(&Figure) -> f64,
    pub(crate) ours: RowSide,
    pub(crate) theirs: Option<RowSide>,
    /// The ratio or the difference of the two sides' medians.
    pub(crate) result: f64,
    pub(crate) target: f64,
    /// `true` if the result has to be at least the target; `false` if at most.
    pub(crate) at_least: bool,
    /// `true` if both sides ran as fast as they could, so that a server must have been busy.
    pub(crate) is_rate: bool,
}

/// The measurement of the rows of the table of `cargo xtask bench`. Keeps the best configuration of
/// the ceiling program for each shape of load, and the command lines that were used.
pub(crate) struct Rows<'a> {
    settings: &'a Settings,
    ceilings: HashMap<Shape, Ceiling>,
    /// The different command lines that were used, in the order of first use.
    commands: Vec<String>,
}

impl<'a> Rows<'a> {
    /// Creates the state for measuring rows with these settings.
    pub(crate) fn new(settings: &'a Settings) -> Self {
        Rows { settings, ceilings: HashMap::new(), commands: Vec::new() }
    }

    /// Returns the command lines that were used so far, one a line.
    pub(crate) fn commands(&self) -> String {
        self.commands.join("\n")
    }

    /// Returns the reason why a row cannot be measured with these settings; `None` if it can.
    pub(crate) fn obstacle(&self, row: &Row) -> Option<&'static str> {
        if self.settings.before.is_some()
            && !matches!(row.kind, Kind::Rate { .. } | Kind::Latency { .. })
        {
            return Some("the row compares the server with itself");
        }
        match (&row.kind, &self.settings.link, self.settings.client) {
            (Kind::Memory { .. }, Link::Veth(_), _) => Some("memory does not depend on the link"),
            (Kind::Tail { .. }, _, Client::Hammer) => Some("hammer knows no open loop"),
            (Kind::Rate { of, .. } | Kind::Latency { of, .. }, _, client)
                if *of != BenchProtocol::Reflex1 =>
            {
                match (client, self.settings.stand_in) {
                    (Client::Hammer, _) => Some("hammer speaks version 1 of reflex alone"),
                    (_, Some(_)) => Some("the yardsticks speak version 1 of reflex alone"),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Measures both sides of a row, or the server alone if the row compares it with nothing.
    /// Returns their measurements and the result.
    pub(crate) fn measure(&mut self, row: &Row) -> Result<MeasuredRow, String> {
        match row.kind {
            Kind::Rate { of, shape, against, target } => {
                self.rate(row.name, of, shape, against, target)
            }
            Kind::Latency { of, shape, against, target } => {
                self.latency(row.name, of, shape, against, target)
            }
            Kind::Within { shape, other, target } => self.within(row.name, shape, other, target),
            Kind::Tail { shape, beside, target } => self.tail(row.name, shape, beside, target),
            Kind::Memory { connections, target } => self.memory(row.name, connections, target),
        }
    }

    fn rate(
        &mut self,
        name: &'static str,
        of: BenchProtocol,
        shape: Shape,
        against: Baseline,
        target: f64,
    ) -> Result<MeasuredRow, String> {
        let ours = (self.speaking(of, shape)?, shape, None);
        let theirs = self.yardstick(of, shape, against)?;
        let target = self.settings.before.map_or(target, |_| BEFORE_RATE_MIN);
        let (ours, mut theirs) = self.in_turns(ours, theirs)?;
        if self.settings.before.is_none()
            && let Baseline::CeilingAt(Shape { connections, queue_depth, .. }) = against
        {
            theirs.what = format!("{} at {connections} × {queue_depth}", theirs.what);
        }
        Ok(MeasuredRow::of_rates(name, ours, theirs, target))
    }

    fn latency(
        &mut self,
        name: &'static str,
        speech: BenchProtocol,
        shape: Shape,
        against: Baseline,
        target: f64,
    ) -> Result<MeasuredRow, String> {
        let ours = (self.speaking(speech, shape)?, shape, None);
        let theirs = self.yardstick(speech, shape, against)?;
        let target = self.settings.before.map_or(target, |_| BEFORE_LATENCY_MAX);
        let (ours, theirs) = self.in_turns(ours, theirs)?;
        let (of, unit) = (|figure: &Figure| figure.mean_us, "µs mean");
        let result = ours.median(of) - theirs.median(of);
        let (theirs, is_rate) = (Some(theirs), false);
        Ok(MeasuredRow { name, unit, of, ours, theirs, result, target, at_least: false, is_rate })
    }

    fn within(
        &mut self,
        name: &'static str,
        shape: Shape,
        other: Shape,
        target: f64,
    ) -> Result<MeasuredRow, String> {
        let ours = (self.subject(shape)?, shape, None);
        let theirs = (self.subject(other)?, other, None);
        let (ours, mut theirs) = self.in_turns(ours, theirs)?;
        theirs.what = format!("its own {}s", other.op.name());
        Ok(MeasuredRow::of_rates(name, ours, theirs, target))
    }

    fn tail(
        &mut self,
        name: &'static str,
        shape: Shape,
        beside: TailReference,
        target: f64,
    ) -> Result<MeasuredRow, String> {
        let subject = self.subject(shape)?;
        let full = self.once(subject, shape, None)?.rate;
        let half = Some(full / 2.0);
        let other = match beside {
            TailReference::Connections(connections) => {
                let queue_depth = shape.connections / connections;
                (subject, Shape { connections, queue_depth, ..shape }, half)
            }
            TailReference::Ceiling => (Contender::Ceiling(self.ceiling(shape)?), shape, half),
        };
        let (ours, mut theirs) = self.in_turns((subject, shape, half), other)?;
        let what = match beside {
            TailReference::Connections(connections) => format!("{connections} connections"),
            TailReference::Ceiling => theirs.what,
        };
        theirs.what = format!("{what} at {:.0}/s", full / 2.0);
        let (of, unit) = (|figure: &Figure| figure.p95_us, "µs p95");
        let result = ours.median(of) / theirs.median(of);
        let (theirs, is_rate) = (Some(theirs), false);
        Ok(MeasuredRow { name, unit, of, ours, theirs, result, target, at_least: false, is_rate })
    }

    fn memory(
        &mut self,
        name: &'static str,
        connections: usize,
        target: f64,
    ) -> Result<MeasuredRow, String> {
        let shape = shape(Op::Read, 512, connections, 1);
        let subject = self.subject(shape)?;
        self.remember(show(&subject.command(shape, &self.settings.link, 7420)));
        let mut figures = Vec::new();
        for _ in 0..self.settings.repetitions.min(3) {
            let server = subject.start(shape, &self.settings.link)?;
            let bytes = idle::bytes_per_connection(&server, connections)?;
            // This row compares a size, which takes the field of the rate.
            figures.push(Figure { rate: bytes, ..Figure::default() });
        }
        let ours = RowSide { what: subject.name(), figures };
        let (of, unit) = (|figure: &Figure| figure.rate, "bytes/connection");
        let result = ours.median(of);
        let (theirs, at_least, is_rate) = (None, false, false);
        Ok(MeasuredRow { name, unit, of, ours, theirs, result, target, at_least, is_rate })
    }

    /// Returns the program that a row compares the server with, the shape of its load, and its rate
    /// in requests a second; `None` for as fast as possible.
    fn yardstick(
        &mut self,
        speech: BenchProtocol,
        shape: Shape,
        against: Baseline,
    ) -> Result<(Contender, Shape, Option<f64>), String> {
        if let Some(program) = self.settings.before {
            return Ok((Contender::Before(speech, program), shape, None));
        }
        Ok(match against {
            Baseline::Ceiling => (Contender::Ceiling(self.ceiling(shape)?), shape, None),
            Baseline::CeilingAt(other) => (Contender::Ceiling(self.ceiling(other)?), other, None),
            Baseline::Naive => (Contender::Naive, shape, None),
            Baseline::BenchProtocol(speech) => (Contender::Nearflash(speech), shape, None),
        })
    }

    /// Returns the server under test, over protocol version 1 of `reflex`.
    fn subject(&mut self, shape: Shape) -> Result<Contender, String> {
        self.speaking(BenchProtocol::Reflex1, shape)
    }

    /// Returns the server over a protocol, or the reference program that replaces the server for
    /// the comparison.
    fn speaking(&mut self, speech: BenchProtocol, shape: Shape) -> Result<Contender, String> {
        Ok(match self.settings.stand_in {
            None => Contender::Nearflash(speech),
            Some(Yardstick::Naive) => Contender::Naive,
            Some(Yardstick::Ceiling) => Contender::Ceiling(self.ceiling(shape)?),
        })
    }

    /// Returns the fastest configuration of the ceiling for a shape of load. A short search finds
    /// it once for each shape.
    fn ceiling(&mut self, shape: Shape) -> Result<Ceiling, String> {
        if let Some(known) = self.ceilings.get(&shape) {
            return Ok(*known);
        }
        let mut best: Option<(f64, Ceiling)> = None;
        for way in Ceiling::ways(self.settings.quick) {
            let server = Contender::Ceiling(way).start(shape, &self.settings.link)?;
            let rate =
                load::measure(self.settings, &server, BenchProtocol::Reflex1, shape, 1, None)?.rate;
            if best.is_none_or(|(most, _)| rate > most) {
                best = Some((rate, way));
            }
        }
        let (rate, way) = best.expect("there are ways");
        println!("  ceiling: {way:?} with {rate:.0}/s in the search");
        self.ceilings.insert(shape, way);
        Ok(way)
    }

    fn once(
        &mut self,
        contender: Contender,
        shape: Shape,
        rate: Option<f64>,
    ) -> Result<Figure, String> {
        let settings = self.settings;
        let server = contender.start(shape, &settings.link)?;
        let speech = contender.speech();
        let figure = load::measure(settings, &server, speech, shape, settings.seconds, rate)?;
        self.remember(show(&contender.command(shape, &settings.link, 7420)));
        let url = speech.url(&format!("{}:7420", settings.link.server_address()));
        let client = load::command(settings, &url, shape, settings.seconds, rate)?;
        self.remember(show(&client));
        Ok(figure)
    }

    /// Measures both sides in turns (A B A B …), each `repetitions` times.
    fn in_turns(
        &mut self,
        ours: (Contender, Shape, Option<f64>),
        theirs: (Contender, Shape, Option<f64>),
    ) -> Result<(RowSide, RowSide), String> {
        let mut sides = (
            RowSide { what: ours.0.name(), figures: Vec::new() },
            RowSide { what: theirs.0.name(), figures: Vec::new() },
        );
        for _ in 0..self.settings.repetitions {
            sides.0.figures.push(self.once(ours.0, ours.1, ours.2)?);
            sides.1.figures.push(self.once(theirs.0, theirs.1, theirs.2)?);
        }
        Ok(sides)
    }

    fn remember(&mut self, command: String) {
        if !self.commands.contains(&command) {
            self.commands.push(command);
        }
    }
}

impl Contender {
    fn name(self) -> String {
        match self {
            Contender::Nearflash(speech) => speech.name().to_owned(),
            Contender::Before(speech, _) => format!("{}, before", speech.name()),
            Contender::Naive => "naive".to_owned(),
            Contender::Ceiling(Ceiling { interface, send_cap, socket_buffer }) => {
                format!("ceiling ({interface}, cap {send_cap}, buffer {socket_buffer})")
            }
        }
    }
}

impl RowSide {
    /// Returns the median over the repetitions of the quantity that `of` picks.
    pub(crate) fn median(&self, of: fn(&Figure) -> f64) -> f64 {
        let sorted = self.sorted(of);
        let middle = sorted.len() / 2;
        if sorted.len().is_multiple_of(2) {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        } else {
            sorted[middle]
        }
    }

    /// Returns the values of the quantity that `of` picks, in ascending order.
    pub(crate) fn sorted(&self, of: fn(&Figure) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.figures.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

impl MeasuredRow {
    /// Returns the ratio of two rates, which has to be at least the target.
    fn of_rates(name: &'static str, ours: RowSide, theirs: RowSide, target: f64) -> MeasuredRow {
        let (of, unit) = (|figure: &Figure| figure.rate, "requests/s");
        let result = ours.median(of) / theirs.median(of);
        let theirs = Some(theirs);
        MeasuredRow { name, unit, of, ours, theirs, result, target, at_least: true, is_rate: true }
    }

    /// Returns `true` if the row's result meets its target.
    pub(crate) fn is_met(&self) -> bool {
        if self.at_least { self.result >= self.target } else { self.result <= self.target }
    }
}
