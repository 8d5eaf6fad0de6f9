//! `nearflash mount`: a file system of contiguous files on a volume of flash translation, mounted
//! through the kernel's FUSE (docs/adr/0045-mount.md).
//!
//! A process serves a file system, with one thread and one ring for the kernel's requests and for the
//! volume. The data of a request goes from its buffer to the volume.
//!
//! This crate deliberately leaves out how the file system keeps names, sizes and places
//! (`contigfs`), the kernel's messages (`proto::fuse`), and the channel by which they come
//! (`io::fuse`).
#![forbid(unsafe_code)]

mod command;
mod disk;
mod engine;
mod files;
mod gates;
mod kernel;
mod maintain;
mod options;
mod serve;

pub use command::Command;
pub use options::{FsArgs, MountArgs, UmountArgs};
