//! The types by which a volume is used: requests, commands, replies and settings.

use contract::{Slot, Status};
use zerocopy::little_endian::U64;

use crate::policy::Policy;

/// Maximum number of requests of a volume at a time.
pub const REQUESTS_MAX: usize = 1024;

/// A request of a host, in pages.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Reads logical pages.
    Read {
        /// First logical page.
        page: u32,
        /// Number of pages.
        pages: u32,
    },
    /// Writes logical pages.
    Write {
        /// First logical page.
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
        /// The logical pages, each named once.
        pages: &'a [U64],
        /// The pages' data in the order of `pages`; empty on members without data.
        data: &'a [u8],
    },
    /// Discards logical pages, which then read as zeroes.
    Discard {
        /// First logical page.
        page: u32,
        /// Number of pages.
        pages: u32,
    },
    /// Makes all acknowledged writes durable.
    Flush,
}

/// The refusal of a request for lack of room. The request can be repeated after some completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeBusy;

/// The reply to a request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's slot.
    pub slot: Slot,
    /// The status with which the request has ended.
    pub status: Status,
}

/// The identifier of a command while it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommandToken {
    /// A read for a host: its index in the table of reads, the first place, and the number of
    /// pages.
    Read(u16, u32, u32),
    /// The write of a batch: the number of its log.
    Batch(u8),
    /// A read of the collector.
    Collect,
    /// A flush of the member with this number.
    Flush(u16),
    /// A discard of the segment with this number.
    Discard(u32),
    /// A write of pages of a checkpoint.
    Checkpoint,
    /// A write of the superblock of the member with this number.
    Superblock(u16),
}

/// The destination of a read's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadDestination {
    /// The buffer of the request in this slot, from this page of the buffer on.
    Host(Slot, u32),
    /// The volume's own memory: `Volume::bytes_mut`.
    Volume,
}

/// An operation on a member, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberOperation {
    /// Reads pages of the member.
    Read {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
        /// The memory that takes the data.
        into: ReadDestination,
    },
    /// Writes the bytes of `Volume::bytes`.
    Write {
        /// First page of the member.
        at: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Makes everything durable that was written to the member.
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
        /// The slot of the request.
        slot: Slot,
        /// First page in the buffer.
        first: u32,
        /// Number of pages.
        pages: u32,
    },
}

/// A command for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The token by which the command is completed.
    pub token: CommandToken,
    /// The number of the member.
    pub member: u16,
    /// The operation on the member.
    pub op: MemberOperation,
}

/// Settings of an open volume. They may differ from one opening to the next.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The policy by which pages are placed in streams and victims are chosen.
    pub policy: Policy,
    /// `true` if freed segments are discarded on the members.
    pub discards: bool,
    /// `false` for members that keep headers only, to measure amplification.
    pub data: bool,
    /// Number of written pages after which the volume flushes by itself. It bounds the data that
    /// recovery must verify.
    pub flush_pages: u32,
}

impl Settings {
    /// Returns the settings with this policy, with discards and data, and a flush every 64 MiB.
    pub const fn new(policy: Policy) -> Settings {
        Settings { policy, discards: true, data: true, flush_pages: 16_384 }
    }
}
