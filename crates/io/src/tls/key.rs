//! The traffic key of one direction of a TLS connection, which seals (encrypts) or opens (decrypts)
//! records in place.

use contract::TlsFailure;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, MAX_TAG_LEN, Nonce,
    UnboundKey,
};
use rustls::ConnectionTrafficSecrets;

/// Bytes before the content of a record: its type, version and length.
pub(super) const HEADER: usize = 5;

/// Bytes of a record's authentication tag, behind its content.
pub(super) const TAG: usize = MAX_TAG_LEN;

/// Maximum number of bytes of a record's content.
pub(super) const CONTENT_MAX: usize = 1 << 14;

/// Maximum number of bytes behind a record's header.
const SEALED_MAX: usize = CONTENT_MAX + 256;

/// Maximum number of bytes of a whole record.
pub(super) const RECORD_MAX: usize = HEADER + SEALED_MAX;

/// The visible type of every record after the handshake.
const APPLICATION_DATA: u8 = 23;

/// The content type of a TLS record, which is encrypted together with the record's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ContentType {
    Alert = 21,
    Handshake = 22,
    Data = APPLICATION_DATA,
}

/// Maximum number of records that one key seals. For AES-GCM, RFC 8446, section 5.5, allows 2^24.5
/// of full size.
const RECORDS_MAX: u64 = 1 << 23;

/// The traffic key of one direction of a TLS connection, and the sequence number of the next
/// record.
pub(super) struct TrafficKey {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    /// Number of records after which the key is replaced.
    pub(super) records_max: u64,
}

impl TrafficKey {
    /// Returns the key for these secrets; its next record has the number `sequence`.
    pub(super) fn new(
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
    ) -> Result<TrafficKey, TlsFailure> {
        use ConnectionTrafficSecrets as Secrets;
        let (algorithm, key, iv): (&'static Algorithm, _, _) = match secrets {
            Secrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            Secrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            Secrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(TlsFailure::Internal),
        };
        let iv = iv.as_ref().try_into().map_err(|_| TlsFailure::Internal)?;
        TrafficKey::of(algorithm, key.as_ref(), iv, sequence)
    }

    /// Returns the key of these bytes; its next record has the number `sequence`.
    pub(super) fn of(
        algorithm: &'static Algorithm,
        key: &[u8],
        iv: [u8; 12],
        sequence: u64,
    ) -> Result<TrafficKey, TlsFailure> {
        let unbound = UnboundKey::new(algorithm, key).map_err(|_| TlsFailure::Internal)?;
        Ok(TrafficKey { key: LessSafeKey::new(unbound), iv, sequence, records_max: RECORDS_MAX })
    }

    /// Returns whether the key has sealed its maximum of records.
    pub(super) fn is_used_up(&self) -> bool {
        self.sequence >= self.records_max
    }

    /// Returns the nonce of the next record, and counts the record.
    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        let number = self.sequence.to_be_bytes();
        nonce[4..].iter_mut().zip(number).for_each(|(byte, of_number)| *byte ^= of_number);
        self.sequence += 1; // 2^64 records take longer than any machine lives
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals a record in place: its `content` bytes lie in `record` behind the room for a header.
    /// Returns the length of the whole record.
    ///
    /// # Panics
    /// Panics if `record` has no room for a type and a tag behind the content.
    pub(super) fn seal(
        &mut self,
        record: &mut [u8],
        content: usize,
        kind: ContentType,
    ) -> Result<usize, TlsFailure> {
        let sealed = content + 1 + TAG;
        let header = header_of(sealed);
        record[..HEADER].copy_from_slice(&header);
        let end = HEADER + content + 1;
        record[end - 1] = kind as u8;
        let (inside, proof) = record[HEADER..HEADER + sealed].split_at_mut(content + 1);
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), inside);
        proof.copy_from_slice(tag.map_err(|_| TlsFailure::Internal)?.as_ref());
        Ok(HEADER + sealed)
    }

    /// Opens the record that begins at `at` and ends with `bytes`. Its content is moved to the
    /// start of `bytes`; returns its length and type.
    pub(super) fn open(
        &mut self,
        bytes: &mut [u8],
        at: usize,
    ) -> Result<(usize, ContentType), TlsFailure> {
        let header: [u8; HEADER] =
            bytes[at..at + HEADER].try_into().map_err(|_| TlsFailure::BadRecord)?;
        let nonce = self.nonce();
        let opened = self.key.open_within(nonce, Aad::from(header), bytes, at + HEADER..);
        let inside = opened.map_err(|_| TlsFailure::BadRecord)?;
        // Zeroes may follow the type.
        let last = inside.iter().rposition(|byte| *byte != 0).ok_or(TlsFailure::Misbehaved)?;
        let content = match inside[last] {
            21 => ContentType::Alert,
            22 => ContentType::Handshake,
            APPLICATION_DATA => ContentType::Data,
            _ => return Err(TlsFailure::Misbehaved),
        };
        if last > CONTENT_MAX {
            return Err(TlsFailure::Misbehaved);
        }
        Ok((last, content))
    }
}

/// Returns the header of a TLS record whose encrypted body has `sealed` bytes.
fn header_of(sealed: usize) -> [u8; HEADER] {
    let [high, low] = (sealed as u16).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

/// Returns the length in bytes of the record that begins with `bytes`. If `bytes` is shorter than a
/// header, returns the header's length.
///
/// # Errors
/// Fails if no record begins so.
pub(super) fn record_bytes(bytes: &[u8]) -> Result<usize, TlsFailure> {
    let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEADER>() else { return Ok(HEADER) };
    let sealed = usize::from(u16::from_be_bytes([high, low]));
    let is_record = kind == APPLICATION_DATA && (1 + TAG..=SEALED_MAX).contains(&sealed);
    if is_record { Ok(HEADER + sealed) } else { Err(TlsFailure::BadRecord) }
}
