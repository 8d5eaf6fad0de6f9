//! The vector of a send operation: pieces of memory that make up several frames.

use contract::{Frame, TlsFailure};

use crate::message::{EMPTY_HEADER, EMPTY_PIECE};
use crate::tls::{SealedRecords, TlsState};

/// Maximum number of frames in one send.
pub(crate) const FRAMES_MAX: usize = 64;

/// Maximum number of bytes in one send, unless a single frame is larger. More bytes gain nothing in
/// the kernel, and the peer can start on the first ones.
pub(crate) const SEND_BYTES: usize = 256 << 10;

/// Bodies up to this size are copied behind their head: cheaper than a vector entry of their own.
const COPY_BYTES: usize = 512;

/// Maximum number of pieces (elements of the vector) in one send.
const PIECES_MAX: usize = 2 * FRAMES_MAX + 1;

/// Bytes of the stage, into which the heads of all frames of a send and small bodies are copied.
const STAGE_BYTES: usize = 16 << 10;

/// The vector of one send. Heads and tails are copied together, so that frames without bodies are
/// one piece. Bodies are sent from where they are.
pub(crate) struct SendBlock {
    pub(crate) header: libc::msghdr,
    /// `pieces[..count]` is the vector; [`PIECES_MAX`] suffice for a head and a body each, as a
    /// tail is one piece with the next head, and the last tail.
    pieces: [libc::iovec; PIECES_MAX],
    count: usize,
    stage: [u8; STAGE_BYTES],
    /// Bytes of the stage that are in use: `staged ≤ STAGE_BYTES`.
    staged: usize,
    /// `true` if the last piece of the vector points to the end of the stage, so that the next
    /// frame's head may extend this piece.
    open: bool,
    /// Total bytes of the pieces.
    pub(crate) bytes: usize,
    /// Number of frames in the vector.
    pub(crate) frames: usize,
    /// The sealed records of a TLS send, kept once the vector has been used for TLS.
    sealed: Option<Box<SealedRecords>>,
    /// `true` if the vector consists of the sealed records.
    is_sealed: bool,
}

impl SendBlock {
    pub(crate) fn new() -> Box<SendBlock> {
        Box::new(SendBlock {
            header: EMPTY_HEADER,
            pieces: [EMPTY_PIECE; PIECES_MAX],
            count: 0,
            stage: [0; STAGE_BYTES],
            staged: 0,
            open: false,
            bytes: 0,
            frames: 0,
            sealed: None,
            is_sealed: false,
        })
    }

    pub(crate) fn clear(&mut self) {
        (self.count, self.staged, self.open, self.bytes, self.frames) = (0, 0, false, 0, 0);
        self.is_sealed = false;
    }

    /// Appends the frame and returns `true`, or returns `false` if it does not fit into the send.
    /// The frame's body must stay in place until the send has ended.
    #[inline]
    pub(crate) fn append(&mut self, frame: &Frame) -> bool {
        self.append_rest(frame, 0)
    }

    /// Appends the unsent bytes of a frame, of which the first `gone` bytes were sent already, as
    /// [`append`](SendBlock::append) does.
    #[inline(always)]
    pub(crate) fn append_rest(&mut self, frame: &Frame, gone: usize) -> bool {
        let (head, body, tail) = (frame.head.bytes(), frame.body(), frame.head.tail());
        let of_head = gone.min(head.len());
        let of_body = (gone - of_head).min(body.len());
        let (head, body) = (&head[of_head..], &body[of_body..]);
        let tail = &tail[gone - of_head - of_body..];
        let copied = if body.len() <= COPY_BYTES { body.len() } else { 0 };
        let bytes = head.len() + body.len() + tail.len();
        let full = self.frames == FRAMES_MAX
            || self.staged + head.len() + copied + tail.len() > STAGE_BYTES
            || (self.frames > 0 && self.bytes + bytes > SEND_BYTES);
        if full {
            return false;
        }
        self.stage(head);
        self.stage(&body[..copied]);
        if copied < body.len() {
            self.piece(body.as_ptr(), body.len());
            self.open = false;
        }
        self.stage(tail);
        self.frames += 1;
        true
    }

