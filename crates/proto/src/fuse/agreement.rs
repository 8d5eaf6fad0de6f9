//! The agreement with the kernel on the version and the capabilities of FUSE, made by the first
//! request.

use wire::fuse::{Errno, InitOut, MAJOR, MINOR_MAX, MINOR_MIN, PAGE_BYTES, capability};

use super::reply::ReplyMessage;
use super::request::SessionProposal;

/// The most pages of data in one request.
pub const PAGES_MAX: u16 = 256;

/// The largest write in bytes: 1 MiB.
pub const WRITE_BYTES_MAX: u32 = PAGES_MAX as u32 * PAGE_BYTES as u32;

/// The most requests that the kernel may have in flight with no process waiting, such as
/// read-ahead.
pub const BACKGROUND_MAX: u16 = 64;

/// The capabilities that the program agrees to. Write-back caching is not among them: data of an
/// acknowledged write has reached the program. Neither is a check for changes that bypass the
/// kernel, since there are none, nor support for access control lists.
const CAPABILITIES: u64 = capability::ASYNC_READ
    | capability::BIG_WRITES
    | capability::DO_READDIRPLUS
    | capability::READDIRPLUS_AUTO
    | capability::ASYNC_DIO
    | capability::PARALLEL_DIROPS
    | capability::MAX_PAGES
    | capability::CACHE_SYMLINKS
    | capability::HANDLE_KILLPRIV_V2
    | capability::INIT_EXT
    | capability::DIRECT_IO_ALLOW_MMAP;

/// The version and the capabilities that both ends have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The minor version that both ends use.
    pub minor: u32,
    /// The capabilities that both ends have, as bits of [`capability`].
    pub capabilities: u64,
    /// The largest read-ahead in bytes, as the kernel has proposed.
    pub readahead_max: u32,
}

impl Agreement {
    /// Returns the agreement with a kernel that sends this greeting; `None` if its major version is
    /// later than ours. It greets anew after the [reply](Agreement::reply_other_major) that names
    /// ours.
    ///
    /// # Errors
    /// `EPROTO` if the kernel is older than version 7.31, or does not have the capability
    /// `MAX_PAGES`.
    pub fn with(greeting: &SessionProposal) -> Result<Option<Agreement>, Errno> {
        if greeting.major > MAJOR {
            return Ok(None);
        }
        if greeting.major < MAJOR || greeting.minor < MINOR_MIN {
            return Err(Errno::PROTO);
        }
        let capabilities = greeting.capabilities & CAPABILITIES;
        if capabilities & capability::MAX_PAGES == 0 {
            return Err(Errno::PROTO);
        }
        Ok(Some(Agreement {
            minor: greeting.minor.min(MINOR_MAX),
            capabilities,
            readahead_max: greeting.readahead_max,
        }))
    }

    /// Returns `true` if both ends have all of these [`capability`] bits.
    #[must_use]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities & capability == capability
    }

    /// Returns the reply to the greeting, which is the request of number `unique`.
    #[must_use]
    pub fn reply(&self, unique: u64) -> ReplyMessage {
        ReplyMessage::of(
            unique,
            &InitOut {
                major: MAJOR.into(),
                minor: self.minor.into(),
                readahead_max: self.readahead_max.into(),
                flags: (self.capabilities as u32).into(),
                background_max: BACKGROUND_MAX.into(),
                congestion: (BACKGROUND_MAX / 4 * 3).into(),
                write_max: WRITE_BYTES_MAX.into(),
                time_granularity_ns: 1.into(),
                pages_max: PAGES_MAX.into(),
                map_alignment: 0.into(),
                flags2: ((self.capabilities >> 32) as u32).into(),
                unused: [0.into(); 7],
            },
        )
    }

    /// Returns the reply to a kernel of a later major version, which names our version.
    #[must_use]
    pub fn reply_other_major(unique: u64) -> ReplyMessage {
        let ours = Agreement { minor: MINOR_MAX, capabilities: 0, readahead_max: 0 };
        ours.reply(unique)
    }
}
