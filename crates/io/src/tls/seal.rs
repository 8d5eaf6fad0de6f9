//! The sealing of queued frames: they are copied together into records, which are sealed in place
//! and sent together.

use contract::{Frame, TlsFailure};

use super::key::{CONTENT_MAX, ContentType, HEADER, TAG};
use super::secured::TlsState;

/// Maximum number of full records in one send.
const RECORDS: usize = 4;

/// Bytes of a record beside its content: header, type and tag.
const OVERHEAD: usize = HEADER + 1 + TAG;

/// Bytes of a key update, as a record.
const UPDATE: usize = OVERHEAD + 5;

/// Maximum number of bytes of the records of one send.
const STAGE_BYTES: usize = RECORDS * (CONTENT_MAX + OVERHEAD) + UPDATE;

/// The sealed records of one send.
pub(crate) struct SealedRecords {
    bytes: Box<[u8]>,
    /// Length in bytes of all sealed records together.
    pub(crate) len: usize,
    /// Bytes of frames in the records.
    pub(crate) plain: usize,
    /// Number of frames that end in the records.
    pub(crate) frames: usize,
}

impl SealedRecords {
    pub(crate) fn new() -> Box<SealedRecords> {
        let bytes = vec![0; STAGE_BYTES].into_boxed_slice();
        Box::new(SealedRecords { bytes, len: 0, plain: 0, frames: 0 })
    }

    /// Returns the sealed records.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Seals queued frames into records, as many as fit into one send. The rest of a frame that
    /// does not fit comes with the next send.
    ///
    /// # Errors
    /// Fails if sealing fails; the connection must end then.
    pub(crate) fn seal<'a>(
        &mut self,
        secured: &mut TlsState,
        frames: impl Iterator<Item = &'a Frame>,
    ) -> Result<(), TlsFailure> {
        (self.len, self.plain, self.frames) = (0, 0, 0);
        if secured.owes_update || secured.sending.is_used_up() {
            self.len = secured.update(&mut self.bytes)?;
        }
        let mut content = 0; // of the record that begins at `len`
        'frames: for frame in frames {
            let mut skip = secured.gone;
            for piece in [frame.head.bytes(), frame.body(), frame.head.tail()] {
                let skipped = skip.min(piece.len());
                skip -= skipped;
                let mut rest = &piece[skipped..];
                while !rest.is_empty() {
                    if content == CONTENT_MAX {
                        self.end_record(secured, &mut content)?;
                    }
                    if self.len + OVERHEAD + CONTENT_MAX > self.bytes.len() {
                        break 'frames;
                    }
                    let (now, later) = rest.split_at(rest.len().min(CONTENT_MAX - content));
                    let start = self.len + HEADER + content;
                    self.bytes[start..start + now.len()].copy_from_slice(now);
                    content += now.len();
                    secured.gone += now.len();
                    self.plain += now.len();
                    rest = later;
                }
            }
            secured.gone = 0;
            self.frames += 1;
        }
        self.end_record(secured, &mut content)
    }

    /// Seals the record with the `content` bytes that were copied last, if there are any.
    fn end_record(
        &mut self,
        secured: &mut TlsState,
        content: &mut usize,
    ) -> Result<(), TlsFailure> {
        if *content > 0 {
            let record = &mut self.bytes[self.len..];
            self.len += secured.sending.seal(record, std::mem::take(content), ContentType::Data)?;
        }
        Ok(())
    }
}

impl TlsState {
    /// Returns the closing alert as a record, which tells the peer that no more is sent; `None` if
    /// it cannot be sealed.
    pub(crate) fn farewell(&mut self) -> Option<[u8; OVERHEAD + 2]> {
        let mut record = [0; OVERHEAD + 2];
        record[HEADER] = 1; // a warning: close_notify
        self.sending.seal(&mut record, 2, ContentType::Alert).ok().map(|_| record)
    }
}
