//! The command line of `nearflash bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use client::load::{Arrival, Pattern};
use contract::REQUEST_BYTES_MAX;

use super::problem::Problem;
use super::target::Target;

/// Makes load on a server or a local device and measures it.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// `reflex://HOST:PORT` or `reflex+unix:PATH` (with `?v=1` for version 1 of the protocol; the
    /// default is `?v=2`), `nvme-tcp://HOST:PORT/NQN` (with `?nsid=N`, `digests=header|data|both`,
    /// `in_capsule=false`, `tls=required`, `host=NQN`), `nbd://HOST:PORT/EXPORT` or
    /// `nbd+unix:PATH?export=EXPORT`,
    /// `reflexs://` or `nbds://` over TLS (with `?ca=FILE`, `fingerprint=SHA256`, `name=NAME`),
    /// `reflex+udp://HOST:PORT` in packets (with `?key=FILE` for sealed ones),
    /// `reflex+eth://INTERFACE/MAC` in frames of Ethernet (with `?key=FILE`, `port=N`, `via=WAY`),
    /// or a device such as `null:1GiB`, `mem:1GiB`, `sim:a` or `file:PATH?size=1GiB`
    pub(super) target: Target,
    /// Share of reads among the requests, 0 to 100
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 100,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    pub(super) read_percent: u8,
    /// Bytes of a request (`4KiB`): a multiple of 512, at most 1MiB
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = parse_block_size)]
    pub(super) block_size: usize,
    /// Requests in flight on each connection; with --rate, the maximum of unanswered requests
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(super) queue_depth: u32,
    /// Number of connections over all threads [default: one for each thread]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(super) connections: Option<u32>,
    /// Number of threads that make load
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) threads: u32,
    /// Open loop: requests a second over all connections. Latency counts from when a request was
    /// meant to be sent. Without this option the loop is closed: each ended request is followed by
    /// the next
    #[arg(long, value_name = "IOPS", value_parser = parse_rate)]
    pub(super) rate: Option<f64>,
    /// Distribution of the arrivals of an open loop
    #[arg(long, value_enum, default_value_t = ArrivalName::Poisson)]
    pub(super) arrival: ArrivalName,
    /// Pattern of addresses: `random`, `sequential` or `zipf:THETA` (`zipf:0.99`)
    #[arg(long, default_value = "random", value_parser = parse_pattern)]
    pub(super) pattern: Pattern,
    /// Use only the first bytes of the target (`64MiB`) [default: all]
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub(super) span: Option<u64>,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_seconds)]
    pub(super) seconds: Duration,
    /// Seconds to warm up, which are not measured
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_warmup)]
    pub(super) warmup: Duration,
    /// Write self-describing blocks and check every read. Overwrites the span, which must be empty
    /// or hold blocks of earlier runs with --verify: other data counts as corruption
    #[arg(long)]
    pub(super) verify: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(super) json: bool,
    /// Write a log of latencies in the HdrHistogram format, one line a second
    #[arg(long, value_name = "FILE")]
    pub(super) hdr: Option<PathBuf>,
    /// Number of the namespace [default: the server's]
    #[arg(long, value_name = "NUMBER")]
    pub(super) namespace: Option<u16>,
    /// Token to present; others on this machine can see it in `ps`
    #[arg(long)]
    pub(super) token: Option<String>,
    /// Tenant that pays for the requests
    #[arg(long, value_name = "NAME")]
    pub(super) tenant: Option<String>,
    /// Seed of random choices, to repeat the same requests
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,
    /// Make writes durable before they are acknowledged
    #[arg(long)]
    pub(super) fua: bool,
    /// Ask for checksums of payloads
    #[arg(long)]
    pub(super) checksums: bool,
    /// Probe: measure a read every millisecond on a connection of its own
    #[arg(long)]
    pub(super) probe: bool,
    /// Never sleep: lowest latency, at the cost of a core for each thread
    #[arg(long)]
    pub(super) spin: bool,
    #[command(flatten)]
    pub(super) nvme: Keys,
}

