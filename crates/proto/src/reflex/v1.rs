//! Version 1 of protocol `reflex`, both ends: the meaning of a [`MessageHead`]. The version has no
//! status, so every request that cannot be answered ends the connection.

use contract::{
    BLOCK_BYTES, Command, FrameHead, ProtocolError, Range, Reply, Request, Status, Tag,
};
use wire::reflex_v1::{MAGIC, MessageHead, Opcode};
use zerocopy::IntoBytes;

use super::REQUEST_BLOCKS_MAX;

/// Decodes the head of a client's request at the server.
pub(super) fn request(head: &MessageHead) -> Result<Request, ProtocolError> {
    check_magic(head)?;
    let range = Range::new(head.lba.get(), head.lba_count.get());
    let command = match head.opcode {
        Opcode::GET => Command::Read(range),
        Opcode::SET => Command::Write { range, fua: false },
        Opcode(opcode) => return Err(ProtocolError::BadOpcode(opcode.get())),
    };
    check_length(head)?;
    Ok(Request::plain(head.handle.get(), command))
}

/// Encodes the head of the server's reply; a read's data follows.
pub(super) fn reply(reply: &Reply, body: &[u8]) -> Result<FrameHead, ProtocolError> {
    let Reply::Done { tag, command, status } = *reply else {
        return Err(ProtocolError::Unanswerable(Status::Unsupported));
    };
    if !status.is_ok() {
        return Err(ProtocolError::Unanswerable(status));
    }
    let (opcode, range, lba_count) = match command {
        Command::Read(range) => (Opcode::GET, range, range.blocks),
        Command::Write { range, .. } => (Opcode::SET, range, 0),
        _ => return Err(ProtocolError::Unanswerable(Status::Unsupported)),
    };
    assert!(body.len() == lba_count as usize * BLOCK_BYTES, "the body of a read is its range");
    Ok(head(opcode, tag, range.lba, lba_count))
}

/// Encodes the head of a client's request; a write's data follows. Version 1 wants handles that are
/// not zero, so the handle is the tag plus one.
pub(super) fn encode_request(tag: Tag, command: Command) -> Result<FrameHead, Status> {
    let (opcode, range) = match command {
        Command::Read(range) => (Opcode::GET, range),
        Command::Write { range, fua: false } => (Opcode::SET, range),
        _ => return Err(Status::Unsupported),
    };
    let handle = tag.checked_add(1).ok_or(Status::Invalid)?;
    Ok(head(opcode, handle, range.lba, range.blocks))
}

/// Decodes a server's head at the client. Returns the request's tag, and the number of bytes of
/// data that follow.
pub(super) fn decode_reply(head: &MessageHead) -> Result<(Tag, usize), ProtocolError> {
    check_magic(head)?;
    let body_bytes = match head.opcode {
        Opcode::GET => check_length(head)?,
        Opcode::SET if head.lba_count.get() == 0 => 0,
        Opcode::SET => return Err(ProtocolError::BadLength(u64::from(head.lba_count.get()))),
        Opcode(opcode) => return Err(ProtocolError::BadOpcode(opcode.get())),
    };
    let tag = head.handle.get().checked_sub(1).ok_or(ProtocolError::UnknownTag(0))?;
    Ok((tag, body_bytes))
}

fn check_magic(head: &MessageHead) -> Result<(), ProtocolError> {
    match head.magic.get() {
        MAGIC => Ok(()),
        other => Err(ProtocolError::BadMagic(other)),
    }
}

/// Checks the length of the head's range, and returns the length in bytes.
fn check_length(head: &MessageHead) -> Result<usize, ProtocolError> {
    let blocks = head.lba_count.get();
    match blocks {
        1..=REQUEST_BLOCKS_MAX => Ok(blocks as usize * BLOCK_BYTES),
        _ => Err(ProtocolError::BadLength(u64::from(blocks) * BLOCK_BYTES as u64)),
    }
}

fn head(opcode: Opcode, handle: u64, lba: u64, lba_count: u32) -> FrameHead {
    let head = MessageHead {
        magic: MAGIC.into(),
        opcode,
        handle: handle.into(),
        lba: lba.into(),
        lba_count: lba_count.into(),
    };
    FrameHead::new(head.as_bytes())
}