    /// Fills the vector with queued frames as sealed TLS records, as many as fit into one send.
    ///
    /// # Errors
    /// Fails if a frame cannot be sealed; the connection must end then.
    pub(crate) fn seal<'a>(
        &mut self,
        secured: &mut TlsState,
        frames: impl Iterator<Item = &'a Frame>,
    ) -> Result<(), TlsFailure> {
        let sealed = self.sealed.get_or_insert_with(SealedRecords::new);
        sealed.seal(secured, frames)?;
        let (start, len) = (sealed.bytes().as_ptr(), sealed.len);
        (self.frames, self.is_sealed) = (sealed.frames, true);
        self.piece(start, len);
        Ok(())
    }

    /// Returns the number of bytes of unencrypted frames that the vector carries, without the
    /// overhead of TLS records.
    pub(crate) fn plain(&self) -> usize {
        match &self.sealed {
            Some(sealed) if self.is_sealed => sealed.plain,
            _ => self.bytes,
        }
    }

    fn stage(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let place = &mut self.stage[self.staged..self.staged + bytes.len()];
        place.copy_from_slice(bytes);
        self.staged += bytes.len();
        if self.open {
            self.pieces[self.count - 1].iov_len += bytes.len();
            self.bytes += bytes.len();
        } else {
            let start = place.as_ptr();
            self.piece(start, bytes.len());
            self.open = true;
        }
    }

    fn piece(&mut self, start: *const u8, len: usize) {
        self.pieces[self.count] = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: len };
        self.count += 1;
        self.bytes += len;
    }

    /// Returns the sealed records; empty if the vector has none.
    pub(crate) fn sealed_bytes(&self) -> &[u8] {
        match &self.sealed {
            Some(sealed) if self.is_sealed => sealed.bytes(),
            _ => &[],
        }
    }

    /// Returns the vector, ready to be sent.
    pub(crate) fn pieces(&self) -> &[libc::iovec] {
        &self.pieces[..self.count]
    }

    /// Returns the header for `sendmsg`, which points to the vector.
    pub(crate) fn message(&mut self) -> *const libc::msghdr {
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.count as _;
        &raw const self.header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Buf, FrameHead};

    fn frame(body_len: usize) -> Frame {
        let body =
            (body_len > 0).then(|| Buf::new(Box::leak(vec![0; body_len].into_boxed_slice()), 0));
        Frame { head: FrameHead::new(&[1; 24]), body, body_len }
    }

    #[test]
    fn heads_and_small_bodies_leave_as_one_piece() {
        let mut block = SendBlock::new();
        let frames = [frame(0), frame(100), frame(0)];
        assert!(frames.iter().all(|f| block.append(f)));
        assert_eq!(block.pieces().len(), 1);
        assert_eq!(block.bytes, 3 * 24 + 100);
    }

    #[test]
    fn a_large_body_is_a_piece_of_its_own() {
        let mut block = SendBlock::new();
        let frames = [frame(4096), frame(4096)];
        assert!(frames.iter().all(|f| block.append(f)));
        let lengths: Vec<usize> = block.pieces().iter().map(|p| p.iov_len).collect();
        assert_eq!(lengths, [24, 4096, 24, 4096]);
    }

    #[test]
    fn the_rest_of_a_frame_starts_where_it_was_cut() {
        for (gone, lengths) in [(0, vec![24, 4096]), (20, vec![4, 4096]), (24, vec![4096])] {
            let mut block = SendBlock::new();
            assert!(block.append_rest(&frame(4096), gone));
            let found: Vec<usize> = block.pieces().iter().map(|p| p.iov_len).collect();
            assert_eq!(found, lengths);
        }
        let mut block = SendBlock::new();
        assert!(block.append_rest(&frame(4096), 4000));
        assert_eq!(block.bytes, 120, "what is left is small enough to copy");
    }

    #[test]
    fn a_tail_follows_its_body_and_joins_the_next_head() {
        let tailed = |body_len: usize| {
            let head = FrameHead::with_tail(&[1; 24], &[2; 28]);
            Frame { head, ..frame(body_len) }
        };
        let lengths = |gone: usize| -> Vec<usize> {
            let mut block = SendBlock::new();
            assert!(block.append_rest(&tailed(4096), gone) && block.append(&tailed(100)));
            block.pieces().iter().map(|p| p.iov_len).collect()
        };
        assert_eq!(lengths(0), [24, 4096, 28 + 24 + 100 + 28]);
        assert_eq!(lengths(24 + 4000), [96 + 28 + 24 + 100 + 28]);
        assert_eq!(lengths(24 + 4096 + 20), [8 + 24 + 100 + 28]);
        let mut block = SendBlock::new();
        let large = tailed(513);
        assert_eq!((0..100).filter(|_| block.append(&large)).count(), FRAMES_MAX);
        assert_eq!(block.pieces().len(), PIECES_MAX);
    }

    #[test]
    fn a_send_is_bounded_but_takes_one_frame_of_any_size() {
        let mut block = SendBlock::new();
        let huge = frame(1 << 20);
        assert!(block.append(&huge));
        assert!(!block.append(&frame(0)));
        block.clear();
        let bare = frame(0);
        assert_eq!((0..100).filter(|_| block.append(&bare)).count(), FRAMES_MAX);
    }
}
