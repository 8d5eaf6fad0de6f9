//! Replies to the kernel, and notifications.

use core::fmt;
use core::time::Duration;

use wire::fuse::{
    ALIGN, Attr, AttrOut, DirEntry, EntryOut, Errno, InvalInodeOut, NOTIFY_INVAL_INODE, OpenOut,
    OutHeader, SizeOut, StatfsOut,
};
use zerocopy::{Immutable, IntoBytes};

use super::request::Time;

/// Bytes of the longest head: that of a file that was made and opened.
const HEAD_BYTES_MAX: usize = size_of::<OutHeader>() + size_of::<EntryOut>() + size_of::<OpenOut>();

/// A reply up to its data: all of it, unless data is read.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    /// `size_of::<OutHeader>() ≤ len ≤ HEAD_BYTES_MAX`.
    len: usize,
}

impl Head {
    /// Returns the reply of success without a body.
    #[must_use]
    pub fn done(unique: u64) -> Head {
        Head::of(unique, &())
    }

    /// Returns the reply of an error.
    #[must_use]
    pub fn error(unique: u64, errno: Errno) -> Head {
        Head::build(unique, -errno.0, &(), 0)
    }

    /// Returns the head of a reply whose body is `bytes` bytes of data that follow.
    #[must_use]
    pub fn data(unique: u64, bytes: usize) -> Head {
        Head::build(unique, 0, &(), bytes)
    }

    /// Returns the reply that so many bytes were written, or that the answer has this size.
    #[must_use]
    pub fn size(unique: u64, bytes: u32) -> Head {
        Head::of(unique, &SizeOut { size: bytes.into(), padding: 0.into() })
    }

    /// Returns the reply that the data or hole is at this byte.
    #[must_use]
    pub fn place(unique: u64, offset: u64) -> Head {
        Head::of(unique, &offset)
    }

    /// Returns the reply that names a node.
    #[must_use]
    pub fn entry(unique: u64, entry: &Entry) -> Head {
        Head::of(unique, &entry.layout())
    }

    /// Returns the reply with attributes that may be cached so long.
    #[must_use]
    pub fn attributes(unique: u64, attributes: &Attributes, cached: Duration) -> Head {
        Head::of(
            unique,
            &AttrOut {
                attr_valid: cached.as_secs().into(),
                attr_valid_ns: cached.subsec_nanos().into(),
                padding: 0.into(),
                attr: attributes.layout(),
            },
        )
    }

    /// Returns the reply to an open.
    #[must_use]
    pub fn opened(unique: u64, opened: Opened) -> Head {
        Head::of(unique, &opened.layout())
    }

    /// Returns the reply that names a node which was made and opened.
    #[must_use]
    pub fn created(unique: u64, entry: &Entry, opened: Opened) -> Head {
        let mut both = [0; size_of::<EntryOut>() + size_of::<OpenOut>()];
        both[..size_of::<EntryOut>()].copy_from_slice(entry.layout().as_bytes());
        both[size_of::<EntryOut>()..].copy_from_slice(opened.layout().as_bytes());
        Head::of(unique, &both)
    }

    /// Returns the reply with the sizes of the file system.
    #[must_use]
    pub fn sizes(unique: u64, sizes: &Sizes) -> Head {
        Head::of(
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

    /// Returns the reply with this body.
    pub(super) fn of(unique: u64, body: &(impl IntoBytes + Immutable)) -> Head {
        Head::build(unique, 0, body, 0)
    }

    fn build(unique: u64, error: i32, body: &(impl IntoBytes + Immutable), behind: usize) -> Head {
        let body = body.as_bytes();
        let start = size_of::<OutHeader>();
        let len = start + body.len();
        let mut head = Head { bytes: [0; HEAD_BYTES_MAX], len };
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

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Head({:02x?})", self.bytes())
    }
}

/// The attributes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Number of the inode, which is the node's.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space in blocks of 512 bytes.
    pub blocks: u64,
    /// Time of the last access.
    pub atime: Time,
    /// Time of the last change of contents.
    pub mtime: Time,
    /// Time of the last change of attributes.
    pub ctime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of the device that the node is.
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

/// A node that a name stands for. The kernel has one more reference to it afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The generation: together with the inode's number, a name for ever.
    pub generation: u64,
    /// The attributes.
    pub attributes: Attributes,
    /// Time for which the name may be cached.
    pub name_cached: Duration,
    /// Time for which the attributes may be cached.
    pub attributes_cached: Duration,
}

impl Entry {
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
pub fn no_such_name(unique: u64, cached: Duration) -> Head {
    Head::entry(unique, &Entry { name_cached: cached, ..Entry::default() })
}

/// An opened file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The handle.
    pub handle: u64,
    /// Flags for the kernel's use of it, of [`wire::fuse::open_flag`].
    pub flags: u32,
}

impl Opened {
    fn layout(self) -> OpenOut {
        OpenOut { handle: self.handle.into(), open_flags: self.flags.into(), padding: 0.into() }
    }
}

/// The sizes of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub free: u64,
    /// Number of files that there can be.
    pub files: u64,
    /// Number of further files.
    pub files_free: u64,
}

/// The reply to a reading of a directory, written into memory with room for what was asked for.
#[derive(Debug)]
pub struct Listing<'a> {
    bytes: &'a mut [u8],
    /// `len ≤ bytes.len()`.
    len: usize,
}

/// An entry's place in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<'a> {
    /// Number of the inode.
    pub ino: u64,
    /// The cookie from which to go on behind the entry.
    pub next: u64,
    /// The type and permissions of the inode; the type is used.
    pub mode: u32,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> Listing<'a> {
    /// Returns an empty listing.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Listing { bytes, len: 0 }
    }

    /// Adds an entry without attributes, or with those of `entry`. Returns `false` if there is no
    /// room for it.
    pub fn add(&mut self, place: &Span<'_>, entry: Option<&Entry>) -> bool {
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

    /// Returns the number of bytes that were written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Returns the notification that the attributes of an inode, and the cached pages of its bytes from
/// `offset` on, are not valid any more.
#[must_use]
pub fn inode_changed(ino: u64, offset: i64, bytes: i64) -> Head {
    let body = InvalInodeOut { node: ino.into(), offset: offset.into(), length: bytes.into() };
    Head::build(0, NOTIFY_INVAL_INODE, &body, 0)
}
