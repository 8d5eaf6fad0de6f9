//! The plan of a measurement: the checked command line, and the load of each thread.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use client::load::{Pace, Pattern, Shape, VERIFY_UNITS_MAX, unit_bytes};
use client::{Options, Version};
use contract::{BLOCK_BYTES, NamespaceId};
use dataplane::Volume;

use super::arguments::Arguments;
use super::nbd::{self, NbdServer};
use super::nvme::{self, NvmeServer};
use super::problem::Problem;
use super::survey;
use super::target::{ServerAddress, Target};
use crate::report::number_text;
use flash::size_text;

/// Maximum number of requests that one thread may keep in flight.
const IN_FLIGHT_MAX: usize = 1 << 16;

/// The pause between two reads of the latency probe.
const PROBE_GAP: Duration = Duration::from_millis(1);

/// The bytes that requests go to if the server cannot report the size of its device.
const BLIND_SPAN_BYTES: u64 = 64 << 20;

/// The plan of a measurement, derived from the arguments.
#[derive(Debug)]
pub(super) struct Plan {
    /// A description of the measurement in one line.
    pub(super) headline: String,
    pub(super) path: RequestPath,
    /// The load of each thread.
    pub(super) shapes: Vec<Shape>,
    pub(super) warmup: Duration,
    pub(super) seconds: Duration,
    pub(super) probe: Option<Duration>,
    pub(super) spin: bool,
}

/// The path by which requests reach their target.
#[derive(Debug)]
pub(super) enum RequestPath {
    Server {
        reach: ServerAddress,
        namespace: Option<NamespaceId>,
        /// The options of the first thread's client; those of other threads differ in identity,
        /// seed and number of connections.
        options: Options,
    },
    Nvme(NvmeServer),
    Nbd(NbdServer),
    Device(Arc<Volume>),
}

impl Plan {
    pub(super) fn new(arguments: &Arguments) -> Result<Plan, Problem> {
        let threads = arguments.threads as usize;
        let connections = arguments.connections.unwrap_or(arguments.threads) as usize;
        if connections < threads {
            return Err(Problem::Usage(format!(
                "--threads {threads} needs at least as many --connections"
            )));
        }
        let in_flight = connections.div_ceil(threads) * arguments.queue_depth as usize + 1;
        if in_flight > IN_FLIGHT_MAX {
            return Err(Problem::Usage(format!(
                "{} requests in flight a thread are too many (at most {}); lower --queue-depth or \
                 --connections, or raise --threads",
                number_text(in_flight as f64),
                number_text(IN_FLIGHT_MAX as f64)
            )));
        }
        check_version(arguments)?;
        let lanes = connections.div_ceil(threads) + usize::from(arguments.probe);
        let (path, capacity) = path(arguments, lanes)?;
        let span = span(arguments, capacity, threads)?;
        let shapes = shapes(arguments, connections, span);
        Ok(Plan {
            headline: headline(arguments, connections, span),
            path,
            shapes,
            warmup: arguments.warmup,
            seconds: arguments.seconds,
            probe: arguments.probe.then_some(PROBE_GAP),
            spin: arguments.spin,
        })
    }
}

/// Returns an error if the command line has options that the target's protocol or version does not
/// support.
fn check_version(arguments: &Arguments) -> Result<(), Problem> {
    match &arguments.target {
        Target::Server { version: Version::One, .. } => {}
        Target::Nvme { .. } => return nvme::check(arguments),
        Target::Nbd { .. } if !arguments.nvme.is_used() => return nbd::check(arguments),
        _ if arguments.nvme.is_used() => {
            let text = "--key-file, --controller-key-file and --tls-key-file are for nvme-tcp:// addresses";
            return Err(Problem::Usage(text.to_owned()));
        }
        _ => return Ok(()),
    }
    let asked = [
        ("--fua", arguments.fua),
        ("--token", arguments.token.is_some()),
        ("--tenant", arguments.tenant.is_some()),
        ("--namespace", arguments.namespace.is_some()),
        ("--checksums", arguments.checksums),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((option, _)) => {
            Err(Problem::Usage(format!("version 1 of the protocol has no {option}; drop ?v=1")))
        }
        None => Ok(()),
    }
}

