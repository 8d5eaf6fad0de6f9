//! The program's end of the kernel's interface for file systems (FUSE, versions 7.31 and later):
//! requests parsed, replies written, and the agreement on version and capabilities.
//!
//! Each request is one message of the kernel, and each reply one message to it. So no state is kept
//! except the agreement, and no message comes in parts.
//!
//! Deliberately left out: the device file, what the operations do, locks (the kernel keeps them),
//! and requests of file systems that asked for more than [`Agreement`] does.

mod agreement;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use agreement::{Agreement, BACKGROUND_MAX, PAGES_MAX, WRITE_BYTES_MAX};
pub use reply::{
    Attributes, FileSystemSizes, Listing, ListingEntry, NodeEntry, OpenReply, ReplyMessage,
    inode_changed, no_such_name,
};
pub use request::{
    AttributeChanges, Caller, ForgottenNodes, HEAD_BYTES, MalformedRequest, NAME_BYTES_MAX,
    Operation, Request, SessionProposal, Time, TimeStampUpdate, is_write, parse,
};
