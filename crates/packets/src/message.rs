//! Outgoing messages: the table keeps each message's frame until every piece is acknowledged and
//! the lane has released the body.

use contract::{Buf, Frame};

use crate::piece::PieceKind;
use crate::slab::{Linked, NONE};

/// A message between [`send`](crate::Endpoint::send) and the return of its buffer.
pub(crate) struct Message {
    pub frame: Frame,
    /// The index of the message's channel in the table of channels.
    pub channel: u32,
    /// The message's number in the channel, set when the first piece is cut off.
    pub number: u32,
    /// The distance from the message's number down to its floor: messages below the floor are
    /// delivered before the message.
    pub behind: u16,
    pub kind: PieceKind,
    pub strict: bool,
    /// `true` if the channel ended before the whole message was cut, so that the rest is not sent.
    pub is_dropped: bool,
    /// Number of bytes that were cut into pieces: `cut ≤ bytes`.
    pub cut: u32,
    pub bytes: u32,
    /// Number of pieces in flight or lost.
    pub pieces: u32,
    /// The number of packets at the lane that refer to the frame's buffer.
    pub loans: u16,
    pub next: u32,
}

impl Linked for Message {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// The location of a byte of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteLocation {
    /// In the head of the frame, at this offset.
    Head(usize),
    /// In the body of the frame, at this offset.
    Body(usize),
    /// In the tail of the frame, at this offset.
    Tail(usize),
}

impl Message {
    pub(crate) fn new(channel: u32, frame: Frame, kind: PieceKind, strict: bool) -> Message {
        let bytes = frame.wire_bytes() as u32;
        Message {
            frame,
            channel,
            number: 0,
            behind: 0,
            kind,
            strict,
            is_dropped: false,
            cut: 0,
            bytes,
            pieces: 0,
            loans: 0,
            next: NONE,
        }
    }

    /// Returns `true` if the whole message was cut into pieces. A message without bytes is cut into
    /// one empty piece.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut == self.bytes && (self.bytes > 0 || self.cut_once())
    }

    fn cut_once(&self) -> bool {
        self.next == CUT
    }

    /// Marks the message as cut to the end, and so as removed from its channel's queue.
    pub(crate) fn end_cut(&mut self) {
        self.next = CUT;
    }

    /// Returns `true` if the frame is not needed any more.
    pub(crate) fn is_over(&self) -> bool {
        let will_be_cut = !self.is_cut() && !self.is_dropped;
        !will_be_cut && self.pieces == 0 && self.loans == 0
    }

    /// Returns the location of the byte at `offset`, and the number of bytes from there to the end
    /// of the frame's head, body or tail.
    pub(crate) fn locate(&self, offset: u32) -> (ByteLocation, usize) {
        let (head, body) = (self.frame.head.bytes().len(), self.frame.body_len);
        let at = offset as usize;
        if at < head {
            (ByteLocation::Head(at), head - at)
        } else if at < head + body {
            (ByteLocation::Body(at - head), head + body - at)
        } else {
            (ByteLocation::Tail(at - head - body), self.bytes as usize - at)
        }
    }

    /// Returns `bytes` bytes of the message from the location `run` on.
    pub(crate) fn bytes_at(&self, run: ByteLocation, bytes: usize) -> &[u8] {
        match run {
            ByteLocation::Head(at) => &self.frame.head.bytes()[at..at + bytes],
            ByteLocation::Body(at) => &self.frame.body()[at..at + bytes],
            ByteLocation::Tail(at) => &self.frame.head.tail()[at..at + bytes],
        }
    }

    /// Returns the buffer of the frame's body; `None` if the frame has no body.
    pub(crate) fn into_body(self) -> Option<Buf> {
        self.frame.body
    }
}

/// The value of `next` in a message that was cut to the end and is in no queue any more.
const CUT: u32 = NONE - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use contract::FrameHead;
    use std::boxed::Box;
    use std::vec;
    use std::vec::Vec;

    fn message(head: &[u8], body: &[u8], tail: &[u8]) -> Message {
        let mut buf = Buf::new(Box::leak(vec![0; 16].into_boxed_slice()), 0);
        buf.prefix_mut(body.len()).copy_from_slice(body);
        let head = FrameHead::with_tail(head, tail);
        let frame = Frame { head, body: Some(buf), body_len: body.len() };
        Message::new(0, frame, PieceKind::Data, true)
    }

    #[test]
    fn bytes_are_found_in_head_body_and_tail() {
        for (head, body, tail) in
            [(&b"ab"[..], &b"cde"[..], &b"fg"[..]), (b"", b"abcdefg", b""), (b"abcd", b"", b"efg")]
        {
            let message = message(head, body, tail);
            for from in 0..7 {
                let mut read = Vec::new();
                while from + read.len() < 7 {
                    let (run, bytes) = message.locate((from + read.len()) as u32);
                    read.extend_from_slice(message.bytes_at(run, bytes));
                }
                assert_eq!(read, &b"abcdefg"[from..]);
            }
        }
    }

    #[test]
    fn a_message_is_over_when_all_have_let_go() {
        let mut message = message(b"head", b"", b"");
        assert!(!message.is_over(), "it was not cut");
        (message.cut, message.pieces, message.loans) = (4, 1, 1);
        message.end_cut();
        assert!(!message.is_over(), "a piece is in flight");
        message.pieces = 0;
        assert!(!message.is_over(), "the lane has the body");
        message.loans = 0;
        assert!(message.is_over());
    }
}
