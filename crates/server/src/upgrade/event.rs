//! The events that the hand-over thread waits for.

use std::os::unix::net::UnixStream;

use super::talk::{ChannelEnd, Message};

/// An event that the hand-over thread waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// A worker has sent a message to the hand-over thread's mailbox.
    Mail,
    /// A process asks to take over.
    Knock(UnixStream),
    /// The other process has sent a message in the conversation of this number, or that
    /// conversation has ended.
    Heard(u64, Result<Message, ChannelEnd>),
}
