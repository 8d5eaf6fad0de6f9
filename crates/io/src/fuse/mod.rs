//! File systems that a program serves to the kernel through `/dev/fuse`: mounting, and the channel
//! of requests and replies.
//!
//! This module deliberately leaves out the meaning of messages (`proto::fuse`), and `fusermount3`:
//! mounting takes the rights of root.

mod channel;
mod mount;

pub use channel::{Channel, FuseRequest, HEAD_BYTES, MESSAGE_BYTES_MAX};
pub use mount::{MountedFileSystem, mount, mounted, unmount};
