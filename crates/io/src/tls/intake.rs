//! The opening of received bytes: whole records in the receive buffer itself, a record that came in
//! pieces in a buffer of its own.

use contract::{Buf, TlsFailure};

use super::key::{RECORD_MAX, record_bytes};
use super::secured::{RecordContent, TlsState};

/// The number of all buffers for records that come in pieces. Receive buffers have lower numbers.
pub(crate) const RECORD_BUFFERS_FROM: u32 = 1 << 30;

/// Buffers for records that come in pieces. More are allocated when more connections than ever
/// before have an incomplete record, at most one for each connection and one for each receive
/// buffer: while one is lent to a session, the receive buffer with the record's end is not used.
#[derive(Default)]
pub(crate) struct RecordBuffers {
    free: Vec<Buf>,
    /// Receive buffers that are held back in exchange for lent ones.
    held: Vec<Buf>,
    made: u32,
}

impl RecordBuffers {
    fn take(&mut self) -> Buf {
        self.free.pop().unwrap_or_else(|| {
            let bytes = Box::leak(vec![0; RECORD_MAX].into_boxed_slice());
            self.made += 1;
            self.free.reserve(self.made as usize);
            Buf::new(bytes, RECORD_BUFFERS_FROM)
        })
    }

    /// Takes back a lent buffer. Returns a receive buffer that was held back for it, if there is
    /// one.
    pub(crate) fn give(&mut self, buf: Buf) -> Option<Buf> {
        self.put(buf);
        self.held.pop()
    }

    /// Takes back a buffer that was not lent.
    pub(crate) fn put(&mut self, buf: Buf) {
        self.free.push(buf);
    }
}

/// The outcome of opening (decrypting) the records in a receive buffer.
#[derive(Debug, Default)]
pub(crate) struct DecryptOutcome {
    /// Data of a record that came in pieces: a buffer, and its length. It comes before `opened`.
    pub(crate) joined: Option<(Buf, usize)>,
    /// The receive buffer with the data of whole records, and its length.
    pub(crate) opened: Option<(Buf, usize)>,
    /// The receive buffer, to be reused, if it holds no data for the session; `None` if it holds
    /// data or was exchanged for another buffer.
    pub(crate) spent: Option<Buf>,
    /// `true` if the peer sends no more data.
    pub(crate) is_closed: bool,
}

impl TlsState {
    /// Opens (decrypts) the records in the first `len` bytes of `buf`, and keeps the beginning of
    /// an incomplete one.
    ///
    /// # Errors
    /// Fails if the bytes are not records of the peer. The buffer comes back with the reason.
    pub(crate) fn take(
        &mut self,
        spares: &mut RecordBuffers,
        mut buf: Buf,
        len: usize,
    ) -> Result<DecryptOutcome, (Buf, TlsFailure)> {
        let mut taken = DecryptOutcome::default();
        match self.take_into(spares, buf.prefix_mut(len), &mut taken) {
            Ok(0) if taken.joined.is_some() => spares.held.push(buf),
            Ok(0) => taken.spent = Some(buf),
            Ok(opened) => taken.opened = Some((buf, opened)),
            Err(why) => {
                if let Some((joined, _)) = taken.joined {
                    spares.put(joined);
                }
                return Err((buf, why));
            }
        }
        Ok(taken)
    }

    /// Takes the buffer with the beginning of an incomplete record; `None` if there is none.
    pub(crate) fn drop_carry(&mut self) -> Option<Buf> {
        self.carried = 0;
        self.carry.take()
    }

    /// Opens the records in `bytes`. Returns the length of their data, which is moved to the start
    /// of `bytes`.
    fn take_into(
        &mut self,
        spares: &mut RecordBuffers,
        bytes: &mut [u8],
        taken: &mut DecryptOutcome,
    ) -> Result<usize, TlsFailure> {
        let mut at = 0;
        if self.carry.is_some() {
            at = self.fill(bytes)?;
            if at == 0 {
                return Ok(0); // all of it belongs to a record that is still not whole
            }
            self.join(spares, taken)?;
        }
        let mut out = 0;
        while !taken.is_closed {
            let length = record_bytes(&bytes[at..])?;
            if bytes.len() - at < length {
                self.keep(spares, &bytes[at..]);
                break;
            }
            match self.open(&mut bytes[out..at + length], at - out)? {
                RecordContent::Data(more) => out += more,
                RecordContent::Nothing => {}
                RecordContent::Closed => taken.is_closed = true,
            }
            at += length;
        }
        Ok(out)
    }

    /// Adds bytes to the incomplete record. Returns the number of bytes that complete it, or zero
    /// if all were added and it is still incomplete.
    fn fill(&mut self, bytes: &[u8]) -> Result<usize, TlsFailure> {
        let mut at = 0;
        let carry = self.carry.as_mut().expect("the caller looked");
        loop {
            let length = record_bytes(&carry.bytes()[..self.carried])?;
            let more = (length - self.carried).min(bytes.len() - at);
            if more == 0 {
                return Ok(if length == self.carried { at } else { 0 });
            }
            let room = &mut carry.prefix_mut(length)[self.carried..];
            room[..more].copy_from_slice(&bytes[at..at + more]);
            self.carried += more;
            at += more;
        }
    }

    /// Opens the record that came in pieces, and is whole now, into `taken`.
    fn join(
        &mut self,
        spares: &mut RecordBuffers,
        taken: &mut DecryptOutcome,
    ) -> Result<(), TlsFailure> {
        let mut carry = self.carry.take().expect("the caller looked");
        let length = std::mem::take(&mut self.carried);
        let opened = self.open(carry.prefix_mut(length), 0);
        match opened {
            Ok(RecordContent::Data(data)) => {
                taken.joined = Some((carry, data));
                return Ok(());
            }
            _ => spares.put(carry),
        }
        taken.is_closed = opened? == RecordContent::Closed;
        Ok(())
    }

    /// Copies `bytes`, the beginning of an incomplete record, into a spare buffer.
    fn keep(&mut self, spares: &mut RecordBuffers, bytes: &[u8]) {
        if !bytes.is_empty() {
            let mut carry = spares.take();
            carry.prefix_mut(bytes.len()).copy_from_slice(bytes);
            (self.carry, self.carried) = (Some(carry), bytes.len());
        }
    }
}
