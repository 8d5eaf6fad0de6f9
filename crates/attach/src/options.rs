//! The options of a volume to attach.

use std::path::{Path, PathBuf};

use crate::record::{SPIN_MICROS, Volume, lasting};

/// Options of a device to attach.
#[derive(Debug, clap::Args)]
pub(crate) struct AttachOptions {
    /// Server with the volume, as reflex://HOST:PORT, reflex+unix:PATH, over TLS
    /// reflexs://HOST:PORT[?ca=FILE], or in packets reflex+udp://HOST:PORT[?key=FILE] or
    /// reflex+eth://INTERFACE/MAC[?key=FILE]
    url: String,
    /// Number of the namespace [default: the server's]
    #[arg(long, value_name = "NUMBER")]
    namespace: Option<u16>,
    /// Tenant that pays for the requests
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// File with the token to present
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Ask for checksums of payloads
    #[arg(long)]
    checksums: bool,
    /// Refuse changes
    #[arg(long)]
    read_only: bool,
    /// Number of the device, N of /dev/ublkbN [default: the next that is free]
    #[arg(long = "dev", value_name = "N")]
    pub(crate) device: Option<u32>,
    /// Number of queues, each with a thread and a connection [default: one for each processor]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) queues: Option<u16>,
    /// Requests of each queue
    #[arg(
        long,
        value_name = "REQUESTS",
        default_value_t = 128,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub(crate) depth: u16,
    /// Seconds for which I/O waits for an absent server before it fails
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000)
    )]
    fail_after: u64,
    /// Microseconds for which a queue looks for more work before it sleeps; 0 costs the processor
    /// least
    #[arg(
        long,
        value_name = "MICROSECONDS",
        default_value_t = SPIN_MICROS,
        value_parser = clap::value_parser!(u64).range(..=10_000)
    )]
    spin: u64,
}

/// Returns a path that means the same file to a successor with another working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

impl AttachOptions {
    /// Returns the volume that is asked for.
    pub(crate) fn volume(&self) -> Volume {
        Volume {
            url: lasting(&self.url),
            namespace: self.namespace,
            tenant: self.tenant.clone().unwrap_or_default(),
            token_file: self.token_file.as_deref().map(absolute),
            checksums: self.checksums,
            fail_after: self.fail_after,
            spin_micros: self.spin,
            read_only: self.read_only,
        }
    }
}