/// Returns the path to the target, with at most `lanes` connections for each thread, and the
/// target's size in bytes; `None` if the server cannot report a size.
fn path(arguments: &Arguments, lanes: usize) -> Result<(RequestPath, Option<u64>), Problem> {
    match &arguments.target {
        Target::Nvme { endpoint, address, .. } => {
            let (server, bytes) = NvmeServer::find(arguments, endpoint, address, lanes)?;
            Ok((RequestPath::Nvme(server), Some(bytes)))
        }
        Target::Nbd { reach, export, .. } => {
            let (server, bytes) = NbdServer::find(arguments, reach, export)?;
            Ok((RequestPath::Nbd(server), Some(bytes)))
        }
        Target::Device { spec, .. } => {
            let volume = Volume::open(spec).map_err(Problem::Failed)?;
            let bytes = volume.bytes();
            Ok((RequestPath::Device(Arc::new(volume)), Some(bytes)))
        }
        Target::Server { reach, version, .. } => {
            let options = Options {
                version: *version,
                client: u128::from(chance()) << 64 | u128::from(chance()),
                checksums: arguments.checksums,
                token: arguments.token.clone().unwrap_or_default().into_bytes().into(),
                tenant: arguments.tenant.clone().unwrap_or_default().into(),
                seed: chance(),
                ..Options::default()
            };
            let namespace = arguments.namespace.map(NamespaceId);
            let found = survey::look(reach, &options, namespace);
            let blocks = match (found, version) {
                (Ok(blocks), _) => blocks,
                // A server of version 1 alone does not understand the question.
                (Err(survey::Failure::Unanswered(loss)), Version::One) if loss.reached() => None,
                (Err(failure), _) => {
                    return Err(Problem::Failed(failure.explain(&reach.endpoint)));
                }
            };
            let bytes = blocks.map(|blocks| blocks * BLOCK_BYTES as u64);
            if bytes.is_none() && arguments.span.is_none() {
                errln!(
                    "note: this server cannot say how large its device is; using the first {} \
                     (see --span)",
                    size_text(BLIND_SPAN_BYTES)
                );
            }
            Ok((RequestPath::Server { reach: reach.clone(), namespace, options }, bytes))
        }
    }
}

/// Returns the number of bytes, from the start of the target, that requests go to. `capacity` is
/// the size of the target in bytes, if known.
fn span(arguments: &Arguments, capacity: Option<u64>, threads: usize) -> Result<u64, Problem> {
    let target = &arguments.target;
    let span = match (arguments.span, capacity) {
        (Some(span), Some(capacity)) if span > capacity => {
            return Err(Problem::Usage(format!(
                "--span {} is more than {target} has ({})",
                size_text(span),
                size_text(capacity)
            )));
        }
        (Some(span), _) | (None, Some(span)) => span,
        (None, None) => BLIND_SPAN_BYTES,
    };
    let least = (arguments.block_size * threads) as u64;
    if span < least {
        return Err(Problem::Usage(format!(
            "a span of {} has no room for {threads} × --block-size {}",
            size_text(span),
            size_text(arguments.block_size as u64)
        )));
    }
    let most = VERIFY_UNITS_MAX * unit_bytes(arguments.block_size) as u64;
    if arguments.verify && span > most {
        return Err(Problem::Usage(format!(
            "--verify remembers every block: at most {} at this block size; lower --span",
            size_text(most)
        )));
    }
    Ok(span)
}

