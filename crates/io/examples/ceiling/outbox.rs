//! The replies of one connection: headers of its own, and a body that all replies share.

// UNSAFETY: the system's message header is made of pointers.

use crate::yardstick::{HEAD_BYTES, Head, Op};

/// Maximum number of replies in one send. Each reply takes two pieces, of at most 1 024 in a call.
const REPLIES_MAX: usize = 512;

/// The replies that a connection has to send. During a send their headers do not move.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Headers of replies that no send has begun.
    pub(crate) ready: Vec<Head>,
    /// Headers of the replies in the present send.
    flying: Vec<Head>,
    /// Bytes of the replies in `flying`, bodies included, that were sent.
    left: usize,
    /// The pieces of the present send.
    pieces: Vec<libc::iovec>,
    /// The header of `sendmsg`. Its address stays, as io_uring may read it after the call.
    message: Option<Box<libc::msghdr>>,
}

impl Outbox {
    /// Returns whether all replies were sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.flying.is_empty()
    }

    /// Returns the message of the next send: all ready replies, but at most `cap` bytes (and at
    /// least one reply). Its pieces are valid until the next call.
    pub(crate) fn lay_out(&mut self, op: Op, body: &[u8], cap: usize) -> &mut libc::msghdr {
        if self.flying.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.flying);
            if op == Op::Write {
                self.flying.iter_mut().for_each(|head| head[20..24].fill(0));
            }
        }
        let reply_bytes = HEAD_BYTES + body.len();
        let first = self.left / reply_bytes;
        let mut skip = self.left % reply_bytes;
        let count = (cap / reply_bytes).clamp(1, REPLIES_MAX);
        self.pieces.clear();
        for head in self.flying.iter().skip(first).take(count) {
            for part in [&head[..], body] {
                let skipped = skip.min(part.len());
                skip -= skipped;
                if part.len() > skipped {
                    self.pieces.push(piece(&part[skipped..]));
                }
            }
        }
        // SAFETY: all zeroes is a valid message header: null pointers with zero lengths.
        let message = self.message.get_or_insert_with(|| Box::new(unsafe { std::mem::zeroed() }));
        message.msg_iov = self.pieces.as_mut_ptr();
        message.msg_iovlen = self.pieces.len();
        message
    }

    /// Notes that the kernel has taken `bytes` more bytes of the message that was laid out.
    pub(crate) fn sent(&mut self, bytes: usize, body: &[u8]) {
        self.left += bytes;
        if self.left == self.flying.len() * (HEAD_BYTES + body.len()) {
            self.flying.clear();
            self.left = 0;
        }
    }
}

fn piece(part: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yardstick::head;

    /// Returns the bytes that a send of this message would take from memory.
    fn bytes_of(message: &libc::msghdr) -> Vec<u8> {
        let mut bytes = Vec::new();
        for place in 0..message.msg_iovlen {
            // SAFETY: the outbox has laid out that many pieces, and each lies in its headers or in
            // the body, which both live.
            bytes.extend_from_slice(unsafe {
                let piece = *message.msg_iov.add(place);
                std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
            });
        }
        bytes
    }

    #[test]
    fn replies_leave_whole_however_little_a_send_takes() {
        for (op, body) in [(Op::Read, vec![7; 40]), (Op::Write, Vec::new())] {
            let heads: Vec<Head> = (1..=9).map(|n| head(op, n, n, 5)).collect();
            let mut expected = Vec::new();
            for (n, head) in (1..).zip(&heads) {
                let whole = crate::yardstick::head(op, n, n, if op == Op::Read { 5 } else { 0 });
                assert_eq!(head[..20], whole[..20]);
                expected.extend_from_slice(&whole);
                expected.extend_from_slice(&body);
            }
            for takes in [1, 23, 24, 25, 64, 65, 1000] {
                for cap in [1, 150, usize::MAX] {
                    let mut outbox = Outbox { ready: heads[..4].to_vec(), ..Outbox::default() };
                    let mut sent = Vec::new();
                    let mut late = heads[4..].to_vec();
                    while !outbox.is_empty() {
                        let mut bytes = bytes_of(outbox.lay_out(op, &body, cap));
                        bytes.truncate(takes);
                        outbox.sent(bytes.len(), &body);
                        sent.extend(bytes);
                        outbox.ready.append(&mut late);
                    }
                    assert_eq!(sent, expected, "{op:?}, {takes} bytes a send, cap {cap}");
                }
            }
        }
    }
}
