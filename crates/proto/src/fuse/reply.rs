//! Replies to the kernel, and notifications.

use core::fmt;
use core::time::Duration;

use wire::fuse::{
    ALIGN, Attr, AttrOut, DirEntry, EntryOut, Errno, InvalInodeOut, NOTIFY_INVAL_INODE, OpenOut,
    OutHeader, SizeOut, StatfsOut,
};
use zerocopy::{Immutable, IntoBytes};

use super::request::Time;

/// The size in bytes of the longest head: that of the reply to a create.
const HEAD_BYTES_MAX: usize = size_of::<OutHeader>() + size_of::<EntryOut>() + size_of::<OpenOut>();

/// A message to the kernel without the data that a reply to a read has behind it.
#[derive(Clone, Copy)]
pub struct ReplyMessage {
    bytes: [u8; HEAD_BYTES_MAX],
    /// `size_of::<OutHeader>() ≤ len ≤ HEAD_BYTES_MAX`.
    len: usize,
}

impl ReplyMessage {
    /// Returns the reply of success without a body, to the request of number `unique`.
    #[must_use]
    pub fn done(unique: u64) -> ReplyMessage {
        ReplyMessage::of(unique, &())
    }

    /// Returns the reply that request `unique` has failed with `errno`.
    #[must_use]
    pub fn error(unique: u64, errno: Errno) -> ReplyMessage {
        ReplyMessage::build(unique, -errno.0, &(), 0)
    }

    /// Returns the head of a reply whose body is `bytes` bytes of data that follow.
    #[must_use]
    pub fn data(unique: u64, bytes: usize) -> ReplyMessage {
        ReplyMessage::build(unique, 0, &(), bytes)
    }

    /// Returns the reply with a number of bytes: those written, or the length of an extended
    /// attribute or of the list of their names.
    #[must_use]
    pub fn size(unique: u64, bytes: u32) -> ReplyMessage {
        ReplyMessage::of(unique, &SizeOut { size: bytes.into(), padding: 0.into() })
    }

    /// Returns the reply to a search for data or a hole, which begins at this byte of the file.
    #[must_use]
    pub fn place(unique: u64, offset: u64) -> ReplyMessage {
        ReplyMessage::of(unique, &offset)
    }

    /// Returns the reply to a lookup, or to a request that made a node, with the node's number and
    /// attributes.
    #[must_use]
    pub fn entry(unique: u64, entry: &NodeEntry) -> ReplyMessage {
        ReplyMessage::of(unique, &entry.layout())
    }

    /// Returns the reply with a node's attributes, which the kernel may cache for the time
    /// `cached`.
    #[must_use]
    pub fn attributes(unique: u64, attributes: &Attributes, cached: Duration) -> ReplyMessage {
        ReplyMessage::of(
            unique,
            &AttrOut {
                attr_valid: cached.as_secs().into(),
                attr_valid_ns: cached.subsec_nanos().into(),
                padding: 0.into(),
                attr: attributes.layout(),
            },
        )
    }

    /// Returns the reply to the opening of a file or directory.
    #[must_use]
    pub fn opened(unique: u64, opened: OpenReply) -> ReplyMessage {
        ReplyMessage::of(unique, &opened.layout())
    }

    /// Returns the reply to a create: the new node, and the handle by which it is open.
    #[must_use]
    pub fn created(unique: u64, entry: &NodeEntry, opened: OpenReply) -> ReplyMessage {
        let mut both = [0; size_of::<EntryOut>() + size_of::<OpenOut>()];
        both[..size_of::<EntryOut>()].copy_from_slice(entry.layout().as_bytes());
        both[size_of::<EntryOut>()..].copy_from_slice(opened.layout().as_bytes());
        ReplyMessage::of(unique, &both)
    }

    /// Returns the reply to `statfs`, with the sizes of the file system.
    #[must_use]
    pub fn sizes(unique: u64, sizes: &FileSystemSizes) -> ReplyMessage {
        ReplyMessage::of(
            unique,
            &StatfsOut {
                blocks: sizes.blocks.into(),
                free: sizes.free.into(),
                available: sizes.free.into(),
                files: sizes.files.into(),
                files_free: sizes.files_free.into(),
                block_bytes: sizes.block_bytes.into(),
                name_max: (super::NAME_BYTES_MAX as u32).into(),
                fragment_bytes: sizes.block_bytes.into(),
                padding: 0.into(),
                spare: [0.into(); 6],
            },
        )
    }

    /// Returns the reply of success with this body, to the request of number `unique`.
    pub(super) fn of(unique: u64, body: &(impl IntoBytes + Immutable)) -> ReplyMessage {
        ReplyMessage::build(unique, 0, body, 0)
    }

    fn build(
        unique: u64,
        error: i32,
        body: &(impl IntoBytes + Immutable),
        behind: usize,
    ) -> ReplyMessage {
        let body = body.as_bytes();
        let start = size_of::<OutHeader>();
        let len = start + body.len();
        let mut head = ReplyMessage { bytes: [0; HEAD_BYTES_MAX], len };
        let header = OutHeader {
            len: ((len + behind) as u32).into(),
            error: error.into(),
            unique: unique.into(),
        };
        head.bytes[..start].copy_from_slice(header.as_bytes());
        head.bytes[start..len].copy_from_slice(body);
        head
    }

    /// Returns the bytes of the reply, without the data behind it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for ReplyMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyMessage({:02x?})", self.bytes())
    }
}