/// Returns the load of each thread: its share of the connections and of the rate. Sequential and
/// verified loads also divide the span, so that the requests of threads do not meet.
fn shapes(arguments: &Arguments, connections: usize, span: u64) -> Vec<Shape> {
    let threads = arguments.threads as usize;
    let block = arguments.block_size as u64;
    let apart = arguments.verify || arguments.pattern == Pattern::Sequential;
    let part = if apart { span / block / threads as u64 * block } else { span };
    let seed = arguments.seed.unwrap_or_else(chance);
    let run = chance() as u32;
    (0..threads)
        .map(|n| {
            let lanes = connections / threads + usize::from(n < connections % threads);
            let pace = match arguments.rate {
                None => Pace::Closed,
                Some(rate) => Pace::Open {
                    per_second: rate * lanes as f64 / connections as f64,
                    arrival: arguments.arrival.into(),
                },
            };
            let first = if apart { n as u64 * part } else { 0 };
            Shape {
                read_percent: arguments.read_percent,
                request_bytes: arguments.block_size,
                lanes,
                queue_depth: arguments.queue_depth as usize,
                pace,
                pattern: arguments.pattern,
                first_lba: first / BLOCK_BYTES as u64,
                span_bytes: part,
                fua: arguments.fua,
                verify: arguments.verify.then_some(run),
                probe: (arguments.probe && n == 0).then_some(PROBE_GAP),
                warmup: arguments.warmup,
                duration: arguments.seconds,
                seed: seed.wrapping_add(n as u64),
            }
        })
        .collect()
}

fn headline(arguments: &Arguments, connections: usize, span: u64) -> String {
    let mix = match arguments.read_percent {
        100 => "reads".to_owned(),
        0 => "writes".to_owned(),
        percent => format!("{percent} % reads"),
    };
    let pattern = match arguments.pattern {
        Pattern::Random => "random".to_owned(),
        Pattern::Sequential => "sequential".to_owned(),
        Pattern::Zipf { theta } => format!("zipf {theta}"),
    };
    let many = |count: usize, noun: &str| match count {
        1 => format!("1 {noun}"),
        _ => format!("{} {noun}s", number_text(count as f64)),
    };
    let pace = match arguments.rate {
        None => "closed loop".to_owned(),
        Some(rate) => format!("open loop at {} a second", number_text(rate)),
    };
    format!(
        "{}: {} {mix}, {pattern} over {}, {} × depth {}, {}, {pace}",
        arguments.target,
        size_text(arguments.block_size as u64),
        size_text(span),
        many(connections, "connection"),
        arguments.queue_depth,
        many(arguments.threads as usize, "thread"),
    )
}

/// Returns 64 random bits.
fn chance() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn plan(line: &str) -> Result<Plan, Problem> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Plan::new(&Line::try_parse_from(words).unwrap().arguments)
    }

    fn usage(line: &str) -> String {
        match plan(line) {
            Err(Problem::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn connections_rate_and_span_are_shared_out() {
        let line = "mem:1MiB --threads 2 --connections 3 --rate 300 --pattern sequential";
        let shapes = plan(line).unwrap().shapes;
        assert_eq!([shapes[0].lanes, shapes[1].lanes], [2, 1]);
        let rate = |shape: &Shape| match shape.pace {
            Pace::Open { per_second, .. } => per_second as u32,
            Pace::Closed => 0,
        };
        assert_eq!([rate(&shapes[0]), rate(&shapes[1])], [200, 100]);
        assert_eq!([shapes[0].first_lba, shapes[1].first_lba], [0, 1024]);
        assert_eq!(shapes[1].span_bytes, 512 << 10);
        assert_ne!(shapes[0].seed, shapes[1].seed);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        assert!(usage("mem:1MiB --threads 2 --connections 1").contains("as many --connections"));
        assert!(usage("mem:1MiB --span 2MiB").contains("more than mem:1MiB has (1 MiB)"));
        assert!(usage("mem:4KiB --block-size 8KiB").contains("no room"));
        assert!(usage("null:1TiB --verify").contains("lower --span"));
        assert!(
            usage("null:1GiB --queue-depth 65536").contains("raise --threads"),
            "the probe's place counts"
        );
    }
}
