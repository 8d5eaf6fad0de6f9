//! The interface of the engine to the kernel: requests of a mounted file system, and replies to
//! them.

use std::ops::Range;

use contract::Buf;
use io::fuse::{Channel, FuseRequest};

/// The source of requests, and the destination of replies.
pub(crate) trait Kernel {
    /// Appends the requests that have come to `messages`, and the buffers of replies that have left
    /// to `freed`. Takes buffers for further requests from `supply`.
    fn poll(
        &mut self,
        messages: &mut Vec<FuseRequest>,
        freed: &mut Vec<Buf>,
        supply: &mut dyn FnMut() -> Option<Buf>,
    );

    /// Replies to a request with a head and, if the reply has one, a body, which is a range of a
    /// buffer.
    fn reply(&mut self, head: &[u8], body: Option<(Buf, Range<usize>)>);

    /// Ends a request that has no reply.
    fn ignore(&mut self);

    /// Returns `true` once the file system is not mounted any more.
    fn has_ended(&self) -> bool;

    /// Returns `true` once all replies were passed to the kernel.
    fn has_sent_all(&self) -> bool;
}

impl Kernel for Channel {
    fn poll(
        &mut self,
        messages: &mut Vec<FuseRequest>,
        freed: &mut Vec<Buf>,
        supply: &mut dyn FnMut() -> Option<Buf>,
    ) {
        Channel::poll(self, messages, freed, supply);
    }

    fn reply(&mut self, head: &[u8], body: Option<(Buf, Range<usize>)>) {
        Channel::reply(self, head, body);
    }

    fn ignore(&mut self) {
        Channel::ignore(self);
    }

    fn has_ended(&self) -> bool {
        Channel::has_ended(self)
    }

    fn has_sent_all(&self) -> bool {
        Channel::has_sent_all(self)
    }
}
