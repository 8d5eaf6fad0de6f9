//! Options of the commands.

use std::path::PathBuf;
use std::time::Duration;

use flash::{Spec, parse_size};

/// Options of `nearflash mount`.
#[derive(Debug, clap::Args)]
pub struct MountArgs {
    /// Volume: ftl:file:PATH
    pub(crate) spec: Spec,
    /// Folder to mount at
    pub(crate) folder: PathBuf,
    /// Refuse changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Answer a change of names or attributes, or an fallocate, only once it is durable
    #[arg(long)]
    pub(crate) durable_names: bool,
    /// Microseconds for which the thread spins for the next request before it sleeps
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 50)]
    pub(crate) spin: u64,
    /// Core to run the thread on
    #[arg(long, value_name = "CORE")]
    pub(crate) cpu: Option<usize>,
}

impl MountArgs {
    pub(crate) fn spin(&self) -> Duration {
        Duration::from_micros(self.spin)
    }
}

/// Options of `nearflash umount`.
#[derive(Debug, clap::Args)]
pub struct UmountArgs {
    /// Folder that the file system is mounted at
    pub(crate) folder: PathBuf,
    /// Free the folder at once; the file system ends when nobody uses it any more
    #[arg(long)]
    pub(crate) detach: bool,
}

/// Options of `nearflash fs`.
#[derive(Debug, clap::Args)]
pub struct FsArgs {
    #[command(subcommand)]
    pub(crate) command: FsCommand,
}

/// Make, check and fill file systems of contiguous files
#[derive(Debug, clap::Subcommand)]
pub(crate) enum FsCommand {
    /// Make a file system on a volume that has none
    Create {
        /// Volume: ftl:file:PATH
        spec: Spec,
        /// Maximum number of files and folders; a number for the volume's size by default
        #[arg(long, value_name = "NUMBER")]
        files: Option<u32>,
    },
    /// Make a file of a size in a file system that is not mounted; it reads as zeroes
    Allocate {
        /// Volume: ftl:file:PATH
        spec: Spec,
        /// Path in the file system: /vm/disk0.img. Folders that are missing are made
        path: String,
        /// Size: 20GiB
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// List the files of a file system that is not mounted: bytes, first byte in the volume, path
    List {
        /// Volume: ftl:file:PATH
        spec: Spec,
    },
    /// Look for faults in the file system of a volume, and change nothing
    Check {
        /// Volume: ftl:file:PATH
        spec: Spec,
    },
}