/// The attributes of a node (a file, directory or other inode), as stat(2) gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The inode's number, by which the kernel names the node too.
    pub ino: u64,
    /// The size of the contents in bytes.
    pub size: u64,
    /// The space that the node takes, in blocks of 512 bytes.
    pub blocks: u64,
    /// The time of the last access to the contents.
    pub atime: Time,
    /// The time of the last change of the contents.
    pub mtime: Time,
    /// The time of the last change of the attributes or the contents.
    pub ctime: Time,
    /// The type and permissions, as `st_mode` of stat(2).
    pub mode: u32,
    /// The number of names (hard links) of the node.
    pub links: u32,
    /// The owner's user number.
    pub uid: u32,
    /// The number of the group.
    pub gid: u32,
    /// The device number if the node is a device, and otherwise zero.
    pub rdev: u32,
}

impl Attributes {
    fn layout(&self) -> Attr {
        Attr {
            ino: self.ino.into(),
            size: self.size.into(),
            blocks: self.blocks.into(),
            atime: (self.atime.seconds as u64).into(),
            mtime: (self.mtime.seconds as u64).into(),
            ctime: (self.ctime.seconds as u64).into(),
            atime_ns: self.atime.nanoseconds.into(),
            mtime_ns: self.mtime.nanoseconds.into(),
            ctime_ns: self.ctime.nanoseconds.into(),
            mode: self.mode.into(),
            links: self.links.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            rdev: self.rdev.into(),
            block_bytes: (wire::fuse::PAGE_BYTES as u32).into(),
            flags: 0.into(),
        }
    }
}

/// A node that the kernel learns from a name. The kernel holds one more reference to the node after
/// it gets this entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeEntry {
    /// The generation of the inode's number. The two together never name another node.
    pub generation: u64,
    /// The attributes of the node.
    pub attributes: Attributes,
    /// The time for which the kernel may cache the name.
    pub name_cached: Duration,
    /// The time for which the kernel may cache the attributes.
    pub attributes_cached: Duration,
}

impl NodeEntry {
    fn layout(&self) -> EntryOut {
        EntryOut {
            node: self.attributes.ino.into(),
            generation: self.generation.into(),
            entry_valid: self.name_cached.as_secs().into(),
            attr_valid: self.attributes_cached.as_secs().into(),
            entry_valid_ns: self.name_cached.subsec_nanos().into(),
            attr_valid_ns: self.attributes_cached.subsec_nanos().into(),
            attr: self.attributes.layout(),
        }
    }
}

/// Returns the reply that there is no such name, which the kernel may cache for this time.
#[must_use]
pub fn no_such_name(unique: u64, cached: Duration) -> ReplyMessage {
    ReplyMessage::entry(unique, &NodeEntry { name_cached: cached, ..NodeEntry::default() })
}

/// The reply's data about a file or directory that was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReply {
    /// The handle by which the kernel names the opened file in later requests.
    pub handle: u64,
    /// Flags that say how the kernel uses the file, of [`wire::fuse::open_flag`].
    pub flags: u32,
}

impl OpenReply {
    fn layout(self) -> OpenOut {
        OpenOut { handle: self.handle.into(), open_flags: self.flags.into(), padding: 0.into() }
    }
}

/// The size of a file system and its free space, as statfs(2) gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystemSizes {
    /// The size of a block in bytes.
    pub block_bytes: u32,
    /// The number of blocks in the file system.
    pub blocks: u64,
    /// The number of free blocks in the file system.
    pub free: u64,
    /// The most files that the file system can have.
    pub files: u64,
    /// The number of files that can still be made.
    pub files_free: u64,
}

/// The body of the reply to a read of a directory, written into memory as large as the kernel asked
/// for.
#[derive(Debug)]
pub struct Listing<'a> {
    bytes: &'a mut [u8],
    /// `len ≤ bytes.len()`.
    len: usize,
}

/// An entry of a directory: a name, its inode, and the position of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListingEntry<'a> {
    /// The number of the inode that the entry names.
    pub ino: u64,
    /// The position of the next entry, which the kernel passes as the cookie of its next read.
    pub next: u64,
    /// The type and permissions of the inode, of which the listing uses only the type.
    pub mode: u32,
    /// The name in the directory, in bytes without a final zero.
    pub name: &'a [u8],
}

impl<'a> Listing<'a> {
    /// Returns an empty listing that is written to `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Listing { bytes, len: 0 }
    }

    /// Adds an entry without attributes, or with those of `entry`. Returns `false` if there is no
    /// room for it.
    pub fn add(&mut self, place: &ListingEntry<'_>, entry: Option<&NodeEntry>) -> bool {
        let before = if entry.is_some() { size_of::<EntryOut>() } else { 0 };
        let start = self.len + before + size_of::<DirEntry>();
        let end = (start + place.name.len()).next_multiple_of(ALIGN);
        if end > self.bytes.len() {
            return false;
        }
        if let Some(entry) = entry {
            self.bytes[self.len..self.len + before].copy_from_slice(entry.layout().as_bytes());
        }
        let directory = DirEntry {
            ino: place.ino.into(),
            next: place.next.into(),
            name_len: (place.name.len() as u32).into(),
            kind: (place.mode >> 12 & 0o17).into(),
        };
        self.bytes[self.len + before..start].copy_from_slice(directory.as_bytes());
        let (name, padding) = self.bytes[start..end].split_at_mut(place.name.len());
        name.copy_from_slice(place.name);
        padding.fill(0);
        self.len = end;
        true
    }

    /// Returns the number of bytes that the listing has in memory.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the listing has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Returns the notification that the attributes of an inode, and its cached pages of `bytes` bytes
/// from byte `offset` on, are not valid any more. Zero bytes stand for all that follow, and a
/// negative offset for the attributes alone.
#[must_use]
pub fn inode_changed(ino: u64, offset: i64, bytes: i64) -> ReplyMessage {
    let body = InvalInodeOut { node: ino.into(), offset: offset.into(), length: bytes.into() };
    ReplyMessage::build(0, NOTIFY_INVAL_INODE, &body, 0)
}
