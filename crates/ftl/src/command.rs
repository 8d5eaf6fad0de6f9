//! The words of a volume: requests, commands, replies and settings.

use contract::{Slot, Status};
use zerocopy::little_endian::U64;

use crate::policy::Policy;

/// Requests that may be under way at once.
pub const REQUESTS_MAX: usize = 1024;

/// A request of a host, in pages.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Reads pages.
    Read {
        /// First page.
        page: u32,
        /// Number of pages.
        pages: u32,
    },
    /// Writes pages.
    Write {
        /// First page.
        page: u32,
        /// Number of pages.
        pages: u32,
        /// The data; empty on members without data.
        data: &'a [u8],
        /// `true` if the data must be durable before the reply.
        fua: bool,
        /// `true` if a crash leaves all of the pages or none.
        atomic: bool,
    },
    /// Writes pages that lie anywhere: a crash leaves all of them or none. They are durable before
    /// the reply.
    Commit {
        /// The pages, each named once.
        pages: &'a [U64],
        /// The data in the same order; empty on members without data.
        data: &'a [u8],
    },
    /// Discards pages: they read as zeroes.
    Discard {
        /// First page.
        page: u32,
        /// Number of pages.
        pages: u32,
    },
    /// Makes all acknowledged writes durable.
    Flush,
}

/// The refusal of a request for lack of room; it can be repeated after some completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's slot.
    pub slot: Slot,
    /// The status.
    pub status: Status,
}

/// The identifier of a command while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Token {
    /// A read for a host: its index in the table of reads, and the place and number of pages.
    Read(u16, u32, u32),
    /// The write of a batch: the number of its log.
    Batch(u8),
    /// A read of the collector.
    Collect,
    /// A flush of a member.
    Flush(u16),
    /// A discard of a segment.
    Discard(u32),
    /// A write of the checkpoint.
    Checkpoint,
    /// A superblock of a member.
    Superblock(u16),
}

/// The destination of a read's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// To the request's buffer, from this page on.
    Host(Slot, u32),
    /// To the volume: `Volume::bytes_mut`.
    Volume,
}

/// An operation on a member, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Read {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
        /// The place that takes the data.
        into: Into,
    },
    /// Writes the bytes of `Volume::bytes`.
    Write {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Makes everything that was written durable.
    Flush,
    /// Discards pages of the member.
    Discard {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Zeroes pages of the request's buffer. It is not sent to a member and never completed.
    Zero {
        /// The request.
        slot: Slot,
        /// First page of the buffer.
        first: u32,
        /// Number of pages.
        pages: u32,
    },
}

/// A command for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The token by which the command is completed.
    pub token: Token,
    /// The member.
    pub member: u16,
    /// The operation.
    pub op: Op,
}

/// Settings of an open volume. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The choice of victims, and the streams.
    pub policy: Policy,
    /// `true` if freed segments are discarded on the members.
    pub discards: bool,
    /// `false` for members that keep headers only, to measure amplification.
    pub data: bool,
    /// Written pages after which the volume flushes by itself, which bounds the data that recovery
    /// must verify.
    pub flush_pages: u32,
}

impl Settings {
    /// Returns settings for this policy: discards, and a flush every 64 MiB.
    pub const fn new(policy: Policy) -> Settings {
        Settings { policy, discards: true, data: true, flush_pages: 16_384 }
    }
}