impl Arguments {
    /// Returns an error if there are options that only `reflex` supports. `instead` says what to do
    /// in `protocol` in place of `--token`, `--tenant`, `--namespace` and `--checksums`.
    pub(super) fn refuse_those_of_reflex(
        &self,
        protocol: &str,
        instead: [&str; 4],
    ) -> Result<(), Problem> {
        let asked = [
            ("--token", self.token.is_some()),
            ("--tenant", self.tenant.is_some()),
            ("--namespace", self.namespace.is_some()),
            ("--checksums", self.checksums),
        ];
        match asked.iter().zip(instead).find(|((_, is), _)| *is) {
            Some(((option, _), instead)) => {
                Err(Problem::Usage(format!("{protocol} has no {option}; {instead}")))
            }
            None => Ok(()),
        }
    }
}

/// The distribution of arrivals, by its name on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ArrivalName {
    /// Independent of each other
    Poisson,
    /// Evenly spaced, reads and writes evenly mixed
    Constant,
}

impl From<ArrivalName> for Arrival {
    fn from(name: ArrivalName) -> Arrival {
        match name {
            ArrivalName::Poisson => Arrival::Poisson,
            ArrivalName::Constant => Arrival::Constant,
        }
    }
}

/// The keys for authentication.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Keys {
    /// File with this host's key (`DHHC-1:…`), if the NVMe server asks for authentication [default:
    /// the variable NEARFLASH_NVME_KEY]
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// File with the NVMe server's key, if the server has to prove itself, too [default: the
    /// variable NEARFLASH_NVME_CONTROLLER_KEY]
    #[arg(long, value_name = "FILE")]
    pub(super) controller_key_file: Option<PathBuf>,
    /// File with this host's key for TLS (`NVMeTLSkey-1:…`), with which NVMe/TCP is encrypted [default:
    /// the variable NEARFLASH_NVME_TLS_KEY]
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key_file: Option<PathBuf>,
}

impl Keys {
    pub(super) fn is_used(&self) -> bool {
        let files = [&self.key_file, &self.controller_key_file, &self.tls_key_file];
        files.into_iter().any(Option::is_some)
    }
}

/// Parses a size like `4096` or `4KiB`.
fn parse_size(text: &str) -> Result<u64, String> {
    flash::parse_size(text).map_err(|e| e.to_string())
}

fn parse_block_size(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    if bytes > REQUEST_BYTES_MAX as u64 {
        return Err("a request has at most 1MiB".to_owned());
    }
    Ok(bytes as usize)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e9 => Ok(rate),
        _ => Err("a number of requests a second, above zero".to_owned()),
    }
}

fn parse_pattern(text: &str) -> Result<Pattern, String> {
    match text.split_once(':') {
        None if text == "random" => Ok(Pattern::Random),
        None if text == "sequential" => Ok(Pattern::Sequential),
        Some(("zipf", theta)) => match theta.parse::<f64>() {
            Ok(theta) if (0.0..=10.0).contains(&theta) => Ok(Pattern::Zipf { theta }),
            _ => Err("the exponent is a number from 0 to 10, as in zipf:0.99".to_owned()),
        },
        _ => Err("one of random, sequential and zipf:THETA".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    match parse_warmup(text)? {
        Duration::ZERO => Err("more than zero seconds".to_owned()),
        seconds => Ok(seconds),
    }
}

fn parse_warmup(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_command_line() {
        assert_eq!(parse_pattern("zipf:0.99"), Ok(Pattern::Zipf { theta: 0.99 }));
        assert!(parse_pattern("zipf").is_err() && parse_pattern("zipf:nan").is_err());
        assert!(parse_rate("0").is_err() && parse_rate("inf").is_err());
        assert!(parse_seconds("0").is_err() && parse_seconds("0.5").is_ok());
        assert!(parse_block_size("100").is_err() && parse_block_size("2MiB").is_err());
        assert_eq!(parse_block_size("4KiB"), Ok(4096));
    }
}
